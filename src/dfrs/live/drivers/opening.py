"""Chooses by which driver a node runs its tasks: a folder here, or a package with an entry point, is a driver.

A driver is a module with `PREFERENCE`, a number, and `open_node(settings)`, which raises UnsuitableError where the host
or the settings are not for it. The most preferred one that is not unsuitable is taken.
"""

import os
import pkgutil
from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, cast

from dfrs.live import drivers
from dfrs.live.drivers.base import Driver, DriverError, NodeSettings, UnsuitableError

GROUP = "dfrs.drivers"
"""Of entry points: a name, and the module."""


class DriverModule(Protocol):
    """What a driver's module has."""

    PREFERENCE: float
    """Higher ones are tried first."""

    def open_node(self, settings: NodeSettings) -> Driver:
        """The node's driver. Raises DriverError, or UnsuitableError where another driver is to be tried."""
        ...


def driver_modules() -> Mapping[str, DriverModule]:
    """All drivers by their names, the most preferred first."""
    folders = (each.name for each in pkgutil.iter_modules(drivers.__path__) if each.ispkg)
    own = {name: import_module(f"{drivers.__name__}.{name}") for name in folders}
    found = {name: module for name, module in own.items() if hasattr(module, "open_node")}
    found |= {entry.name: entry.load() for entry in entry_points(group=GROUP)}
    modules = cast("Mapping[str, DriverModule]", found)
    return dict(sorted(modules.items(), key=lambda each: -each[1].PREFERENCE))


def open_driver(settings: NodeSettings) -> Driver:
    """The most preferred driver that this host allows; its `abilities` say what is missing.

    Raises DriverError where none is suitable, and where the node cannot be had (CPUs that do not exist, a root that
    cannot be written).
    """
    problems: list[str] = []
    for module in driver_modules().values():
        try:
            return module.open_node(settings)
        except UnsuitableError as error:
            problems.insert(0, str(error))
    raise DriverError(": ".join(problems))


def cluster_name(root: Path) -> str:
    """A name for the control groups of all nodes that share `root`, and of no others."""
    return f"host-{sha256(os.fsencode(root)).hexdigest()[:8]}"
