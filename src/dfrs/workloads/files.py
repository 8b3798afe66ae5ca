"""Instances and allocations as files: JSON, and CSV where a spreadsheet is what people have.

Bad input raises InputError with one line naming file, field, value and rule; output is written whole or not at all.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn, TypeVar, cast

import numpy as np
from pydantic import BaseModel, ValidationError

from dfrs.model import tolerances
from dfrs.model.allocation import Allocation
from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Instance, Ints
from dfrs.model.resources import Kind, Resource
from dfrs.model.rules import RULES
from dfrs.workloads.documents import AllocationDocument, InstanceDocument, ServiceDocument
from dfrs.workloads.rule_files import move_limits_of, overcommit_of, physical, restrictions, rules_of

LARGEST_FILE_BYTES = 512 * 2**20

D = TypeVar("D", bound=BaseModel)


def read_instance(path: Path, nodes: int | None = None) -> Instance:
    """An instance from a `.json` or `.csv` file. `nodes` equal nodes replace the file's (a CSV file has none)."""
    if path.suffix.lower() == ".csv":
        if nodes is None:
            raise InputError(f"{path}: a CSV file has no nodes: give their number with --nodes")
        document = _csv_document(path, nodes)
    else:
        document = _load(path)
        if nodes is not None:
            document["nodes"] = nodes
    return build_instance(validate_document(InstanceDocument, document, str(path)), str(path))


def read_placement(path: Path, instance: Instance, *, partial: bool = False) -> Ints:
    """(T,) node of each task from an allocation file; with `partial`, -1 for services the file does not name."""
    document = validate_document(AllocationDocument, _load(path), str(path))
    if document.placement is None:
        raise InputError(f"{path}: placement = null: this allocation placed nothing")
    node_index = {name: n for n, name in enumerate(instance.nodes)}
    service_index = {name: j for j, name in enumerate(instance.services)}
    first = np.searchsorted(instance.service_of, np.arange(len(instance.services)))
    place = np.full(len(instance.need), -1, dtype=np.int64)
    for name, nodes in document.placement.items():
        j = service_index.get(name)
        if j is None:
            if partial:
                continue
            raise InputError(f'{path}: placement."{name}": no such service in the instance')
        tasks = int(instance.tasks_per_service[j])
        if len(nodes) != tasks and not partial:
            raise InputError(
                f'{path}: placement."{name}" has {len(nodes)} nodes: must be one for each of {tasks} tasks'
            )
        for k, node in enumerate(nodes[:tasks]):
            if node in node_index:
                place[first[j] + k] = node_index[node]
            elif not partial:
                raise InputError(f'{path}: placement."{name}"[{k}] = "{node}": no such node in the instance')
    if not partial and (place < 0).any():
        missing = instance.services[int(instance.service_of[int(np.argmin(place))])]
        raise InputError(f'{path}: placement has no entry for service "{missing}"')
    return place


def read_allocation(
    path: Path, instance_path: Path | None = None, nodes: int | None = None
) -> tuple[Instance, Allocation, float, str]:
    """(instance, allocation, bound, algorithm) of an allocation file; the instance is the one it names by default."""
    document = validate_document(AllocationDocument, _load(path), str(path))
    if instance_path is None and document.instance is None:
        raise InputError(f"{path}: names no instance: give it with --instance")
    count = nodes if nodes is not None else document.nodes
    instance = read_instance(instance_path or Path(str(document.instance)), count)
    place = read_placement(path, instance)
    scaled = document.scaled_yields or {}
    missing = next((name for name in instance.services if name not in scaled), None)
    if missing is not None:
        raise InputError(f'{path}: scaled_yields has no entry for service "{missing}"')
    values = np.array([scaled[name] for name in instance.services])
    return instance, Allocation(place=place, scaled_yields=values), document.bound, document.algorithm


def build_instance(document: InstanceDocument, source: str = "instance") -> Instance:
    """The arrays of a validated document. Raises InputError for duplicate or unknown names, or needs no node holds."""
    resources = tuple(Resource(name=r.name, kind=r.kind, bytes_per_node=r.bytes) for r in document.resources)
    _unique((r.name for r in resources), f"{source}: resources")
    _unique((s.name for s in document.services), f"{source}: services")
    column = {r.name: d for d, r in enumerate(resources)}
    names, capacity, node_labels = _nodes(document, column, source)
    overcommit = overcommit_of(document.overcommit, column, names, node_labels, source)
    if overcommit is not None:
        capacity = capacity * overcommit
    rows: list[Floats] = []
    rigid_rows: list[np.ndarray] = []
    tasks: list[int] = []
    service_of: list[int] = []
    labels: list[str] = []
    costs: list[float] = []
    for j, service in enumerate(document.services):
        where = f"{source}: services[{j}]"
        kinds = [r.kind for r in resources]
        for name, kind in service.kinds.items():
            kinds[_column(column, name, f"{where}.kinds")] = kind
        rigid = np.array([kind == Kind.RIGID for kind in kinds])
        for label, count, need, cost in _parts(service, column, rigid, where):
            blocked = np.flatnonzero(rigid & (need > capacity.max(axis=0) + tolerances.CAPACITY))
            if blocked.size:
                d = int(blocked[0])
                raise InputError(
                    f"{where}.needs.{resources[d].name} = {need[d]:g}: a requirement must fit on a node; "
                    f"the largest has {capacity[:, d].max():g}"
                )
            rows.append(need)
            rigid_rows.append(rigid)
            tasks.append(count)
            service_of.append(j)
            labels.append(label)
            costs.append(cost)
    repeat = np.repeat(np.arange(len(rows)), tasks)
    rules, move_limits = rules_of(document, source), move_limits_of(document, source)
    try:
        return Instance(
            name=document.name,
            resources=resources,
            nodes=names,
            capacity=capacity,
            services=tuple(s.name for s in document.services),
            minimum_yield=np.array([s.minimum_yield for s in document.services]),
            service_of=np.array(service_of, dtype=np.int64)[repeat],
            need=np.array(rows)[repeat],
            rigid=np.array(rigid_rows)[repeat],
            move_cost=np.array(costs)[repeat],
            components=tuple(labels[k] for k in repeat) if any(labels) else (),
            labels=node_labels,
            rules=rules,
            overcommit=overcommit,
            move_limits=move_limits,
        )
    except InputError as error:
        # What a single document cannot show: names in rules that do not exist.
        raise InputError(f"{source}: {error}") from None


def _nodes(
    document: InstanceDocument, column: Mapping[str, int], source: str
) -> tuple[tuple[str, ...], Floats, tuple[Mapping[str, str], ...]]:
    if isinstance(document.nodes, int):
        return tuple(f"n{n}" for n in range(document.nodes)), np.ones((document.nodes, len(column))), ()
    _unique((n.name for n in document.nodes), f"{source}: nodes")
    capacity = np.ones((len(document.nodes), len(column)))
    for n, node in enumerate(document.nodes):
        for name, value in node.capacity.items():
            capacity[n, _column(column, name, f"{source}: nodes[{n}].capacity")] = value
    labels = tuple(n.labels for n in document.nodes)
    return tuple(n.name for n in document.nodes), capacity, labels if any(labels) else ()


def _parts(
    service: ServiceDocument, column: Mapping[str, int], rigid: np.ndarray, where: str
) -> Iterable[tuple[str, int, Floats, float]]:
    need = np.zeros(len(column))
    for name, value in service.needs.items():
        need[_column(column, name, f"{where}.needs")] = value
    if not service.components:
        yield "", service.tasks, need, service.move_cost
        return
    if service.tasks != 1:
        raise InputError(f"{where}.tasks = {service.tasks}: a service with components counts tasks in each of them")
    _unique((c.name for c in service.components), f"{where}.components")
    for c, component in enumerate(service.components):
        part = np.where(rigid, need, need * component.factor)
        for name, value in component.needs.items():
            part[_column(column, name, f"{where}.components[{c}].needs")] = value
        cost = service.move_cost if component.move_cost is None else component.move_cost
        yield component.name, component.tasks, part, cost


def _column(column: Mapping[str, int], name: str, where: str) -> int:
    if name not in column:
        raise InputError(f'{where}: unknown resource "{name}": must be one of {", ".join(column)}')
    return column[name]


def _unique(names: Iterable[str], where: str) -> None:
    seen: set[str] = set()
    for k, name in enumerate(names):
        if name in seen:
            raise InputError(f'{where}[{k}].name = "{name}": must be unique, it stands twice')
        seen.add(name)


def instance_document(instance: Instance) -> dict[str, object]:
    """The `dfrs-instance/1` document of an instance; equal nodes of capacity 1 become their number."""
    names = [r.name for r in instance.resources]
    default = np.array([r.kind == Kind.RIGID for r in instance.resources])
    capacity = physical(instance)
    numbered = instance.nodes == tuple(f"n{n}" for n in range(len(instance.nodes)))
    plain = bool((capacity == 1.0).all()) and numbered and not any(instance.labels)
    services: list[dict[str, object]] = []
    first = np.searchsorted(instance.service_of, np.arange(len(instance.services) + 1))
    for j, service in enumerate(instance.services):
        members = range(int(first[j]), int(first[j + 1]))
        if not (instance.rigid[members] == instance.rigid[members[0]]).all():
            raise InputError(f'service "{service}": a file has one kind for all tasks of a service, these differ')
        parts = _parts_of(instance, members)
        entry: dict[str, object] = {"name": service}
        described = [_task_document(instance, names, tasks) for _, tasks in parts]
        if len(parts) == 1 and not parts[0][0]:
            entry |= described[0]
        else:
            labels = [label if label else f"part{k}" for k, (label, _) in enumerate(parts)]
            entry["components"] = [{"name": n, **d} for n, d in zip(labels, described, strict=True)]
        if instance.minimum_yield[j] > 0:
            entry["minimum_yield"] = float(instance.minimum_yield[j])
        kinds = {
            names[d]: ("rigid" if instance.rigid[members[0], d] else "fluid")
            for d in np.flatnonzero(instance.rigid[members[0]] != default)
        }
        if kinds:
            entry["kinds"] = kinds
        services.append(entry)
    nodes: object = len(instance.nodes)
    if not plain:
        nodes = [
            {
                "name": node,
                "capacity": dict(zip(names, map(float, row), strict=True)),
                **({"labels": own} if own else {}),
            }
            for node, row, own in zip(
                instance.nodes, capacity, map(dict, instance.labels or ({},) * len(instance.nodes)), strict=True
            )
        ]
    resources = [
        {
            "name": r.name,
            "kind": str(r.kind),
            **({"bytes": r.bytes_per_node} if r.bytes_per_node is not None else {}),
        }
        for r in instance.resources
    ]
    named = {"name": instance.name} if instance.name else {}
    return {
        "format": "dfrs-instance/1",
        **named,
        "resources": resources,
        "nodes": nodes,
        "services": services,
        **restrictions(instance),
    }


def _parts_of(instance: Instance, members: range) -> list[tuple[str, list[int]]]:
    """Runs of identical tasks of a service, with their component's name."""
    parts: list[tuple[str, list[int]]] = []
    for i in members:
        label = instance.components[i] if instance.components else ""
        last = parts[-1][1][-1] if parts else i
        alike = (instance.need[i] == instance.need[last]).all() and instance.move_cost[i] == instance.move_cost[last]
        if parts and alike and parts[-1][0] == label:
            parts[-1][1].append(i)
        else:
            parts.append((label, [i]))
    return parts


def _task_document(instance: Instance, names: list[str], tasks: list[int]) -> dict[str, object]:
    i = tasks[0]
    entry: dict[str, object] = {"needs": dict(zip(names, map(float, instance.need[i]), strict=True))}
    if len(tasks) > 1:
        entry["tasks"] = len(tasks)
    if instance.move_cost[i] != 1.0:
        entry["move_cost"] = float(instance.move_cost[i])
    return entry


def instance_csv(instance: Instance) -> str:
    """Services as CSV: `name,tasks,minimum_yield` and a column `resource:kind` for each resource."""
    if instance.components or not (instance.rigid == instance.rigid[0]).all():
        raise InputError("CSV has no place for components or kinds of single services: write JSON")
    if not bool((instance.capacity == 1.0).all()):
        raise InputError("CSV has no place for unequal nodes: write JSON")
    if any(instance.labels) or restrictions(instance):
        raise InputError("CSV has no place for labels, rules, headroom or limits on moves: write JSON")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", "tasks", "minimum_yield", *(f"{r.name}:{r.kind}" for r in instance.resources)])
    first = np.searchsorted(instance.service_of, np.arange(len(instance.services)))
    for j, name in enumerate(instance.services):
        values = [f"{v:.12g}" for v in (instance.minimum_yield[j], *instance.need[first[j]])]
        writer.writerow([name, int(instance.tasks_per_service[j]), *values])
    return text.getvalue()


def _csv_document(path: Path, nodes: int) -> dict[str, object]:
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    rows: list[tuple[int, list[str]]] = []
    line = 1
    try:
        for row in reader:
            rows.append((line, row))
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}:{line}: not CSV: {error}") from None
    if not rows:
        raise InputError(f"{path}: the file is empty")
    header = [cell.strip() for cell in rows[0][1]]
    resources: list[dict[str, str]] = []
    for cell in header:
        if ":" in cell:
            name, kind = cell.rsplit(":", 1)
            resources.append({"name": name, "kind": kind})
        elif cell not in {"name", "tasks", "minimum_yield", "move_cost"}:
            raise InputError(
                f'{path}:1: column "{cell}": must be name, tasks, minimum_yield, move_cost or RESOURCE:KIND'
            )
    if "name" not in header:
        raise InputError(f'{path}:1: no column "name"')
    services: list[dict[str, object]] = []
    for line, row in rows[1:]:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            raise InputError(f"{path}:{line}: {len(row)} cells: must be {len(header)} as in the header")
        needs: dict[str, float] = {}
        service: dict[str, object] = {"needs": needs}
        for cell, raw in zip(header, row, strict=True):
            value = raw.strip()
            if cell == "name":
                service["name"] = value
            elif value:
                number = _number(value, f"{path}:{line}: {cell}")
                if ":" in cell:
                    needs[cell.rsplit(":", 1)[0]] = number
                else:
                    service[cell] = int(number) if cell == "tasks" and number.is_integer() else number
        services.append(service)
    return {"format": "dfrs-instance/1", "resources": resources, "nodes": nodes, "services": services}


def _number(value: str, where: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(f'{where} = "{value}": must be a number') from None


def read_text(path: Path) -> str:
    """The text of a file of UTF-8 that is not too large. Raises InputError."""
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE_BYTES:
            raise InputError(f"{path}: {size} bytes: must be at most {LARGEST_FILE_BYTES}")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start}: not UTF-8 text") from None


def read_json(path: Path) -> object:
    """The value of a JSON file, as `parse_json`. Raises InputError."""
    return parse_json(path, read_text(path))


def parse_json(path: Path, text: str) -> object:
    """The value of the JSON in `path`; refuses duplicate keys, which JSON readers silently drop. Raises InputError."""

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        result = dict(items)
        if len(result) < len(items):
            names = [name for name, _ in items]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f'{path}: key "{twice}" stands twice in one object')
        return result

    try:
        return json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deeply") from None
    except ValueError:
        raise InputError(f"{path}: a number has too many digits") from None


def _load(path: Path) -> dict[str, object]:
    document = read_json(path)
    if not isinstance(document, dict):
        raise InputError(f"{path}: must be a JSON object")
    return cast("dict[str, object]", document)


def validate_document(model: type[D], document: Mapping[str, object], source: str) -> D:
    """The document as `model`. Raises InputError: one line for the first thing wrong, and how many more there are."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        _refuse(error, document, source)


def _refuse(error: ValidationError, document: Mapping[str, object], source: str) -> NoReturn:
    # `nodes` is tried as a number and as a list: speak only of the branch that matches what was given.
    other = "constrained-int" if isinstance(document.get("nodes"), list) else "list["
    problems = [
        p
        for p in error.errors(include_url=False)
        if p["loc"][:1] != ("nodes",) or len(p["loc"]) < 2 or not str(p["loc"][1]).startswith(other)
    ]
    first = problems[0]
    where = ""
    for k, part in enumerate(first["loc"]):
        if isinstance(part, int):
            where += f"[{part}]"
        elif not part.startswith(("constrained-", "list[")) and not (first["loc"][0] == "rules" and k == 2):
            where += f".{part}" if where else part
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    value = "" if first["type"] in {"missing", "extra_forbidden"} else f" = {_short(first['input'])}"
    rule = f"{first['msg'][0].lower()}{first['msg'][1:]}"
    if first["type"].startswith("union_tag"):
        rule = f"kind must be one of {', '.join(RULES)}"
    raise InputError(f"{source}: {where}{value}: {rule}{more}") from None


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
