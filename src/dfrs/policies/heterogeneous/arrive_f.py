"""ARRIVE-F: EASY over partitions, and jobs that move to where they are predicted to run best ([Atif2011] 5.6, 5.7).

Every 4 tau seconds the running jobs are looked at: which exchange between two partitions saves the cluster most time?
One plan is executed at a time; while its processes are being moved the two partitions are locked, and nothing is
analysed (`/PARALLEL`: other partitions go on). A job never returns to a partition that it left by a migration, so
that migrations cannot go round, whatever the threshold. docs/explanation/farm-decisions.md has the rules in full.

Pure: what is remembered is in the jobs' memos (`dfrs.policies.heterogeneous.rules`) and in their columns.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isnan, nextafter
from typing import ClassVar

from dfrs.model.decisions import MEMORY, Cause, Policy, Reason, Snapshot, Target, Traits
from dfrs.policies.declaration import Family, Name
from dfrs.policies.fractional.objective import next_multiple
from dfrs.policies.heterogeneous import rules as policy_rules
from dfrs.policies.heterogeneous.cluster_view import Board
from dfrs.policies.heterogeneous.easy import Dispatch, PartitionEasy, dispatch, target, wake_at
from dfrs.policies.heterogeneous.gains import passes
from dfrs.policies.heterogeneous.plan import PlannedMove, plan, units
from dfrs.policies.heterogeneous.rules import OPTIONS, Rules, letter
from dfrs.policies.heterogeneous.search import PlanScenario, PlanSearch, Trade
from dfrs.policies.heterogeneous.special import head_saved_s, head_trades, memory_trades

GRACE_S = 1.0
"""A wake so late, as may happen on a real clock, is still that of the multiple before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan:
    """A trade that is executed."""

    trade: Trade
    moves: tuple[PlannedMove, ...]
    """In order; each is a process that is copied while all others stay where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Considered:
    """A plan that was looked at, for explanations."""

    scenario: PlanScenario
    jobs: tuple[int, ...]
    """Ids: the first goes from `source` to `target`, the others the other way."""
    source: int
    target: int
    gain_s: float
    """Predicted process seconds; NaN where nothing is predicted, and for MEMORY."""
    threshold_s: float
    """Process seconds that the gain must pass; NaN for MEMORY."""
    why_not: str
    """In words; empty where the plan is executed."""

    @property
    def chosen(self) -> bool:
        """Whether it is executed."""
        return not self.why_not


@dataclass(slots=True, kw_only=True)
class _Round:
    """One analysis: what is locked, what was chosen, and what is to be said."""

    search: PlanSearch
    done: Dispatch
    locks: dict[int, float]
    plans: list[MigrationPlan] = field(default_factory=list[MigrationPlan])
    log: list[Considered] = field(default_factory=list[Considered])


@dataclass(frozen=True, slots=True, kw_only=True)
class ArriveF:
    """See the module. Raises what `dfrs.policies.heterogeneous.easy.PartitionEasy` does."""

    traits: ClassVar[Traits] = Traits(exclusive=True, clustered=True)
    name: str = "ARRIVE-F"
    rules: Rules = field(default_factory=Rules)
    names: tuple[str, ...] = ()
    """Of the partitions, for words; A, B, C … where there are none."""

    def decide(self, snapshot: Snapshot, /) -> Target:
        """The target for this snapshot; dispatching has reasons, migrations are explained in `why`."""
        board = Board.of(snapshot, self.name)
        locks = board.locks(self.rules)
        done = dispatch(board, locks, self.rules.first, self.name)
        plans: list[MigrationPlan] = []
        if self.due(snapshot) and (self.rules.parallel or not locks):
            plans = self._analyse(board, done, locks, everything=False).plans
        return self._target(board, done, locks, plans)

    def plans(self, snapshot: Snapshot) -> list[MigrationPlan]:
        """What an analysis now would execute, each with its moves in order."""
        return self._explain(snapshot, everything=False).plans

    def considered(self, snapshot: Snapshot) -> list[Considered]:
        """Every plan that an analysis now looks at: thrashing jobs, then all pairs by gain, then the queue's head."""
        return self._explain(snapshot, everything=True).log

    def due(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot is one of an analysis: a wake at a multiple of 4 tau."""
        period_s = self.rules.period_s
        late_s = snapshot.now_s - round(snapshot.now_s / period_s) * period_s
        return snapshot.cause is Cause.WAKE and 0.0 <= late_s <= min(GRACE_S, period_s / 4)

    def _explain(self, snapshot: Snapshot, *, everything: bool) -> _Round:
        board = Board.of(snapshot, self.name)
        locks = board.locks(self.rules)
        return self._analyse(board, dispatch(board, locks, self.rules.first, self.name), locks, everything=everything)

    def _analyse(self, board: Board, done: Dispatch, locks: Mapping[int, float], *, everything: bool) -> _Round:
        """Go through the lists and choose: the first plan that can be executed, in parallel all of them.

        With `everything` also what cannot pass is looked at, and what comes after the plan chosen.
        """
        search = PlanSearch(board=board, rules=self.rules, names=self.names)
        now = _Round(search=search, done=done, locks=dict(locks))
        busy = bool(locks) and not self.rules.parallel
        for trade in self._trades(now, everything=everything):
            chosen = trade
            why_not = f"a migration is in progress until {min(locks.values()):.0f} s" if busy else ""
            if now.plans and not self.rules.parallel:
                why_not = "another plan is executed, one at a time"
            if not why_not:
                chosen, moves, why_not = self._judge(now, trade)
                if moves:
                    now.plans.append(MigrationPlan(trade=chosen, moves=tuple(moves)))
                    now.locks |= dict.fromkeys((chosen.source, chosen.target), inf)
            now.log.append(_considered(board, chosen, why_not))
            if now.plans and not self.rules.parallel and not everything:
                break
        return now

    def _trades(self, now: _Round, *, everything: bool) -> Iterator[Trade]:
        yield from memory_trades(now.search, now.locks)
        if everything:
            yield from now.search.everything()
        else:
            yield from now.search.entries(now.locks)
        if self.rules.head:
            yield from head_trades(now.search, now.done, {} if everything else now.locks)

    def _judge(self, now: _Round, trade: Trade) -> tuple[Trade, list[PlannedMove], str]:
        """The trade, perhaps with more jobs, its moves if it is to be executed, and why it is not."""
        search, special = now.search, trade.scenario is PlanScenario.MEMORY
        why_not = self._barred(now, trade)
        if not why_not and not special and not passes(trade.gain_s, trade.threshold_s):
            why_not = _too_little(trade)
        if why_not:
            return trade, [], why_not
        if not special:
            larger = search.enlarged(trade, now.locks)
            if larger is not trade and not larger.problem and not passes(larger.gain_s, larger.threshold_s):
                return larger, [], _too_little(larger)
            trade = larger
        if trade.problem:
            return trade, [], trade.problem
        moves = plan(search.board, trade.goals)
        if not moves:
            return trade, [], "there is no order of single moves in which no machine runs out of memory or nodes"
        return trade, moves, ""

    def _barred(self, now: _Round, trade: Trade) -> str:
        """Why some job of the trade must stay, or one of its partitions must be left alone, or nothing."""
        search = now.search
        for c in (trade.source, trade.target):
            if c in now.locks:
                return f"{letter(c, self.names)} takes part in another migration"
        if trade.scenario is PlanScenario.MEMORY:
            return ""
        for row in trade.rows:
            target = trade.target if row == trade.lead else trade.source
            bar = search.rests(row) if trade.scenario is PlanScenario.HEAD else search.bar(row)
            bar = bar or search.bar_there(row, target)
            if bar:
                return bar
        return ""

    def _target(self, board: Board, done: Dispatch, locks: Mapping[int, float], plans: list[MigrationPlan]) -> Target:
        now_s, rules = board.snapshot.now_s, self.rules
        count = units(board, (p.moves for p in plans), parallel=rules.parallel)
        after = dict(locks)
        result = target(board, done, rules, None)
        first, why = board.snapshot.first, dict[int, str]()
        for each in plans:
            after |= dict.fromkeys((each.trade.source, each.trade.target), now_s + rules.copy_s * count)
            for row, nodes in each.trade.goals.items():
                result.task_nodes[first[row] : first[row + 1]] = nodes
                result.policy_state[row] = policy_rules.moved(board.policy_state[row], board.home[row], count)
                result.reasons[row] = Reason.PACKED
                why[int(board.snapshot.jobs["id"][row])] = self._words(board, done, each.trade, row)
        # A copy may take no time that a clock can tell.
        after = {c: over_s for c, over_s in after.items() if over_s > now_s}
        waits = [at_s for at_s in (wake_at(done, after), self._next_s(board)) if at_s is not None]
        return Target(
            result.task_nodes,
            result.yields,
            min(waits, default=None),
            result.reasons,
            why=why,
            policy_state=result.policy_state,
        )

    def _next_s(self, board: Board) -> float | None:
        """The next analysis, while jobs run. Something else that happens at its time must not do away with it."""
        now_s, period_s = board.snapshot.now_s, self.rules.period_s
        if not any(home >= 0 for home in board.home):
            return None
        periods = round(now_s / period_s)
        if board.snapshot.cause is not Cause.WAKE and periods > 0 and periods * period_s == now_s:
            return nextafter(now_s, inf)
        return next_multiple(now_s, period_s)

    def _words(self, board: Board, done: Dispatch, trade: Trade, row: int) -> str:
        """Why this job moves."""
        here, there = trade.source, trade.target
        ids = board.snapshot.jobs["id"]
        if row != trade.lead:
            here, there = there, here
        others = [int(ids[r]) for r in trade.rows if r != row]
        text = f"moved from {letter(here, self.names)} to {letter(there, self.names)}"
        if others:
            text += f" with job{'s' if len(others) > 1 else ''} {', '.join(map(str, others))}"
        if trade.scenario is PlanScenario.MEMORY:
            return f"{text}: {_memory_words(board, trade)}"
        text += f": predicted gain {trade.gain_s:.0f} s over the next {self.rules.horizon_s:.0f} s"
        if trade.scenario is PlanScenario.HEAD:
            search = PlanSearch(board=board, rules=self.rules)
            saved_s = head_saved_s(search, done, row)
            text += f", as job {ids[done.head]}, first in the queue, can start {saved_s:.0f} s earlier"
        return f"{text}, threshold {trade.threshold_s:.0f} s"


def _too_little(trade: Trade) -> str:
    if isnan(trade.gain_s):
        return trade.problem
    if not trade.gain_s > 0.0:
        return f"nothing is gained: {trade.gain_s:.0f} s"
    return f"the gain, {trade.gain_s:.0f} s, is not above the threshold, {trade.threshold_s:.0f} s"


def _memory_words(board: Board, trade: Trade) -> str:
    wanted, row = float(board.view.required[trade.lead]), trade.lead
    has = float(board.snapshot.capacity[board.nodes[row][0], MEMORY])
    job = int(board.snapshot.jobs["id"][row])
    return f"job {job} thrashes: each process wants {wanted:.3g} of the reference node's memory, its node has {has:.3g}"


def _considered(board: Board, trade: Trade, why_not: str) -> Considered:
    return Considered(
        scenario=trade.scenario,
        jobs=tuple(int(board.snapshot.jobs["id"][r]) for r in trade.rows),
        source=trade.source,
        target=trade.target,
        gain_s=trade.gain_s,
        threshold_s=trade.threshold_s,
        why_not=why_not,
    )


def _build(name: str, rules: Rules) -> Policy:
    return ArriveF(name=name, rules=rules) if name.startswith("ARRIVE-F") else PartitionEasy(name=name, rules=rules)


PARTITIONS: Family[Rules] = Family(
    group="heterogeneous cluster",
    names=(
        Name(
            name="FARM-EASY",
            start=Rules(),
            source="[Atif2011] 6.1",
            meaning="EASY with each job within one partition, nodes of equal hardware; needs estimates",
        ),
        Name(
            name="ARRIVE-F",
            start=Rules(),
            source="[Atif2011] 5.6, 5.7",
            meaning="FARM-EASY, and running jobs move to the partition where they are predicted to run best",
        ),
    ),
    options=OPTIONS,
    build=_build,
)
"""FARM-EASY and ARRIVE-F."""
