"""BEST: the documents' packings first, then annealing and, where small, exact search, until time or gap is used up.

It contains the 14 vector packings of [Stillwell2010] section 4.2.5 and, where all of them fail, the 49 greedy
algorithms; it is never worse than any that it had time to run, and says which those were. The first one always runs to
its end. Where an instance has placement rules, the search starts from a placement that keeps them, and what breaks one
is no candidate.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dfrs.kernels.compiling import compilation
from dfrs.kernels.packing import SUM, pack_first_fit, sort_order
from dfrs.model import tolerances
from dfrs.model.allocation import Outcome, Status
from dfrs.model.instance import Instance, Ints
from dfrs.placement.bounds import upper_bound
from dfrs.placement.constructive import construct
from dfrs.placement.greedy import greedy_best
from dfrs.placement.improve import WARM, Effort, Search
from dfrs.placement.outcome import found, tightest
from dfrs.placement.packing import VECTOR_PACKINGS
from dfrs.placement.set_bound import LONGEST_S, MOST_FAILURES, SetPacking
from dfrs.placement.set_diving import dive
from dfrs.placement.set_relaxation import Deadline
from dfrs.placement.tight import completed, tight_part

_FIRST = ("VP_CPSUM", "VP_FFSUM", "VP_PPMAX", "VP_BFSUM")
MEMBERS = (*_FIRST, *(name for name in VECTOR_PACKINGS if name not in _FIRST))
"""In the order they run: those that find something most often, and the best, first."""

FIRST_SHARE = 0.2
"""Of the time: for a quick descent before exact search, or before sets of tasks."""
SETS_SHARE = 0.75
"""Of the time left: for sets of tasks, where nodes hold at most SETS_PER_NODE on the average, of SETS_TASKS in all, and
where there are SETS_FROM_S seconds for all of BEST."""
SETS_PER_NODE, SETS_TASKS, SETS_FROM_S = 4.2, 600, 2.0
DIVE_SHARE = 0.7
"""Of the time for a first placement: for tight resources alone by sets of tasks, where nodes hold few of those."""
TIGHT_SHARE = 0.5
"""Of the time for a first placement: for tight resources alone."""
TIGHT_HEAT = (0.006, 1e-3)
"""First and last temperature in doing so."""
RESCUE_SHARE = 0.6
"""Of the time: for a descent to a first placement where no member found one and exact search is to follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """Anytime portfolio; repeats bit for bit when bounded by `rounds` instead of seconds."""

    time_limit_s: float = 1.0
    rounds: int | None = None
    threads: int = 1
    """All but the first only anneal, beside whatever the first does. No more than one where rounds count."""
    on_improvement: Callable[[float], None] | None = None

    def __call__(self, instance: Instance, rng: np.random.Generator, /) -> Outcome:
        """The best placement found within the limit."""
        effort = Effort(time_limit_s=self.time_limit_s, rounds=self.rounds)
        search = Search(instance, upper_bound(instance), effort, int(rng.integers(2**62)))
        search.on_improvement = self.on_improvement
        if search.ruled:
            start = construct(instance, rng)
            if start is not None:
                search.offer(start, "construction")
        members = run_members(search, rng)
        beside = self.threads - 1 if self.rounds is None else 0
        with search.beside(0 if search.done else beside, lambda word: anneal_beside(search, word)):
            run_stages(search, rng)
        details = {"winner": search.source, "members": members}
        outcome = found(
            instance, search.place, bound=max(search.upper, search.value), optimal=search.proven, details=details
        )
        if search.place is None and search.proven:
            return replace(
                outcome,
                status=Status.INFEASIBLE,
                details={**details, "reason": f"proven: no placement exists; {tightest(instance)}"},
            )
        return outcome


def run_stages(search: Search, rng: np.random.Generator) -> None:
    """What comes after the members."""
    if not search.done:
        search.exact(0.0)
    few = few_tasks_per_node(search.instance, search.effort)
    if not search.done and search.place is None:
        search_first(search, rng, rescue_share(search, few))
    if not search.done and (search.small or few) and search.place is not None:
        search.anneal(search.place, FIRST_SHARE)
    if not search.done:
        search.exact()
    if not search.done and few:
        pack_sets(search, rng)
    if not search.done and search.place is None:
        search_first(search, rng, 1.0)
    if not search.done and search.place is not None:
        search.anneal(search.place)


def search_first(search: Search, rng: np.random.Generator, share: float) -> None:
    """A first placement, within so much of the time: of tight resources alone, where there are some, then of all.

    Rules are about all tasks: where there are some, all are searched at once.
    """
    word = int(rng.integers(2**62)) | 1
    part = None if search.ruled else tight_part(search.instance)
    if part is not None and few_tasks_per_node(part[0], search.effort):
        dive_part(search, *part, DIVE_SHARE * share, word)
    if part is not None and search.place is None:
        anneal_part(search, *part, TIGHT_SHARE * share, word)
        share *= (1.0 - TIGHT_SHARE) / (1.0 - TIGHT_SHARE * share)
    if search.place is None:
        search.anneal(some_start(search, rng), share, WARM, until_found=True)


def dive_part(search: Search, part: Instance, tasks: Ints, share: float, word: int) -> None:
    """Place `part`, which consists of some `tasks`, by sets of tasks, and then the others, within that much time."""
    deadline = Deadline(at_s=compilation.clock_s() + share * search.effort.left_s())
    sets = SetPacking(instance=part, bound=1.0, deadline=deadline)
    inner = dive(sets, 0.0, np.random.default_rng(word), deadline)
    place = None if inner is None else completed(search.instance, tasks, inner)
    if place is not None:
        search.offer(place, "sets of tasks")


def anneal_part(search: Search, part: Instance, tasks: Ints, share: float, word: int) -> None:
    """Place `part`, which consists of some `tasks`, and then the others, within so much of the time."""
    rounds = search.effort.rounds
    effort = Effort(
        time_limit_s=max(share * search.effort.left_s(), 1e-3) if rounds is None else 1.0,
        rounds=None if rounds is None else max(1, round(share * rounds)),
    )
    inner = Search(part, 1.0, effort, word)
    inner.unneeded = lambda: search.over or search.place is not None
    inner.anneal(some_start(inner, np.random.default_rng(word)), 1.0, TIGHT_HEAT, until_found=True)
    place = None if inner.place is None else completed(search.instance, tasks, inner.place)
    if place is not None:
        search.offer(place, "annealing")


def anneal_beside(search: Search, word: int) -> None:
    """As long as there is time: to a first placement, then up from the best there is."""
    rng = np.random.default_rng(word)
    while not search.over and search.effort.used() < 1.0:
        if search.place is None:
            search.anneal(some_start(search, rng), 1.0, WARM, until_found=True, word=int(rng.integers(2**62)) | 1)
        else:
            search.anneal(search.place, 1.0, word=int(rng.integers(2**62)) | 1)


def rescue_share(search: Search, few: bool) -> float:
    """Of the time, for a first placement where no member found one."""
    if search.small:
        return RESCUE_SHARE
    return FIRST_SHARE if few else 1.0


def some_start(search: Search, rng: np.random.Generator) -> Ints:
    """The incumbent (T,), or, where there is none, first fit at yield 0 with what is left on nodes drawn at random."""
    if search.place is not None:
        return search.place
    instance = search.instance
    place = np.empty(len(instance.need), dtype=np.int64)
    order = sort_order(instance.base, SUM, False, instance.lexicographic)
    pack_first_fit(instance.base, order, instance.capacity, tolerances.CAPACITY, True, place)
    return np.where(place < 0, rng.integers(len(instance.nodes), size=len(place)), place)


def few_tasks_per_node(instance: Instance, effort: Effort) -> bool:
    """Whether sets of tasks are worth a try. Not in rounds: how far HiGHS comes depends on the clock."""
    tasks, nodes = len(instance.need), len(instance.nodes)
    return (
        effort.rounds is None and effort.time_limit_s >= SETS_FROM_S and tasks <= min(SETS_PER_NODE * nodes, SETS_TASKS)
    )


def pack_sets(search: Search, rng: np.random.Generator) -> None:
    """Where nodes hold few tasks and there is time: a tighter bound, and placements near it, out of sets of tasks."""
    deadline = Deadline(at_s=compilation.clock_s() + SETS_SHARE * search.effort.left_s())
    sets = SetPacking(instance=search.instance, bound=search.upper, deadline=deadline)
    if search.place is not None:
        sets.offer(search.place)
    elif not search.ruled:
        place, impossible = sets.place_full(deadline)
        if impossible:
            search.lower_bound_to(-1.0)
            return
        if place is not None:
            search.offer(place, "sets of tasks")
    share, failures = 0.5, 0
    # Which node of its kind a set gets, the relaxation does not say: rules would.
    while not (deadline.over or search.done or search.ruled) and failures < MOST_FAILURES:
        low = max(search.value, 0.0)
        target = 0.0 if search.place is None else low + share * (search.upper - low)
        if sets.disprove(target, low):
            search.lower_bound_to(sets.bound)
            continue
        place = place_sets(sets, target, rng, deadline)
        if place is not None and search.offer(place, "sets of tasks"):
            share, failures = 0.5, 0
        else:
            share, failures = 0.5 * share, failures + 1
    search.lower_bound_to(sets.tighten(search.value))


def place_sets(sets: SetPacking, target: float, rng: np.random.Generator, deadline: Deadline) -> Ints | None:
    """A placement (T,) at yield `target`, by diving, and where that fails by a program, each in half the time left."""
    place = dive(sets, target, rng, deadline.part(0.5, LONGEST_S))
    if place is None and not deadline.over:
        place, _ = sets.place_at(target, deadline.part(0.5, LONGEST_S))
    return place


def run_members(search: Search, rng: np.random.Generator) -> list[str]:
    """Offer each member's placement to `search` while there is time; the names of those that ran."""
    place = np.full(len(search.instance.need), -1, dtype=np.int64)
    ran: list[str] = []
    for name in MEMBERS:
        if search.done or (ran and search.effort.used() >= 1.0):
            return ran
        if VECTOR_PACKINGS[name].search(search.instance, place, search.upper) >= 0:
            search.offer(place, name)
        ran.append(name)
    if search.place is None and search.effort.used() < 1.0:
        greedy = greedy_best(search.instance, rng)
        if greedy.allocation is not None:
            search.offer(greedy.allocation.place, "GREEDY")
        ran.append("GREEDY")
    return ran
