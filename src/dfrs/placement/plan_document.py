"""Plans as JSON documents, `dfrs-plan/1`: written with the instance's names, read back with every name checked."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dfrs.model.errors import InputError
from dfrs.model.instance import Instance, Ints
from dfrs.model.move_limits import MoveLimits
from dfrs.placement.plan import Move, Plan

FORMAT = "dfrs-plan/1"

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, strict=True)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Placement = dict[str, list[str | None]]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitsDocument(_Document):
    """Limits on moves, as in `dfrs-instance/1`."""

    at_once: int | None = None
    per_node: int | None = None
    per_link: int | None = None
    link_level: str | None = None
    bandwidth_bytes_per_s: float | None = None
    latency_s: float = 0.0


class MoveDocument(_Document):
    """One move; `from` is null for a task that starts."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    step: Count
    service: str
    rank: Count
    source: Annotated[str | None, Field(alias="from")]
    target: Annotated[str, Field(alias="to")]
    start_s: Amount
    end_s: Amount
    bytes: Amount
    temporary: bool
    reason: str
    minimum_yield_after: Share | None


class PlanDocument(_Document):
    """A whole plan."""

    format: Literal["dfrs-plan/1"]
    instance: str | None = None
    nodes: Count | None = None
    complete: bool
    unit: Literal["s", "move"]
    makespan_s: Amount
    makespan_bound_s: Amount
    bytes: Amount
    temporary: Count
    minimum_yield_before: Share | None
    limits: LimitsDocument
    steps: list[MoveDocument]
    problems: list[str]
    present: Placement
    target: Placement


def plan_document(plan: Plan, instance: Instance) -> dict[str, object]:
    """The `dfrs-plan/1` document of a plan for an instance."""
    nodes = instance.nodes
    return {
        "format": FORMAT,
        "complete": plan.complete,
        "unit": "s" if plan.timed else "move",
        "makespan_s": plan.makespan_s,
        "makespan_bound_s": plan.makespan_bound_s,
        "bytes": plan.bytes,
        "temporary": plan.temporary,
        "minimum_yield_before": plan.minimum_yield_before,
        "limits": {label: value for label, value in asdict(plan.limits).items() if value is not None},
        "steps": [
            {
                "step": move.step,
                "service": move.service,
                "rank": move.rank,
                "from": nodes[move.source] if move.source >= 0 else None,
                "to": nodes[move.target],
                "start_s": move.start_s,
                "end_s": move.end_s,
                "bytes": move.bytes,
                "temporary": move.temporary,
                "reason": move.reason,
                "minimum_yield_after": move.minimum_yield_after,
            }
            for move in plan.steps
        ],
        "problems": list(plan.problems),
        "present": _placement(instance, plan.present),
        "target": _placement(instance, plan.target),
    }


def read_plan(path: Path, instance: Instance) -> Plan:
    """The plan of a file. Raises InputError naming file, field, value and rule."""
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    except ValueError:
        raise InputError(f"{path}: a number has too many digits") from None
    return plan_from_document(document, instance, str(path))


def plan_from_document(document: Mapping[str, Any], instance: Instance, source: str = "plan") -> Plan:
    """The plan of a document. What a plan promises is checked by `dfrs.runs.validator.plans`, not here."""
    try:
        given = PlanDocument.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"]).lstrip(".")
        raise InputError(f"{source}: {where}: {first['msg'][0].lower()}{first['msg'][1:]}") from None
    present = _places(given.present, instance, f"{source}: present", empty=True)
    target = _places(given.target, instance, f"{source}: target", empty=False)
    index = {name: n for n, name in enumerate(instance.nodes)}
    first_task = np.searchsorted(instance.service_of, np.arange(len(instance.services)))
    service = {name: j for j, name in enumerate(instance.services)}
    final = present.copy()
    moves: list[Move] = []
    for k, move in enumerate(given.steps):
        where = f"{source}: steps[{k}]"
        j = service.get(move.service, -1)
        if j < 0 or move.rank >= instance.tasks_per_service[j]:
            raise InputError(f'{where}: "{move.service}", rank {move.rank}: no such task in the instance')
        for label, name in (("from", move.source), ("to", move.target)):
            if name is not None and name not in index:
                raise InputError(f'{where}.{label} = "{name}": no such node in the instance')
        task = int(first_task[j]) + move.rank
        source_node = -1 if move.source is None else index[move.source]
        final[task] = index[move.target]
        moves.append(
            Move(
                step=move.step,
                task=task,
                service=move.service,
                rank=move.rank,
                source=source_node,
                target=index[move.target],
                start_s=move.start_s,
                end_s=move.end_s,
                bytes=move.bytes,
                temporary=move.temporary,
                reason=move.reason,
                minimum_yield_after=move.minimum_yield_after,
            )
        )
    return Plan(
        steps=tuple(moves),
        makespan_s=given.makespan_s,
        makespan_bound_s=given.makespan_bound_s,
        bytes=given.bytes,
        temporary=given.temporary,
        complete=given.complete,
        problems=tuple(given.problems),
        timed=given.unit == "s",
        minimum_yield_before=given.minimum_yield_before,
        limits=_limits(given.limits, source),
        present=present,
        target=target,
        final=final,
    )


def _limits(given: LimitsDocument, source: str) -> MoveLimits:
    try:
        return MoveLimits(**given.model_dump())
    except InputError as error:
        raise InputError(f"{source}: limits: {error}") from None


def _placement(instance: Instance, place: Ints) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = {name: [] for name in instance.services}
    for j, n in zip(instance.service_of.tolist(), place.tolist(), strict=True):
        found[instance.services[j]].append(instance.nodes[n] if n >= 0 else None)
    return found


def _places(placement: Placement, instance: Instance, where: str, *, empty: bool) -> Ints:
    index = {name: n for n, name in enumerate(instance.nodes)}
    place: list[int] = []
    for j, service in enumerate(instance.services):
        given = placement.get(service)
        if given is None:
            raise InputError(f'{where} has no entry for service "{service}"')
        if len(given) != instance.tasks_per_service[j]:
            raise InputError(
                f'{where}."{service}" has {len(given)} nodes: must be one for each of '
                f"{instance.tasks_per_service[j]} tasks"
            )
        for k, name in enumerate(given):
            if name is None and empty:
                place.append(-1)
            elif name is None or name not in index:
                raise InputError(f'{where}."{service}"[{k}] = {json.dumps(name)}: no such node in the instance')
            else:
                place.append(index[name])
    extra = next((name for name in placement if name not in set(instance.services)), None)
    if extra is not None:
        raise InputError(f'{where}."{extra}": no such service in the instance')
    return np.array(place, dtype=np.int64)
