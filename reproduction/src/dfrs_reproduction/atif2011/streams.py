"""The three streams of jobs of [Atif2011]'s appendix (Tables 22 to 24): 330, 212 and 194 jobs of NAS benchmarks.

Two jobs of the text are in no stream, but their time and processes are, under another name. `stream(k, amended=True)`
puts them in their place: without FT.B.4.20 nothing thrashes in experiment 1, and without LU.B.8.3088 the one migration
of experiment 2 has no partner.
"""

import csv
from dataclasses import dataclass, replace
from importlib.resources import files

from dfrs.model.errors import InputError
from dfrs.workloads.programs import StreamJob

EXPERIMENTS = (1, 2, 3)

AMENDMENTS = {(1, 6): ("ft.B.4.20", 92.0), (2, 50): ("lu.B.8.3088", 2717.0)}
"""By experiment and job: the name of the text and its expected time on A.

Printed are ft.A.4.750 with 95 s, which by its iterations would take 1105 s, about what FT.B.4.20 takes thrashing
(Table 12), and mg.A.8.5032 with 2717 s, which 3088 iterations of LU.B.8 also take (Table 16 prints 2177).
"""


WITHOUT = {3: "C"}
"""Sub-clusters that an experiment does not have ([Atif2011] section 8.3)."""

READ = {1: {6: "ft.B.4.20"}}
"""Jobs, by experiment and number, whose printed name cannot be theirs: job 6 of experiment 1 is printed as ft.A.4.750,
which by its iterations would take 1,105 s and not the 95 that are expected; Tables 11 and 12 are about an FT.B.4.20
which arrives about then, and which the stream does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NasJob(StreamJob):
    """One line of a stream, with its time on sub-cluster A as the user's estimate ([Atif2011] section 8).

    Its name is benchmark.class.processes.iterations, as printed, in lower case.
    """

    benchmark: str
    """CG, EP, FT, IS, LU or MG."""
    class_: str
    """A or B: the size of the problem."""
    iterations: int
    """0 for most runs of EP, which has none."""


def split_name(name: str) -> tuple[str, str, int, int]:
    """(benchmark, class, processes, iterations) of a name such as "FT.B.8.506". Raises InputError."""
    parts = name.split(".")
    if len(parts) != 4 or not all(part.isascii() and part.isdecimal() and len(part) < 16 for part in parts[2:]):
        raise InputError(f"name = {name}: must be BENCHMARK.CLASS.PROCESSES.ITERATIONS")
    return parts[0].upper(), parts[1].upper(), int(parts[2]), int(parts[3])


def stream(experiment: int, *, amended: bool = False) -> tuple[NasJob, ...]:
    """The jobs of experiment 1, 2 or 3, in order of arrival, as printed or `amended` (see AMENDMENTS).

    Raises InputError for another number.
    """
    if experiment not in EXPERIMENTS:
        raise InputError(f"experiment = {experiment}: must be 1, 2 or 3")
    source = files(__package__ or "") / "data" / f"experiment-{experiment}.csv"
    jobs: list[NasJob] = []
    for row in csv.DictReader(source.read_text("utf-8").splitlines()):
        benchmark, class_, processes, iterations = split_name(row["name"])
        jobs.append(
            NasJob(
                job=int(row["job"]),
                arrival_s=float(row["arrival_s"]),
                name=row["name"],
                benchmark=benchmark,
                class_=class_,
                processes=processes,
                iterations=iterations,
                expected_s=float(row["expected_s"]),
            )
        )
    return tuple(_amended(experiment, job) for job in jobs) if amended else tuple(jobs)


def jobs_of(experiment: int, *, printed: bool = False) -> tuple[NasJob, ...]:
    """The stream of an experiment, names put right (READ) unless they shall be as `printed`. Raises InputError."""
    jobs = stream(experiment)
    return jobs if printed else tuple(_read(experiment, job) for job in jobs)


def _read(experiment: int, job: NasJob) -> NasJob:
    return _renamed(job, READ.get(experiment, {}).get(job.job, job.name))


def _amended(experiment: int, job: NasJob) -> NasJob:
    if (experiment, job.job) not in AMENDMENTS:
        return job
    name, expected_s = AMENDMENTS[experiment, job.job]
    return replace(_renamed(job, name), expected_s=expected_s)


def _renamed(job: NasJob, name: str) -> NasJob:
    benchmark, class_, processes, iterations = split_name(name)
    return replace(job, name=name, benchmark=benchmark, class_=class_, processes=processes, iterations=iterations)
