"""NAS benchmarks on the farm of Table 1, as campaign files and `dfrs farm` find them under the name `arrive-f`."""

from functools import cache
from importlib.resources import files

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.hardware import Hardware
from dfrs.model.hardware_files import parse_hardware
from dfrs.workloads.programs import Program, Published, Stream
from dfrs_reproduction.atif2011 import nas
from dfrs_reproduction.atif2011.nas_data import THRASH_FACTOR
from dfrs_reproduction.atif2011.published import EXPERIMENTS
from dfrs_reproduction.atif2011.streams import WITHOUT, jobs_of, split_name

_PARTS = 4
"""Of the name of a job; that of a drawn program has no iterations."""


@cache
def arrive_f(*, without: str = "") -> Hardware:
    """The farm of Table 1; `without` names sub-clusters to leave out ("C" in experiment 3)."""
    source = files(__package__ or "") / "data" / "arrive-f.json"
    farm = parse_hardware(source.read_text("utf-8"), "arrive-f.json")
    return Hardware(name=farm.name, partitions=tuple(c for c in farm.partitions if c.name not in without))


class NasPrograms:
    """What the document measured, and what is modelled of the rest: see `nas`."""

    order = "CBAD"
    """The document does not tell; of all orders this one puts most jobs of its Tables 11 to 20 where they were in the
    base runs, see docs/explanation/farm-results.md."""
    thrash = THRASH_FACTOR
    streams = range(1, len(EXPERIMENTS) + 1)

    @property
    def farm(self) -> Hardware:
        """That of Table 1."""
        return arrive_f()

    def stream(self, number: int, *, printed: bool = False) -> Stream:
        """Of experiment 1, 2 or 3. Raises InputError for another number."""
        jobs, average = jobs_of(number, printed=printed), EXPERIMENTS[number].average
        return Stream(
            jobs=jobs,
            without=WITHOUT.get(number, ""),
            published=Published(
                throughput_percent=EXPERIMENTS[number].throughput,
                wait_s=(average.base_wait_s, average.wait_s),
                turnaround_s=(average.base_turnaround_s, average.turnaround_s),
                total_s=(average.base_total_s, average.total_s),
            ),
        )

    def processes(self, name: str) -> int:
        """As the name says. Raises InputError."""
        try:
            return split_name(name)[2]
        except InputError:
            raise InputError("must be BENCHMARK.CLASS.PROCESSES.ITERATIONS, as ft.B.8.506") from None

    def program(self, name: str, clusters: tuple[str, ...]) -> Program:
        """Of a name with or without iterations. Raises InputError for another benchmark, class or sub-cluster."""
        parts = name.upper().split(".")
        benchmark, class_, processes, _ = split_name(name if len(parts) == _PARTS else f"{name}.0")
        return _program(benchmark, class_, processes, clusters)

    def draw(self, size: int, rng: np.random.Generator) -> str:
        """A random benchmark and class. Only EP is made for any number of processes, others for powers of two."""
        benchmark, class_ = str(rng.choice(nas.BENCHMARKS)), str(rng.choice(nas.CLASSES))
        processes = size if benchmark == "EP" else 1 << (size - 1).bit_length()
        return f"{benchmark}.{class_}.{processes}"


@cache
def _program(benchmark: str, class_: str, processes: int, clusters: tuple[str, ...]) -> Program:
    times = [
        [nas.time_factor(benchmark, class_, processes, cluster, side) for side in (False, True)] for cluster in clusters
    ]
    predicted = [
        [nas.predicted_speeds(benchmark, class_, processes, cluster, side, clusters) for side in (False, True)]
        for cluster in clusters
    ]
    # What thrashes takes so many times its time on A, whatever the CPU (Table 11, of D).
    on_d = nas.time_factor(benchmark, class_, processes, "D", False)
    return Program(
        name=f"{benchmark}.{class_}.{processes}",
        processes=processes,
        memory_bytes=nas.memory_bytes(benchmark, class_, processes),
        times=np.array(times),
        predicted=np.array(predicted),
        thrash=max(THRASH_FACTOR / on_d, 1.0),
    )


PROGRAMS = NasPrograms()
