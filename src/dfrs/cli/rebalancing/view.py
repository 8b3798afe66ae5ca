"""A rebalancing as the table, headline and document that `dfrs rebalance` shows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from dfrs.cli.console import out, out_of
from dfrs.cli.quantities import show_bytes, show_count, show_seconds
from dfrs.placement.conflicts import diagnose
from dfrs.placement.headroom import headroom_lines
from dfrs.placement.plan_document import plan_document
from dfrs.rebalancing.solve import promised_parts

if TYPE_CHECKING:
    from dfrs.model.instance import Instance
    from dfrs.placement.budget import Budget
    from dfrs.placement.plan import Plan
    from dfrs.rebalancing.mover import Execution, Migration
    from dfrs.rebalancing.solve import Rebalancing
    from dfrs.workloads.clusters.state import ClusterState


DIAGNOSIS_S = 5.0
"""Longest search for rules that conflict."""


def show_rebalancing(state: "ClusterState", found: "Rebalancing", budget: "Budget", *, title: bool = True) -> None:
    """Headline, moves, and what could not be kept, on standard output."""
    instance = state.instance
    if title:
        resources = ", ".join(f"{r.name} {r.kind}" for r in instance.resources)
        hosts, tasks = show_count(len(instance.nodes), "host"), show_count(len(instance.need), "machine")
        _line(f"{state.source}: {tasks} on {hosts}; {resources}")
    _line(headline(found, budget), bold=True)
    if found.plan is not None and found.plan.steps:
        table = _moves(instance, found.plan)
        width = Measurement.get(out, out.options.update(max_width=10_000), table).maximum
        out_of(width).print(table)
    for line in not_kept(state, found):
        _line(f"not kept: {line}")
    for note in state.notes:
        out.print(note, style="dim", markup=False, soft_wrap=True)


def headline(found: "Rebalancing", budget: "Budget") -> str:
    """One line: the minimum yield now and after, the bound for the budget, moves, bytes and time."""
    now = "requirements do not fit now" if found.present_yield is None else f"minimum yield {found.present_yield:.4f}"
    outcome, plan = found.outcome, found.plan
    if plan is None:
        return f"{now}; no feasible placement was found"
    within = "within the budget " if budget.limits else ""
    best = f"no placement {within}has more than {outcome.bound:.4f}"
    if not plan.steps:
        what = "nothing to move" if plan.complete else "no move that helps can be made"
        return f"{now}; {what}: {best}" if found.present_yield is not None else f"{now}; nothing was found"
    after = "requirements do not fit" if found.minimum_yield is None else f"{found.minimum_yield:.4f}"
    takes = f" in {show_seconds(plan.makespan_s)}" if plan.timed else ""
    size = f", {show_bytes(plan.bytes)}" if plan.bytes else ""
    aside = f" ({plan.temporary} of them temporary)" if plan.temporary else ""
    started = sum(move.source < 0 for move in plan.steps)
    starts = f" and {show_count(started, 'start')}" if started else ""
    moves = show_count(len(plan.steps) - started, "move")
    return f"{now}, {after} after {moves}{aside}{starts}{size}{takes}; {best}"


def why_none(state: "ClusterState", found: "Rebalancing") -> str:
    """Why there is no placement, in one line: rules that conflict, or what the search says."""
    if state.instance.rules is not None:
        conflicts = diagnose(state.instance, DIAGNOSIS_S).conflicts
        if conflicts:
            return "; ".join(conflict.text for conflict in conflicts)
    return str(found.outcome.details.get("reason", "no placement found"))


def not_kept(state: "ClusterState", found: "Rebalancing") -> list[str]:
    """What the plan does not achieve, a line each: rules, tasks that do not reach their place."""
    rules, plan = state.instance.rules, found.plan
    if plan is None:
        return [] if rules is None else rules.problems(state.present)
    lines = list(plan.problems)
    if rules is not None:
        lines += rules.problems(plan.final) + rules.concessions(plan.final)
        if rules.headroom is not None:
            lines += [f"headroom: {line}" for line in headroom_lines(state.instance, plan.final)]
    return lines


def left_out(state: "ClusterState", found: "Rebalancing") -> list[str]:
    """What the commands of a tool do not do, a line each: what the plan does not achieve, and machines that start."""
    lines = [f"not kept: {line}" for line in not_kept(state, found)]
    if found.plan is not None:
        lines += [
            f"not started: {move.service} on {state.instance.nodes[move.target]}"
            for move in found.plan.steps
            if move.source < 0
        ]
    return lines


def rebalancing_document(
    state: "ClusterState", found: "Rebalancing", budget: "Budget", execution: "Execution | None" = None
) -> dict[str, object]:
    """Everything, for `--json`: `plan` is a `dfrs-plan/1` document."""
    instance, outcome, plan = state.instance, found.outcome, found.plan
    document: dict[str, object] = {
        "source": state.source,
        "hosts": len(instance.nodes),
        "machines": len(instance.need),
        "status": str(outcome.status),
        "minimum_yield_now": found.present_yield,
        "minimum_yield": found.minimum_yield,
        "bound": outcome.bound,
        "budget": budget.limits,
        "moves": found.moves,
        "bytes": 0.0 if plan is None else plan.bytes,
        "makespan_s": None if plan is None or not plan.timed else plan.makespan_s,
        "reason": why_none(state, found) if plan is None else None,
        "not_kept": not_kept(state, found),
        "notes": list(state.notes),
        "details": dict(outcome.details),
        "plan": None if plan is None else plan_document(plan, instance),
    }
    if state.hosts and found.minimum_yield is not None:
        cores = max(host.cores for host in state.hosts)
        document["promised_cores"] = {name: part * cores for name, part in promised_parts(instance, found).items()}
    if execution is not None:
        document["execution"] = execution_document(execution)
    return document


def execution_document(execution: "Execution") -> dict[str, object]:
    """How carrying out a plan ended."""

    def listed(moves: "Sequence[Migration]") -> list[dict[str, str]]:
        return [{"machine": m.machine, "from": m.source, "to": m.target} for m in moves]

    return {
        "complete": execution.complete,
        "failure": execution.failure or None,
        "done": listed(execution.done),
        "already_there": listed(execution.skipped),
        "remaining": listed(execution.remaining),
        "where": dict(execution.where),
    }


def show_execution(execution: "Execution", console: Console = out) -> None:
    """What was done and what remains, and where everything is if something does."""
    done, skipped, left = len(execution.done), len(execution.skipped), len(execution.remaining)
    there = f", {skipped} were already there" if skipped else ""
    _line(f"{show_count(done, 'move')} done{there}, {left} remain", bold=True, console=console)
    if execution.failure:
        _line(f"ended: {execution.failure}", console=console)
    for move in execution.remaining:
        here = execution.where.get(move.machine)
        is_on = f"it is on {here}" if here else "where it is is not known"
        _line(f"remains: {move.machine}: {move.source} to {move.target}; {is_on}", console=console)


def _moves(instance: "Instance", plan: "Plan") -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    timed = plan.timed
    for name, right in (("step", True), ("starts", True), ("takes", True)) if timed else (("step", True),):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for name in ("machine", "from", "to"):
        table.add_column(name, no_wrap=True)
    for name in ("size", "minimum yield"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what it is for", no_wrap=True)
    for move in plan.steps:
        several = int((instance.service_of == instance.service_of[move.task]).sum()) > 1
        times = [show_seconds(move.start_s), show_seconds(move.end_s - move.start_s)] if timed else []
        table.add_row(
            str(move.step + 1),
            *times,
            f"{move.service}/{move.rank}" if several else move.service,
            instance.nodes[move.source] if move.source >= 0 else "-",
            instance.nodes[move.target],
            show_bytes(move.bytes) if move.bytes else "-",
            "does not fit" if move.minimum_yield_after is None else f"{move.minimum_yield_after:.4f}",
            move.reason,
        )
    return table


def _line(text: str, *, bold: bool = False, console: Console = out) -> None:
    console.print(text, style="bold" if bold else None, markup=False, soft_wrap=True)
