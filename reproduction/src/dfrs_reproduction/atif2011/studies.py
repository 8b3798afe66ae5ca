"""What the tables of experiments are made of: streams of the appendix, several seeds, with and without migrations."""

from dataclasses import replace

import polars as pl

from dfrs.experiments.kinds.farm import FarmConfiguration, FarmSource
from dfrs.experiments.spec import Study
from dfrs_reproduction.metrics import ResultTable
from dfrs_reproduction.sizes import Size

BASE, MIGRATING, HEAD = "FARM-EASY", "ARRIVE-F", "ARRIVE-F/HEAD"
EXPERIMENT_OF = {10: 1, 11: 1, 12: 1, 13: 1, 14: 1, 15: 2, 16: 2, 17: 3, 18: 3, 19: 3, 20: 3, 21: 3}
"""Of the tables of sections 8 and 9."""
JOBS = {1: 330, 2: 212, 3: 194}
_CONFIGURATIONS = tuple(FarmConfiguration(label=name, policy=name) for name in (BASE, MIGRATING))


def _study(
    size: Size,
    experiment: int,
    name: str,
    told: str,
    order: str | None = None,
    as_printed: bool = False,
    true: bool = False,
) -> Study:
    seeds = tuple(range(size.needs))
    source = FarmSource(name=name, experiment=experiment, seeds=seeds, order=order, printed=as_printed, exact=true)
    return Study(
        name=name,
        sample=f"Experiment {experiment}: {JOBS[experiment]} jobs, {len(seeds)} seeds; {told}.",
        sources=(source,),
        configurations=_CONFIGURATIONS,
    )


def main(size: Size, experiment: int) -> Study:
    """The stream, times changed by up to 1 %."""
    return _study(size, experiment, f"experiment-{experiment}", "times change by up to 1 % from seed to seed")


def by_name(size: Size, experiment: int) -> Study:
    """The same with sub-clusters tried in the order of their names."""
    name = f"experiment-{experiment}-ABCD"
    return _study(size, experiment, name, "free nodes are looked for on A first, then on B, C and D", order="ABCD")


def exact(size: Size, experiment: int) -> Study:
    """The same with predictions that are true."""
    return _study(size, experiment, f"experiment-{experiment}-exact", "predictions are true", true=True)


def starting(size: Size, experiment: int, first: str) -> Study:
    """The same where jobs start by another rule, an option FIRST of both policies."""
    name = f"experiment-{experiment}-{first}"
    told = {"FREE": "jobs start where most nodes are free", "MACHINE": "jobs start where one machine has room"}[first]
    return replace(
        _study(size, experiment, name, told),
        configurations=tuple(
            FarmConfiguration(label=label, policy=f"{label}/FIRST={first}") for label in (BASE, MIGRATING)
        ),
    )


def printed(size: Size) -> Study:
    """Experiment 1 with job 6 as the appendix prints it."""
    return _study(size, 1, "experiment-1-printed", "job 6 is ft.A.4.750, as printed", as_printed=True)


def head(size: Size) -> Study:
    """Experiment 3 under what section 9 suggests."""
    seeds = tuple(range(size.needs))
    return Study(
        name="experiment-3-head",
        sample=f"Experiment 3 with a job moved for the head of the queue: {len(seeds)} seeds.",
        sources=(FarmSource(name="experiment-3-head", experiment=3, seeds=seeds),),
        configurations=tuple(FarmConfiguration(label=name, policy=name) for name in (MIGRATING, HEAD)),
    )


def only(data: ResultTable, label: str) -> pl.DataFrame:
    """The rows of one policy that are complete, by seed."""
    return data.frame.filter(pl.col("algorithm") == label, pl.col("status") == "complete").sort("seed")


def paired(data: ResultTable, one: str, other: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of two policies by seed, of the seeds on which both are complete: differences are between equal jobs."""
    first, second = only(data, one), only(data, other)
    return (
        first.join(second, on="seed", how="semi").sort("seed"),
        second.join(first, on="seed", how="semi").sort("seed"),
    )
