"""What users asked for and were told, and what must be true of it whatever happens to controllers and nodes."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from dfrs.live.backends.agents.steering import FENCED
from dfrs.live.drivers.base import TaskId, TaskState
from dfrs.live.errors import ConflictError, NotFoundError, UnavailableError
from dfrs.live.protocol.resources import ENDED, JobState
from dfrs.model.decisions import RUNNING
from dfrs.model.errors import DfrsError, InputError

ROUNDING = 1e-6
SAME = 1e-5
"""Cores. The controller tells of no smaller difference than a tenth of this."""


@dataclass
class Submission:
    """A request for jobs. Its number is in their environment."""

    number: int
    count: int
    endless: bool = False
    jobs: tuple[int, ...] = ()
    """Their ids; empty before anybody was told."""
    refused: bool = False


@dataclass
class Ledger:
    """All that was said to users. `look` raises AssertionError where it is not so any more."""

    submissions: dict[int, Submission] = field(default_factory=dict)
    of_job: dict[int, int] = field(default_factory=dict)
    """Number of the submission by job, for those that were told to users."""
    held: dict[int, bool] = field(default_factory=dict)
    """By job, what was asked for last and done."""
    drained: dict[str, bool] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    asked_to_cancel: set[int] = field(default_factory=set)
    ended: dict[int, tuple[object, ...]] = field(default_factory=dict)
    """How jobs ended, as users saw it."""
    excused: set[int] = field(default_factory=set)
    """Jobs that may fail: a node was lost since they were submitted."""
    unsure: set[object] = field(default_factory=set)
    """Jobs and nodes about which something was asked, and nobody was told whether it was done."""
    may_refuse: bool = False
    """The disk may be full."""
    may_fail: bool = False
    """Nodes do not start what they are told."""
    has_fences: bool = False
    """Agents end their tasks when they have heard nothing of a controller for some time, as while one starts."""
    may_promise_much: bool = False
    """Memory of paused jobs stays: a held job that is released goes on where it is, whatever is promised there."""
    refused: int = 0
    _seen: tuple[object, ...] = ()
    _held_since: dict[int, int] = field(default_factory=dict)
    """Number of the last event when a job was first seen held."""

    def copied(self):
        """As it is now, for a copy of the database: what was under way then may or may not be in it."""
        return Ledger(
            {number: Submission(**vars(each)) for number, each in self.submissions.items()},
            dict(self.of_job),
            dict(self.held),
            dict(self.drained),
            set(self.cancelled),
            set(self.asked_to_cancel),
            dict(self.ended),
            set(self.excused),
            set(self.unsure),
            self.may_refuse,
            self.may_fail,
            self.has_fences,
            self.may_promise_much,
        )

    # Requests.

    async def submit(self, controller, request, submission):
        """Ask for jobs."""
        self.submissions[submission.number] = submission
        try:
            jobs = await controller.submit(request, "ann", "ann")
        except DfrsError as error:
            submission.refused = True
            self._refused(error)
            return
        submission.jobs = tuple(jobs)
        for job in jobs:
            assert job not in self.of_job, f"job {job}: its number was given out before"
            self.of_job[job] = submission.number
            self.held[job] = request.held
        assert len(jobs) == submission.count

    async def ask(self, controller, verb, job):
        """Cancel, hold or release."""
        if job in self.unsure:
            return
        self.unsure.add(job)
        if verb == "cancel":
            self.asked_to_cancel.add(job)
        try:
            await getattr(controller, verb)(job, "ann")
        except DfrsError as error:
            self.unsure.discard(job)
            self._refused(error)
            return
        self.unsure.discard(job)
        if verb == "cancel":
            self.cancelled.add(job)
        else:
            self.held[job] = verb == "hold"

    async def drain(self, controller, verb, node):
        """Drain, or undrain."""
        if node in self.unsure:
            return
        self.unsure.add(node)
        try:
            await getattr(controller, verb)(node, "root")
        except DfrsError as error:
            self.unsure.discard(node)
            self._refused(error)
            return
        self.unsure.discard(node)
        self.drained[node] = verb == "drain"

    def _refused(self, error):
        self.refused += 1
        if not isinstance(error, InputError | ConflictError | NotFoundError):
            assert self.may_refuse, f"refused: {error}"
            assert isinstance(error, UnavailableError), f"refused: {error}"

    def settle(self, controller):
        """A controller was killed, and another one is there: what is unsure is now as it says."""
        state = controller.state
        for name in self.unsure:
            if name in state.numbers:
                self.drained[name] = state.nodes[state.numbers[name]].drained
            elif name in state.jobs:
                self.held[name] = state.jobs[name].held
        self.unsure.clear()
        found: dict[int, list[int]] = {}
        for job in state.jobs.values():
            found.setdefault(int(job.request.environment["SUBMISSION"]), []).append(job.id)
        for number, jobs in found.items():
            submission = self.submissions[number]
            if not submission.jobs:
                # Nobody was told, and it is there: all of it, then.
                assert len(jobs) == submission.count, f"submission {number}: {len(jobs)} of {submission.count} jobs"
                submission.jobs = tuple(jobs)
                self.of_job |= dict.fromkeys(jobs, number)
                self.held |= dict.fromkeys(jobs, False)

    def excuse(self):
        """A node is lost: jobs may fail that are known by now."""
        self.excused |= {job for job in self.of_job if job not in self.ended}
        self.excused |= {-each.number for each in self.submissions.values() if not each.jobs}

    # What must be true.

    def look(self, controller):
        """Whether all that users were told is so, if anything has changed since the last look."""
        state = controller.state
        seen = (id(controller), state.sequence, len(state.jobs), len(state.ended), len(self.of_job), len(self.unsure))
        if seen == self._seen:
            return
        self._seen = seen
        for job, number in self.of_job.items():
            self._look_at_job(state, job, number)
        for record in state.jobs.values():
            number = int(record.request.environment["SUBMISSION"])
            assert not self.submissions[number].refused, f"job {record.id}: was refused, and is there"
        for name, drained in self.drained.items():
            node = state.nodes[state.numbers[name]]
            assert name in self.unsure or node.drained == drained, f"node {name}: drained is {node.drained} again"
        self._look_at_nodes(state)

    def _look_at_job(self, state, job, number):
        record, ended = state.jobs.get(job), state.ended.get(job)
        assert (record is None) != (ended is None), f"job {job}: was accepted, and is not there, or twice"
        if ended is not None:
            self._look_at_end(job, ended)
            return
        assert job not in self.ended, f"job {job}: had ended: {self.ended[job]}"
        marked = int(record.request.environment["SUBMISSION"])
        assert marked == number, f"job {job}: is submission {marked}, and its user was told that it is {number}"
        if job in self.unsure:
            return
        if job in self.cancelled:
            cancelled = record.outcome is not None and record.outcome.state is JobState.CANCELLED
            assert cancelled, f"job {job}: was cancelled, and goes on"
        elif record.outcome is None:
            assert record.held == self.held[job], f"job {job}: held is {record.held}, and was set otherwise"
            # It is placed until the core has decided, which it has before the next event.
            since = self._held_since.setdefault(job, state.sequence) if record.held else state.sequence
            assert not record.placed or state.sequence == since, f"job {job}: is held, and placed on nodes"
            if not record.held:
                self._held_since.pop(job, None)

    def _look_at_end(self, job, ended):
        how = ended.state, ended.exit, ended.exit_code
        before = self.ended.setdefault(job, how)
        assert how == before, f"job {job}: ended as {before}, and now as {how}"
        if job in self.cancelled:
            assert ended.state is JobState.CANCELLED, f"job {job}: was cancelled, and ended as {how}"
        if ended.state is JobState.CANCELLED:
            assert job in self.asked_to_cancel, f"job {job}: {how}, and nobody asked for it"
        if ended.state is JobState.FAILED:
            fenced = self.has_fences and FENCED in ended.exit
            excused = self.may_fail or fenced or job in self.excused or -self.of_job[job] in self.excused
            assert excused, f"job {job}: failed without a cause: {ended.exit}"

    def _look_at_nodes(self, state):
        """No node gives out more than it has, each is there once, and minimum yields are kept."""
        snapshot, nodes = state.picture.snapshot, state.nodes
        if not nodes or not len(snapshot.jobs):
            return
        assert len(snapshot.capacity) <= len(nodes) == len(state.numbers), "a node is there twice"
        whole = np.array([[node.facts.cpus / state.reference_cores, 1.0] for node in nodes])[: len(snapshot.capacity)]
        assert (snapshot.capacity[:, 0] <= whole[:, 0] + ROUNDING).all(), "a node has more CPU than it says"
        jobs, counts = snapshot.jobs, np.diff(snapshot.first)
        row = np.repeat(np.arange(len(jobs)), counts)
        placed = snapshot.task_nodes >= 0
        at, row = snapshot.task_nodes[placed], row[placed]
        for name, used in (("memory", jobs["memory"][row]), ("CPU", jobs["need"][row] * jobs["yield_"][row])):
            total = np.bincount(at, used, len(snapshot.capacity))
            column = 0 if name == "CPU" else 1
            over = total > snapshot.capacity[:, column] + ROUNDING
            assert not over.any(), f"node {np.flatnonzero(over)[0]}: more {name} is given out than it has: {total}"
        for name, node in zip(jobs["id"][row].tolist(), at.tolist(), strict=True):
            job = state.jobs.get(name)
            assert job is None or state.nodes[node].name not in job.request.exclude, f"job {name}: may not be there"
        promised = np.bincount(at, (jobs["need"] * jobs["minimum"])[row], len(snapshot.capacity))
        much = promised > snapshot.capacity[:, 0] + ROUNDING
        assert self.may_promise_much or not much.any(), f"more is promised on a node than it has: {promised}"
        # On such a node minimum yields are scaled down together.
        excused = np.bincount(row, much[at], len(jobs)) > 0
        short = (jobs["state"] == RUNNING) & (jobs["yield_"] < jobs["minimum"] - ROUNDING) & ~excused
        assert not short.any(), f"jobs {jobs['id'][short]}: below their minimum yield"

        self._look_at_resources(state)

    @staticmethod
    def _look_at_resources(state):
        """No node gives out more of a named resource than it has, and who is to be alone is."""
        used, tenants, alone = Counter(), {}, []
        for job in state.jobs.values():
            keeps = job.held and job.request.resources
            for task in job.tasks if job.placed or keeps else ():
                used.update({(task.target, name): count for name, count in job.request.resources.items()})
                tenants.setdefault(task.target, set()).add(job.id)
                alone += [(task.target, job.id)] if job.request.exclusive else []
        for (node, name), count in used.items():
            has = state.nodes[node].facts.resources.get(name, 0)
            assert count <= has, f"node {node}: {count} {name} are given out, and it has {has}"
        for node, job in alone:
            assert tenants[node] == {job}, f"job {job}: is not alone on node {node}: {tenants[node]}"

    @staticmethod
    def look_at_shares(controller, hosts):
        """A node that says that it has brought about what is desired now has the share of that, not an older one."""
        state = controller.state
        for job in state.jobs.values():
            least = job.request.minimum_yield * (job.request.cpu_cores or 0.0)
            for task in job.tasks if job.placed and job.outcome is None else ():
                assert state.placement.share_cores(job, task) >= least - ROUNDING, f"{task.id}: is promised {least}"
        agents = controller.engine.backend.agents
        for record in state.nodes:
            node = hosts.nodes[record.name]
            for task in state.placement.on(record.number):
                row, real = agents[record.number].desired.get(task.id), node.tasks.get(task.id)
                if row is None or real is None or row.state is not real.state or row.state is not TaskState.RUNNING:
                    continue
                if task.at[record.number].order[0] == row.version:
                    given = real.share or 0.0
                    assert abs(given - row.share_cores) < SAME, f"{task.id}: has {given} cores, not {row.share_cores}"

    def at_the_end(self, controller, hosts):
        """Every job exactly once, none forgotten."""
        state = controller.state
        ended = {job.id: job for job in controller.jobs(states=ENDED, limit=10_000)}
        assert not state.jobs, f"jobs {sorted(state.jobs)}: have not ended"
        assert set(self.of_job) <= set(ended), f"jobs {sorted(set(self.of_job) - set(ended))}: are not there"
        for job in ended.values():
            for rank in range(job.tasks) if job.state is JobState.DONE else ():
                name = TaskId(job=job.id, rank=rank, attempt=job.attempt, generation=job.generation)
                found = hosts.exits.get(name, [])
                good = [each.code for each in found] == [0]
                assert good or (hosts.forks and any(each.code == 0 for each in found)), (
                    f"job {job.id}: is done, and {name} ended: {found}"
                )
                ran, wanted = hosts.programs[name], self.of_job.get(job.id, hosts.programs[name])
                assert ran == wanted, f"job {job.id}: ran submission {ran}, and was to run {wanted}"
