"""Placement rules, from their definition: sets of tasks, domains and counts, all counted anew each time."""

from collections import Counter
from collections.abc import Sequence

from dfrs.model.rule_scope import GroupPart, MaskPart, Part, Scope


def terms(parts: Sequence[Part], scope: Scope, place: Sequence[int]) -> list[int]:
    """By how much each single condition of each part is broken, in a fixed order."""
    found: list[int] = []
    for part in parts:
        here = [i for i in part.tasks.tolist() if place[i] >= 0]
        if isinstance(part, MaskPart):
            found.append(sum(not part.allowed[place[i]] for i in here))
            continue
        domain = scope.domains(part.level)[1].tolist()
        members = Counter(domain[place[i]] for i in here)
        found.append(sum(max(0, k - part.most) for k in members.values()) if part.most is not None else 0)
        found.append(max(0, len(members) - part.most_domains) if part.most_domains is not None else 0)
        found.append(max(0, part.fewest_domains - len(members)))
        if part.host is not None:
            homes = {domain[place[i]] for i in part.host.tolist() if place[i] >= 0}
            found.append(sum(k for d, k in members.items() if d not in homes))
    return found


def broken(parts: Sequence[Part], scope: Scope, place: Sequence[int]) -> int:
    """By how much in all; a task on a node that several parts forbid counts once."""
    forbidden = sum(not _allowed(parts, i, b) for i, b in enumerate(place) if b >= 0)
    return forbidden + sum(terms([p for p in parts if isinstance(p, GroupPart)], scope, place))


def may_become(parts: Sequence[Part], scope: Scope, place: Sequence[int], changes: dict[int, int]) -> bool:
    """Whether tasks may go where `changes` says: to nodes they may be on, and no condition is broken more than now."""
    after = list(place)
    for i, b in changes.items():
        if not _allowed(parts, i, b):
            return False
        after[i] = b
    groups = [p for p in parts if isinstance(p, GroupPart)]
    return all(x <= y for x, y in zip(terms(groups, scope, after), terms(groups, scope, place), strict=True))


def _allowed(parts: Sequence[Part], i: int, b: int) -> bool:
    return all(p.allowed[b] for p in parts if isinstance(p, MaskPart) and i in p.tasks.tolist())
