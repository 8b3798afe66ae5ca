"""The fault matrix of a Slurm that dfrs schedules: each fault, idle and with 100 jobs, on real daemons and real jobs.

`python -m tests.slurm.matrix` prints what was lost, ran twice, ran again or got stuck, and how long until all was well,
as `python -m tests.matrix` does for a cluster of dfrs's own. It needs root and Debian's packages. Its cells have one
Slurm, one after the other; after a cell that is not clean the next one has a new one.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from dfrs.live.protocol.resources import ENDED, JobState
from tests.matrix.__main__ import counts, table
from tests.matrix.verdict import Verdict, judge, said_in
from tests.slurm_cluster import SlurmCluster, SlurmError, why_not
from tests.slurm_site import CONF, Site, until

PATIENCE_S = 240.0
STEADY_S = 2.0
AFTER = 3
"""Jobs that are submitted when all is well again."""
SECONDS = (0.2, 2.0)
LONG = (8.0, 12.0)
"""How long jobs take that are to run yet when the fault comes."""
LONGER = (45.0, 60.0)
"""And those that have to run for a while before it."""
STORED_S = 7.0
"""After so long slurmctld has stored what has happened: what it had not is lost with it, whoever schedules."""
SOME = 5
"""Jobs of a stranger's command."""
STATES = "&".join(f"state={state.value}" for state in JobState)
OPTIONS = ("--requeue", "--comment=dfrs: cpu=0.05", "--chdir=/")
ALL_MB, SOME_MB = 39, 190
"""Memory of a job: 50 of them run at once, or ten, and the others wait."""


class Cluster:
    """A Slurm with accounting and two nodes, and dfrs on it."""

    def __init__(self, path: Path) -> None:
        self._stack = ExitStack()
        try:
            self.slurm = self._stack.enter_context(SlurmCluster(2, conf=CONF))
            self.site = self._stack.enter_context(Site(self.slurm, path / "state"))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all of it."""
        self._stack.close()

    def unwell(self) -> str:
        """What is not well: of slurmctld, slurmdbd, the controller, nodes and their share agents; empty if all is."""
        for command in (["scontrol", "ping"], ["sacctmgr", "--noheader", "list", "cluster"]):
            done = self.slurm.run(*command, check=False)
            if done.returncode or "DOWN" in done.stdout:
                return f"{command[0]}: {done.stdout} {done.stderr}"
        try:
            nodes = self.site.get("/nodes")
        except httpx.HTTPError as error:
            return f"controller: {error}"
        wrong = [node for node in nodes if node["state"] != "up" or node["shares"] != "cgroup-v1"]
        return f"nodes: {[(node['name'], node['state'], node['shares'], node['problem']) for node in wrong]}" * bool(
            wrong
        )

    def wait_well(self) -> float:
        """Wait until all is well, and stays so; seconds until it began to be."""
        began = time.monotonic()
        since_s = None
        while since_s is None or time.monotonic() - since_s < STEADY_S:
            now_s = time.monotonic()
            what = self.unwell()
            since_s = None if what else now_s if since_s is None else since_s
            assert now_s - began < PATIENCE_S, f"not all is well: {what}"
            time.sleep(0.1)
        return since_s - began

    def states(self) -> dict[int, JobState]:
        """Of all jobs of the cell: they are named by numbers."""
        found = self.site.get(f"/jobs?{STATES}&limit=1000")
        return {int(job["name"]): JobState(job["state"]) for job in found if job["name"].isdecimal()}

    def in_state(self, state: str) -> list[str]:
        """Slurm's numbers of jobs that are in it."""
        return self.slurm.run("squeue", "-h", "-t", state, "-o", "%A").stdout.split()

    def waiting(self) -> list[str]:
        """Names of jobs that wait in dfrs's queue, the last ones first."""
        return [job["name"] for job in self.site.get("/jobs?state=waiting&limit=1000") if job["name"].isdecimal()]

    def numbers(self, names: list[str]) -> list[str]:
        """Slurm's numbers of jobs with these names."""
        return self.slurm.run("squeue", "-h", "-o", "%A", "--name", ",".join(names)).stdout.split()

    def leftovers(self) -> list[str]:
        """What is left of jobs on nodes, and in Slurm's queue."""
        groups = [group for node in self.slurm.nodes for group in self.slurm.group("freezer", node).rglob("job_*")]
        return [*map(str, groups), *self.slurm.run("squeue", "-h", "-o", "%A %T").stdout.splitlines()]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A context manager of a cluster: the fault is there inside, and mended at its end.

    It may give the numbers of jobs that were cancelled.
    """

    strike: Callable
    hold_s: float = 2.0
    seconds: tuple[float, float] = LONG
    """How long the jobs take that are there before, at least and at most."""
    stored: bool = False
    """Whether slurmctld has to have stored what is there before: all jobs run, and none has just begun or ended."""
    needs_jobs: bool = False
    job_mb: int = ALL_MB


@contextmanager
def kill(daemon: str, cluster: Cluster) -> Iterator[None]:
    """kill -9 of one of Slurm's daemons; it is started again."""
    cluster.slurm.kill(daemon)
    yield
    cluster.slurm.start(daemon)


@contextmanager
def kill_agent(cluster: Cluster) -> Iterator[None]:
    """kill -9 of a node's share agent."""
    cluster.site.kill("share-n1")
    yield
    cluster.site.share("n1")


@contextmanager
def kill_controller(cluster: Cluster) -> Iterator[None]:
    """kill -9 of `dfrs serve`."""
    cluster.site.kill("serve")
    yield
    cluster.site.serve()


@contextmanager
def kill_all(cluster: Cluster) -> Iterator[None]:
    """kill -9 of slurmctld and `dfrs serve` at once."""
    with kill_controller(cluster), kill("slurmctld", cluster):
        yield


def some(cluster: Cluster) -> list[str]:
    """Some jobs that run."""
    return until(lambda: cluster.in_state("RUNNING")[:SOME], "jobs run", PATIENCE_S)


def each(cluster: Cluster, verb: str, jobs: list[str]) -> None:
    """A stranger's command; Slurm may refuse it where a job has just ended."""
    for job in jobs:
        cluster.slurm.run("scontrol", verb, job, check=False)


@contextmanager
def suspend(cluster: Cluster) -> Iterator[None]:
    """A stranger suspends jobs, and resumes them later: they are held, and released."""
    jobs = some(cluster)
    each(cluster, "suspend", jobs)
    until(lambda: JobState.HELD in cluster.states().values(), "they are held", PATIENCE_S)
    yield
    each(cluster, "resume", jobs)


@contextmanager
def resume(cluster: Cluster) -> Iterator[None]:
    """A stranger resumes jobs that dfrs holds: they are released."""
    # dfrs sees it some time after Slurm that jobs run.
    found = until(lambda: cluster.site.get("/jobs?state=running")[:SOME], "jobs are seen to run", PATIENCE_S)
    for job in found:
        # Some may have ended by then.
        cluster.site.client.post(f"/jobs/{job['id']}/hold")
    jobs = until(lambda: cluster.in_state("SUSPENDED"), "suspended", PATIENCE_S)
    yield
    each(cluster, "resume", jobs)
    # Those that were not suspended yet.
    for job in cluster.site.get("/jobs?state=held"):
        cluster.site.client.post(f"/jobs/{job['id']}/release")


@contextmanager
def release(cluster: Cluster) -> Iterator[None]:
    """An operator releases jobs that wait, and that dfrs has taken in: others run as if there were no dfrs."""
    names = until(lambda: cluster.waiting()[:SOME], "jobs wait", PATIENCE_S)
    each(cluster, "release", cluster.numbers(names))
    yield


@contextmanager
def requeue(cluster: Cluster) -> Iterator[None]:
    """A stranger requeues jobs that run: they begin anew."""
    each(cluster, "requeue", some(cluster))
    yield


@contextmanager
def scancel(cluster: Cluster) -> Iterator[list[int]]:
    """A user cancels jobs that run."""
    jobs = some(cluster)
    names = [int(cluster.slurm.job(job)["JobName"]) for job in jobs]
    cluster.slurm.run("scancel", *jobs)
    yield names


@contextmanager
def node_down(cluster: Cluster) -> Iterator[None]:
    """An administrator takes a node out, and back."""
    cluster.slurm.node_down("n2")
    yield
    cluster.slurm.node_up("n2")


@contextmanager
def power_off(cluster: Cluster) -> Iterator[None]:
    """All that runs on a node is gone at once; it comes back."""
    cluster.site.kill("share-n2")
    cluster.slurm.kill_host("n2")
    yield
    cluster.slurm.start("n2")
    cluster.site.share("n2")


FAULTS: dict[tuple[str, str], Fault] = {
    ("slurmctld", "kill -9"): Fault(strike=lambda cluster: kill("slurmctld", cluster), stored=True, seconds=LONGER),
    ("slurmd", "kill -9"): Fault(strike=lambda cluster: kill("n1", cluster)),
    ("share agent", "kill -9"): Fault(strike=kill_agent),
    ("controller", "kill -9"): Fault(strike=kill_controller, seconds=SECONDS),
    ("slurmdbd", "kill -9"): Fault(strike=lambda cluster: kill("slurmdbd", cluster), seconds=SECONDS),
    ("slurmctld, controller", "kill -9"): Fault(strike=kill_all, stored=True, seconds=LONGER),
    ("stranger", "scontrol suspend, resume"): Fault(strike=suspend, needs_jobs=True),
    ("stranger", "scontrol resume"): Fault(strike=resume, needs_jobs=True),
    ("stranger", "scontrol release"): Fault(strike=release, needs_jobs=True, job_mb=SOME_MB),
    ("stranger", "scontrol requeue"): Fault(strike=requeue, needs_jobs=True),
    ("stranger", "scancel"): Fault(strike=scancel, needs_jobs=True),
    ("node", "down, and back"): Fault(strike=node_down, hold_s=5.0),
    ("node", "power off, and on"): Fault(strike=power_off, hold_s=15.0, stored=True, seconds=LONGER),
}


class User(threading.Thread):
    """Submits jobs one after the other; one that was not taken is submitted again."""

    def __init__(self, cluster: Cluster, notes: Path, names: list[int], lengths: list[float]) -> None:
        super().__init__(daemon=True)
        self.taken: list[int] = []
        self._cluster, self._notes = cluster, notes
        self._jobs = list(zip(names, lengths, strict=True))
        self._stopped = threading.Event()

    def run(self) -> None:
        """Until all are taken."""
        for name, seconds in self._jobs:
            while not self._stopped.is_set():
                try:
                    submit(self._cluster, self._notes, name, seconds)
                except (SlurmError, subprocess.TimeoutExpired):
                    time.sleep(0.5)
                else:
                    self.taken.append(name)
                    break

    def stop(self) -> None:
        """Take what was taken."""
        self._stopped.set()
        self.join()


def submit(cluster: Cluster, notes: Path, name: int, seconds: float, job_mb: int = ALL_MB) -> None:
    """A job that notes when it begins and when it ends, and whether it runs already."""
    place = f"{notes}/$SLURM_JOB_NAME"
    text = f'exec 9>"{place}.lock" >>"{place}.notes"; flock -n 9 || echo twice; echo begin; sleep {seconds}; echo end'
    cluster.slurm.sbatch(f"--job-name={name}", f"--mem={job_mb}", *OPTIONS, wrap=text)


@dataclass(frozen=True)
class Cell:
    """`jobs`: half of them are there before the fault; the others are submitted from its begin on."""

    part: str
    fault: str
    jobs: int

    @property
    def name(self) -> str:
        """As users choose it."""
        return f"{self.part}, {self.fault}, {f'{self.jobs} jobs' if self.jobs else 'idle'}"

    def run(self, cluster: Cluster, notes: Path, first: int, seed: int) -> Verdict:
        """What became of the jobs, which are numbered from `first` on. Raises AssertionError, SlurmError."""
        fault, chance = FAULTS[self.part, self.fault], random.Random(f"{seed} {self.name}")
        before, names = self.jobs // 2, list(range(first, first + self.jobs + AFTER))
        lengths = [round(chance.uniform(*(fault.seconds if k < before else SECONDS)), 2) for k in range(len(names))]
        cluster.wait_well()
        for name, seconds in zip(names[:before], lengths, strict=False):
            submit(cluster, notes, name, seconds, fault.job_mb)
        wanted = before if fault.stored else min(before, 1)
        until(lambda: len(said_in(notes)) >= wanted, "jobs begin", PATIENCE_S)
        if before and fault.stored:
            time.sleep(STORED_S)
            assert not any("end" in words for words in said_in(notes).values()), "a job has ended already"
        user = User(cluster, notes, names[before : self.jobs], lengths[before : self.jobs])
        try:
            with fault.strike(cluster) as cancelled:
                user.start()
                time.sleep(fault.hold_s)
            mended = time.monotonic()
            well_s = time.monotonic() - mended + cluster.wait_well()
            user.join(PATIENCE_S)
        finally:
            if user.is_alive():
                user.stop()
        for name, seconds in zip(names[self.jobs :], lengths[self.jobs :], strict=True):
            submit(cluster, notes, name, seconds)
        accepted = {*names[:before], *user.taken, *names[self.jobs :]}
        return self._verdict(cluster, accepted, set(cancelled or ()), notes, well_s)

    def _verdict(
        self, cluster: Cluster, accepted: set[int], cancelled: set[int], notes: Path, well_s: float
    ) -> Verdict:
        def ended() -> bool:
            states = cluster.states()
            return accepted <= states.keys() and all(states[name] in ENDED for name in accepted)

        problems = []
        for condition, what in ((ended, "all have ended"), (lambda: not cluster.leftovers(), "nothing is left")):
            try:
                until(condition, what, PATIENCE_S)
            except AssertionError:
                problems.append(what)
        states, said = cluster.states(), said_in(notes)
        # What a user cancelled has not run to its end, and is to be known as cancelled.
        well = {name for name in cancelled if states.get(name) in {JobState.CANCELLED, JobState.DONE}}
        kept = accepted - well
        found = judge(kept, {k: states[k] for k in kept if k in states}, {k: said[k] for k in kept if k in said})
        left = cluster.leftovers() if "nothing is left" in problems else []
        return replace(found, well_s=well_s, stuck=found.stuck + len(left), notes=(*found.notes, *left))


def run(cells: list[Cell], seed: int) -> dict[Cell, Verdict | str]:
    """All of them, one after the other."""
    found: dict[Cell, Verdict | str] = {}
    cluster, first = None, 1
    try:
        for cell in cells:
            path = Path(tempfile.mkdtemp(prefix="dfrs-slurm-matrix-"))
            notes = path / "notes"
            notes.mkdir()
            began = time.monotonic()
            try:
                cluster = cluster or Cluster(path)
                found[cell] = cell.run(cluster, notes, first, seed)
            except Exception as error:
                (path / "trace").write_text(traceback.format_exc())
                found[cell] = " ".join(str(error).split())[:300] or type(error).__name__
            first += cell.jobs + AFTER
            result = found[cell]
            print(f"{cell.name}: {counts(result)} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            if not (isinstance(result, Verdict) and result.clean):
                lines = result.notes if isinstance(result, Verdict) else (result,)
                print(*lines, f"its files: {path}", sep="\n  ", file=sys.stderr, flush=True)
                if cluster is not None:
                    cluster.close()
                    cluster = None
    finally:
        if cluster is not None:
            cluster.close()
    return found


def main() -> None:
    """Run all cells, or those that were chosen."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurm.matrix", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="cells whose name contains it")
    parser.add_argument("--jobs", type=int, default=100, metavar="N", help="of a cell that is not idle")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if reason := why_not():
        parser.error(reason)
    os.environ |= {"DFRS_SWAP": "0", "DFRS_IMAGES": "0"}
    cells = [
        cell
        for (part, fault), what in FAULTS.items()
        for jobs in (0, options.jobs)
        if (jobs or not what.needs_jobs) and options.only in (cell := Cell(part, fault, jobs)).name
    ]
    results = run(cells, options.seed)
    print(table(results, [], options.jobs))
    sys.exit(not all(isinstance(found, Verdict) and found.clean for found in results.values()))


if __name__ == "__main__":
    main()
