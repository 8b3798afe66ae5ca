"""Names of DFRS policies ([Stillwell2010] section 5.2.4): what a name may be made of, and the policy it stands for.

    [Greedy|GreedyP|GreedyPM|MCB][*][/per[=SECONDS|=auto]|/stretch-per[=SECONDS]|/due[=SECONDS]][/PART…]

The first part says what is done on a submission; `*`, that placements are also made on a completion; `per`, that all
jobs are mapped anew periodically (every 600 s; with `auto` the rarer, the more pauses and moves cost), `stretch-per`,
that this is done for the least stretch, `due`, that it is done when a stretch doubles. Further parts, each at most
once, in any order: `OPT=MIN|AVG|NONE` (with `stretch-per`: `MAX|AVG|NONE`), `MFT=SECONDS` or `MVT=SECONDS`,
`PRIO=VT|FLOW/VT|FLOW/VT^2`, `WEIGHT`, `DECAY=SECONDS`, `BUDGET=NODES`, `NEEDS=SHARE` (MCB when needs are revised, if
the minimum yield improves by more than that share of it), `PAYS` (a periodic repacking is adopted only where it pays
for its pauses and moves), `REBALANCE[=SHARE]` (after each decision, moves that pay, if the bound on the minimum yield
is more than that share above it), a vector packing (`VP_CPSUM`, `MCB8`, …), `WINDOW=1|2`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from dfrs.policies.declaration import Choice, Family, Fields, Flag, Name, Number, Option
from dfrs.policies.fractional.actions import MOVABLE, Admit, Mode, Pin, PinKind, PolicyAction, Priority, Readmit, Repack
from dfrs.policies.fractional.extensions import Budgeted, Deadlines, Improving, Paying, PricedPeriod, ScaledObjective
from dfrs.policies.fractional.objective import YIELDS, Objective, StretchObjective
from dfrs.policies.fractional.policy import Dfrs
from dfrs.policies.fractional.rebalance import THRESHOLD, Rebalance
from dfrs.policies.fractional.shares import AverageStretch, AverageYield, MaxMin, Shares
from dfrs.policies.fractional.vector_repack import DEFAULT_PACKING, PACKINGS, VectorRepack

PERIOD_S = 600.0
"""Twice the rescheduling penalty of the published experiments ([Stillwell2010] 5.3.1)."""

PRICED_PERIOD = PricedPeriod(times=30.0, least_s=60.0, most_s=3600.0)
"""Of `auto`. By measurement, see docs/explanation/abilities.md."""

_MODES = {"Greedy": Mode.GREEDY, "GreedyP": Mode.GREEDY_P, "GreedyPM": Mode.GREEDY_PM}
SUBMISSIONS = (*_MODES, "MCB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a name says."""

    submission: str = ""
    star: bool = False
    period_s: float | None = None
    priced: bool = False
    due: bool = False
    weighted: bool = False
    decay_s: float = math.inf
    budget: float = math.inf
    needs: float | None = None
    pays: bool = False
    rebalance: float | None = None
    stretch: bool = False
    opt: str = ""
    mft_s: float | None = None
    mvt_s: float | None = None
    priority: Priority = Priority.FLOW_VIRTUAL_SQUARED
    packing: str | None = None
    window: int | None = None

    @property
    def packs(self) -> bool:
        """Whether MCB is ever used."""
        return self.submission == "MCB" or self.period_s is not None or self.needs is not None

    @property
    def scales(self) -> bool:
        """Whether yields are scaled by weights or ages."""
        return self.weighted or self.decay_s < math.inf

    @property
    def pin(self) -> Pin:
        """Which running jobs MCB does not move."""
        if self.mft_s is not None:
            return Pin(kind=PinKind.FLOW, seconds=self.mft_s)
        return MOVABLE if self.mvt_s is None else Pin(kind=PinKind.VIRTUAL, seconds=self.mvt_s)

    @property
    def problem(self) -> str:
        """Why parts of the name do not go together; empty where they do."""
        rule = ""
        if self.star and not self.submission:
            rule = "* needs an action on submission before it, as in Greedy*"
        elif not self.submission and self.period_s is None:
            rule = "nothing would ever be placed: name an action on submission, or /per"
        elif self.submission and not self.star and self.period_s is None:
            rule = "a job for which there is no room at once would wait for ever: add * or /per"
        elif not self.packs and self.pin.kind is not PinKind.NONE:
            rule = "MFT and MVT limit what MCB moves, and nothing here uses MCB: leave it out, or add /per"
        elif not self.packs and (self.packing, self.window) != (None, None):
            rule = "a packing is for MCB, and nothing here uses MCB: leave it out, or add /per"
        elif self.window is not None and PACKINGS[self.packing or DEFAULT_PACKING].method not in {"CP", "PP"}:
            rule = f"{self.packing} has no window: WINDOW is for Choose and Permutation Pack"
        elif not self.packs and self.budget < math.inf:
            rule = "BUDGET limits what MCB migrates, and nothing here uses MCB: leave it out, or add /per"
        elif self.stretch and self.scales:
            rule = "WEIGHT and DECAY scale yields: they do not go with /stretch-per"
        elif self.pays and self.period_s is None:
            rule = "PAYS is about repacking from time to time, and nothing here does so: leave it out, or add /per"
        elif self.stretch and self.pays:
            rule = "PAYS compares yields: it does not go with /stretch-per"
        elif self.stretch and self.rebalance is not None:
            rule = "REBALANCE compares yields: it does not go with /stretch-per"
        elif self.opt == "AVG" and self.scales:
            rule = "WEIGHT and DECAY need OPT=MIN or NONE: an average knows no level"
        elif self.stretch and self.opt == "MIN":
            rule = "stretches are made small: OPT=MAX, AVG or NONE"
        elif not self.stretch and self.opt == "MAX":
            rule = "OPT=MAX is for /stretch-per; here it is OPT=MIN, AVG or NONE"
        return rule


def build(name: str, spec: Spec) -> Dfrs:
    """The policy, under that name. Raises ValueError with the rule where parts of it do not go together."""
    if spec.problem:
        raise ValueError(spec.problem)
    priority = spec.priority
    objective: Objective = YIELDS
    if spec.scales:
        objective = ScaledObjective(weighted=spec.weighted, decay_s=spec.decay_s)
    # With stretch-per only periodic repackings and the shares aim at stretches: whatever else places aims at yields.
    aim = objective
    shares: Shares
    if spec.stretch:
        objective = stretch_objective = StretchObjective(spec.period_s or PERIOD_S)
        shares = AverageStretch(objective=stretch_objective) if spec.opt == "AVG" else _level_shares(spec, objective)
    else:
        shares = AverageYield() if spec.opt == "AVG" else _level_shares(spec, objective)
    pack = _packer(spec, aim, priority)
    start: PolicyAction | None = pack if spec.submission == "MCB" else None
    restart: PolicyAction | None = start
    if spec.submission in _MODES:
        start = Admit(mode=_MODES[spec.submission], priority=priority)
        restart = Readmit(priority=priority)
    rebalance = None
    if spec.rebalance is not None:
        rebalance = Rebalance(threshold=spec.rebalance, objective=aim, budget=spec.budget)
        restart = restart or Readmit(priority=priority)
    return Dfrs(
        name=name,
        on_submission=start,
        on_completion=restart if spec.star or rebalance else None,
        on_wake=_periodic(spec, objective, priority),
        on_nodes=restart,
        on_needs=None if spec.needs is None else Improving(repack=_packer(spec, aim, priority), threshold=spec.needs),
        shares=shares,
        weighted=spec.weighted,
        period_s=spec.period_s,
        priced=PRICED_PERIOD if spec.priced else None,
        deadlines=Deadlines(spec.period_s or PERIOD_S) if spec.due else None,
        rebalance=rebalance,
    )


def _level_shares(spec: Spec, objective: Objective) -> MaxMin:
    return MaxMin(objective=objective, even=spec.opt == "NONE")


def _periodic(spec: Spec, objective: Objective, priority: Priority) -> PolicyAction | None:
    period_s = spec.period_s
    if period_s is None:
        return None
    pack = _packer(spec, objective, priority)
    if not spec.pays:
        return pack
    return Paying(repack=pack, period_s=PRICED_PERIOD if spec.priced else period_s, objective=objective)


def _packer(spec: Spec, objective: Objective, priority: Priority) -> PolicyAction:
    pack = _unlimited_packer(spec, objective, priority)
    return pack if spec.budget == math.inf else Budgeted(repack=pack, budget=spec.budget)


def _unlimited_packer(spec: Spec, objective: Objective, priority: Priority) -> PolicyAction:
    packing, window = spec.packing or DEFAULT_PACKING, spec.window or 1
    if packing == DEFAULT_PACKING and window == 1:
        return Repack(objective=objective, priority=priority, pin=spec.pin)
    return VectorRepack(packing=packing, window=window, objective=objective, priority=priority, pin=spec.pin)


def _seconds(field: str) -> Number:
    return Number(field=field, unit="seconds", letter="S", example="600")


def _period(field: str, words: Mapping[str, Fields] | None = None) -> Number:
    return Number(
        field="period_s",
        unit="seconds",
        letter="S",
        example="600",
        absent=PERIOD_S,
        also={field: True} if field else {},
        words=words or {},
    )


_PERIOD, _AGE = "the period", "the age below which jobs are not moved"
_WHEN, _REST, _PINNED, _PRIORITY, _PACKING, _EXTENSIONS = (
    "periodically",
    "remaining CPU",
    "jobs that MCB does not move",
    "priority",
    "packing",
    "extensions",
)

_OPTIONS = (
    Option(
        key="per",
        group=_WHEN,
        about=_PERIOD,
        values=_period("", words={"auto": {"period_s": PERIOD_S, "priced": True}}),
        default=f"never; {PERIOD_S:g} without a value",
        meaning="MCB repacks all jobs every S seconds; auto: the rarer, the more pauses and moves cost",
        source="[Stillwell2010] 5.2.4; auto is our own",
    ),
    Option(
        key="stretch-per",
        group=_WHEN,
        about=_PERIOD,
        values=_period("stretch"),
        default=f"never; {PERIOD_S:g} without a value",
        meaning="MCB repacks all jobs every S seconds to minimise the maximum estimated stretch",
        source="[Stillwell2010] 5.2.6",
    ),
    Option(
        key="OPT",
        group=_REST,
        about="the OPT",
        values=Choice(
            field="opt",
            must="OPT=MIN, AVG or NONE, with stretch-per OPT=MAX, AVG or NONE",
            values={
                "MIN": (
                    "MIN",
                    "max-min: raises the smallest yields, then the next smallest (default)",
                    "[Stillwell2010] 5.2.5",
                ),
                "AVG": (
                    "AVG",
                    "maximises the average yield; with /stretch-per minimises the average stretch",
                    "[Stillwell2010] 5.2.5, 5.2.6",
                ),
                "MAX": (
                    "MAX",
                    "with /stretch-per: lowers the largest stretches, then the next largest (default)",
                    "[Stillwell2010] 5.2.6",
                ),
                "NONE": ("NONE", "raises no yield above the minimum yield", "[Stillwell2010] 5.2.5"),
            },
        ),
    ),
    Option(
        key="MVT",
        group=_PINNED,
        about=_AGE,
        values=_seconds("mvt_s"),
        default="none",
        meaning="running jobs with less than S seconds of virtual time",
        source="[Stillwell2010] 5.2.4",
    ),
    Option(
        key="MFT",
        group=_PINNED,
        about=_AGE,
        values=_seconds("mft_s"),
        default="none",
        meaning="running jobs submitted less than S seconds ago",
        source="[Stillwell2010] 5.2.4",
    ),
    Option(
        key="PRIO",
        group=_PRIORITY,
        values=Choice(
            field="priority",
            values={
                "VT": (Priority.VIRTUAL, "1 / virtual time", "[Stillwell2010] 5.2.3"),
                "FLOW/VT": (Priority.FLOW_VIRTUAL, "flow time / virtual time", "[Stillwell2010] 5.2.3"),
                "FLOW/VT^2": (
                    Priority.FLOW_VIRTUAL_SQUARED,
                    "flow time / virtual time squared (default)",
                    "[Stillwell2010] 5.2.3",
                ),
            },
        ),
    ),
    Option(
        key="due",
        group=_EXTENSIONS,
        about=_PERIOD,
        values=_period("due"),
        default=f"never; {PERIOD_S:g} without a value",
        meaning="MCB repacks all jobs when the stretch of one has doubled, at a multiple of S seconds",
        source="[Stillwell2010] 8.3.1",
    ),
    Option(
        key="WEIGHT",
        group=_EXTENSIONS,
        values=Flag(field="weighted", why="weights come with the jobs"),
        meaning="yields up to 1 are in proportion to the jobs' weights",
        source="[Stillwell2010] 8.3.1",
    ),
    Option(
        key="DECAY",
        group=_EXTENSIONS,
        values=_seconds("decay_s"),
        default="none",
        meaning="long-running jobs get less: half the yield after S seconds of virtual time",
        source="[Stillwell2010] 8.3.1",
    ),
    Option(
        key="NEEDS",
        group=_EXTENSIONS,
        values=Number(field="needs", unit="share", example="0.1"),
        default="never",
        meaning="MCB repacks all jobs when needs are revised, if that raises the minimum yield by more than X",
        source="[Stillwell2010] 7.2.2",
    ),
    Option(
        key="PAYS",
        group=_EXTENSIONS,
        values=Flag(field="pays"),
        meaning="with /per or /due: a repacking is adopted only if it pays for its pauses and moves by the next one",
        source="our own",
    ),
    Option(
        key="REBALANCE",
        group=_EXTENSIONS,
        values=Number(field="rebalance", unit="share", example="0.1", absent=THRESHOLD),
        default=f"never; {THRESHOLD:g} without a value",
        meaning="after each decision jobs move, where that pays, if the least yield could be larger by more than X",
        source="our own",
    ),
    Option(
        key="BUDGET",
        group=_EXTENSIONS,
        values=Number(field="budget", unit="nodes", example="5"),
        default="no limit",
        meaning="MCB migrates at most the memory of X nodes an hour; ADAPT chooses which jobs",
        source="[Stillwell2010] 6.2, 8.3.1",
    ),
    *(
        Option(
            key=packing,
            group=_PACKING,
            about="the packing",
            values=Flag(field="packing", value=packing),
            listed="/VP_CPSUM, /MCB8, …",
            hidden=packing != DEFAULT_PACKING,
            default=DEFAULT_PACKING,
            meaning="MCB packs by another algorithm: dfrs algorithms",
            source="[Stillwell2010] 4.2.5, [Stillwell2008] 3.4",
        )
        for packing in PACKINGS
    ),
    Option(
        key="WINDOW",
        group=_PACKING,
        values=Choice(
            field="window",
            values={
                "1": (1, "the packing keeps one list of tasks for each resource (default)", "[Stillwell2010] 4.2.5"),
                "2": (2, "the packing keeps one list of tasks for all resources", "[Stillwell2010] 4.2.5"),
            },
        ),
    ),
)

_MEANINGS = {
    "Greedy": (
        "each task goes to the least loaded node with memory for it; without room the job waits",
        "[Stillwell2010] 5.2.1",
    ),
    "GreedyP": ("Greedy, but without room it pauses jobs of lower priority", "[Stillwell2010] 5.2.3"),
    "GreedyPM": ("GreedyP, but it moves those jobs where another node has room for them", "[Stillwell2010] 5.2.3"),
    "MCB": ("repacks all jobs to maximise the minimum yield", "[Stillwell2010] 5.2.2"),
}

FRACTIONAL: Family[Spec] = Family(
    group="on submission",
    many=True,
    names=(
        *(
            Name(
                name=f"{submission}{star}",
                start=Spec(submission=submission, star=bool(star)),
                meaning=_MEANINGS[submission][0] if not star else "",
                source=_MEANINGS[submission][1],
            )
            for submission, star in product(SUBMISSIONS, ("", "*"))
        ),
        Name(
            name="*",
            start=Spec(star=True),
            group="on completion",
            meaning="behind one of these: places waiting and paused jobs by priority, with Greedy or MCB",
            source="[Stillwell2010] 5.2.4",
        ),
        Name(name="", start=Spec()),
    ),
    options=_OPTIONS,
    build=build,
)
"""All of them."""
