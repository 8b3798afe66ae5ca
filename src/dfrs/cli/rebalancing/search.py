"""How `dfrs rebalance` seeks placements: within which budget, for how long, and how many moves at once."""

from collections.abc import Callable
from dataclasses import dataclass

from dfrs.cli.progress import progress
from dfrs.model.instance import Instance, Ints
from dfrs.model.move_limits import MoveLimits
from dfrs.placement.budget import Budget
from dfrs.rebalancing.solve import Rebalancing, rebalance
from dfrs.workloads.clusters.state import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What the command line says about the search; each call is a search, which makes it a `Solver` of watchers."""

    budget: Budget
    at_once: int | None
    """Most moves at once, and ..."""
    per_host: int | None
    """... at once from or to a host."""
    time_limit_s: float
    rounds: int | None
    """Instead of the time limit."""
    seed: int

    def __call__(
        self,
        instance: Instance,
        present: Ints,
        budget: Budget,
        /,
        on_improvement: Callable[[float], None] | None = None,
    ) -> Rebalancing:
        """The best that is found from `present` (T,), the host of each machine, within `budget`."""
        return rebalance(
            instance,
            present,
            budget=budget,
            limits=self._limits(instance),
            time_limit_s=self.time_limit_s,
            rounds=self.rounds,
            seed=self.seed,
            on_improvement=on_improvement,
        )

    def run(self, state: ClusterState) -> Rebalancing:
        """Search once from a snapshot, with a progress bar."""
        with progress(1) as (bar, task):
            bar.update(task, description="searching")
            return self(
                state.instance,
                state.present,
                self.budget,
                on_improvement=lambda value: bar.update(task, description=f"minimum yield {value:.4f}"),
            )

    def _limits(self, instance: Instance) -> MoveLimits:
        """The snapshot's own limits, or those of the command line."""
        if instance.move_limits is not None:
            return instance.move_limits
        known = instance.task_bytes is not None
        speed = self.budget.bandwidth_bytes_per_s if known else None
        return MoveLimits(at_once=self.at_once, per_node=self.per_host, bandwidth_bytes_per_s=speed)
