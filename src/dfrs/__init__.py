"""Dynamic Fractional Resource Scheduling: share a cluster in fractions, look after the least happy job.

>>> import dfrs
>>> instance = dfrs.generate_services(nodes=8, services=20, seed=1)
>>> outcome = dfrs.allocate(instance, "VP_CPSUM")
>>> 0 <= outcome.minimum_yield <= outcome.bound <= 1
True
"""

from importlib.metadata import version

from dfrs.api import allocate, generate_services, generate_virtual_clusters, read_instance
from dfrs.bounds.yields import lp_bound, upper_bound
from dfrs.model.allocation import Allocation, Outcome, Status
from dfrs.model.errors import DfrsError, InfeasibleError, InputError
from dfrs.model.instance import Instance
from dfrs.model.resources import Kind, Resource

__version__ = version("dfrs")

__all__ = [
    "Allocation",
    "DfrsError",
    "InfeasibleError",
    "InputError",
    "Instance",
    "Kind",
    "Outcome",
    "Resource",
    "Status",
    "allocate",
    "generate_services",
    "generate_virtual_clusters",
    "lp_bound",
    "read_instance",
    "upper_bound",
]
