"""Planted bugs: one change each to the real code, which storms must find.

`python -m tests.planted` plants one after the other and says which seed found it, and by what.
"""

import argparse
import inspect
import logging
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from dfrs.engine.handlers import holds
from dfrs.live.agent.agent import Agent
from dfrs.live.agent.connection import Outbox
from dfrs.live.agent.task_reconciler import TaskReconciler
from dfrs.live.backends.agents.arrivals import Arrivals
from dfrs.live.backends.agents.desired_states import DesiredStates
from dfrs.live.backends.agents.steering import Steering
from dfrs.live.backends.agents.transfers import Transfers
from dfrs.live.controller import checkpoint, core_updates, database_engine
from dfrs.live.controller.database import Database
from dfrs.live.controller.node_descriptions import NodeDescriptions
from dfrs.live.controller.node_lifecycle import NodeLifecycle
from dfrs.live.controller.placement_state import PlacementState
from dfrs.live.controller.planner import Planner
from dfrs.live.controller.service import Controller
from dfrs.live.controller.state import State
from dfrs.live.controller.versions import Versions
from tests.mutations import Rewrite, mutated
from tests.storms.acts import faults_of
from tests.storms.run import tell

MOST_SEEDS = 40
"""Storms that are told for each, of those that have the faults it needs."""


@dataclass(frozen=True)
class PlantedBug:
    """`function` of `owner`, a class or module, where `old` reads `new`."""

    name: str
    """What is broken."""
    owner: object
    function: str
    old: str
    new: str
    needs: frozenset[str] = frozenset()
    """Faults without which nothing goes wrong."""

    def seeds(self, first: int = 0) -> Generator[int]:
        """Storms that may find it."""
        seed, found = first, 0
        while found < MOST_SEEDS:
            if self.needs <= faults_of(seed):
                found += 1
                yield seed
            seed += 1

    @contextmanager
    def planted(self) -> Generator[None]:
        """The program with this bug. Raises AddressError where the function does not have `old` any more."""
        before = inspect.getattr_static(self.owner, self.function)
        namespace: dict[str, object] = {}
        exec(mutated(inspect.getsource(before), Rewrite(self.old, self.new)), before.__globals__, namespace)
        setattr(self.owner, self.function, namespace[self.function])
        try:
            yield
        finally:
            setattr(self.owner, self.function, before)

    def found_by(self, seeds) -> tuple[int, Exception] | None:
        """The first of these seeds in whose storm an invariant is violated with it, and which; that the changed program
        itself fails does not count.
        """
        with self.planted():
            for seed in seeds:
                told = tell(seed)
                if isinstance(told.error, AssertionError):
                    return seed, told.error
        return None


def _bug(name, owner, function, old, new="pass", *needs):
    return PlantedBug(name, owner, function, old, new, frozenset(needs))


BUGS = (
    # The database.
    _bug(
        "what is written is acknowledged before it is durable",
        Database,
        "write",
        "await asyncio.shield(entry.done)",
        "await asyncio.sleep(0)",
    ),
    _bug("a refused commit is acknowledged", Database, "_unless_written", "self._came_through()", "True", "disk"),
    _bug("a commit whose answer is lost is refused", Database, "_came_through", "not self._uncertain", "True", "disk"),
    _bug(
        "commits are not flushed",
        database_engine,
        "_configure",
        "connection.execute('PRAGMA synchronous=FULL')",
        "connection.execute('PRAGMA synchronous=OFF')",
        "power",
    ),
    _bug(
        "a transaction is counted before it is committed",
        Database,
        "_attempt",
        "self._transact(_grouped(entries))",
        "self._note() or self._transact(_grouped(entries))",
        "power",
    ),
    _bug("a replaced controller goes on", Database, "_execute", "marked.rowcount != 1", "False", "replace"),
    # What comes back after a kill.
    _bug(
        "numbers of ended jobs are given out again",
        Controller,
        "start",
        "self._submissions.next_job = stored.last_job + 1",
        "self._submissions.next_job = len(stored.jobs) + 1",
    ),
    _bug(
        "the core's clock begins with the wall clock, wherever it was",
        State,
        "start_clock",
        "max(self.last_s, self.settings.clock() - self.epoch if now_s is None else now_s)",
        "self.settings.clock() - self.epoch if now_s is None else now_s",
        "clocks",
    ),
    _bug("the core's clock is not restored", checkpoint, "restore", "state.last_s = stored.last_s", "pass", "clocks"),
    _bug(
        "checkpoints forget tasks of earlier attempts",
        checkpoint,
        "_of_job",
        "[[task.id.rank, task.id.attempt, list(task.at), task.id.generation] for task in job.old]",
        "[]",
    ),
    _bug("checkpoints forget where tasks are", checkpoint, "_of_job", "list(task.at)", "[]"),
    _bug(
        "checkpoints count as the last word on what nodes were told",
        checkpoint,
        "restore_shell",
        "job.placed and not started and target >= 0",
        "False",
        "away",
    ),
    _bug(
        "a node that has said nothing since the start counts as heard",
        PlacementState,
        "begin",
        "self._silent = {node.number for node in self._nodes if node.condition is not Condition.DOWN}",
        "self._silent = set()",
        "forks",
    ),
    _bug(
        "a hold is not stored",
        Planner,
        "_hold",
        "{**job.columns(), 'b_held': wanted, 'b_registered': registered}",
        "{**job.columns(), 'b_registered': registered}",
    ),
    _bug(
        "a cancellation is not stored",
        Planner,
        "end",
        "{**job.columns(), 'b_outcome': outcome.text()}",
        "job.columns()",
    ),
    _bug(
        "a drain is not stored",
        NodeLifecycle,
        "apply",
        "plan.rows.append((tables.SET_DRAINED, row))",
        "None",
    ),
    _bug(
        "names of tasks have no generation",
        PlacementState,
        "_move",
        "TaskId(job=job.id, rank=k, attempt=job.attempt, generation=self.generation)",
        "TaskId(job=job.id, rank=k, attempt=job.attempt)",
        "forks",
    ),
    _bug(
        "versions do not exceed what nodes have heard of a newer database",
        DesiredStates,
        "exceed",
        "agent.ahead = max(0, more)",
        "agent.ahead = 0",
        "forks",
    ),
    _bug(
        "a welcome ends what its node took since it said hello",
        DesiredStates,
        "greet",
        "self._name_all(node, here.values())",
        "None",
        "away",
        "clocks",
        "losses",
    ),
    # Nodes that come and go.
    _bug(
        "an attempt that was lost with a reboot is started again",
        Steering,
        "welcome",
        "rebooted and task.at[node.number].sent",
        "False",
    ),
    _bug(
        "nobody notices a reboot",
        Arrivals,
        "welcome",
        "'' not in {facts.boot, node.facts.boot} and facts.boot != node.facts.boot",
        "False",
    ),
    _bug(
        "a reboot is recorded before what was lost by it",
        NodeDescriptions,
        "record",
        "any(self._unsettled(plan, name) for name in lost)",
        "False",
    ),
    _bug(
        "an attempt on a lost node is started again",
        PlacementState,
        "lose",
        "task.started |= task.at[number].sent",
        "pass",
        "away",
    ),
    _bug(
        "an attempt begins before the one before is gone",
        Steering,
        "_steer",
        "not others and not job.old and job.placed and not self._placement.unsure",
        "not others and job.placed and not self._placement.unsure",
    ),
    _bug(
        "a lost node's jobs are forgotten",
        NodeLifecycle,
        "_jobs_on",
        "state.picture.on(node.number)",
        "[]",
        "away",
    ),
    _bug(
        "a returning node counts twice",
        NodeLifecycle,
        "_change",
        "self._capacity(node)",
        "[Capacity(node.number, *[2 * part for part in self._size(node)])]",
    ),
    _bug("a held job that is lost goes on when it is queued again", Planner, "_begin_anew", "job.held", "False"),
    _bug(
        "named resources are not counted",
        core_updates,
        "submission",
        "tuple(sorted(request.resources.items()))",
        "()",
    ),
    _bug("a job that is to be alone is not", core_updates, "submission", "request.exclusive", "False"),
    _bug("a held job gives its GPUs away", holds, "_take_out", "state.resources.claims(serial)", "False"),
    # What nodes say and are told.
    _bug("an exit is forgotten", Transfers, "conclude", "task.exit = found"),
    _bug(
        "records of ended tasks are not asked to be kept",
        Steering,
        "_keep",
        "self.desired.want(job, task, node, TaskState.RUNNING)",
        "None",
    ),
    _bug(
        "old words of nodes overtake new ones",
        Steering,
        "on_status",
        "status.state is not TaskState.EXITED and _order_of(status) < observation.order",
        "False",
    ),
    _bug("ended jobs stay in the core", Planner, "finish", "plan.events.append(Complete(job.id))", "None"),
    _bug(
        "tasks of cancelled jobs are not ended",
        Steering,
        "_remove",
        "self.desired.want(job, task, node, TaskState.ABSENT)",
        "None",
    ),
    _bug("desired states have no versions", Versions, "next", "self.last += 1"),
    # The agent.
    _bug(
        "an old share is applied after a newer one",
        TaskReconciler,
        "_accept",
        "desired.version > task.version",
        "True",
        "agents",
    ),
    _bug("the fence ends no task", TaskReconciler, "fence", "task.fenced = True", "pass", "agents", "away"),
    _bug(
        "an agent says nothing of tasks that do not run",
        TaskReconciler,
        "statuses",
        "task.state is TaskState.ABSENT and not task.may_come",
        "task.state is not TaskState.RUNNING",
        "agents",
    ),
    _bug(
        "the first word of a task stays in the outbox",
        Outbox,
        "put",
        "self._statuses[message.task] = message",
        "self._statuses.setdefault(message.task, message)",
        "agents",
    ),
    _bug(
        "a welcome does not end what it does not name",
        Agent,
        "_serve",
        "self._reconciler.desire(welcome.desired, complete=True)",
        "self._reconciler.desire(welcome.desired)",
        "agents",
    ),
)


def main() -> None:
    """Plant each, and say which seed found it; exit status 1 if any was not."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("names", nargs="*", help="only those whose name contains one of these")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="begin with this seed")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    chosen = [bug for bug in BUGS if not options.names or any(name in bug.name for name in options.names)]
    missed = 0
    for bug in chosen:
        begin_s = time.process_time()
        found = bug.found_by(bug.seeds(options.first))
        spent_s = time.process_time() - begin_s
        missed += found is None
        if found is None:
            print(f"{bug.name}: NOT FOUND by {MOST_SEEDS} storms, {spent_s:.0f} s of CPU", flush=True)
        else:
            seed, error = found
            print(
                f"{bug.name}: seed {seed}, {spent_s:.0f} s of CPU: {type(error).__name__}: {str(error)[:120]}",
                flush=True,
            )
    print(f"{len(chosen)} planted, {len(chosen) - missed} found")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
