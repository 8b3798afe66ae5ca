"""Between the parts of an instance file that restrict placements and the model."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Instance
from dfrs.model.move_limits import MoveLimits
from dfrs.model.rule_scope import Scope
from dfrs.model.rules import RULES, Headroom, Rule, Rules
from dfrs.workloads.documents import InstanceDocument
from dfrs.workloads.rule_documents import OvercommitDocument, RulesDocument


def rules_of(document: InstanceDocument | RulesDocument, source: str) -> Rules | None:
    """The rules of a document, or None where it has none. Raises InputError naming the rule."""
    if not document.rules and document.headroom is None:
        return None
    rules: list[Rule] = []
    for r, entry in enumerate(document.rules):
        try:
            rules.append(RULES[entry.kind](**entry.model_dump(exclude={"kind"}, exclude_unset=True)))
        except InputError as error:
            raise InputError(f"{source}: rules[{r}]: {error}") from None
    headroom = None if document.headroom is None else Headroom(**document.headroom.model_dump())
    return Rules(rules, headroom)


def move_limits_of(document: InstanceDocument | RulesDocument, source: str) -> MoveLimits | None:
    """The limits on moves of a document. Raises InputError."""
    if document.move_limits is None:
        return None
    try:
        return MoveLimits(**document.move_limits.model_dump())
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def overcommit_of(
    entries: Sequence[OvercommitDocument],
    column: Mapping[str, int],
    nodes: tuple[str, ...],
    labels: tuple[Mapping[str, str], ...],
    source: str,
) -> Floats | None:
    """(N, D) factors on capacities, or None where there are none. Raises InputError for names that do not exist."""
    if not entries:
        return None
    factor = np.ones((len(nodes), len(column)))
    scope = Scope(nodes, (), np.zeros(0, dtype=np.int64), labels)
    for k, entry in enumerate(entries):
        where = f"{source}: overcommit[{k}]"
        if entry.resource not in column:
            raise InputError(
                f'{where}.resource = "{entry.resource}": no such resource: must be one of {", ".join(column)}'
            )
        factor[scope.node_mask(entry.nodes, f"{where}.nodes"), column[entry.resource]] = entry.factor
    return factor


def physical(instance: Instance) -> Floats:
    """(N, D) capacity without overcommit: what times the factor is the instance's capacity to the last bit."""
    capacity, factor = instance.capacity, instance.overcommit
    if factor is None:
        return capacity
    plain = capacity / factor
    for other in (np.nextafter(plain, 0.0), np.nextafter(plain, np.inf)):
        plain = np.where((plain * factor != capacity) & (other * factor == capacity), other, plain)
    # Of several numbers that give the same product, the shortest is what somebody wrote.
    short = np.array([[float(f"{value:.15g}") for value in row] for row in plain])
    return np.where(short * factor == capacity, short, plain)


def restrictions(instance: Instance) -> dict[str, object]:
    """The fields `rules`, `headroom`, `overcommit` and `move_limits` of an instance's document, where it has them."""
    found: dict[str, object] = {}
    rules = instance.rules
    if rules is not None and rules.rules:
        found["rules"] = [_rule_document(rule) for rule in rules.rules]
    if rules is not None and rules.headroom is not None:
        found["headroom"] = asdict(rules.headroom)
    if instance.overcommit is not None and (instance.overcommit != 1.0).any():
        found["overcommit"] = _overcommit_document(instance, instance.overcommit)
    if instance.move_limits is not None:
        given = asdict(instance.move_limits)
        found["move_limits"] = {k: v for k, v in given.items() if v is not None}
    return found


def _rule_document(rule: Rule) -> dict[str, object]:
    entry: dict[str, object] = {"kind": rule.kind}
    for one in fields(rule):
        value = getattr(rule, one.name)
        if one.default is MISSING or value != one.default:
            entry[one.name] = list(value) if isinstance(value, tuple) else value
    return entry


def _overcommit_document(instance: Instance, factor: Floats) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = []
    for d, resource in enumerate(instance.resources):
        values = np.unique(factor[:, d])
        for value in values[values != 1.0]:
            entry: dict[str, object] = {"resource": resource.name, "factor": float(value)}
            if len(values) > 1:
                entry["nodes"] = [instance.nodes[n] for n in np.flatnonzero(factor[:, d] == value)]
            entries.append(entry)
    return entries
