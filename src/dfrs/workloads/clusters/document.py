"""Snapshots in the formats of dfrs: `dfrs-cluster/1`, one file with everything, or an instance and an allocation.

Rules stand in the instance, or in a `dfrs-rules/1` file of their own.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

import numpy as np
from pydantic import BaseModel, ConfigDict

from dfrs.model.errors import InputError
from dfrs.model.instance import Instance, Ints
from dfrs.model.rules import Rules
from dfrs.workloads.clusters.state import ClusterState
from dfrs.workloads.documents import InstanceDocument
from dfrs.workloads.files import (
    build_instance,
    instance_document,
    read_instance,
    read_json,
    read_placement,
    validate_document,
)
from dfrs.workloads.rule_documents import RulesDocument
from dfrs.workloads.rule_files import move_limits_of, rules_of

FORMAT = "dfrs-cluster/1"


class ClusterDocument(BaseModel):
    """A problem with its rules, and where its tasks run. A service without an entry runs nowhere yet."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["dfrs-cluster/1"]
    instance: dict[str, object]
    placement: dict[str, list[str | None]]


def read_cluster_document(document: dict[str, object], source: str) -> ClusterState:
    """The state of a `dfrs-cluster/1` document. Raises InputError."""
    whole = validate_document(ClusterDocument, document, source)
    inside = validate_document(InstanceDocument, whole.instance, f"{source}: instance")
    instance = build_instance(inside, f"{source}: instance")
    present = _present(whole.placement, instance, source)
    return ClusterState(instance=instance, present=present, source=source)


def read_instance_and_allocation(instance_path: Path, allocation_path: Path) -> ClusterState:
    """The state that an instance and an allocation file say; services that the latter does not name are new."""
    instance = read_instance(instance_path)
    present = read_placement(allocation_path, instance, partial=True)
    return ClusterState(instance=instance, present=present, source=str(instance_path))


def add_rules_file(instance: Instance, path: Path) -> Instance:
    """The instance with the rules and limits of a `dfrs-rules/1` file after its own. Raises InputError."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: must be a JSON object")
    document = validate_document(RulesDocument, cast("dict[str, object]", content), str(path))
    given = rules_of(document, str(path)) or Rules()
    own = instance.rules or Rules()
    whole = replace(own, rules=(*own.rules, *given.rules), headroom=given.headroom or own.headroom)
    limits = move_limits_of(document, str(path)) or instance.move_limits
    try:
        return replace(instance, rules=whole, move_limits=limits)
    except InputError as error:
        # Positions count the snapshot's own rules too; those of the file are what the user sees.
        raise InputError(f"{path}: {_renumbered(str(error), len(own.rules))}") from None


def _renumbered(message: str, before: int) -> str:
    return re.sub(r"^rules\[(\d+)\]", lambda m: f"rules[{int(m[1]) - before}]", message)


def _present(placement: dict[str, list[str | None]], instance: Instance, source: str) -> Ints:
    node = {name: n for n, name in enumerate(instance.nodes)}
    service = {name: j for j, name in enumerate(instance.services)}
    first = np.searchsorted(instance.service_of, np.arange(len(instance.services)))
    present = np.full(len(instance.need), -1, dtype=np.int64)
    for name, nodes in placement.items():
        if name not in service:
            raise InputError(f'{source}: placement."{name}": no such service in the instance')
        j = service[name]
        count = int(instance.tasks_per_service[j])
        if len(nodes) != count:
            raise InputError(
                f'{source}: placement."{name}" has {len(nodes)} nodes: must be one for each of {count} tasks'
            )
        for k, where in enumerate(nodes):
            if where is None:
                continue
            if where not in node:
                raise InputError(f'{source}: placement."{name}"[{k}] = "{where}": no such node in the instance')
            present[int(first[j]) + k] = node[where]
    return present


def cluster_document(state: ClusterState) -> dict[str, object]:
    """The `dfrs-cluster/1` document of a state: what `read_cluster_document` reads back."""
    instance = state.instance
    names: list[str | None] = [None if n < 0 else instance.nodes[n] for n in state.present.tolist()]
    ends = np.cumsum(instance.tasks_per_service).tolist()
    counts = cast("list[int]", instance.tasks_per_service.tolist())
    placement = {
        service: names[end - count : end] for service, count, end in zip(instance.services, counts, ends, strict=True)
    }
    return {"format": FORMAT, "instance": instance_document(instance), "placement": placement}
