"""What `dfrs farm simulate` shows: runs side by side, verdicts, what became of migrations, what was considered."""

from collections.abc import Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from dfrs.cli.console import out
from dfrs.cli.quantities import show_count

if TYPE_CHECKING:
    from dfrs.experiments.farm_compare import FarmOutcome, Pair
    from dfrs.experiments.farm_runs import PreparedStream
    from dfrs.model.instance import Floats
    from dfrs.workloads.programs import Published

_MOST_LINES = 20
"""Of what was considered at one instant: the rest is counted."""


def show(
    outcomes: "Mapping[str, Sequence[FarmOutcome]]",
    pairs: "Sequence[Pair]",
    published: "Published | None",
    made: "PreparedStream",
) -> None:
    """Tables on standard output."""
    from dfrs.experiments.farm_compare import verdicts

    names, seeds = made.names, len(next(iter(outcomes.values())))
    clusters = ", ".join(f"{c.name} {c.machines} x {c.cores}" for c in made.farm.partitions)
    told = f"{made.workload.name}: {show_count(len(names), 'job')} on {made.farm.nodes} nodes ({clusters})"
    out.print(told + (f"; means of {seeds} seeds" if seeds > 1 else ""), style="bold", markup=False, soft_wrap=True)
    out.print(_runs_table(outcomes, pairs))
    for pair in pairs:
        out.print()
        out.print(_saved_table(pair))
        if published is not None:
            for verdict in verdicts(pair, published):
                sign = "holds" if verdict.holds else "does not hold"
                said = f"{sign}: {verdict.claim}. Published: {verdict.published}. Measured: {verdict.measured}."
                out.print(said, markup=False, soft_wrap=True)
    base = next(iter(outcomes.values()))
    for name, runs in list(outcomes.items())[1:]:
        if not any(each.moves for each in runs):
            out.print(f"\n{name}: nothing was migrated", markup=False)
        elif runs[0].moves:
            out.print()
            _show_moves(base[0], runs[0], names, several=seeds > 1)


def _runs_table(outcomes: "Mapping[str, Sequence[FarmOutcome]]", pairs: "Sequence[Pair]") -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("policy", overflow="fold")
    for column in ("average\nwait, s", "turn-\naround, s", "total\ntime, s", "migra-\ntions", "jobs\nmoved"):
        table.add_column(column, justify="right", overflow="fold")
    for column in ("done by\nbase run", "through-\nput"):
        table.add_column(column, justify="right", overflow="fold")
    by_name = {pair.policy: pair for pair in pairs}
    for name, runs in outcomes.items():
        cells = [_mean([each.metrics[key] for each in runs], ",.0f") for key in ("wait_s", "turnaround_s", "total_s")]
        cells += [_mean([each.decisions for each in runs], ",.3g"), _mean([len(each.moves) for each in runs], ",.3g")]
        pair = by_name.get(name)
        if pair is not None:
            cells += [_mean(pair.done.tolist(), ",.1f"), _mean(pair.throughput.tolist(), "+.1f") + " %"]
        table.add_row(name, *cells)
    return table


def _saved_table(pair: "Pair") -> Table:
    from dfrs.experiments.farm_compare import METRICS

    table = Table(
        title=f"{pair.policy} saves of {pair.base}",
        title_justify="left",
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    table.add_column("")
    for column in ("saved, s", "of the base run", "of the other run"):
        table.add_column(column, justify="right")
    for key, title in METRICS.items():
        shares = [_mean(part[key].tolist(), "+.1f") + " %" for part in (pair.of_base, pair.of_other)]
        table.add_row(title.removesuffix(", s"), _interval(pair.saved[key], pair.policy, key), *shares)
    return table


def _show_moves(base: "FarmOutcome", other: "FarmOutcome", names: Sequence[str], *, several: bool) -> None:
    from dfrs.experiments.farm_compare import moved_lines

    table = Table(
        title=f"Jobs that {other.policy} moved" + (f", seed {other.seed}" if several else "") + "; seconds",
        title_justify="left",
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    table.add_column("at", justify="right")
    for column in ("job", "from\n> to"):
        table.add_column(column, no_wrap=True)
    for column in ("plan's\ngain", "expected", base.policy, other.policy, "saved"):
        table.add_column(column, justify="right", overflow="fold")
    for line in moved_lines(base, other, names):
        table.add_row(*_move_cells(line))
    out.print(table)
    out.print("' co-located on one machine", style="dim")


def _move_cells(line: Mapping[str, Any]) -> list[str]:
    gain = line["predicted_gain_s"]
    return [
        f"{line['time_s']:,.0f}",
        line["name"],
        f"{line['from']} > {line['to']}",
        "memory" if gain is None else f"{gain:,.0f}",
        f"{line['expected_s']:,.0f}",
        f"{line['base_s']:,.0f} ({line['base_where']})",
        f"{line['run_s']:,.0f} ({line['where']})",
        f"{line['saved_s']:+,.0f}",
    ]


def explain_text(each: "FarmOutcome", made: "PreparedStream") -> None:
    """Every pair looked at at every analysis, and why it was not taken."""
    from dfrs.policies.heterogeneous.rules import letter

    if not each.analyses:
        return
    clusters = tuple(cluster.name for cluster in made.farm.partitions)
    index = {int(job): name for job, name in zip(made.workload.job_id.tolist(), made.names, strict=True)}
    out.print(f"\nWhat {each.policy} looked at, seed {each.seed}", style="bold", markup=False)
    for analysis in each.analyses:
        entries = analysis.considered
        out.print(f"at {analysis.time_s:,.0f} s: {show_count(len(entries), 'plan')}", markup=False)
        for entry in entries[:_MOST_LINES]:
            first, *others = (f"{index[job]} ({job})" for job in entry.jobs)
            way = f"{letter(entry.source, clusters)} > {letter(entry.target, clusters)}"
            against = f" for {', '.join(others)}" if others else ""
            gain = "" if isnan(entry.gain_s) else f"gain {entry.gain_s:,.0f} s of {entry.threshold_s:,.0f}: "
            told = "chosen" if entry.chosen else entry.why_not
            out.print(f"  {first} {way}{against}: {gain}{told}", markup=False, soft_wrap=True)
        if len(entries) > _MOST_LINES:
            out.print(f"  and {len(entries) - _MOST_LINES} more of less gain; --json has all", style="dim")


def _mean(values: Sequence[float], form: str) -> str:
    return f"{float(np.mean(values)):{form}}"


def _interval(values: "Floats", *seed: str) -> str:
    from dfrs.runs.metrics.statistics import mean_interval

    found = mean_interval(values, seed="/".join(seed)).shown
    told = f"{float(values.mean()):+,.0f}"
    return told if found.low is None or found.high is None else f"{told} [{found.low:+,.0f}, {found.high:+,.0f}]"
