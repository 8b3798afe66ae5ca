"""`dfrs farm calibrate`: measure CPU and network of a cluster of a farm, into the farm's file ([Atif2011] 7.3.1)."""

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from dfrs.cli.console import err, out, print_json
from dfrs.model.errors import DfrsError, InputError

if TYPE_CHECKING:
    from dfrs.model.hardware import Hardware, Partition
    from dfrs.profiling.build import Toolchain
    from dfrs.profiling.calibrate import Wiring


def calibrate(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File of the farm, dfrs-farm/1; an existing one is updated.")
    ],
    cluster: Annotated[str, typer.Option(help="Name of the cluster of the farm that is measured.")] = "A",
    local: Annotated[bool, typer.Option("--local", help="Time messages between processes of this machine.")] = False,
    between: Annotated[
        str | None, typer.Option(metavar="HOST", help="Time messages between this machine and HOST.")
    ] = None,
    netns: Annotated[
        tuple[str, str] | None, typer.Option(help="Time messages between two network namespaces.", metavar="A B")
    ] = None,
    cpu: Annotated[bool, typer.Option("--cpu/--no-cpu", help="Measure the CPU.")] = True,
    machines: Annotated[int, typer.Option(help="Number of machines, of a cluster that is new in the file.", min=1)] = 2,
    cores: Annotated[int | None, typer.Option(help="Nodes of each machine.", min=1, show_default="its CPUs")] = None,
    pairs: Annotated[int, typer.Option(help="Pairs of processes that send at the same time.", min=1, max=64)] = 1,
    largest: Annotated[int, typer.Option(help="Largest message, bytes.", min=2, max=2**30)] = 4 * 2**20,
    seconds: Annotated[float, typer.Option(help="Seconds for each message size.", min=0.001, max=60.0)] = 0.3,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Measure what operations, cache misses and messages cost on one cluster of a farm.

    A farm: clusters of different hardware, managed as one. Run this on a machine of the cluster. The
    results go to the farm's file; what is not measured stays as it is there. Without --local,
    --between and --netns the network is not measured.

    Examples:

        dfrs farm calibrate --local --cluster A -o farm.json

        dfrs farm calibrate --between node2 --cluster B --no-cpu -o farm.json
    """
    from dfrs.model.hardware_files import read_hardware, write_hardware
    from dfrs.profiling import calibrate as measured

    if sum((local, between is not None, netns is not None)) > 1:
        raise InputError("--local, --between and --netns: only one of them")
    if between is not None and (not between or between.startswith("-") or any(c in between for c in " ,:\t\n")):
        raise InputError(f'--between "{between[:80]}": must be the name of a host')
    if not cluster or not cluster.isprintable():
        raise InputError("--cluster: must be a name of printable text on one line")
    if not output.parent.is_dir() or not os.access(output.parent, os.W_OK):
        raise InputError(f"{output}: cannot write in {output.parent}")
    farm = read_hardware(output) if output.exists() else None
    old = None if farm is None else next((known for known in farm.partitions if known.name == cluster), None)
    rates = measured.measure_cpu() if cpu else None
    latency = None
    if local or between is not None or netns is not None:
        with ExitStack() as stack:
            tools, wiring = _wiring(stack, between, netns, pairs)
            latency = measured.measure_latency(
                tools, wiring, largest_bytes=largest, pairs=pairs, seconds_a_size=seconds
            )
    found = measured.sub_cluster(cluster, old, rates, latency, machines, cores or os.cpu_count() or 1)
    farm = measured.with_cluster(farm, found, output.stem)
    write_hardware(farm, output)
    if old is None and rates is None:
        assumed = f"cluster {cluster} is new and its CPU was not measured: 1 GHz and one operation a cycle are assumed"
        err.print(f"{assumed}, so that only its messages can be compared", style="yellow", markup=False, soft_wrap=True)
    _tell(found, farm, output, as_json)


def _wiring(
    stack: ExitStack, between: str | None, netns: tuple[str, str] | None, pairs: int
) -> "tuple[Toolchain, Wiring]":
    from dfrs.profiling import calibrate as measured
    from dfrs.profiling.build import toolchain

    launcher = shutil.which("mpirun") or shutil.which("mpiexec")
    if launcher is None:
        raise InputError("mpirun: no such program; install Open MPI (Debian: openmpi-bin libopenmpi-dev)")
    tools = toolchain(launcher)
    if netns is not None:
        if os.geteuid() != 0:
            raise InputError("--netns: needs root")
        try:
            return tools, stack.enter_context(measured.between_namespaces(launcher, *netns, pairs))
        except DfrsError as error:
            raise InputError(f"--netns {' '.join(netns)}: {error}") from None
    if between is None:
        return tools, measured.local(launcher, tools)
    return tools, measured.to_host(launcher, between, tools, pairs)


def _tell(found: "Partition", farm: "Hardware", path: Path, as_json: bool) -> None:
    if as_json:
        from dfrs.model.hardware_files import hardware_document

        print_json(hardware_document(farm))
        return
    out.print(f"cluster {found.name}: {found.frequency_hz / 1e9:.2f} GHz", style="bold", markup=False)
    for event, cycles in found.cycles.items():
        out.print(f"  {event}: {cycles:,.3f} cycles", markup=False)
    if found.latency is not None:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in ("bytes", "latency, us", "Mbit/s"):
            table.add_column(name, justify="right")
        for size, seconds in zip(found.latency.sizes_bytes, found.latency.seconds, strict=True):
            rate = f"{8e-6 * size / seconds:,.2f}" if seconds > 0 else ""
            table.add_row(f"{size:,}", f"{1e6 * seconds:,.1f}", rate)
        out.print(table)
    err.print(f"{path}", markup=False, style="dim", soft_wrap=True)
