"""`dfrs plot`: draw what is already on disk, an allocation or runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err
from dfrs.cli.extras import require
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError
from dfrs.report.clock import parse_time

if TYPE_CHECKING:
    from dfrs.model.run import Run

PICTURES = {".png", ".svg", ".pdf"}


def plot(
    what: Annotated[
        list[Path],
        typer.Argument(help="Allocation file (.json), or one or several run directories.", show_default=False),
    ],
    instance: Annotated[
        Path | None, typer.Option("--instance", "-i", help="Instance file; default: the one the allocation names.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Allocation: picture to write, .png, .svg or .pdf. Runs: directory."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of an allocation's picture.")] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Allocation: number of equal nodes. Run: draw only so many.", min=1)
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Gantt diagram from: seconds, HH:MM or days-HH:MM:SS; default: busiest 6 h."),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="Gantt diagram to.")] = None,
) -> None:
    """Draw an allocation; or a run, as pictures and one page to explore; or several runs, compared.

    A run becomes gantt.png, yields.png, stretches.png and page.html (self-contained, opens in any browser), by default
    in its own directory; several runs become comparison.png.

    Examples:

        dfrs plot services.allocation.json -o services.png

        dfrs plot out/runs/GreedyPM+_per_OPT=MIN_MVT=600 --from 1-06:00 --to 1-12:00

        dfrs plot out/runs/FCFS out/runs/EASY out/runs/GreedyPM+_per_OPT=MIN_MVT=600 -o out
    """
    require("plot")
    if any(path.is_dir() for path in what):
        if instance is not None or title is not None:
            raise InputError("--instance and --title: are for an allocation, not for runs")
        _plot_runs(what, output, from_, to, nodes)
        return
    if from_ is not None or to is not None:
        raise InputError("--from and --to: are for a run directory")
    if len(what) > 1:
        raise InputError(f"{what[1]}: one allocation at a time, or several run directories")
    _plot_allocation(what[0], instance, output, title, nodes)


def _plot_allocation(
    allocation: Path, instance: Path | None, output: Path | None, title: str | None, nodes: int | None
) -> None:
    from dfrs.report.allocation import draw_allocation
    from dfrs.workloads.files import read_allocation

    picture = output or allocation.with_suffix(".png")
    if picture.suffix.lower() not in PICTURES:
        raise InputError(f"{picture}: the ending must be .png, .svg or .pdf")
    problem, result, bound, algorithm = read_allocation(allocation, instance, nodes)
    default = f"{algorithm}: {len(problem.services)} services on {len(problem.nodes)} nodes"
    draw_allocation(problem, result, bound, title or default, picture)
    _say(picture)


def _plot_runs(
    directories: list[Path], output: Path | None, from_: str | None, to: str | None, nodes: int | None
) -> None:
    from dfrs.runs.directory import read_run, read_summary
    from dfrs.runs.metrics.schedule import TAU_S

    from_s = None if from_ is None else parse_time(from_, "--from")
    to_s = None if to is None else parse_time(to, "--to")
    if len(directories) > 1 and (from_s, to_s, nodes) != (None, None, None):
        raise InputError("--from, --to and --nodes: are for one run")
    place = output or (directories[0] if len(directories) == 1 else directories[0].parent)
    runs = [read_run(directory) for directory in directories]
    metrics = [read_summary(directory)["metrics"] for directory in directories]
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{place}: cannot make the directory: {error.strerror}") from None
    if len(runs) > 1:
        taus = {float(found.get("tau_s") or TAU_S): path for found, path in zip(metrics, directories, strict=True)}
        if len(taus) > 1:
            words = ", ".join(f"{tau:g} s in {path}" for tau, path in taus.items())
            raise InputError(f"bounded stretches of {words}: draw runs with the same tau_s together")
        bounds = [found.get("bounded_stretch_bound") for found in metrics]
        _compare(runs, directories, bounds, place, min(taus))
    else:
        _draw_run(runs[0], metrics[0], place, (from_s, to_s), nodes)


def _draw_run(
    run: "Run", metrics: dict[str, object], place: Path, part: tuple[float | None, float | None], nodes: int | None
) -> None:
    from dfrs.report.gantt import draw_gantt
    from dfrs.report.run_page import fits_a_page, write_page
    from dfrs.report.timeline import draw_stretches, draw_yields

    bound = metrics.get("stretch_bound")
    draw_gantt(run, place / "gantt.png", *part, nodes=nodes)
    _say(place / "gantt.png")
    draw_yields(run, place / "yields.png")
    _say(place / "yields.png")
    draw_stretches(run, place / "stretches.png", bound if isinstance(bound, float) else None)
    _say(place / "stretches.png")
    if fits_a_page(run):
        write_page(run, place / "page.html", metrics)
        _say(place / "page.html")
    else:
        err.print(f"no page: {len(run.workload)} jobs and {len(run.events)} changes are too many", style="yellow")


def _compare(runs: list["Run"], directories: list[Path], bounds: list[float | None], place: Path, tau_s: float) -> None:
    from dfrs.report.timeline import draw_comparison

    names = [run.policy for run in runs]
    if len(set(names)) < len(names):
        several = len({run.workload.name for run in runs}) > 1
        names = [f"{run.policy} on {run.workload.name}" if several else run.policy for run in runs]
    if len(set(names)) < len(names):
        names = [str(directory) for directory in directories]
    draw_comparison(runs, names, bounds, place / "comparison.png", tau_s=tau_s)
    _say(place / "comparison.png")


def _say(path: Path) -> None:
    err.print(f"{path}", markup=False, style="dim", soft_wrap=True)


VERBS = (Verb(plot),)
