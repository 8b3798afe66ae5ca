"""Judges the answers to users' commands for the independent checker of runs ([Kumar2011] sections III-C and IV-C).

In an instant commands come last, after completions, changes of nodes and submissions, each with what the policy does
about it. The files do not say which rows of the instant were before a command, so where that matters any order that
keeps the rules is accepted: a job that is done within the instant may have been so before a command on it if nothing
was left to do, and after it if a later command cut its time, or if it came to its nodes or to another yield within the
instant, with less to do than rounding leaves; one that runs for a part of the instant may have been running or not.
"""

import math
from collections import Counter
from itertools import pairwise

from dfrs.runs.validator.allocations import ValidationReport
from dfrs.runs.validator.files import RecordedCommand, RunSettings
from dfrs.runs.validator.jobs import FINISHED, FORGIVEN_S, RUNNING, RecordedJob, room_by_node

_LEAST_S = 1.0
"""A command leaves a job so much processing time, or its own where that is shorter."""
_MOST_TASKS = 1 << 20
"""No command makes a job larger."""
_GRANTS = ("granted", "cut")
_SIZES = ("EP", "RP")


class Judge:
    """Performs the commands of each instant on `jobs`, and judges their answers by what the log says of the jobs."""

    def __init__(
        self,
        settings: RunSettings,
        jobs: dict[int, RecordedJob],
        commands: list[RecordedCommand],
        report: ValidationReport,
    ) -> None:
        self.settings, self.jobs, self.report = settings, jobs, report
        self.refused = set(settings.refused)
        self.inelastic: list[RecordedCommand] = []
        self.elastic: list[RecordedCommand] = []
        self.now: list[RecordedCommand] = []
        self.changed: list[RecordedJob] = []
        for before, after in pairwise(commands):
            report.check(
                after.time_s >= before.time_s,
                f"commands.csv line {after.line}: time_s = {after.time_s!r}: before the row above it",
            )
        self.commands = sorted(commands, key=lambda command: command.time_s)
        self.seen = 0

    @property
    def next_s(self) -> float:
        """Time of the next command, infinite if there is none."""
        return self.commands[self.seen].time_s if self.seen < len(self.commands) else math.inf

    def begin(self, now_s: float) -> None:
        """The commands until now are those of this instant: what sizes their jobs may have in it."""
        while self.next_s <= now_s:
            command = self.commands[self.seen]
            self.seen += 1
            self.now.append(command)
            job = self.jobs.get(command.job)
            if job is not None and command.answer in _GRANTS and command.change_tasks:
                job.sizes.append(max(1, job.sizes[-1] + command.change_tasks))
                self.changed.append(job)

    def concerned(self) -> list[RecordedJob]:
        """The jobs that commands of this instant name."""
        return [self.jobs[command.job] for command in self.now if command.job in self.jobs]

    def settle(self, now_s: float, rows: Counter[int]) -> None:
        """Judge and perform the commands of this instant; `rows` counts the rows of each job in it."""
        for k, command in enumerate(self.now):
            self._judge(command, now_s, rows, k)
        for job in self.changed:
            last = len(job.sizes) - 1
            idle = job.state not in {RUNNING, FINISHED}
            self.report.check(
                idle or last in job.reached,
                f"at {now_s!r}: job {job.id}: a command leaves it {job.sizes[last]} tasks, but no row says where",
            )
            job.tasks = job.sizes[last]
            job.keep_size()
        self.now.clear()
        self.changed.clear()

    def finish(self, end_s: float) -> None:
        """Judge the commands after the end of the log, and what holds for all of them."""
        while self.next_s < math.inf:
            now_s = self.next_s
            where = f"commands.csv line {self.commands[self.seen].line}"
            self.report.check(
                self.settings.complete,
                f"{where}: time_s = {now_s!r}: the log ends at {end_s!r}, interrupted",
            )
            self.begin(now_s)
            self.settle(now_s, Counter())
        for one, other in zip(self.inelastic[:1], self.elastic[:1], strict=False):
            line = f"commands.csv line {one.line}"
            self.report.check(False, f"{line}: inelastic, but the command on line {other.line} was processed")

    def _judge(self, command: RecordedCommand, now_s: float, rows: Counter[int], at: int) -> None:
        job = self.jobs.get(command.job)
        where = f"commands.csv line {command.line}: {command.kind} on job {command.job}"
        known = job is not None and job.id not in self.refused and self._told_s(job) <= now_s
        possible = {"unknown"} if job is None or not known else self._answers(command, job, now_s, rows, at)
        self.report.check(
            command.answer in possible,
            f"{where}: answered {command.answer}, must be {' or '.join(sorted(possible))}",
        )
        change = (command.change_s, command.change_tasks)
        if job is None or command.answer not in _GRANTS:
            self.report.check(change == (0, 0), f"{where}: {command.answer}, but changes {_named(change)}")
            return
        wanted = self._change(command, job)
        same = change[1] == wanted[1] and math.isclose(change[0], wanted[0], rel_tol=1e-12, abs_tol=FORGIVEN_S)
        self.report.check(same, f"{where}: changes {_named(change)}, must be {_named(wanted)}")
        job.granted += 1
        job.process_s = max(job.process_s + command.change_s, 0.0)
        job.tasks = max(1, job.tasks + command.change_tasks)

    def _told_s(self, job: RecordedJob) -> float:
        """When the policy knows of the job."""
        return job.submit_s if self.settings.dedicated else job.release_s

    def _answers(
        self, command: RecordedCommand, job: RecordedJob, now_s: float, rows: Counter[int], at: int
    ) -> set[str]:
        """What can be answered to a command on a job that is known."""
        if job.finish_s is not None and job.finish_s < now_s:
            return {"ended"}
        possible: set[str] = set()
        if job.finish_s is not None:
            done = job.process_s - job.virtual_s <= FORGIVEN_S
            if done:
                possible.add("ended")
            cut = any(c.job == job.id and c.answer == "cut" and c.change_s < 0 for c in self.now[at:])
            if done and not cut and rows[job.id] == 1:
                return possible
        if command.answer != "ended":
            (self.inelastic if command.answer == "inelastic" else self.elastic).append(command)
        if command.answer == "inelastic":
            return possible | {"inelastic"}
        if self.settings.command_limit is not None and job.granted >= self.settings.command_limit:
            return possible | {"limit"}
        return possible | self._processed(command, job, rows)

    def _processed(self, command: RecordedCommand, job: RecordedJob, rows: Counter[int]) -> set[str]:
        if command.kind == "ET":
            return {"granted"}
        if command.kind == "RT":
            too_much = _least_s(job) - (job.process_s - command.amount)
            return {"cut"} if too_much > FORGIVEN_S else {"granted"} if too_much < -FORGIVEN_S else {*_GRANTS}
        if command.kind == "RP":
            return {"cut"} if command.amount > job.tasks - 1 else {"granted"}
        room = room_by_node(self.settings, job)
        least, most = (min(sum(each), _MOST_TASKS) for each in zip(*room, strict=True))
        wanted = job.tasks + command.amount
        if most < wanted:
            return {"too_large"}
        possible = {"granted"} if least >= wanted else {"granted", "too_large"}
        return possible | {"no_room"} if job.state == RUNNING or rows[job.id] else possible

    def _change(self, command: RecordedCommand, job: RecordedJob) -> tuple[float, int]:
        """What a granted command changes: seconds and tasks."""
        if command.kind == "ET":
            return command.amount, 0
        if command.kind == "RT":
            return max(job.process_s - command.amount, _least_s(job)) - job.process_s, 0
        amount = int(command.amount)
        return 0.0, amount if command.kind == "EP" else -min(amount, job.tasks - 1)


def _least_s(job: RecordedJob) -> float:
    """No command leaves it less processing time."""
    return max(job.virtual_s, min(job.process_s, _LEAST_S))


def _named(change: tuple[float, int]) -> str:
    return f"{change[0]!r} s and {change[1]} tasks"
