"""CPUs in memory that programs beside the cluster's, or other virtual machines, use too: what tasks get of them, and
what their hosts report.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dfrs.live.drivers.base import TaskState

if TYPE_CHECKING:
    from dfrs.testing.in_memory.node import InMemoryNode

FAIR = 0.5
"""Tasks get this part of CPUs of which others want all."""


def share_cpus(nodes: Iterable["InMemoryNode"], seconds: float) -> None:
    """Set what running tasks of each node get while time passes, and count it. Nodes may have the same CPUs.

    Nodes whose `outside` is None have no such programs: each task gets what it wants.
    """
    groups: dict[tuple[str, tuple[int, ...]], list[InMemoryNode]] = {}
    for node in nodes:
        if node.outside is not None:
            groups.setdefault((node.host, node.cpu_numbers), []).append(node)
    for (_, numbers), group in groups.items():
        cpus, outside = float(len(numbers)), max(node.outside or 0.0 for node in group)
        wanted = [min(node.cpus, node.uses * _running(node)) for node in group]
        here = cpus - max(node.stolen for node in group)
        given = min(sum(wanted), max(here - outside, FAIR * here))
        busy = given + min(outside, here - given)
        stolen = min(cpus - here, sum(wanted) + outside - busy)
        for node, want in zip(group, wanted, strict=True):
            node.busy_s += busy * seconds
            node.steal_s += stolen * seconds
            _give(node, given * want / sum(wanted) if want else 0.0, seconds)


def _running(node: "InMemoryNode") -> int:
    return sum(task.state is TaskState.RUNNING for task in node.tasks.values())


def _give(node: "InMemoryNode", cores: float, seconds: float) -> None:
    count = _running(node)
    for task in node.tasks.values():
        if task.state is TaskState.RUNNING:
            task.gets = cores / count
            task.watched_s += seconds
            task.waiting_s += max(0.0, node.uses - task.gets) * seconds
            task.delayed_s += max(0.0, 1.0 - task.gets / node.uses) * seconds
