"""Which rules bind a set of steps: those that some order of the steps would break."""

from collections import defaultdict

from dfrs.placement.plan_order import Step
from dfrs.placement.plan_state import Groups

Key = tuple[str, int]


def binding(groups: Groups | None, steps: list[Step]) -> list[list[Key]]:
    """For each step the binding rules that it touches; steps that share one are made one after another, in order."""
    if groups is None:
        return [[] for _ in steps]
    into: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    out: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    touched: list[list[int]] = []
    for step in steps:
        touched.append([])
        for i, a, b in step.legs:
            for g in groups.of(i):
                source, target = groups.domain(g, a), groups.domain(g, b)
                if source != target:
                    touched[-1].append(g)
                    out[g][source] += 1
                    into[g][target] += 1
    spread = {g for g in into if not _free(groups, g, into[g], out[g])}
    pairs = {x for g in into for x in (g, groups.guest[g]) if x >= 0 and groups.host[x] >= 0}
    hosting = {g for g in pairs if not _hosted(groups, g, into, out)}
    return [
        sorted(
            {("spread", g) for g in changed if g in spread}
            | {("host", x) for g in changed for x in (g, groups.guest[g]) if x in hosting}
        )
        for changed in touched
    ]


def _free(groups: Groups, g: int, into: dict[int, int], out: dict[int, int]) -> bool:
    """Whether no subset of the moves breaks how the group spreads, or breaks it more than it is."""
    count = groups.count(g)
    if any(count.get(at, 0) + more > groups.most[g] for at, more in into.items()):
        return False
    may_open = {at for at in into if count.get(at, 0) - out.get(at, 0) <= 0}
    if may_open and len(may_open | set(count)) > groups.most_domains[g]:
        return False
    sure = sum(1 for at, members in count.items() if members > out.get(at, 0))
    closes = any(out.get(at, 0) >= members for at, members in count.items())
    return not closes or sure >= groups.fewest_domains[g]


def _hosted(groups: Groups, g: int, into: dict[int, dict[int, int]], out: dict[int, dict[int, int]]) -> bool:
    """Whether each member of `g` has a host beside it, or is no worse off, whatever moves are made first."""
    host = groups.host[g]
    count, hosts = groups.count(g), groups.count(host)
    arriving, leaving = into.get(g, {}), out.get(host, {})
    sure = {at for at, members in hosts.items() if members > leaving.get(at, 0)}
    left_alone = any(at not in sure and (at in count or at in arriving) for at in leaving)
    return set(arriving) <= sure and not left_alone
