"""Tasks as processes in control groups, version 1 or 2: for agents that are root."""

from dfrs.live.drivers.base import NodeSettings
from dfrs.live.drivers.control_groups.driver import ControlGroupDriver

PREFERENCE = 20


def open_node(settings: NodeSettings) -> ControlGroupDriver:
    """The node's driver. Raises DriverError, and UnsuitableError where this host has no control groups to use."""
    return ControlGroupDriver(
        settings.root,
        settings.cluster,
        settings.node,
        cpus=settings.cpus,
        cores=settings.cores,
        memory_bytes=settings.memory_bytes,
        shares=settings.shares,
        output_bytes=settings.output_bytes,
        resources=settings.resources,
        swap_bytes=settings.swap_bytes,
        images_bytes=settings.images_bytes,
    )
