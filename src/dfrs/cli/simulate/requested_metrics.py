"""Metrics that `dfrs compare` shows on request; most of them it computes from the logs of the runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from dfrs.cli.console import out, out_of
from dfrs.cli.quantities import parse_seconds, quoted, show_seconds
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.model.run import Run
    from dfrs.runs.metrics.energy import PowerModel
    from dfrs.runs.metrics.window import Trim, Window

Row = dict[str, Any]
Column = tuple[str, Callable[[Row], float | None], str]
"""Title, value of a run, format."""

USERS: tuple[tuple[str, str, str], ...] = (
    ("users", "users", ",.0f"),
    ("bounded\nmax", "user_bounded_stretch_max", ",.2f"),
    ("bounded\nmean", "user_bounded_stretch_mean", ",.2f"),
    ("Jain's\nindex", "user_bounded_stretch_jain_index", ".3f"),
    ("Gini", "user_bounded_stretch_gini", ".3f"),
)
SHARES: tuple[tuple[str, str, str], ...] = (
    ("useful", "cpu_share_useful", ".1%"),
    ("fail-\nures", "cpu_share_failures", ".1%"),
    ("penal-\nties", "cpu_share_penalty", ".1%"),
    ("whole\nnodes", "cpu_share_whole_nodes", ".1%"),
    ("free:\nrunning", "cpu_share_free_running", ".1%"),
    ("free:\npaused", "cpu_share_free_paused", ".1%"),
    ("free:\nwaiting", "cpu_share_free_waiting", ".1%"),
    ("not\nwanted", "cpu_share_not_wanted", ".1%"),
    ("no\nroom", "cpu_share_no_room", ".1%"),
)
NO_ROOM = "cpu_share_no_room"
"""Too slow to compute for every run; a part of free: paused and free: waiting."""
ENERGY: tuple[tuple[str, str, str], ...] = (
    ("kWh", "energy_kwh", ",.2f"),
    ("mean W", "power_mean_w", ",.0f"),
    ("idle\nkWh", "idle_kwh", ",.2f"),
    ("off\nkWh", "off_kwh", ",.2f"),
    ("node h\non", "node_hours_on", ",.1f"),
    ("node h\nempty", "node_hours_empty", ",.1f"),
    ("kWh per\nCPU h", "kwh_per_cpu_hour", ".4f"),
)
MEANS: tuple[tuple[str, str, str], ...] = (
    ("bounded\nstretch", "bounded_stretch", ",.2f"),
    ("stretch", "stretch", ",.2f"),
    ("wait s", "wait_s", ",.0f"),
    ("flow s", "flow_s", ",.0f"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """What a user wants to know beside the usual table."""

    trim: "Trim | None" = None
    batches: int | None = None
    classes: tuple[tuple[int, ...], tuple[float, ...]] | None = None
    """Limits between sizes, in tasks, and between run times, in seconds."""
    users: bool = False
    lost: bool = False
    power: "PowerModel | None" = None

    @property
    def needs_logs(self) -> bool:
        """Whether summaries cannot tell."""
        return self.lost or any(each is not None for each in (self.trim, self.batches, self.classes, self.power))

    @property
    def tables(self) -> list[tuple[str, tuple[tuple[str, str, str], ...]]]:
        """Of metrics that summaries have: titles and columns."""
        found = [("Mean bounded stretch of users:", USERS)] if self.users else []
        return [*found, ("What becomes of the CPU:", SHARES)] if self.lost else found

    def in_metrics(self, metrics: Mapping[str, object]) -> bool:
        """Whether these have all columns of the tables but the one that is never in a summary."""
        return all(key in metrics for _, columns in self.tables for _, key, _ in columns if key != NO_ROOM)


def parse_limits(sizes: str | None, times: str | None) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The limits of classes: `1,8,32` tasks and `10m,1h,8h`, which are also the defaults. Raises InputError."""
    from dfrs.runs.metrics.classes import SIZES, TIMES_S

    parts = [] if sizes is None else sizes.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise InputError(f"--sizes {quoted(sizes)}: must be numbers of tasks, as 1,8,32")
    tasks = tuple(int(part) for part in parts) or SIZES
    seconds = TIMES_S if times is None else tuple(parse_seconds(part, "--times") for part in times.split(","))
    return tasks, seconds


def add_metrics(rows: Iterable[Row], requested: Requested) -> None:
    """Add to each row what is requested; with `trim` its metrics are those of the jobs and the time that remain."""
    for row in rows:
        if requested.in_metrics(row["metrics"]) and not requested.needs_logs:
            continue
        try:
            _add(row, requested)
        except InputError as error:
            text = str(error)
            raise InputError(text if text.startswith(row["run"]) else f"{row['run']}: {text}") from None


def _add(row: Row, requested: Requested) -> None:
    from dfrs.runs.directory import read_run
    from dfrs.runs.metrics.energy import energy
    from dfrs.runs.metrics.schedule import TAU_S, summarize
    from dfrs.runs.metrics.window import whole_run

    run = read_run(Path(row["run"]))
    tau_s = float(row["metrics"].get("tau_s") or TAU_S)
    window = whole_run(run) if requested.trim is None else requested.trim.window(run)
    if requested.trim is not None:
        row["metrics"] = summarize(run, tau_s=tau_s, trim=requested.trim)
        row["trim"] = {
            "trim": requested.trim.name,
            "jobs": int(window.jobs.sum()),
            "jobs_left_out": int((~window.jobs).sum()),
            "from_s": window.from_s,
            "to_s": window.to_s,
        }
    elif not requested.in_metrics(row["metrics"]):
        row["metrics"] = {**summarize(run, tau_s=tau_s), **row["metrics"]}
    if requested.lost:
        from dfrs.runs.metrics.shares import cpu_share_no_room

        row["metrics"][NO_ROOM] = cpu_share_no_room(run, window)
    if requested.batches is not None:
        row["batch_means"] = _intervals(run, window, tau_s, requested.batches)
    if requested.classes is not None:
        from dfrs.runs.metrics.classes import job_classes

        row["classes"] = [asdict(each) for each in job_classes(run, window, tau_s, *requested.classes)]
    if requested.power is not None:
        row["energy"] = {"model": asdict(requested.power), **asdict(energy(run, requested.power, window))}


def _intervals(run: "Run", window: "Window", tau_s: float, batches: int) -> dict[str, Any]:
    import numpy as np

    from dfrs.runs.metrics.batch_means import CONFIDENCE, batch_means
    from dfrs.runs.metrics.schedule import bounded_stretch

    done = window.jobs & np.isfinite(run.finish_s)
    release_s = run.workload.release_s
    values = {
        "bounded_stretch": bounded_stretch(run, tau_s),
        "stretch": run.stretch,
        "wait_s": run.start_s - release_s,
        "flow_s": run.finish_s - release_s,
    }
    found = {name: batch_means(each[done], batches) for name, each in values.items()}
    first = found["bounded_stretch"]
    return {
        "confidence": CONFIDENCE,
        "batches": first.batches,
        "batch_jobs": first.batch_jobs,
        "left_out": first.left_out,
        **{
            name: {"mean": each.mean, "half_width": each.half_width, "correlation": each.correlation}
            for name, each in found.items()
        },
    }


def show_trim(rows: Sequence[Row]) -> None:
    """Lines that say what the figures of trimmed runs are about."""
    lines = {
        f"{row['workload']['name']}: without warm-up and cool-down {row['trim']['trim']}: "
        f"{row['trim']['jobs']:,} of {row['trim']['jobs'] + row['trim']['jobs_left_out']:,} jobs, "
        f"from {row['trim']['from_s']:,.0f} s to {row['trim']['to_s']:,.0f} s"
        for row in rows
        if "trim" in row
    }
    for line in sorted(lines):
        out.print(line, markup=False, soft_wrap=True)
    if lines:
        out.print()


def show_metrics(rows: Sequence[Row], requested: Requested) -> None:
    """A table for each request."""
    for title, columns in requested.tables:
        _print(title, rows, [(name, _of("metrics", key), form) for name, key, form in columns])
    if requested.batches is not None:
        _show_intervals(rows)
    if requested.classes is not None:
        _show_classes(rows)
    if requested.power is not None:
        model = requested.power
        empty = "stay on" if model.empty_w is None else f"are off and draw {model.empty_w:g} W"
        title = (
            f"Energy, if a node draws {model.idle_w:g} W idle and {model.busy_w:g} W with all of its CPU in use, "
            f"linear between them; empty nodes {empty}, nodes that are down draw nothing:"
        )
        _print(title, rows, [(name, _of("energy", key), form) for name, key, form in ENERGY])


def _of(part: str, key: str) -> Callable[[Row], float | None]:
    return lambda row: row[part].get(key)


def _print(title: str, rows: Sequence[Row], columns: Sequence[Column]) -> None:
    table = _titled(rows, [name for name, _, _ in columns])
    for row in rows:
        values = [(of(row), form) for _, of, form in columns]
        table.add_row(*_named(rows, row), *("" if v is None else format(v, form) for v, form in values))
    _say(title, table)


def _show_intervals(rows: Sequence[Row]) -> None:
    table = _titled(rows, ["batches", "jobs a\nbatch", "left\nout", *(name for name, _, _ in MEANS), "corre-\nlation"])
    for row in rows:
        found = row["batch_means"]
        means = (f"{found[key]['mean']:{form}} ± {found[key]['half_width']:{form}}" for _, key, form in MEANS)
        correlation = found["bounded_stretch"]["correlation"]
        counts = (f"{found[key]:,}" for key in ("batches", "batch_jobs", "left_out"))
        table.add_row(*_named(rows, row), *counts, *means, "" if correlation is None else f"{correlation:.2f}")
    _say("Means with 95 % confidence intervals, by batch means in the order of submission:", table)


def _show_classes(rows: Sequence[Row]) -> None:
    for workload, sha256 in dict.fromkeys((row["workload"]["name"], row["workload"]["sha256"]) for row in rows):
        own = [row for row in rows if row["workload"]["sha256"] == sha256 and row["workload"]["name"] == workload]
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in ("tasks", "run time", "jobs", *(row["policy"] for row in own)):
            table.add_column(escape(name), justify="right", no_wrap=True, vertical="bottom")
        for k, each in enumerate(own[0]["classes"]):
            means = [row["classes"][k]["bounded_stretch_mean"] for row in own]
            jobs = max(row["classes"][k]["jobs"] for row in own)
            if jobs:
                cells = ("" if mean is None else f"{mean:,.2f}" for mean in means)
                table.add_row(_sizes(each), _times(each), f"{jobs:,}", *cells)
        _say(f"{workload}: mean bounded stretch by class of job:", table)


def _sizes(each: Row) -> str:
    least, most = each["above_tasks"] + 1, each["most_tasks"]
    if most is None:
        return f"from {least}"
    return f"{most}" if least == most else f"{least}-{most}"


def _times(each: Row) -> str:
    if each["most_s"] is None:
        return f"above {show_seconds(each['above_s'])}"
    return f"up to {show_seconds(each['most_s'])}"


def _titled(rows: Sequence[Row], titles: Iterable[str]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ["workload"] * _several(rows) + ["policy"]:
        table.add_column(name, no_wrap=True, vertical="bottom")
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _named(rows: Sequence[Row], row: Row) -> list[str]:
    return [escape(row["workload"]["name"])] * _several(rows) + [escape(row["policy"])]


def _several(rows: Sequence[Row]) -> bool:
    return len({row["workload"]["name"] for row in rows}) > 1


def _say(title: str, table: Table) -> None:
    out.print(f"\n{title}", markup=False, soft_wrap=True)
    width = out.measure(table, options=out.options.update(width=10_000)).maximum
    out_of(width).print(table)
