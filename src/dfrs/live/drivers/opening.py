"""The one place that decides by which mechanism a node runs its tasks."""

import os
from hashlib import sha256
from pathlib import Path

from dfrs.live.drivers.base import DriverError
from dfrs.live.drivers.cgroup import detect
from dfrs.live.drivers.nice import NiceDriver
from dfrs.live.drivers.process import ProcessDriver, Shares
from dfrs.live.drivers.supervised import KEPT_OUTPUT_BYTES


def open_driver(
    root: Path,
    cluster: str,
    node: str,
    *,
    cores: float,
    memory_bytes: int,
    cpus: str | None = None,
    shares: Shares = "weights",
    output_bytes: int = KEPT_OUTPUT_BYTES,
) -> ProcessDriver | NiceDriver:
    """The best driver that this host allows for a node; its `abilities` say what is missing.

    Without control groups it falls back to nice levels, but not where caps were asked for, which those cannot give:
    raises DriverError then, and where the node cannot be had (CPUs that do not exist, a root that cannot be written).
    """
    try:
        groups = detect(cluster, node)
    except DriverError as error:
        if shares == "caps":
            raise DriverError(f"caps need control groups: {error}") from error
        return NiceDriver(root, node, cpus=cpus, cores=cores, memory_bytes=memory_bytes, output_bytes=output_bytes)
    return ProcessDriver(
        root,
        cluster,
        node,
        cpus=cpus,
        cores=cores,
        memory_bytes=memory_bytes,
        shares=shares,
        output_bytes=output_bytes,
        groups=groups,
    )


def cluster_name(root: Path) -> str:
    """A name for the control groups of all nodes that share `root`, and of no others."""
    return f"host-{sha256(os.fsencode(root)).hexdigest()[:8]}"
