"""Where the compiled event loop of a policy goes on with a simulation, as long as the run is plain.

It works on the arrays of the core's state and of the world themselves, and grows them. What it leaves is what the
interpreted engine would have left, event for event and bit for bit, so that each goes on where the other stopped.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dfrs.engine.core import Core
from dfrs.engine.handlers.handler import Ask
from dfrs.engine.state import State
from dfrs.kernels.event_loop import ACCOUNT, ASK, ROOM, Arrivals, Cluster, Moves, Plain, Present
from dfrs.model import tolerances
from dfrs.model.decisions import Cause, EventLoop, Reason
from dfrs.model.jobs import Workload
from dfrs.simulator.world import World

MOVES = 1024
"""Room for so many migrations, before they are told to the state."""


class Stretch(NamedTuple):
    """What the loop has processed: so many events, up to `now_s`."""

    now_s: float = -np.inf
    events: int = 0
    submissions: int = 0
    completions: int = 0
    question: Ask | None = None
    """What the policy is still to be asked because of the last one."""


NOTHING = Stretch()


class CompiledLoop:
    """The loop of one policy on one workload."""

    def __init__(self, loop: EventLoop, workload: Workload, *, submissions_first: bool) -> None:
        self._loop = loop
        self._submissions_first = submissions_first
        self._arrivals = Arrivals(
            workload.submit_s,
            workload.job_id,
            workload.tasks,
            workload.need,
            workload.memory,
            workload.estimate_s,
            workload.weight,
            workload.user,
            workload.requested_start_s,
        )

    def go_on(self, core: Core, world: World, before_s: float, events: int) -> Stretch:
        """Process at most so many events, all before `before_s`; none where the run is not plain."""
        state = core.plain
        if state is None:
            return NOTHING
        account = _account(state, world)
        why = ROOM
        while why == ROOM:
            run = self._run(account, state, world)
            why = self._loop(run, before_s, self._submissions_first, events)
            _settle(account, state, world)
            _note_moves(account, run.moves, state)
        now, before = account[0], state.submitted
        state.count_submissions(self._arrivals.job_id[before : now["submitted"]])
        question = Ask(Cause(now["cause"]), int(now["subject"])) if why == ASK else None
        return Stretch(state.now_s, int(now["steps"]), state.submitted - before, int(now["done"]), question)

    def _run(self, account: np.ndarray, state: State, world: World) -> Plain:
        """All that the loop changes, with room for the next submission, and for all that may be decided then."""
        submitted, rows = int(account["submitted"][0]), state.rows
        tasks = int(self._arrivals.tasks[submitted]) if submitted < len(self._arrivals.tasks) else 0
        slots, moves = rows.reserve(tasks), rows.count + 1 + MOVES
        return Plain(
            account,
            Present(rows.jobs, rows.first, rows.nodes),
            Cluster(*state.usable, tolerances.CAPACITY, int(max(Reason))),
            self._arrivals,
            world.columns,
            state.event_log.columns(2 * rows.count + 4, slots),
            Moves(np.empty(moves, np.int64), np.empty(moves), np.empty(moves)),
        )


def _note_moves(account: np.ndarray, moves: Moves, state: State) -> None:
    """Tell the state what each decision moved, and forget it here."""
    count = int(account["moves"][0])
    if count:
        _, begins = np.unique(moves.decision[:count], return_index=True)
        for begin, end in pairwise([*begins.tolist(), count]):
            state.note_move(float(moves.time_s[begin]), float(moves.amount[begin:end].sum()))
    state.forget_moves(state.now_s)
    account["moves"] = 0


def _account(state: State, world: World) -> np.ndarray:
    account = np.zeros(1, ACCOUNT)
    account["now_s"] = state.now_s
    account["wake_at_s"] = np.inf if state.wake_at_s is None else state.wake_at_s
    account["rows"], account["running"] = state.rows.count, world.running
    account["submitted"], account["decisions"] = state.submitted, state.decisions
    account["log_rows"], account["log_nodes"] = state.event_log.length
    return account


def _settle(account: np.ndarray, state: State, world: World) -> None:
    """Let state and world know how far the loop has come."""
    now = account[0]
    state.now_s = float(now["now_s"])
    state.wake_at_s = float(now["wake_at_s"]) if np.isfinite(now["wake_at_s"]) else None
    state.rows.count, world.running = int(now["rows"]), int(now["running"])
    state.decisions = int(now["decisions"])
    state.event_log.extended(int(now["log_rows"]), int(now["log_nodes"]))
