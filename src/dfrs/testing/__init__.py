"""For tests of your own policies and drivers: a cluster in memory, snapshots, checks, and what every driver must do.

`dfrs.testing.drivers` has the tests of drivers, for pytest; nothing else here needs it.
"""

from dfrs.testing.cluster import InMemoryCluster, abandon, end_now, make_controller, until
from dfrs.testing.in_memory import InMemoryHosts, InMemoryNode
from dfrs.testing.movers import InMemoryMover
from dfrs.testing.policies import SnapshotJob, build_snapshot, check_policy, check_target, random_workload
from dfrs.testing.virtual_disk import VirtualDisk
from dfrs.testing.virtual_loop import VirtualExecutor, VirtualLoop, run_virtually

__all__ = [
    "InMemoryCluster",
    "InMemoryHosts",
    "InMemoryMover",
    "InMemoryNode",
    "SnapshotJob",
    "VirtualDisk",
    "VirtualExecutor",
    "VirtualLoop",
    "abandon",
    "build_snapshot",
    "check_policy",
    "check_target",
    "end_now",
    "make_controller",
    "random_workload",
    "run_virtually",
    "until",
]
