"""Tasks that go from one host to another: who holds the task, who fetches it, and which copies are out of date.

This decides about a task as long as nodes of more than one host have it, may have it, or are to have it; where one host
has all of that, `steering.py` does. The target fetches the task from the node that holds it, where it goes on
until then, by a grant that is used up. Each of the two counts how often the task has gone from host to host, and a copy
with a lower count than another is never run again: it is only forgotten.
"""

import secrets

from dfrs.live.backends.agents.desired_states import DesiredStates
from dfrs.live.controller.control import Control
from dfrs.live.controller.records import JobRecord, NodeRecord, TaskRecord, Transfer
from dfrs.live.drivers.base import ExitKind, TaskState
from dfrs.live.protocol.wire import Grant, Hello, Source, TransferPort

FIRST_RENEWAL_S, MOST_FAILURES = 1.0, 6
"""A failed transfer is tried again after so long, doubled each time; after so many the task stays where it is."""


class Transfers:
    """Decides about tasks between hosts; what it wants goes to `desired`, and is sent from there."""

    def __init__(self, control: Control, desired: DesiredStates) -> None:
        self._nodes = control.nodes
        self._whereabouts = control.placement.whereabouts
        self._desired = desired
        self._agents = desired.agents
        self._steady = control.settings.steady

    def conclude(self, task: TaskRecord) -> None:
        """Take over how it ended, unless it may have gone on elsewhere: a copy that was given up is lost or stopped."""
        holder = task.holder
        found = None if holder is None else task.at[holder].exit
        if task.exit is not None or holder is None or found is None:
            return
        if found.kind not in {ExitKind.LOST, ExitKind.STOPPED} or not self._unheard(task, holder):
            task.exit = found

    def steer(self, job: JobRecord, task: TaskRecord) -> bool:
        """See to a task that nodes of several hosts have or may have, or are to have; False where there is no such."""
        holder, target = task.holder, task.target
        hosts = {self._host(node) for node in (*task.at, target)}
        if len(hosts) < 2 or not task.started:
            task.transfer = None
            return False
        copies = {node for node in task.at if task.out_of_date(node)}
        for node in copies:
            self._desired.want(job, task, node, TaskState.ABSENT)
        if holder is None:
            self._find_holder(job, task, copies)
            return True
        if task.at[holder].state is TaskState.EXITED:
            for node in self._unheard(task, holder):
                self._desired.want(job, task, node, TaskState.HANDED)
            return True
        rest = set(task.at) - copies - {holder, target}
        for node in rest:
            self._desired.want(job, task, node, TaskState.HANDED)
        if holder == target:
            if rest:
                # One of them may be fetching it.
                self._offer(task, holder, None)
                return True
            task.transfer = None
            self._desired.want(job, task, target, TaskState.PAUSED if job.paused else TaskState.RUNNING)
        elif rest or target in copies:
            self._offer(task, holder, None)
        elif self._host(holder) == self._host(target):
            return False
        else:
            self._have_fetched(job, task, holder)
        return True

    def _find_holder(self, job: JobRecord, task: TaskRecord, copies: set[int]) -> None:
        """Each says what it has. The target may wait for ever if it is the only one that may have it."""
        target = task.target
        for node in set(task.at) - copies:
            if node != target or (len(task.at) == len(copies) + 1 and self._desired.waits_in_vain(task, target)):
                self._desired.want(job, task, node, TaskState.HANDED)

    def _have_fetched(self, job: JobRecord, task: TaskRecord, holder: int) -> None:
        """Have the target fetch it from the node that has it, where it goes on until then."""
        source, target = self._nodes[holder], self._nodes[task.target]
        gives, takes = _port(source), _port(target)
        if gives is None or takes is None:
            who = source if gives is None else target
            self._fix(task, holder, f"node {who.name}: tasks cannot go to other hosts, or come from there")
            return
        if _accounts(source) != _accounts(target):
            # They had the same when they came into one island.
            self._fix(task, holder, f"node {target.name}: gives accounts to tasks by another rule")
            return
        transfer = self._attempt(task, holder)
        if transfer is None:
            return
        observation = task.at.get(task.target)
        if observation is not None and observation.error:
            self._whereabouts.unsettled.add(job.id)
        self._offer(task, holder, Grant(token=transfer.token, certificate=takes.certificate))
        if observation is None:
            self._whereabouts.put(task, task.target).sent = False
        port = TransferPort.model_dump(gives)
        state = TaskState.PAUSED if job.paused else TaskState.RUNNING
        self._desired.want(job, task, task.target, state, Source(token=transfer.token, **port))

    def _attempt(self, task: TaskRecord, holder: int) -> Transfer | None:
        """The attempt under way, or the next one where that failed; None after too many: then the task stays."""
        transfer, observation, now = task.transfer, task.at.get(task.target), self._steady()
        if transfer is None or (transfer.source, transfer.target) != (holder, task.target):
            task.transfer = Transfer(holder, task.target, secrets.token_hex(32), now + FIRST_RENEWAL_S)
            return task.transfer
        if observation is not None and observation.error and now >= transfer.renew_at:
            transfer.failures += 1
            if transfer.failures >= MOST_FAILURES:
                self._fix(task, holder, observation.error)
                return None
            transfer.token, transfer.renew_at = secrets.token_hex(32), now + FIRST_RENEWAL_S * 2**transfer.failures
            observation.error = ""
        return transfer

    def _fix(self, task: TaskRecord, holder: int, why: str) -> None:
        """It cannot leave the node that holds it."""
        task.at[holder].fixed = True
        task.at[holder].error = why
        self._whereabouts.dirty.add(task.id.job)

    def _offer(self, task: TaskRecord, holder: int, grant: Grant | None) -> None:
        """Have it go on where it is until it is fetched. Without a grant: as it is, or by nobody."""
        node = self._nodes[holder]
        row = self._agents[holder].desired.get(task.id)
        held = row is not None and row.state is TaskState.HANDED and row.grant is not None
        if held and row is not None and grant in (None, row.grant):
            return
        grant = grant or Grant(token=secrets.token_hex(32), certificate="")
        self._desired.tell(node, task, TaskState.HANDED, grant=grant)

    def _unheard(self, task: TaskRecord, holder: int) -> set[int]:
        """Nodes of other hosts that may have it and have not said so."""
        host = self._host(holder)
        return {node for node, each in task.at.items() if each.state is None and self._host(node) != host}

    def _host(self, number: int) -> str:
        return self._nodes[number].facts.host


def _accounts(node: NodeRecord) -> str:
    """The rule by which its tasks have accounts."""
    return node.facts.accounts if isinstance(node.facts, Hello) else ""


def _port(node: NodeRecord) -> TransferPort | None:
    """Where it gives tasks to other hosts; None where it does not."""
    return node.facts.transfers if isinstance(node.facts, Hello) else None
