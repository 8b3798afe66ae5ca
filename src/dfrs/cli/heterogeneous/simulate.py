"""`dfrs farm simulate`: a list of jobs on the farm of [Atif2011], with and without migrations (section 8)."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err, print_json
from dfrs.cli.heterogeneous.files import check_writable, write_pictures, write_runs
from dfrs.cli.progress import progress
from dfrs.cli.simulate.plot import PICTURES
from dfrs.cli.simulate.policies import complete
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dfrs.experiments.farm_compare import FarmOutcome
    from dfrs.experiments.farm_runs import PreparedStream
    from dfrs.workloads.programs import Programs, Stream

BASE, MIGRATING = "FARM-EASY", "ARRIVE-F"
DEFAULT_UNTIL_S = 2_000.0
"""What [Atif2011] Figure 9 shows."""


def simulate(
    stream: Annotated[
        Path | None,
        typer.Argument(
            metavar="STREAM.csv", help="Jobs: columns job,arrival_s,name,processes,expected_s.", show_default=False
        ),
    ] = None,
    experiment: Annotated[
        int | None,
        typer.Option("--experiment", "-e", help="Instead of a file: the jobs of experiment 1, 2 or 3 of Atif 2011."),
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="A policy; repeat it for several. The first is the base run.",
            autocompletion=complete,
            show_default=f"{BASE}, {MIGRATING}",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="0: times as given; others change each time by up to 1 %.", min=0)] = 0,
    runs: Annotated[int, typer.Option(help="Number of seeds, from --seed on.", min=1, max=1000)] = 1,
    exact: Annotated[
        bool, typer.Option("--exact", help="True predictions, without the errors that Atif 2011 measured.")
    ] = False,
    order: Annotated[str, typer.Option(help="Order of the clusters in which a job looks for nodes.")] = "CBAD",
    printed: Annotated[
        bool,
        typer.Option("--printed", help="Take job 6 of experiment 1 as it is printed, though that cannot be right."),
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="List every pair of jobs considered, and why it was not exchanged.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", help="Directory for the run directories of the first seed.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Gantt diagram of the first seed: .png, .svg or .pdf.", show_default=False)
    ] = None,
    until: Annotated[
        float, typer.Option(help="Seconds that the picture shows, from the first job on.", min=1)
    ] = DEFAULT_UNTIL_S,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Simulate a list of jobs on the farm of Atif 2011, with and without migrations between its clusters.

    A farm: clusters of different hardware, managed as one. This farm has the clusters A to D. Shows
    waiting, turnaround and total times beside the published ones, and what became of each
    migration. Files are written when all runs are done. Jobs are NAS benchmarks (CG, EP, FT, IS, LU
    or MG), whose times on each cluster are known.

    Examples:

        dfrs farm simulate --experiment 1 --picture farm.png

        dfrs farm simulate -e 3 --runs 10 -p FARM-EASY -p ARRIVE-F -p ARRIVE-F/HEAD

        dfrs farm simulate jobs.csv --explain --out out/farm
    """
    from dfrs.cli.views.heterogeneous import explain_text, show
    from dfrs.experiments.farm_compare import compare, document
    from dfrs.workloads.programs import USUAL, find_programs

    names = policies or [BASE, MIGRATING]
    _check(stream, experiment, names, picture, until)
    programs = find_programs(USUAL)
    _check_order(order, programs)
    check_writable(output, picture, names)
    given = _stream(stream, experiment, programs, printed=printed)
    made = _prepared(
        programs, given, stream or f"experiment-{experiment}", range(seed, seed + runs), order=order, exact=exact
    )
    outcomes = _run_all(made, names, explain=explain)
    pairs = [compare(outcomes, names[0], name) for name in names[1:]]
    _write(made[0][1], [each[0] for each in outcomes.values()], output, picture, until)
    if as_json:
        print_json(document(outcomes, pairs, given.published, made[0][1], explain=explain))
        return
    show(outcomes, pairs, given.published, made[0][1])
    if explain:
        for each in outcomes.values():
            explain_text(each[0], made[0][1])


def _check(
    stream: Path | None,
    experiment: int | None,
    names: "Sequence[str]",
    picture: Path | None,
    until: float,
) -> None:
    from dfrs.policies.names import find_policy

    if (stream is None) == (experiment is None):
        raise InputError("STREAM.csv or --experiment: one of them must be given, and only one")
    if experiment is not None and experiment not in (1, 2, 3):
        raise InputError(f"--experiment {experiment}: must be 1, 2 or 3")
    for name in names:
        find_policy(name)
    if len(set(names)) < len(names):
        raise InputError(f"--policy {next(n for n in names if names.count(n) > 1)}: stands twice")
    if picture is not None and picture.suffix.lower() not in PICTURES:
        raise InputError(f"{picture}: the ending must be .png, .svg or .pdf")
    if not math.isfinite(until):
        raise InputError(f"--until {until}: must be a finite number of seconds")


def _check_order(order: str, programs: "Programs") -> None:
    from dfrs.workloads.programs import check_order

    try:
        check_order(order, programs)
    except InputError as error:
        raise InputError(f"--{error}") from None


def _stream(path: Path | None, experiment: int | None, programs: "Programs", *, printed: bool) -> "Stream":
    from dfrs.workloads.programs import Stream
    from dfrs.workloads.streams import check_fits, read_stream

    if experiment is not None:
        return programs.stream(experiment, printed=printed)
    assert path is not None
    jobs = read_stream(path, programs)
    check_fits(jobs, programs.farm, str(path))
    return Stream(jobs=jobs)


def _prepared(
    programs: "Programs", given: "Stream", source: Path | str, seeds: range, *, order: str, exact: bool
) -> "list[tuple[int, PreparedStream]]":
    """Of each seed. `source` is a file, or the name of one of the measurements' own streams."""
    from dfrs.experiments.farm_runs import prepare_stream
    from dfrs.experiments.kinds.farm import factors

    name = source if isinstance(source, str) else source.stem
    try:
        return [
            (
                seed,
                prepare_stream(
                    programs,
                    given.jobs,
                    name=name,
                    without=given.without,
                    order=order,
                    factors=factors(name, seed, len(given.jobs)),
                    errors=not exact,
                ),
            )
            for seed in seeds
        ]
    except InputError as error:
        raise InputError(str(error) if isinstance(source, str) else f"{source}: {error}") from None


def _run_all(
    made: "list[tuple[int, PreparedStream]]", names: "Sequence[str]", *, explain: bool
) -> "dict[str, list[FarmOutcome]]":
    """Of each policy one outcome a seed; what was looked at is kept of the first."""
    from dfrs.experiments.farm_compare import run_stream

    found: dict[str, list[FarmOutcome]] = {name: [] for name in names}
    jobs = len(made[0][1].workload)
    with progress(jobs * len(made) * len(names)) as (bar, shown):
        finished = 0
        for k, (seed, each) in enumerate(made):
            for name in names:
                bar.update(shown, description=f"{name} seed {seed}")

                def watch(done: int, base: int = finished) -> bool:
                    bar.update(shown, completed=base + done)
                    return True

                found[name].append(run_stream(each, name, seed, explain=explain and k == 0, watch=watch))
                finished += jobs
                bar.update(shown, completed=finished)
    return found


def _write(
    made: "PreparedStream", firsts: "list[FarmOutcome]", output: Path | None, picture: Path | None, until: float
) -> None:
    if output is not None:
        write_runs(firsts, output)
    if picture is not None:
        write_pictures(made, firsts, picture, until)
    for path in (output, picture):
        if path is not None:
            err.print(str(path), markup=False, style="dim", soft_wrap=True)
