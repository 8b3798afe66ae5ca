"""Every off-line algorithm under its name: what the CLI, the library, the tables and the tests all read."""

import difflib
import fnmatch
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dfrs.model.allocation import Allocator, Outcome
from dfrs.model.errors import InputError, UnsupportedError
from dfrs.model.instance import Instance, Ints
from dfrs.placement.adapt import Adapt
from dfrs.placement.best import Best
from dfrs.placement.budget import Budget
from dfrs.placement.chekuri import Chekuri
from dfrs.placement.genetic import Genetic
from dfrs.placement.greedy import GREEDIES, LOAD_GREEDIES, greedy_best, greedy_light
from dfrs.placement.headroom import RESERVES, keep_headroom
from dfrs.placement.milp import AdaptExact, Exact
from dfrs.placement.packing import MULTI_CAPACITY, VECTOR_PACKINGS, VectorPacking, best_packing
from dfrs.placement.rounding import Diving, RandomizedRounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings that algorithms may look at; each takes those that concern it."""

    time_limit_s: float | None = None
    """Wall clock for BEST, ADAPT, OPT, ADAPT_OPT, rounding and diving; 1 s for the first two if None, else none."""
    rounds: int | None = None
    """Instead of seconds for BEST and ADAPT: results then repeat bit for bit."""
    threads: int | None = None
    """Of BEST, where seconds count: all but one anneal beside the rest. None: one for each CPU."""
    window: int = 2
    """The w of Permutation and Choose Pack."""
    pair_order: Literal["load", "index"] = "load"
    """In which order Permutation Pack tries the lists of the same dimensions: the text's, or the published figures'."""
    search: Literal["ends", "midpoints"] = "ends"
    """Whether the yield search tries its ends, or, as published, midpoints only."""
    dominance: bool = False
    """Degree-of-dominance add-on for VP_FF* and VP_BF* ([Stillwell2010] section 4.2.5)."""
    present: Ints | None = None
    """(T,) where tasks run now, -1 for nowhere: for ADAPT and ADAPT_OPT."""
    budget: Budget | None = None
    """What ADAPT and ADAPT_OPT may spend on moves."""
    on_improvement: Callable[[float], None] | None = None
    """Called by BEST and ADAPT with each better minimum yield."""

    def __post_init__(self) -> None:
        if self.time_limit_s is not None and not 0 < self.time_limit_s < float("inf"):
            raise InputError(f"time limit {self.time_limit_s}: must be a positive number of seconds")
        if self.rounds is not None and self.rounds < 1:
            raise InputError(f"rounds {self.rounds}: must be at least 1")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads {self.threads}: must be at least 1")
        if self.window < 1:
            raise InputError(f"window {self.window}: must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One entry: name, family, source, complexity, and how to build it from options."""

    name: str
    family: str
    summary: str
    source: str
    complexity: str
    build: Callable[[Options], Allocator]
    unequal_nodes: bool = True
    needs_present: bool = False
    """Whether it starts from a present placement: a pattern does not select it."""


_SORTS = (
    "",
    "at random",
    "by largest fluid need",
    "by total fluid need",
    "by largest requirement",
    "by total requirement",
    "by largest need of any kind",
    "by total need",
)
_RULES = (
    "",
    "least largest fluid need",
    "least total fluid need",
    "best fit by largest requirement",
    "best fit by total requirement",
    "worst fit by largest requirement",
    "worst fit by total requirement",
    "first fit",
)
_METHODS = {"FF": "first fit", "BF": "best fit", "CP": "choose pack", "PP": "permutation pack"}


def _constant(allocator: Allocator) -> Callable[[Options], Allocator]:
    return lambda _options: allocator


def _packing(packing: VectorPacking, *, documented_window: bool = False) -> Callable[[Options], Allocator]:
    def build(options: Options) -> Allocator:
        return replace(
            packing,
            window=packing.window if documented_window else options.window,
            by_index=options.pair_order == "index" and not documented_window,
            ends=options.search == "ends",
            dominance=options.dominance and packing.method in {"FF", "BF"},
        )

    return build


def _moves(options: Options, name: str) -> tuple[Ints, Budget]:
    if options.present is None or options.budget is None:
        raise InputError(
            f"{name} needs a present placement (--from) and a budget (--budget-moves, -bytes, -cost or -seconds)"
        )
    return options.present, options.budget


def _adapt(options: Options) -> Allocator:
    present, budget = _moves(options, "ADAPT")
    return Adapt(
        present=present,
        budget=budget,
        time_limit_s=options.time_limit_s or 1.0,
        rounds=options.rounds,
        on_improvement=options.on_improvement,
    )


def _adapt_opt(options: Options) -> Allocator:
    present, budget = _moves(options, "ADAPT_OPT")
    return lambda instance, rng: AdaptExact(
        present=present,
        budget=budget.amounts,
        cost=budget.costs(instance),
        time_limit_s=options.time_limit_s,
    )(instance, rng)


def _best(options: Options) -> Allocator:
    return Best(
        time_limit_s=options.time_limit_s or 1.0,
        rounds=options.rounds,
        threads=options.threads or len(os.sched_getaffinity(0)),
        on_improvement=options.on_improvement,
    )


def _searches() -> list[Algorithm]:
    """Anytime and exact."""
    return [
        Algorithm(
            name="BEST",
            family="ours",
            source="dfrs",
            complexity="time limit",
            build=_best,
            summary="anytime: all packings, then annealing on overloaded nodes, exact search where small",
        ),
        Algorithm(
            name="ADAPT",
            family="ours",
            source="dfrs; problem [Stillwell2010] 6.2, [Stillwell2008] 6.1",
            complexity="time limit",
            build=_adapt,
            needs_present=True,
            summary="anytime: the best minimum yield within a budget of moves, bytes, cost or time",
        ),
        Algorithm(
            name="OPT",
            family="exact",
            source="[Stillwell2010] 4.1.2, 4.2.1; [Stillwell2008] 2.5",
            complexity="exponential",
            build=lambda o: Exact(time_limit_s=o.time_limit_s),
            summary="the mixed-integer program by HiGHS",
        ),
        Algorithm(
            name="ADAPT_OPT",
            family="exact",
            source="[Stillwell2010] 6.2.2; [Stillwell2008] 6.1",
            complexity="exponential",
            build=_adapt_opt,
            needs_present=True,
            summary="the same under a bound on the cost of moves",
        ),
    ]


def _packings() -> list[Algorithm]:
    """By vector packing under a yield search, the two reports' in their order."""
    return [
        *(
            Algorithm(
                name=name,
                family="packing",
                source="[Stillwell2010] 4.2.5",
                build=_packing(packing),
                complexity="O((J log J + J N) log 1/w)"
                if packing.method in {"FF", "BF"}
                else "O(J log J + J N) a step",
                summary=f"yield search, {_METHODS[packing.method]}, sorted by {packing.criterion.lower()}",
            )
            for name, packing in VECTOR_PACKINGS.items()
        ),
        Algorithm(
            name="VP_BEST",
            family="packing",
            source="[Stillwell2010] 4.2.5",
            complexity="14 packings",
            build=_constant(best_packing),
            summary="the best of the 14 packings above",
        ),
        Algorithm(
            name="VP_CHEKURI",
            family="packing",
            source="[Stillwell2010] 4.2.5, its reference [178]",
            complexity="polynomial",
            build=_constant(Chekuri()),
            unequal_nodes=False,
            summary="yield search, O(ln D)-guaranteed packing by LP",
        ),
        *(
            Algorithm(
                name=name,
                family="packing",
                source="[Stillwell2008] 3.4",
                complexity="O(J log J + J N) a step",
                build=_packing(packing, documented_window=True),
                summary=f"multi-capacity bin packing, {packing.criterion.lower()} "
                f"{'ascending' if packing.ascending else 'descending'}",
            )
            for name, packing in MULTI_CAPACITY.items()
        ),
    ]


def _greedies() -> list[Algorithm]:
    """One service at a time."""
    return [
        Algorithm(
            name="GREEDY",
            family="greedy",
            source="[Stillwell2010] 4.4.1",
            complexity="49 greedy runs",
            build=_constant(greedy_best),
            summary="the best of the 49 GREEDY_Sx_Py",
        ),
        Algorithm(
            name="GREEDYLIGHT",
            family="greedy",
            source="[Stillwell2010] 4.4.1",
            complexity="up to 9 greedy runs",
            build=_constant(greedy_light),
            summary="the first that succeeds of nine good ones",
        ),
        *(
            Algorithm(
                name=name,
                family="greedy",
                source="[Stillwell2010] 4.2.2",
                complexity="O(J log J + J N)",
                build=_constant(greedy),
                summary=f"sorted {_SORTS[greedy.sort]}; {_RULES[greedy.rule]}",
            )
            for name, greedy in GREEDIES.items()
        ),
        *(
            Algorithm(
                name=name,
                family="greedy",
                source="[Stillwell2008] 3.3",
                build=_constant(greedy),
                complexity="500,000 placements" if greedy.attempts else "O(J N log N)",
                summary=("by decreasing requirement" if greedy.by_requirement else "as submitted")
                + ", least loaded node"
                + (", backtracking" if greedy.attempts else ""),
            )
            for name, greedy in LOAD_GREEDIES.items()
        ),
    ]


def _roundings() -> list[Algorithm]:
    """By rounding the relaxed program."""
    return [
        *(
            Algorithm(
                name=name,
                family="rounding",
                source=source,
                complexity="one LP",
                build=lambda o, n=nonzero: RandomizedRounding(nonzero=n, time_limit_s=o.time_limit_s),
                summary=summary,
            )
            for name, nonzero, source, summary in (
                (
                    "RRND",
                    False,
                    "[Stillwell2010] 4.2.3; [Stillwell2008] 3.2",
                    "randomized rounding of the relaxed program",
                ),
                ("RRNDNZ", True, "[Stillwell2010] 4.2.3", "the same, no node with probability 0"),
                ("RRNZ", True, "[Stillwell2008] 3.2", "RRNDNZ under its earlier name"),
            )
        ),
        *(
            Algorithm(
                name=name,
                family="rounding",
                source="[Stillwell2010] 4.2.3",
                complexity=complexity,
                build=lambda o, s=slow: Diving(slow=s, time_limit_s=o.time_limit_s),
                summary=summary,
            )
            for name, slow, complexity, summary in (
                ("FASTDIVING", False, "at most J LPs", "fix one service at a time in the relaxed program"),
                ("SLOWDIVING", True, "at most J N LPs", "fix one variable at a time in the relaxed program"),
            )
        ),
    ]


def _genetic() -> list[Algorithm]:
    """By evolution."""
    return [
        Algorithm(
            name="GA",
            family="genetic",
            source="[Stillwell2010] 4.2.4",
            complexity="200,000 evaluations",
            build=_constant(Genetic()),
            summary="population of 100, 2,000 generations, greedy repair",
        )
    ]


_FAMILIES = (_searches, _packings, _greedies, _roundings, _genetic)

KNOW_RULES = ("BEST", "ADAPT", "OPT", "ADAPT_OPT")
"""Algorithms that keep placement rules; the exact ones take all of them for hard."""


def _guarded(entry: Algorithm) -> Algorithm:
    """The algorithm, which refuses an instance whose rules it would break or could not weigh."""

    def build(options: Options) -> Allocator:
        run = entry.build(options)

        def guarded(instance: Instance, rng: np.random.Generator) -> Outcome:
            rules = instance.rules
            if rules is not None and rules.binding:
                if entry.name not in KNOW_RULES:
                    raise UnsupportedError(f"{entry.name} does not know placement rules: BEST, ADAPT and OPT do")
                if any(rules.rules[r].price is not None for r in rules.in_force):
                    raise UnsupportedError(f"{entry.name} does not weigh rules with a price: BEST and ADAPT do")
            return run(instance, rng)

        return guarded

    return replace(entry, build=_surviving(entry) if entry.name in {"BEST", "ADAPT"} else build)


def _surviving(entry: Algorithm) -> Callable[[Options], Allocator]:
    """The search, which goes on, where headroom is asked for, until what it found survives failures.

    Half of the time is for the first placement, the rest for those with reserves.
    """

    def build(options: Options) -> Allocator:
        whole = entry.build(options)
        limit = options.time_limit_s or 1.0
        first = entry.build(replace(options, time_limit_s=0.5 * limit))
        again = entry.build(replace(options, time_limit_s=0.5 * limit / len(RESERVES)))

        def surviving(instance: Instance, rng: np.random.Generator) -> Outcome:
            if instance.rules is None or instance.rules.headroom is None:
                return whole(instance, rng)
            seed = int(rng.integers(2**62))
            # Where rounds count, so does nothing that depends on the clock.
            limit_s = 1.0 if options.rounds is None else None
            return keep_headroom(instance, first(instance, rng), again, seed, limit_s)

        return surviving

    return build


ALGORITHMS: dict[str, Algorithm] = {entry.name: _guarded(entry) for family in _FAMILIES for entry in family()}


def find(name: str) -> Algorithm:
    """The algorithm of that name. Raises InputError with the nearest names."""
    entry = ALGORITHMS.get(name)
    if entry is None:
        near = difflib.get_close_matches(name.upper(), ALGORITHMS, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "see dfrs algorithms"
        raise InputError(f'algorithm "{name}": there is no such algorithm; {hint}')
    return entry


def expand(patterns: list[str]) -> list[str]:
    """Names for a list of names and patterns (`VP_*`), each once, in the registry's order within a pattern.

    Patterns leave out what needs a present placement. Raises InputError where a name or pattern matches nothing.
    """
    names: dict[str, None] = {}
    for pattern in patterns:
        for part in filter(None, (p.strip() for p in pattern.split(","))):
            if any(c in part for c in "*?["):
                matching = [n for n in fnmatch.filter(ALGORITHMS, part) if not ALGORITHMS[n].needs_present]
                if not matching:
                    raise InputError(f'algorithm "{part}": matches no name; see dfrs algorithms')
                names |= dict.fromkeys(matching)
            else:
                names[find(part).name] = None
    return list(names)
