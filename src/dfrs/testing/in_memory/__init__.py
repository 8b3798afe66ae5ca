"""Nodes without processes: their agents do what `next_action` says, in memory, at once.

`InMemoryHosts` holds what is true of all nodes: which tasks run where. It fails the test the moment two attempts at a
task run at the same time, or one attempt is started a second time, on nodes that nobody gave up.
"""

from dfrs.testing.in_memory.agent_node import AgentNode
from dfrs.testing.in_memory.hosts import GIB, InMemoryHosts
from dfrs.testing.in_memory.node import InMemoryNode
from dfrs.testing.in_memory.tasks import InMemoryTask

__all__ = ["GIB", "AgentNode", "InMemoryHosts", "InMemoryNode", "InMemoryTask"]
