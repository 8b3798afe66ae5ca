"""Instances from arrays and from data frames, without a file between."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Floats, Instance, Ints
from dfrs.model.move_limits import MoveLimits
from dfrs.model.resources import Kind, Resource
from dfrs.model.rules import Rule, Rules

Labels = Sequence[Mapping[str, str]] | Mapping[str, Mapping[str, str]]

_MACHINE = ("name", "service", "host", "minimum_yield", "move_cost")
"""Columns of a frame of machines that are not resources."""


def from_arrays(
    capacity: Floats,
    need: Floats,
    rigid: Bools | Sequence[bool],
    *,
    services: Sequence[str] | None = None,
    nodes: Sequence[str] | None = None,
    resources: Sequence[str | Resource] | None = None,
    service_of: Ints | Sequence[int] | None = None,
    minimum_yield: Floats | float | None = None,
    move_cost: Floats | float | None = None,
    labels: Labels | None = None,
    rules: Rules | Iterable[Rule] | None = None,
    move_limits: MoveLimits | None = None,
) -> Instance:
    """See `Instance.from_arrays`."""
    need, capacity = _table(need, "need"), _table(capacity, "capacity")
    tasks, dims = need.shape
    of = np.arange(tasks, dtype=np.int64) if service_of is None else np.asarray(service_of, dtype=np.int64)
    count = (int(of.max()) + 1 if of.size else 0) if services is None else len(services)
    kinds = np.asarray(rigid, dtype=np.bool_)
    if kinds.shape not in {(dims,), (tasks, dims)}:
        raise InputError(f"rigid has shape {kinds.shape}: must be {(dims,)} or {(tasks, dims)}")
    kinds = np.broadcast_to(kinds, (tasks, dims))
    names = tuple(f"n{n}" for n in range(len(capacity))) if nodes is None else tuple(map(str, nodes))
    given = [f"r{d}" for d in range(dims)] if resources is None else list(resources)
    if len(given) != dims:
        raise InputError(f"resources has {len(given)} entries: must be one for each of {dims} columns of need")
    return Instance(
        resources=tuple(
            r if isinstance(r, Resource) else Resource(name=r, kind=Kind.RIGID if kinds[:, d].all() else Kind.FLUID)
            for d, r in enumerate(given)
        ),
        nodes=names,
        capacity=capacity,
        services=tuple(f"s{j}" for j in range(count)) if services is None else tuple(map(str, services)),
        minimum_yield=_column(0.0 if minimum_yield is None else minimum_yield, count),
        service_of=of,
        need=need,
        rigid=kinds,
        move_cost=_column(1.0 if move_cost is None else move_cost, tasks),
        labels=_labels(labels, names),
        rules=None if rules is None else rules if isinstance(rules, Rules) else Rules(tuple(rules)),
        move_limits=move_limits,
    )


def from_frame(
    machines: object,
    hosts: object,
    *,
    fluid: Sequence[str] = ("cpu",),
    unit_bytes: Mapping[str, float] | None = None,
    rules: Rules | Iterable[Rule] | None = None,
    move_limits: MoveLimits | None = None,
) -> Instance:
    """See `Instance.from_frame`."""
    host, machine = _columns(hosts, "hosts"), _columns(machines, "machines")
    for table, label in ((host, "hosts"), (machine, "machines")):
        if "name" not in table:
            raise InputError(f'{label}: no column "name"')
    names = [c for c in machine if c not in _MACHINE]
    missing = [c for c in names if c not in host]
    if missing:
        raise InputError(f'machines: column "{missing[0]}": hosts has no such column; must be a resource of both')
    if not names:
        raise InputError("machines: no column is a resource: hosts must have the same")
    capacity = np.column_stack([_numbers(host[c], f"hosts.{c}") for c in names])
    need = np.column_stack([_numbers(machine[c], f"machines.{c}") for c in names])
    reference = capacity.max(axis=0, initial=0.0)
    reference[reference == 0] = 1.0
    size = unit_bytes or {}
    resources = [
        Resource(
            name=c,
            kind=Kind.FLUID if c in fluid else Kind.RIGID,
            bytes_per_node=float(size[c] * reference[d]) if c in size else None,
        )
        for d, c in enumerate(names)
    ]
    services, of, first = _services(machine)
    label_columns = [c for c in host if c != "name" and c not in names]
    labels = [{c: str(host[c][n]) for c in label_columns if _given(host[c][n])} for n in range(len(capacity))]
    minimum = _numbers(machine["minimum_yield"], "machines.minimum_yield") if "minimum_yield" in machine else None
    cost = _numbers(machine["move_cost"], "machines.move_cost") if "move_cost" in machine else None
    return from_arrays(
        capacity / reference,
        need / reference,
        [r.kind == Kind.RIGID for r in resources],
        services=services,
        nodes=_distinct(host["name"], "hosts.name"),
        resources=resources,
        service_of=of,
        minimum_yield=None if minimum is None else minimum[first],
        move_cost=cost,
        labels=labels if label_columns else None,
        rules=rules,
        move_limits=move_limits,
    )


def _services(machine: Mapping[str, list[Any]]) -> tuple[list[str], Ints, Ints]:
    """Names of services (S,), which one each machine is of (T,), and the first machine of each (S,)."""
    if "service" not in machine:
        services = _distinct(machine["name"], "machines.name")
        return services, np.arange(len(services)), np.arange(len(services))
    given = [
        str(service) if _given(service) else str(name)
        for service, name in zip(machine["service"], machine["name"], strict=True)
    ]
    starts = [k for k, service in enumerate(given) if k == 0 or given[k - 1] != service]
    services = [given[k] for k in starts]
    seen: set[str] = set()
    for k, service in zip(starts, services, strict=True):
        if service in seen:
            raise InputError(f'machines.service[{k}] = "{service}": rows of one service must be adjacent; sort by it')
        seen.add(service)
    steps = np.zeros(len(given), dtype=np.int64)
    steps[starts[1:]] = 1
    return services, np.cumsum(steps), np.array(starts, dtype=np.int64)


def _columns(frame: object, label: str) -> dict[str, list[Any]]:
    """Columns of a polars or pandas frame, or of a mapping of sequences."""
    given = cast("Any", frame)
    names = list(getattr(frame, "columns", given))
    table = {str(name): list(given[name]) for name in names}
    rows = {len(column) for column in table.values()}
    if len(rows) != 1 or rows == {0}:
        raise InputError(f"{label}: must have rows, and as many in each column")
    return table


def _given(value: object) -> bool:
    return value is not None and value == value and value != ""  # noqa: PLR0124 - NaN is what pandas has for nothing


def _numbers(column: list[Any], where: str) -> Floats:
    for k, value in enumerate(column):
        if not _given(value) or isinstance(value, str):
            raise InputError(f"{where}[{k}] = {value!r}: must be a number")
    return np.array(column, dtype=np.float64)


def _distinct(column: list[Any], where: str) -> list[str]:
    seen: set[str] = set()
    for k, value in enumerate(column):
        if not _given(value) or str(value) in seen:
            raise InputError(f"{where}[{k}] = {value!r}: must be a name that no other row has")
        seen.add(str(value))
    return [str(value) for value in column]


def _table(values: Floats, label: str) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise InputError(f"{label} has shape {array.shape}: must have two dimensions")
    return array


def _column(values: Floats | float, count: int) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return np.full(count, float(array)) if array.ndim == 0 else array


def _labels(labels: Labels | None, nodes: tuple[str, ...]) -> tuple[Mapping[str, str], ...]:
    if not labels:
        return ()
    if not isinstance(labels, Mapping):
        return tuple(labels)
    unknown = [name for name in labels if name not in nodes]
    if unknown:
        raise InputError(f'labels."{unknown[0]}": no such node')
    return tuple(labels.get(name, {}) for name in nodes)
