"""What a sub-cluster's hardware costs, by micro-benchmarks of our own ([Atif2011] section 7.3.1).

[Atif2011] took the cost of a floating-point operation from Aburto's flops, those of cache misses from the maker's
papers, and latencies from OSU's multi-pair test. Here all are measured: `native/rates.c` on one CPU,
`native/pingpong.c` between processes of the MPI at hand. The event "second" stands for the CPU's work where there are
no counters: a second of a CPU of `REFERENCE_FLOPS` operations a second, so that all sub-clusters calibrated by this
module agree on it.
"""

import os
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dfrs.model.errors import DfrsError, InputError
from dfrs.model.hardware import FLOP, L1_MISS, L2_MISS, SECOND, Hardware, Latency, Partition
from dfrs.profiling.build import Toolchain, pingpong, rates

REFERENCE_FLOPS = 1e9
LARGEST_BYTES = 4 * 2**20
_RATES_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuRates:
    """What one CPU does."""

    hertz: float
    flops: float
    """Floating-point operations a second, in about the mix of MFLOPS(3)."""
    l1_s: float
    """What a read takes longer where it misses the first level of cache."""
    l2_s: float
    """What it takes longer still where it goes to memory."""

    @property
    def cycles(self) -> dict[str, float]:
        """Cycles that an event costs."""
        return {
            FLOP: self.hertz / self.flops,
            L1_MISS: self.hertz * self.l1_s,
            L2_MISS: self.hertz * self.l2_s,
            SECOND: self.hertz * REFERENCE_FLOPS / self.flops,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """Between which two places messages are timed."""

    launcher: str
    """Path of mpirun."""
    prefix: tuple[str, ...] = ()
    """What the launcher itself is run by."""
    options: tuple[str, ...] = ()
    """What it is told."""


def measure_cpu() -> CpuRates:
    """Rates of this machine's CPU; some seconds."""
    found = dict(line.split() for line in _output([str(rates())], _RATES_S).splitlines())
    try:
        return CpuRates(**{name: float(value) for name, value in found.items()})
    except (TypeError, ValueError):
        raise DfrsError(f"dfrs-rates: unexpected answer {found}") from None


def measure_latency(
    tools: Toolchain, wiring: Wiring, *, largest_bytes: int = LARGEST_BYTES, pairs: int = 1, seconds_a_size: float = 0.3
) -> Latency:
    """Seconds by message size between the two places; 23 sizes up to 4 MB."""
    program = str(pingpong(tools))
    command = [
        *wiring.prefix,
        wiring.launcher,
        *wiring.options,
        "-n",
        str(2 * pairs),
        program,
        str(largest_bytes),
        str(seconds_a_size),
    ]
    points: list[tuple[int, float]] = []
    for line in _output(command, 60.0 + 100 * seconds_a_size * 23).splitlines():
        words = line.split()
        if len(words) == 2 and words[0].isdecimal():
            points.append((int(words[0]), float(words[1])))
    if not points:
        raise DfrsError(f"{wiring.launcher}: no message was timed")
    return Latency(sizes_bytes=tuple(size for size, _ in points), seconds=tuple(second for _, second in points))


@contextmanager
def between_namespaces(launcher: str, first: str, second: str, pairs: int = 1) -> Generator[Wiring]:
    """Wiring between two network namespaces of this machine, by Open MPI over TCP, for so many pairs; needs root.

    The launcher runs in the first; what it starts in the second goes there by `ip netns exec`. Each must have one
    address of IP version 4 that the other can reach.
    """
    here, there = address_in(first), address_in(second)
    with tempfile.TemporaryDirectory(prefix="dfrs-wiring-") as place:
        agent = Path(place) / "agent"
        # Open MPI runs "AGENT HOST COMMAND": the host is known already.
        agent.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {second} /bin/sh -c "$*"\n')
        agent.chmod(0o700)
        yield Wiring(
            launcher=launcher,
            prefix=("ip", "netns", "exec", first),
            options=(
                *_as_root(),
                *over_tcp((here, there)),
                "--mca",
                "plm_rsh_agent",
                str(agent),
                *_one_side_each(here[0], there[0], pairs),
            ),
        )


def local(launcher: str, tools: Toolchain) -> Wiring:
    """Wiring between processes of this machine, by whatever MPI chooses there."""
    options = (*_as_root(), "--oversubscribe") if tools.open_mpi else ()
    return Wiring(launcher=launcher, options=options)


def to_host(launcher: str, host: str, tools: Toolchain, pairs: int = 1) -> Wiring:
    """Wiring for so many pairs between this machine and another, reached as MPI reaches it (ssh); both need the same
    MPI, and Open MPI copies the program there."""
    if not tools.open_mpi:
        return Wiring(launcher=launcher, options=("-hosts", f"localhost,{host}", "-ppn", str(pairs)))
    return Wiring(
        launcher=launcher, options=(*_as_root(), "--preload-binary", *_one_side_each("localhost", host, pairs))
    )


def over_tcp(addresses: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """Options of Open MPI: only TCP, only in the networks of these addresses, also for its own messages; a process that
    waits leaves the CPU to others."""
    networks = ",".join(dict.fromkeys(f"{address}/{length}" for address, length in addresses))
    return (
        "--mca",
        "btl",
        "tcp,self",
        "--mca",
        "pml",
        "ob1",
        "--mca",
        "btl_tcp_if_include",
        networks,
        "--mca",
        "oob_tcp_if_include",
        networks,
        "--mca",
        "mpi_yield_when_idle",
        "1",
    )


def address_in(namespace: str) -> tuple[str, int]:
    """Address and prefix length of a network namespace: the first that is not its loopback's."""
    answer = _output(["ip", "-n", namespace, "-o", "-4", "addr", "show"], 10.0)
    for line in answer.splitlines():
        words = line.split()
        if "inet" in words and words[1] != "lo":
            address, _, length = words[words.index("inet") + 1].partition("/")
            return address, int(length or 32)
    raise InputError(f"--netns {namespace}: has no address but its loopback's")


def sub_cluster(
    name: str, old: Partition | None, cpu: CpuRates | None, latency: Latency | None, machines: int, cores: int
) -> Partition:
    """An entry of a farm: what was measured, over what `old` says; of a new one memory is this machine's."""
    if old is None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        rated = cpu or CpuRates(hertz=1e9, flops=1e9, l1_s=0.0, l2_s=0.0)
        return Partition(
            name=name,
            machines=machines,
            cores=cores,
            frequency_hz=rated.hertz,
            cycles=rated.cycles,
            latency=latency,
            node_memory_bytes=memory // cores,
            machine_memory_bytes=memory,
        )
    found = old if latency is None else replace(old, latency=latency)
    return found if cpu is None else replace(found, frequency_hz=cpu.hertz, cycles={**old.cycles, **cpu.cycles})


def with_cluster(farm: Hardware | None, cluster: Partition, name: str) -> Hardware:
    """The farm with that sub-cluster in the place of the one of its name, or at its end."""
    if farm is None:
        return Hardware(name=name, partitions=(cluster,))
    kept = [cluster if known.name == cluster.name else known for known in farm.partitions]
    if all(known.name != cluster.name for known in farm.partitions):
        kept.append(cluster)
    return Hardware(name=farm.name, partitions=tuple(kept))


def _one_side_each(here: str, there: str, pairs: int) -> tuple[str, ...]:
    """Options of Open MPI that put the first ranks of all pairs here and their partners, which follow them, there."""
    return ("--map-by", "slot", "--host", f"{here}:{pairs},{there}:{pairs}")


def _as_root() -> tuple[str, ...]:
    return ("--allow-run-as-root",) if os.geteuid() == 0 else ()


def _output(command: Sequence[str], limit_s: float) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise DfrsError(f"{command[0]}: took longer than {limit_s:.0f} s: is the other side reachable?") from None
    except OSError as error:
        raise InputError(f"{command[0]}: {error.strerror}") from None
    if answer.returncode != 0:
        said = [line.strip() for line in answer.stderr.splitlines() if line.strip() and not set(line.strip()) <= {"-"}]
        raise DfrsError(f"{command[0]}: {said[0] if said else f'exit status {answer.returncode}'}")
    return answer.stdout
