"""The fault matrix: what becomes of jobs when controller, agents or the lines between them fail, on real processes.

`python -m tests.matrix` runs each fault twice, as root: once while nothing runs, and once with 100 jobs. A job notes
when it begins and when it ends, so that each can be seen to have run once whatever the cluster says. The table that is
printed is in `docs/explanation/faults.md`. `--only TEXT` runs the rows whose name contains it. The exit status is 1
where a job was lost, ran twice, or got stuck.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import sqlalchemy as sa

from dfrs.live.protocol.resources import ENDED
from tests.live_pair import ControllerPair, shell_job
from tests.live_postgres import postgres_server
from tests.live_processes import LiveCluster, wait_until
from tests.live_proxy import Proxy

JOBS = 100
PATIENCE_S = 120.0
FAULT_S = 8.0
"""So long a fault lasts: longer than a controller waits before it calls a node silent."""
DOWN_S = 1.0
"""So long who was killed is away."""
SLOW_S, SPREAD_S = 0.5, 0.5
GONE = "gone"
"""State of a job of which the cluster knows nothing any more."""


@dataclass(frozen=True)
class Verdict:
    """What became of jobs."""

    lost: int = 0
    """They ended, and not well."""
    twice: int = 0
    """They began while they were running."""
    again: int = 0
    """They began after they had ended."""
    stuck: int = 0
    """They never ended."""
    recovery_s: float = 0.0
    """From the end of the fault until a job that is submitted then has run."""

    @property
    def good(self):
        return not (self.lost or self.twice or self.again or self.stuck)

    def __str__(self):
        said = [f"{getattr(self, name)} {name}" for name in ("lost", "twice", "again", "stuck") if getattr(self, name)]
        return f"**{', '.join(said)}**" if said else f"0, {self.recovery_s:.1f} s"


def judge(states, notes, recovery_s=0.0):
    """The verdict on jobs, from their states and the lines "begin N" and "end N" that each wrote; N is its process."""
    lost = twice = again = stuck = 0
    for job, state in states.items():
        running, ended = set(), False
        once_more = overlaps = False
        for what, process in (line.split() for line in notes.get(job, ())):
            if what == "begin":
                once_more |= ended
                overlaps |= bool(running)
                running.add(process)
            else:
                running.discard(process)
                ended = True
        twice += overlaps
        again += once_more
        if state != GONE and state not in ENDED:
            stuck += 1
        elif state != "done" or not ended:
            lost += 1
    return Verdict(lost, twice, again, stuck, recovery_s)


# Faults: each is done to a scene, and lasts; what mends it is returned.


def kill(scene, who):
    for name in who:
        scene.kill(name)
    time.sleep(DOWN_S)
    return lambda: [scene.start(name) for name in who]


def stop(scene, who):
    for name in who:
        scene.process(name).send_signal(signal.SIGSTOP)
    time.sleep(FAULT_S)
    return lambda: [scene.process(name).send_signal(signal.SIGCONT) for name in who]


def on_lines(name, worse, good):
    def fault(scene, who):
        lines = scene.lines(who)
        for line in lines:
            setattr(line, name, worse)
        time.sleep(FAULT_S)
        return lambda: [setattr(line, name, good) for line in lines]

    return fault


FAULTS = {
    "kill -9": kill,
    "stop": stop,
    "cut": on_lines("cut", True, False),
    "cut one way: to the controller": on_lines("deaf", "controller", ""),
    "cut one way: to the agent": on_lines("deaf", "agent", ""),
    "slow": on_lines("delay_s", SLOW_S, 0.0),
    "duplicate": on_lines("repeats", 1.0, 0.0),
    "reorder": on_lines("spread_s", SPREAD_S, 0.0),
}
WHO = {
    "the controller": ("controller",),
    "an agent": ("n0",),
    "the controller and all agents": ("controller", "n0", "n1"),
    "a standby": ("b",),
    "the leader of two": ("a",),
}
PROCESSES = ("kill -9", "stop")
"""Faults of processes: the others are faults of lines, which are the controller's or an agent's."""
ON_LINES = ("the controller", "an agent")


class Scene:
    """A controller and two agents that reach it through proxies."""

    def __init__(self, directory):
        self.cluster = LiveCluster(directory, nodes=0, cores=1.0)
        self.proxies = {}

    @contextmanager
    def running(self):
        with ExitStack() as ends, self.cluster:
            for name in ("n0", "n1"):
                self.proxies[name] = Proxy(self.cluster.port)
                ends.callback(self.proxies[name].close)
                self.cluster.names.append(name)
                self.cluster.start_agent(name, self.proxies[name].url)
            wait_until(lambda: len(self.cluster.up()) == len(self.cluster.names), "all nodes are up")
            yield

    def lines(self, who):
        """The lines of `who`: the controller's are those of all agents."""
        return [line for name, line in self.proxies.items() if name in who or "controller" in who]

    def process(self, name):
        return self.cluster.controller if name == "controller" else self.cluster.agents[name]

    def kill(self, name):
        self.cluster.kill(self.process(name))

    def start(self, name):
        if name == "controller":
            self.cluster.start_controller()
        else:
            self.cluster.start_agent(name)

    def find_leader(self):
        """Wait until somebody answers."""


class PairScene:
    """Two controllers on a PostgreSQL of their own, and two agents that know both."""

    def __init__(self, directory, database):
        self.cluster = ControllerPair(directory, database, cores=1.0)

    @contextmanager
    def running(self):
        with self.cluster:
            yield

    def process(self, name):
        return self.cluster.controllers[name]

    def kill(self, name):
        self.cluster.signal(name, signal.SIGKILL)

    def start(self, name):
        self.cluster.start_one(name)

    def find_leader(self):
        """Whoever leads now: the other one may have taken over."""

        def leader():
            answers = {name: self.cluster.answer(name) for name in self.cluster.ports}
            return next((name for name, found in answers.items() if found is not None and found.is_success), None)

        self.cluster.wait_for_leader(wait_until(leader, "one of them leads"))


@contextmanager
def scene_of(who, directory):
    """Where that can fail."""
    if not {"a", "b"} & set(WHO[who]):
        yield Scene(directory)
        return
    with postgres_server() as (url, _, _):
        engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text("CREATE DATABASE matrix"))
        engine.dispose()
        yield PairScene(directory, f"{url.rpartition('/')[0]}/matrix")


def states_of(cluster, jobs):
    """Of these jobs; one of which nothing is known any more is lost."""

    def state(job):
        answer = cluster.client.get(f"/api/v1/jobs/{job}")
        return GONE if answer.status_code == httpx.codes.NOT_FOUND else answer.raise_for_status().json()["state"]

    return {job: state(job) for job in jobs}


def ended(states):
    return all(state in ENDED or state == GONE for state in states.values())


def run_cell(who, fault, jobs, chance, directory):
    """The verdict on one fault, while so many jobs run."""
    with scene_of(who, directory) as scene, scene.running():
        cluster = scene.cluster

        def submit(seconds):
            request = shell_job(directory, seconds).model_dump(mode="json", exclude_defaults=True)
            return cluster.client.post("/api/v1/jobs", json=request).raise_for_status().json()["jobs"][0]

        submitted = [submit(round(chance.uniform(0.2, 2.0 * FAULT_S), 2)) for _ in range(jobs)]
        if submitted:
            wait_until(lambda: list(directory.glob("*.notes")), "a job has begun")
        mend = FAULTS[fault](scene, WHO[who])
        begun = time.monotonic()
        mend()
        scene.find_leader()
        probe = submit(0)
        submitted.append(probe)
        stop_at = begun + PATIENCE_S
        while not ended(states_of(cluster, [probe])) and time.monotonic() < stop_at:
            time.sleep(0.02)
        recovery_s = time.monotonic() - begun
        while not ended(states_of(cluster, submitted)) and time.monotonic() < stop_at:
            time.sleep(0.2)
        notes = {int(path.name.split(".")[0]): path.read_text().splitlines() for path in directory.glob("*.notes")}
        return judge(states_of(cluster, submitted), notes, recovery_s)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--jobs", type=int, default=JOBS, help="jobs of the loaded cluster")
    parser.add_argument("--seed", type=int, default=0, help="of the lengths of jobs")
    given = parser.parse_args()
    print(f"| fault | idle | {given.jobs} jobs |\n|---|---|---|", flush=True)
    counts = Counter()
    for who in WHO:
        for fault in FAULTS if who in ON_LINES else PROCESSES:
            row = f"{who}: {fault}"
            if given.only not in row:
                continue
            verdicts = []
            for jobs in (0, given.jobs):
                with tempfile.TemporaryDirectory() as folder:
                    chance = random.Random(f"{given.seed} {row}")
                    verdicts.append(run_cell(who, fault, jobs, chance, Path(folder)))
            counts.update(verdict.good for verdict in verdicts)
            print(f"| {row} | {' | '.join(map(str, verdicts))} |", flush=True)
    print(f"\n{counts.total()} cells, {counts[False]} with a violation")
    sys.exit(1 if counts[False] else 0)


if __name__ == "__main__":
    main()
