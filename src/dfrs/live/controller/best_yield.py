"""A bound on the minimum yield of the jobs on nodes, and what of it holds when some have gone, or nodes have more."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dfrs.model.decisions import CPU, Snapshot


@dataclass(frozen=True, slots=True)
class BestYield:
    """No placement gives each of these jobs more."""

    value: float
    needs: Mapping[int, float]
    """CPU that all tasks of each job need, by its number."""
    capacity: float
    """CPU of the nodes that may be used, in the same unit; see `usable_cpu`."""

    @classmethod
    def of(cls, snapshot: Snapshot, value: float) -> "BestYield":
        """The bound `value` on the jobs of `snapshot`."""
        jobs = snapshot.jobs
        needs = dict(zip(jobs["id"].tolist(), (jobs["need"] * jobs["tasks"]).tolist(), strict=True))
        return cls(value, needs, usable_cpu(snapshot))

    def of_those(self, present: Iterable[int], capacity: float) -> float:
        """The bound on the jobs `present` with so much CPU: others that came since can only make it less."""
        gone = self.needs.keys() - set(present)
        if not gone and capacity <= self.capacity:
            return self.value
        left = sum(self.needs.values()) - sum(self.needs[name] for name in gone)
        return max(self.value, 1.0 if left <= capacity else capacity / left)


def usable_cpu(snapshot: Snapshot) -> float:
    """CPU of all nodes that are open or have tasks."""
    counts = snapshot.open.copy()
    counts[snapshot.task_nodes[snapshot.task_nodes >= 0]] = True
    return float(snapshot.capacity[counts, CPU].sum())
