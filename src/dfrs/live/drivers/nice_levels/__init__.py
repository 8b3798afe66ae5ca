"""Tasks as processes with nice levels: for agents without any rights."""

from dfrs.live.drivers.base import NodeSettings, UnsuitableError
from dfrs.live.drivers.nice_levels.driver import NiceDriver

PREFERENCE = 10


def open_node(settings: NodeSettings) -> NiceDriver:
    """The node's driver. Raises DriverError, and UnsuitableError where caps are asked for."""
    if settings.shares == "caps":
        raise UnsuitableError("caps need control groups")
    return NiceDriver(
        settings.root,
        settings.node,
        cpus=settings.cpus,
        cores=settings.cores,
        memory_bytes=settings.memory_bytes,
        output_bytes=settings.output_bytes,
        resources=settings.resources,
    )
