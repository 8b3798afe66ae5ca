"""An independent checker of allocations.

It reads the two files itself and shares no code with what it checks: no model, no kernels, no file readers, only the
error that says a file cannot be read. Sums are exact to the last bit (`math.fsum`); `FORGIVEN` is the only tolerance.
"""

import csv
import json
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dfrs.model.errors import InputError
from dfrs.runs.validator.rules import RuleCheck, overcommitted

FORGIVEN = 1e-6
"""Relative to the reference node; wider than the rounding of printed figures, narrower than any effect."""

Document = dict[str, Any]
BROKEN = (KeyError, TypeError, ValueError, IndexError, AttributeError)
"""Raised where a document is not what its format says."""


@dataclass(slots=True, kw_only=True)
class ValidationReport:
    """What was checked and what is wrong; an allocation is valid if `problems` is empty."""

    problems: list[str] = field(default_factory=list[str])
    checks: int = 0
    summary: str = ""

    def check(self, holds: bool, problem: str) -> None:
        """Count a check, and note the problem if it fails."""
        self.checks += 1
        if not holds:
            self.problems.append(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one task needs of each resource, and which of it is rigid."""

    service: str
    needs: dict[str, float]
    rigid: dict[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An instance document in plain dictionaries: capacity by node and resource, tasks by service."""

    resources: list[str]
    capacity: dict[str, dict[str, float]]
    minimum: dict[str, float]
    tasks: dict[str, list[Task]]


def validate_allocation(path: Path, instance: Path | None = None, nodes: int | None = None) -> ValidationReport:
    """Check the allocation file at `path` against its instance. Raises InputError where a file cannot be read."""
    document = read_document(path)
    if document.get("format") != "dfrs-allocation/1":
        raise InputError(f'{path}: format = {document.get("format")!r}: must be "dfrs-allocation/1"')
    instance, source, problem = instance_of(path, document, instance, nodes)
    try:
        report = check(problem, document)
    except BROKEN as error:
        text = f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: not a dfrs-allocation/1 document for {instance}: {text}") from None
    try:
        _check_rules(source, document, report)
    except BROKEN as error:
        raise InputError(f"{instance}: rules that cannot be checked: {error}") from None
    return report


def instance_of(
    path: Path, document: Document, instance: Path | None, nodes: int | None
) -> tuple[Path, Document, Problem]:
    """(file, document, problem) of the instance that is given, or else the one that the document at `path` names."""
    if instance is None:
        named = document.get("instance")
        if not named or not isinstance(named, str):
            raise InputError(f"{path}: names no instance: give it with --instance")
        instance = Path(named)
    is_csv = instance.suffix.lower() == ".csv"
    try:
        source = _csv_document(instance) if is_csv else read_document(instance)
        count = nodes if nodes is not None else document.get("nodes")
        if count is not None:
            source["nodes"] = count
        return instance, source, problem_of(source)
    except BROKEN as error:
        kind = "file of services" if is_csv else "dfrs-instance/1 document"
        raise InputError(f"{instance}: not a {kind}: {type(error).__name__}: {error}") from None


def check_documents(instance: Document, allocation: Document) -> ValidationReport:
    """The same for documents in memory."""
    report = check(problem_of(instance), allocation)
    _check_rules(instance, allocation, report)
    return report


def _check_rules(instance: Document, allocation: Document, report: ValidationReport) -> None:
    """Every hard rule of the instance, and what the broken soft ones cost where the allocation states it."""
    if report.problems or not instance.get("rules"):
        return
    rules = RuleCheck(instance, allocation["placement"])
    report.checks += len(rules.rules)
    report.problems += rules.problems()
    cost = rules.cost()
    stated = allocation.get("rules_cost")
    if stated is not None:
        report.check(abs(stated - cost) <= FORGIVEN, f"rules_cost is stated as {stated}, but is {cost:.9g}")
    report.summary += f", {len(rules.rules)} rules" + (f" (soft ones broken for {cost:.6g})" if cost > 0 else "")


def check(problem: Problem, allocation: Document) -> ValidationReport:
    """Every condition of [Stillwell2010] section 4.1 and every figure the allocation states."""
    report = ValidationReport()
    placement, yields = allocation.get("placement"), allocation.get("yields")
    if not isinstance(placement, dict) or not isinstance(yields, dict):
        report.check(False, "there is no placement with yields to check")
        return report
    _check_placement(problem, placement, report)
    _check_yields(problem, yields, report)
    if report.problems:
        return report
    used = _loads(problem, placement, yields)
    for (node, resource), load in used.items():
        limit = problem.capacity[node][resource]
        report.check(load <= limit + FORGIVEN, f"node {node}: {resource} is {load:.9g}, capacity {limit:.9g}")
    _check_figures(problem, allocation, yields, used, report)
    tasks = sum(len(t) for t in problem.tasks.values())
    report.summary = (
        f"{len(problem.tasks)} services ({tasks} tasks) on {len(problem.capacity)} nodes, "
        f"minimum yield {allocation['minimum_yield']:.6f}, {report.checks} checks"
    )
    return report


def _check_placement(problem: Problem, placement: dict[str, list[str]], report: ValidationReport) -> None:
    for service, tasks in problem.tasks.items():
        where = placement.get(service)
        report.check(where is not None, f"service {service}: not placed")
        if where is None:
            continue
        report.check(len(where) == len(tasks), f"service {service}: {len(where)} nodes for {len(tasks)} tasks")
        for node in where:
            report.check(node in problem.capacity, f"service {service}: no node is named {node}")
    for service in placement:
        report.check(service in problem.tasks, f"service {service}: placed, but not in the instance")


def _check_yields(problem: Problem, yields: dict[str, float], report: ValidationReport) -> None:
    for service in problem.tasks:
        value = yields.get(service)
        good = isinstance(value, int | float) and math.isfinite(value)
        report.check(good, f"service {service}: yield is {value!r}")
        if good and value is not None:
            low = problem.minimum[service]
            report.check(low - FORGIVEN <= value <= 1 + FORGIVEN, f"service {service}: yield {value} not in [{low}, 1]")


def _loads(problem: Problem, placement: dict[str, list[str]], yields: dict[str, float]) -> dict[tuple[str, str], float]:
    parts: dict[tuple[str, str], list[float]] = {
        (node, resource): [] for node in problem.capacity for resource in problem.resources
    }
    for service, tasks in problem.tasks.items():
        for task, node in zip(tasks, placement[service], strict=True):
            for resource in problem.resources:
                factor = 1.0 if task.rigid[resource] else yields[service]
                parts[node, resource].append(task.needs[resource] * factor)
    return {key: math.fsum(values) for key, values in parts.items()}


def _check_figures(
    problem: Problem,
    allocation: Document,
    yields: dict[str, float],
    used: dict[tuple[str, str], float],
    report: ValidationReport,
) -> None:
    scaled = {s: 1.0 if low >= 1.0 else (yields[s] - low) / (1.0 - low) for s, low in problem.minimum.items()}
    fluid = [
        r
        for r in problem.resources
        if any(not t.rigid[r] and t.needs[r] > 0 for tasks in problem.tasks.values() for t in tasks)
    ]
    whole = math.fsum(problem.capacity[n][r] for n in problem.capacity for r in fluid)
    utilization = math.fsum(used[n, r] for n in problem.capacity for r in fluid) / whole if whole > 0 else 0.0
    stated = allocation["minimum_yield"]
    bound = allocation["bound"]
    limit = _aggregate_bound(problem)
    gap = max(0.0, (bound - stated) / bound) if bound > 0 else 0.0
    for name, value in (
        ("minimum_yield", min(scaled.values())),
        ("average_yield", math.fsum(scaled.values()) / len(scaled)),
        ("utilization", utilization),
        ("gap", gap),
    ):
        report.check(
            abs(allocation[name] - value) <= FORGIVEN, f"{name} is stated as {allocation[name]}, but is {value:.9g}"
        )
    report.check(stated <= bound + FORGIVEN, f"minimum_yield {stated} is above its own bound {bound}")
    report.check(bound <= limit + FORGIVEN, f"bound {bound} is looser than the aggregate bound {limit:.9g}")
    if allocation.get("status") == "optimal":
        report.check(gap <= FORGIVEN, f"status is optimal, but the gap is {gap:.3g}")


def _aggregate_bound(problem: Problem) -> float:
    """No placement's minimum yield passes this: what is free of a resource over what yields scale of it."""
    limit = 1.0
    for r in problem.resources:
        fixed: list[float] = []
        rate: list[float] = []
        for tasks in problem.tasks.values():
            for t in tasks:
                low = problem.minimum[t.service]
                fixed.append(t.needs[r] * (1.0 if t.rigid[r] else low))
                rate.append(0.0 if t.rigid[r] else t.needs[r] * (1.0 - low))
        total = math.fsum(rate)
        if total > 0:
            free = math.fsum(c[r] for c in problem.capacity.values()) - math.fsum(fixed)
            limit = min(limit, max(0.0, free) / total)
    return limit


def problem_of(document: Document) -> Problem:
    """The problem of an instance document. Raises one of BROKEN where it is none."""
    kinds = {r["name"]: r["kind"] == "rigid" for r in document["resources"]}
    given = document["nodes"]
    entries: list[Document] = [{"name": f"n{k}"} for k in range(given)] if isinstance(given, int) else given
    capacity = {n["name"]: {r: float(n.get("capacity", {}).get(r, 1.0)) for r in kinds} for n in entries}
    minimum: dict[str, float] = {}
    tasks: dict[str, list[Task]] = {}
    for s in document["services"]:
        minimum[s["name"]] = float(s.get("minimum_yield", 0.0))
        rigid = kinds | {r: kind == "rigid" for r, kind in s.get("kinds", {}).items()}
        own = {r: float(s.get("needs", {}).get(r, 0.0)) for r in kinds}
        tasks[s["name"]] = []
        for part in s.get("components") or [{"tasks": s.get("tasks", 1)}]:
            factor = float(part.get("factor", 1.0))
            needs = {r: own[r] * (1.0 if rigid[r] else factor) for r in kinds}
            needs |= {r: float(v) for r, v in part.get("needs", {}).items()}
            tasks[s["name"]] += [Task(service=s["name"], needs=needs, rigid=rigid)] * int(part.get("tasks", 1))
    repeated = [name for name, times in Counter(s["name"] for s in document["services"]).items() if times > 1]
    if repeated:
        raise ValueError(f"service {repeated[0]} stands twice")
    capacity = overcommitted(document, capacity)
    return Problem(resources=list(kinds), capacity=capacity, minimum=minimum, tasks=tasks)


def read_document(path: Path) -> Document:
    """A JSON object from a file. Raises InputError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    except ValueError:
        raise InputError(f"{path}: a number has too many digits") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: must be a JSON object")
    return document


def _csv_document(path: Path) -> Document:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            cells = [[cell.strip() for cell in row] for row in csv.reader(file)]
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not CSV: {error}") from None
    for line, row in enumerate(cells[1:], 2):
        if any(row) and len(row) != len(cells[0]):
            raise InputError(f"{path}:{line}: {len(row)} cells: must be {len(cells[0])} as in the header")
    rows = [dict(zip(cells[0], row, strict=True)) for row in cells[1:] if any(row)]
    if not rows:
        raise InputError(f"{path}: no services")
    columns = [c for c in cells[0] if ":" in c]
    services = [
        {
            "name": row["name"],
            "tasks": int(float(row.get("tasks") or 1)),
            "minimum_yield": float(row.get("minimum_yield") or 0),
            "needs": {c.rsplit(":", 1)[0]: float(row[c] or 0) for c in columns},
        }
        for row in rows
    ]
    resources = [{"name": c.rsplit(":", 1)[0], "kind": c.rsplit(":", 1)[1]} for c in columns]
    return {"resources": resources, "nodes": 1, "services": services}
