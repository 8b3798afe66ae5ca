"""A cell of the matrix: a fault, the part that it happens to, and so many jobs."""

import random
import time
from dataclasses import dataclass, replace
from pathlib import Path

from dfrs.live.client import Client, Endpoint
from dfrs.live.protocol.resources import ENDED, JobState
from tests.live_pair import Submitter, shell_job
from tests.live_processes import wait_until
from tests.matrix.faults import FAULTS, SECONDS, SENSELESS, cluster_for
from tests.matrix.verdict import Verdict, judge, said_in

AFTER = 3
"""Jobs that are submitted when all is well again."""
PATIENCE_S = 60.0
PAUSE_S = 0.1
"""Between two submissions of the user who submits while the fault is there."""


@dataclass(frozen=True, slots=True)
class Cell:
    """`jobs`: half of them are there before the fault; the others are submitted from its begin on."""

    part: str
    fault: str
    jobs: int

    @property
    def name(self) -> str:
        """As users choose it."""
        return f"{self.part}, {self.fault}, {f'{self.jobs} jobs' if self.jobs else 'idle'}"

    @property
    def senseless(self) -> str:
        """Why there is no such cell; empty where there is."""
        return SENSELESS.get((self.part, self.fault), "")

    def run(self, directory: Path, new_database, seed: int = 0) -> Verdict:
        """What became of the jobs. Raises AssertionError where the cluster does not get well."""
        fault, chance = FAULTS[self.fault], random.Random(f"{seed} {self.name}")
        notes = directory / "notes"
        notes.mkdir()

        def requests(count, seconds=SECONDS):
            return [shell_job(notes, round(chance.uniform(*seconds), 2)) for _ in range(count)]

        with cluster_for(fault, self.part, directory, new_database) as cluster:
            cluster.wait_well()
            before = self.jobs // 2
            accepted = submit(cluster, requests(before, fault.seconds))
            wait_until(lambda: not before or said_in(notes), "a job begins")
            user = Submitter(cluster, requests(self.jobs - before), PAUSE_S)
            try:
                with fault.strike(cluster, self.part) as more:
                    accepted += more or ()
                    if fault.meanwhile:
                        user.start()
                    time.sleep(fault.hold_s)
                    mended = time.monotonic()
                disturbed = sum(line.disturbed for line in cluster.lines.values())
                assert disturbed or not (fault.disturbs and self.jobs), "no message met the fault"
                well_s = time.monotonic() - mended + cluster.wait_well()
                if not fault.meanwhile:
                    user.start()
                user.join(PATIENCE_S)
            finally:
                if user.is_alive():
                    user.stop()
            if user.failed is not None:
                raise user.failed
            accepted += [*user.taken, *submit(cluster, requests(AFTER))]
            states = wait_ended(cluster)
            verdict = replace(judge(accepted, states, said_in(notes)), well_s=well_s)
            return _with_doubts(cluster, verdict, len(states) - len(accepted), user)


def command_of(pid):
    """The command line of a process, or what is known of one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return f"process {pid}"


def submit(cluster, requests):
    """Submit them; the numbers of the jobs."""
    with Client(Endpoint(url=cluster.server, token=cluster.token)) as client:
        return [job for request in requests for job in client.submit(request)]


def wait_ended(cluster) -> dict[int, JobState]:
    """The states of all jobs, once all have ended or patience has."""
    end = time.monotonic() + PATIENCE_S
    with Client(Endpoint(url=cluster.server, token=cluster.token)) as client:
        while True:
            states = {job.id: job.state for job in client.all_jobs(states=list(JobState))}
            if ENDED.issuperset(states.values()) or time.monotonic() > end:
                return states
            time.sleep(0.2)


def _with_doubts(cluster, verdict, more, user):
    """Also count submissions that were taken twice, and what is left of jobs on nodes."""
    notes = list(verdict.notes)
    doubled = max(0, more - user.unsure)
    if doubled:
        notes.append(f"{more} jobs are there that nobody was told of; {user.unsure} can be")
    left = 0
    try:
        wait_until(lambda: not cluster.leftovers() and not cluster.groups(), "nothing is left", 20.0)
    except AssertionError:
        found = [*map(command_of, cluster.leftovers()), *map(str, cluster.groups())]
        left = len(found)
        notes += [f"left: {each}" for each in found]
    return replace(verdict, twice=verdict.twice + doubled, stuck=verdict.stuck + left, notes=tuple(notes))
