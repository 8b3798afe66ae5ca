"""Dynamic Fractional Resource Scheduling: share a cluster in fractions, maximise the minimum yield.

>>> import dfrs
>>> instance = dfrs.generate_services(nodes=8, services=20, seed=1)
>>> outcome = dfrs.allocate(instance, "VP_CPSUM")
>>> 0 <= outcome.minimum_yield <= outcome.bound <= 1
True

A name loads what it needs when it is first used: `dfrs queue` or an agent are not to load compilers and solvers.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dfrs.api import (
        allocate,
        generate_machines,
        generate_services,
        generate_virtual_clusters,
        read_instance,
        read_run,
        read_workload,
        simulate,
    )
    from dfrs.bounds.stretch import stretch_bound
    from dfrs.live.async_client import AsyncClient
    from dfrs.live.client import Client
    from dfrs.live.errors import (
        ConflictError,
        DeniedError,
        JobFailedError,
        NotEndedError,
        NotFoundError,
        TooLargeError,
        TooManyError,
        UnavailableError,
        UnreachableError,
    )
    from dfrs.live.protocol.resources import Job, JobRequest, JobState
    from dfrs.model.allocation import Allocation, Outcome, Status
    from dfrs.model.decisions import Placement, Policy, Snapshot, Target, Traits
    from dfrs.model.errors import DfrsError, InfeasibleError, InputError
    from dfrs.model.instance import Instance
    from dfrs.model.jobs import Workload
    from dfrs.model.move_limits import MoveLimits
    from dfrs.model.resources import Kind, Resource
    from dfrs.model.rules import (
        Apart,
        Features,
        Headroom,
        Licensed,
        Maintenance,
        Never,
        Only,
        Requires,
        Rules,
        Spread,
        Sticky,
        Together,
    )
    from dfrs.model.run import Penalty, Run
    from dfrs.placement.bounds import lp_bound, upper_bound
    from dfrs.placement.budget import Budget
    from dfrs.placement.plan import Plan, make_plan
    from dfrs.placement.registry import Options
    from dfrs.rebalancing.solve import Rebalancing, rebalance
    from dfrs.runs.metrics.schedule import summarize
    from dfrs.version import __version__ as __version__
    from dfrs.workloads.clouds.load import read_cloud_trace

__all__ = [
    "Allocation",
    "Apart",
    "AsyncClient",
    "Budget",
    "Client",
    "ConflictError",
    "DeniedError",
    "DfrsError",
    "Features",
    "Headroom",
    "InfeasibleError",
    "InputError",
    "Instance",
    "Job",
    "JobFailedError",
    "JobRequest",
    "JobState",
    "Kind",
    "Licensed",
    "Maintenance",
    "MoveLimits",
    "Never",
    "NotEndedError",
    "NotFoundError",
    "Only",
    "Options",
    "Outcome",
    "Penalty",
    "Placement",
    "Plan",
    "Policy",
    "Rebalancing",
    "Requires",
    "Resource",
    "Rules",
    "Run",
    "Snapshot",
    "Spread",
    "Status",
    "Sticky",
    "Target",
    "Together",
    "TooLargeError",
    "TooManyError",
    "Traits",
    "UnavailableError",
    "UnreachableError",
    "Workload",
    "allocate",
    "generate_machines",
    "generate_services",
    "generate_virtual_clusters",
    "lp_bound",
    "make_plan",
    "read_cloud_trace",
    "read_instance",
    "read_run",
    "read_workload",
    "rebalance",
    "simulate",
    "stretch_bound",
    "summarize",
    "upper_bound",
]

_HOMES = {
    "dfrs.api": (
        "allocate",
        "generate_machines",
        "generate_services",
        "generate_virtual_clusters",
        "read_instance",
        "read_run",
        "read_workload",
        "simulate",
    ),
    "dfrs.bounds.stretch": ("stretch_bound",),
    "dfrs.live.async_client": ("AsyncClient",),
    "dfrs.live.client": ("Client",),
    "dfrs.live.errors": (
        "ConflictError",
        "DeniedError",
        "JobFailedError",
        "NotEndedError",
        "NotFoundError",
        "TooLargeError",
        "TooManyError",
        "UnavailableError",
        "UnreachableError",
    ),
    "dfrs.live.protocol.resources": ("Job", "JobRequest", "JobState"),
    "dfrs.placement.bounds": ("lp_bound", "upper_bound"),
    "dfrs.placement.budget": ("Budget",),
    "dfrs.placement.plan": ("Plan", "make_plan"),
    "dfrs.placement.registry": ("Options",),
    "dfrs.rebalancing.solve": ("Rebalancing", "rebalance"),
    "dfrs.runs.metrics.schedule": ("summarize",),
    "dfrs.model.allocation": ("Allocation", "Outcome", "Status"),
    "dfrs.model.decisions": ("Placement", "Policy", "Snapshot", "Target", "Traits"),
    "dfrs.model.errors": ("DfrsError", "InfeasibleError", "InputError"),
    "dfrs.model.instance": ("Instance",),
    "dfrs.model.jobs": ("Workload",),
    "dfrs.model.move_limits": ("MoveLimits",),
    "dfrs.model.resources": ("Kind", "Resource"),
    "dfrs.model.rules": (
        "Apart",
        "Features",
        "Headroom",
        "Licensed",
        "Maintenance",
        "Never",
        "Only",
        "Requires",
        "Rules",
        "Spread",
        "Sticky",
        "Together",
    ),
    "dfrs.model.run": ("Penalty", "Run"),
    "dfrs.version": ("__version__",),
    "dfrs.workloads.clouds.load": ("read_cloud_trace",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

# Hidden from type checkers, for which every name would exist otherwise.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """A public name, loaded now and kept."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            found = getattr(importlib.import_module(_HOME[name]), name)
        except ModuleNotFoundError as error:
            if not _HOME[name].startswith("dfrs.live."):
                raise
            line = f"dfrs.{name} needs {error.name}, which is not installed: pip install 'dfrs[live]'"
            raise ModuleNotFoundError(line, name=error.name) from None
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOME})
