"""Which plans there are, and which is executed: [Atif2011] sections 5.7 and 9.

A plan exchanges jobs between two partitions. Each pair of jobs on different partitions, and each job with each
partition that has enough free nodes, is an entry of a list, sorted by predicted gain; the first entry that passes the
threshold and for which there is room is executed. Thrashing jobs come before, in a list of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import inf, isnan, nan

import numpy as np

from dfrs.policies.heterogeneous import rules as policy_rules
from dfrs.policies.heterogeneous.cluster_view import ACROSS, Board
from dfrs.policies.heterogeneous.gains import Mover, gain_s, most_gain_s, saved_per_tau
from dfrs.policies.heterogeneous.rules import Rules, letter


class PlanScenario(IntEnum):
    """Of [Atif2011] section 5.7; HEAD is the suggestion of section 9."""

    EQUAL = 1
    """Two jobs of equally many processes change places."""
    FREE = 2
    """A job goes to free nodes."""
    WITH_FREE = 3
    """A larger job takes the nodes of a smaller one, and free ones."""
    MULTIPLE = 4
    """A larger job takes the nodes of several smaller ones, and free ones."""
    MEMORY = 5
    """A job that thrashes goes where it has enough memory."""
    HEAD = 6
    """A job goes to free nodes so that the first of the queue has room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """Jobs that would change places between two partitions."""

    scenario: PlanScenario
    lead: int
    """Row that goes from `source` to `target`."""
    back: tuple[int, ...]
    """Rows that go the other way."""
    source: int
    target: int
    gain_s: float
    """Predicted, in process seconds over the next beta tau; NaN for MEMORY, of which nothing is predicted."""
    threshold_s: float
    goals: Mapping[int, list[int]]
    """Nodes of each row after it; empty where there is no room, and `problem` says why."""
    problem: str = ""

    @property
    def rows(self) -> tuple[int, ...]:
        """All that would be moved, the leading one first."""
        return (self.lead, *self.back)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSearch:
    """Looks for trades on a board. `names` are of partitions, for words."""

    board: Board
    rules: Rules
    names: tuple[str, ...] = ()

    def bar(self, row: int) -> str:
        """Why a running job is no candidate for a gain, or nothing ([Atif2011] sections 5.6, 5.7 and 9)."""
        board, rules = self.board, self.rules
        job = int(board.snapshot.jobs["id"][row])
        if row in board.fresh:
            return f"job {job} only starts now"
        if board.home[row] == ACROSS:
            return f"job {job} runs across sub-clusters"
        if board.view.swapping[row]:
            return f"job {job} thrashes: only memory counts for it"
        if isnan(self.speed_now(row)):
            return f"job {job} is not profiled yet"
        rested = self.rests(row)
        if rested:
            return rested
        left_s = board.left_s(row)
        if isnan(left_s) or (left_s <= rules.horizon_s and not rules.one):
            return f"job {job} has {left_s:.0f} s left, and must have more than {rules.horizon_s:.0f}"
        return ""

    def rests(self, row: int) -> str:
        """Why a job that was moved is not moved again yet, or nothing ([Atif2011] section 5.7)."""
        job = self.board.snapshot.jobs[row]
        since_s = self.board.snapshot.now_s - float(job["since_s"])
        if policy_rules.left(self.board.policy_state[row]) and since_s < self.rules.horizon_s:
            return f"job {job['id']} was moved {since_s:.0f} s ago, and stays for {self.rules.horizon_s:.0f}"
        return ""

    def speed_now(self, row: int) -> float:
        """Predicted speed of a running job where it is."""
        board = self.board
        if board.home[row] < 0:
            return nan
        return board.speed(row, board.home[row], colocated=board.colocated(board.nodes[row]))

    def best_mover(self, row: int, partition: int) -> Mover | None:
        """The job on that partition, co-located or spread, whichever is faster; None where it cannot go there."""
        board = self.board
        there = [board.speed(row, partition, colocated=c) for c in (False, True)]
        known = [speed for speed in there if not isnan(speed)]
        if not known or isnan(self.speed_now(row)) or policy_rules.has_left(board.policy_state[row], partition):
            return None
        return self._mover(row, max(known))

    def mover_at(self, row: int, partition: int, nodes: Sequence[int]) -> Mover | None:
        """The job on those nodes of that partition; None where nothing is predicted of it there, or of it here."""
        speed = self.board.speed(row, partition, colocated=self.board.colocated(nodes))
        return None if isnan(speed) or isnan(self.speed_now(row)) else self._mover(row, speed)

    def _mover(self, row: int, speed_there: float) -> Mover:
        saved_s = saved_per_tau(self.rules.tau_s, self.speed_now(row), speed_there)
        return Mover(processes=self.board.tasks[row], saved_s=saved_s, left_s=self.board.left_s(row))

    def bar_there(self, row: int, partition: int) -> str:
        """Why a job may not go to that partition, or nothing."""
        board, job = self.board, int(self.board.snapshot.jobs["id"][row])
        name = letter(partition, self.names)
        if policy_rules.has_left(board.policy_state[row], partition):
            return f"job {job} left {name} before"
        if not any(board.suits(row, n) for n, c in enumerate(board.partition) if c == partition):
            return f"nodes of {name} are too small for job {job}"
        if not board.view.swapping[row] and self.best_mover(row, partition) is None:
            return f"nothing is predicted of job {job} on {name}"
        return ""

    def goals(self, lead: int, target: int, back: Sequence[int]) -> dict[int, list[int]] | str:
        """Nodes for each row if `lead` goes to `target`, and `back` to where it is now; or who has no room.

        Each has free nodes and those that the others leave, the largest first; on one machine if possible.
        """
        board = self.board
        there = self._available(lead, target, back)
        found = board.choose(board.tasks[lead], there)
        if found is None:
            return self._no_room(lead, target, len(there))
        others = self.goals_back(lead, back)
        return others if isinstance(others, str) else {lead: found, **others}

    def goals_back(self, lead: int, back: Sequence[int]) -> dict[int, list[int]] | str:
        """Nodes where `lead` is now for those who go there, or who has none."""
        board, taken = self.board, set[int]()
        goals: dict[int, list[int]] = {}
        for row in sorted(back, key=lambda r: (-board.tasks[r], r)):
            here = [n for n in self._available(row, board.home[lead], (lead,)) if n not in taken]
            found = board.choose(board.tasks[row], here)
            if found is None:
                return self._no_room(row, board.home[lead], len(here))
            taken.update(found)
            goals[row] = found
        return goals

    def _available(self, row: int, partition: int, leaving: Sequence[int]) -> list[int]:
        board = self.board
        left = [n for r in leaving for n in board.nodes[r]]
        # Another policy may have put several tasks on a node: then it is not empty when one leaves.
        return [n for n in sorted({*board.free[partition], *left}) if board.users[n] <= 1 and board.suits(row, n)]

    def _no_room(self, row: int, partition: int, nodes: int) -> str:
        board = self.board
        job, name = int(board.snapshot.jobs["id"][row]), letter(partition, self.names)
        return f"job {job} has {board.tasks[row]} processes, and there are {nodes} nodes for it on {name}"

    def trade(self, lead: int, target: int, back: tuple[int, ...], scenario: PlanScenario) -> Trade:
        """The trade with its gain; where there is no room, with the gain if there were."""
        rules, board = self.rules, self.board
        goals = self.goals(lead, target, back)
        rows, movers = (lead, *back), list[Mover]()
        for row in rows:
            partition = target if row == lead else board.home[lead]
            there = None if isinstance(goals, str) else goals[row]
            mover = self.best_mover(row, partition) if there is None else self.mover_at(row, partition, there)
            if mover is not None:
                movers.append(mover)
        known = len(movers) == len(rows)
        problem = goals if isinstance(goals, str) else ""
        if not known:
            problem = problem or "nothing is predicted where they would be"
        elif rules.one and not any(m.saved_s > 0.0 and m.left_s > rules.horizon_s for m in movers):
            problem = problem or f"no job that gains has more than {rules.horizon_s:.0f} s left"
        return Trade(
            scenario=scenario,
            lead=lead,
            back=back,
            source=board.home[lead],
            target=target,
            gain_s=gain_s(movers, rules) if known else nan,
            threshold_s=rules.threshold_s(sum(board.tasks[row] for row in rows)),
            goals={} if problem or isinstance(goals, str) else goals,
            problem=problem,
        )

    def pair(self, j: int, k: int) -> Trade:
        """Two jobs change places; the one of more processes leads (ties: the one submitted first)."""
        tasks = self.board.tasks
        lead, other = (j, k) if (-tasks[j], j) <= (-tasks[k], k) else (k, j)
        scenario = PlanScenario.EQUAL if tasks[j] == tasks[k] else PlanScenario.WITH_FREE
        return self.trade(lead, self.board.home[other], (other,), scenario)

    def entries(self, locks: Mapping[int, float]) -> list[Trade]:
        """The list of [Atif2011] section 5.7: trades that may pass the threshold, the largest gain first.

        Of equal gains those that move fewer processes come first, then the leading job submitted first, then the
        partition, then the other job. Pairs that cannot pass, wherever on the partitions they were, are left out.
        """
        board, rules = self.board, self.rules
        rows = [r for r, home in enumerate(board.home) if home >= 0 and home not in locks and not self.bar(r)]
        most = np.full((len(rows), board.partitions), -inf)
        for i, row in enumerate(rows):
            for c in range(board.partitions):
                mover = None if c == board.home[row] or c in locks else self.best_mover(row, c)
                if mover is not None:
                    most[i, c] = most_gain_s(mover, rules)
        tasks = np.array([board.tasks[r] for r in rows], np.int64)
        home = np.array([board.home[r] for r in rows], np.int64)
        # Adding in another order than gains are, the bound could pass by a rounding.
        slack = 1e-9 * rules.horizon_s * (tasks + 1)
        found: list[Trade] = []
        least = np.maximum(rules.threshold_s(1), 0.0) + rules.stretch_of(1)
        for i, c in np.argwhere(most + slack[:, None] > (least * tasks)[:, None]).tolist():
            if len(board.free[c]) >= tasks[i]:
                found.append(self.trade(rows[i], c, (), PlanScenario.FREE))
        if rows:
            there = most[:, home]
            both = there + there.T + slack[:, None] + slack > least * (tasks[:, None] + tasks)
            found += [self.pair(rows[i], rows[k]) for i, k in np.argwhere(np.triu(both, 1)).tolist()]
        return self.in_order(found)

    def everything(self) -> list[Trade]:
        """All pairs of running jobs, and all jobs with free nodes elsewhere, in the order of `entries`; for words."""
        board = self.board
        rows = [r for r, home in enumerate(board.home) if home >= 0]
        found = [
            self.trade(r, c, (), PlanScenario.FREE)
            for r in rows
            for c in range(board.partitions)
            if c != board.home[r] and board.free[c]
        ]
        pairs = [(j, k) for i, j in enumerate(rows) for k in rows[i + 1 :] if board.home[j] != board.home[k]]
        return self.in_order([*found, *(self.pair(j, k) for j, k in pairs)])

    def in_order(self, trades: Sequence[Trade]) -> list[Trade]:
        """Sorted as `entries` says; trades of which nothing is predicted come last."""
        tasks = self.board.tasks
        return sorted(
            trades,
            key=lambda t: (
                isnan(t.gain_s),
                0.0 if isnan(t.gain_s) else -t.gain_s,
                sum(tasks[r] for r in t.rows),
                t.lead,
                t.target,
                t.back,
            ),
        )

    def enlarged(self, trade: Trade, locks: Mapping[int, float]) -> Trade:
        """Where the other job and free nodes are too few for the leading one: with further jobs (scenario 4).

        They are taken in the order of the list, as far as there is room for them where the leading one is now, until
        it has enough nodes; then those without which it has enough are left out again, the last of the list first.
        """
        board, lead, back = self.board, trade.lead, trade.back
        if not trade.problem or not back or self.enough(lead, trade.target, back):
            return trade
        others = [
            self.pair(lead, row)
            for row, home in enumerate(board.home)
            if home == trade.target
            and row not in trade.rows
            and board.tasks[row] < board.tasks[lead]
            and home not in locks
            and not self.bar(row)
            and not self.bar_there(row, board.home[lead])
        ]
        for other in self.in_order(others):
            more = (*back, *other.back)
            if isinstance(self.goals_back(lead, more), str):
                continue
            back = more
            if self.enough(lead, trade.target, back):
                return self.trade(lead, trade.target, self._needed(lead, trade.target, back), PlanScenario.MULTIPLE)
        return trade

    def _needed(self, lead: int, target: int, back: tuple[int, ...]) -> tuple[int, ...]:
        for row in reversed(back):
            fewer = tuple(r for r in back if r != row)
            if self.enough(lead, target, fewer):
                back = fewer
        return back

    def enough(self, lead: int, target: int, back: Sequence[int]) -> bool:
        """Whether the leading job has enough nodes if those leave theirs."""
        return len(self._available(lead, target, back)) >= self.board.tasks[lead]
