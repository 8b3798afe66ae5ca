"""Dynamic Fractional Resource Scheduling: share a cluster in fractions, look after the least happy job.

>>> import dfrs
>>> instance = dfrs.generate_services(nodes=8, services=20, seed=1)
>>> outcome = dfrs.allocate(instance, "VP_CPSUM")
>>> 0 <= outcome.minimum_yield <= outcome.bound <= 1
True
"""

from importlib.metadata import version

from dfrs.api import (
    allocate,
    generate_services,
    generate_virtual_clusters,
    read_instance,
    read_workload,
    simulate,
)
from dfrs.bounds.stretch import stretch_bound
from dfrs.bounds.yields import lp_bound, upper_bound
from dfrs.metrics.schedule import summarize
from dfrs.model.allocation import Allocation, Outcome, Status
from dfrs.model.decisions import Placement, Policy, Snapshot, Target
from dfrs.model.errors import DfrsError, InfeasibleError, InputError
from dfrs.model.instance import Instance
from dfrs.model.jobs import Workload
from dfrs.model.resources import Kind, Resource
from dfrs.model.run import Penalty, Run

__version__ = version("dfrs")

__all__ = [
    "Allocation",
    "DfrsError",
    "InfeasibleError",
    "InputError",
    "Instance",
    "Kind",
    "Outcome",
    "Penalty",
    "Placement",
    "Policy",
    "Resource",
    "Run",
    "Snapshot",
    "Status",
    "Target",
    "Workload",
    "allocate",
    "generate_services",
    "generate_virtual_clusters",
    "lp_bound",
    "read_instance",
    "read_workload",
    "simulate",
    "stretch_bound",
    "summarize",
    "upper_bound",
]
