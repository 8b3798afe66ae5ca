"""Storms: a controller and four nodes to which anything may happen, told by a seed on a loop without real time.

`python -m tests.storms 0:1000` tells these stories and says which went wrong; `python -m tests.storms 8 --trace 7.0.0`
tells one of them, and what became of a task.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np
import structlog
from sqlalchemy import create_engine, text

from dfrs.engine.codec import replay
from dfrs.engine.core import Core
from dfrs.live.controller.backups import back_up, restore
from dfrs.live.drivers.base import ImageFormat, TaskId
from dfrs.live.protocol.ports import ConflictError, NotFoundError
from dfrs.live.protocol.resources import ENDED, JobRequest, JobState
from dfrs.model.errors import InputError
from dfrs.policies.names import find_policy
from dfrs.testing import InMemoryHosts, VirtualExecutor, abandon, make_controller, run_virtually, until
from dfrs.testing.cluster import DEFAULT_POLICY
from dfrs.testing.in_memory import GIB

ACTS = 120
IMAGES = ImageFormat(machine="x", cpu=(), kernel="6.1", criu="4.1")


class Forked(InMemoryHosts):
    """Nodes whose controller goes on from older copies of its database: what is not in them may come again.

    Still nothing of one generation runs twice at a time.
    """

    def __post_init__(self):
        super().__post_init__()
        self.programs = {}
        """By which submission each task was started."""

    def started(self, node, task):
        """As there, and note what it runs."""
        self.programs[task] = node.tasks[task].desired.spec.environment["SUBMISSION"]
        super().started(node, task)

    def check(self):
        """As there, for each generation."""
        found = [(task.job, task.rank, task.generation) for task, _ in self.running()]
        if len(set(found)) < len(found):
            self.fail(f"runs twice: {sorted(found)}")


class Storm:
    """A controller on a database in `path`, and nodes."""

    def __init__(self, path, seed, loop):
        self.path, self.random, self.loop = path, random.Random(seed), loop
        self.copy = f"{path}/copy.db"
        self.forks = seed // 1000 == 4
        """The database is now and then put back to an older copy."""
        kind = Forked if self.forks else InMemoryHosts
        self.hosts = kind(seed=seed, chaos=0.2, cuts=0.1 * (seed % 4), stamp=loop.time)
        for k in range(4):
            images = IMAGES if seed // 1000 % 2 else None
            node = self.hosts.node(f"n{k}", host=f"h{k // 2}", pause_frees_memory=seed % 2 == 0, images=images)
            node.full = 0.3 if seed % 10 == 2 else 0.0
            node.rigid = 0.3 if seed % 10 in {4, 5} else 0.0
        self.submitted = set()
        self.submissions = {}
        """By job."""
        self.saved = None
        """Submissions that the copy has."""
        self.controller = None
        self.sick = seed // 1000 == 3
        """Nodes say that they cannot do their work, or start nothing, for a while."""
        self.kills = self.refused = self.restores = 0

    async def start(self, away=()):
        """A controller that goes on from what is in the database, and nodes but for those that stay away."""
        self.controller = make_controller(
            self.path,
            clock=self.hosts.clock,
            checkpoint_events=40,
            writer=VirtualExecutor(self.loop),
            start_s=0.5 if self.sick else 60.0,
        )
        await self.controller.start()
        for node in self.hosts.nodes.values():
            if node in away:
                node.cut()
            else:
                node.attach(self.controller)

    async def kill(self):
        """At a random point of whatever it does."""
        await asyncio.sleep(self.random.choice((0, 0, 1, 5)) * self.loop.delay_s())
        self.hosts.history.append(("kill",))
        await abandon(self.controller)
        self.kills += 1
        await self.start()

    def save(self):
        """Copy the database as it is now."""
        back_up(Path(self.path, "live.db"), Path(self.copy), replace=True)
        self.saved = dict(self.submissions)

    async def restore(self):
        """As a kill; and the next controller finds the copy, and gives out numbers again before all nodes are there."""
        if self.saved is None:
            return
        self.hosts.history.append(("restore",))
        await abandon(self.controller)
        restore(Path(self.copy), Path(self.path, "live.db"))
        self.submissions, self.submitted = dict(self.saved), set(self.saved)
        self.hosts.now += 0.001
        self.hosts.starts.clear()
        self.restores += 1
        await self.start(self.random.sample(list(self.hosts.nodes.values()), self.random.randint(0, 3)))
        for _ in range(self.random.randint(0, 5)):
            with suppress(InputError):
                await self.submit()

    async def act(self):
        """Something happens."""
        chance, hosts = self.random.random(), self.hosts
        node = self.random.choice(list(hosts.nodes.values()))
        controller = self.controller
        try:
            if chance < 0.35:
                await self.submit()
            elif chance < 0.45 and self.submitted:
                verb = self.random.choice(["cancel", "hold", "release"])
                job = self.random.choice(sorted(self.submitted))
                hosts.history.append((verb, job))
                await getattr(controller, verb)(job, "ann")
            elif chance < 0.55:
                node.attach(controller)
            elif chance < 0.60:
                node.cut()
            elif chance < 0.64:
                node.reboot()
                node.attach(controller)
            elif chance < 0.69:
                await self.kill()
            elif chance < 0.72:
                await getattr(controller, self.random.choice(["drain", "undrain"]))(node.name, "root")
            elif self.sick and chance < 0.78:
                node.unable = self.random.choice(["", "start: it cannot be"])
                node.problem = self.random.choice(["", "", "self-test failed: it cannot be"])
            elif self.forks and chance < 0.74:
                self.save()
            elif self.forks and chance < 0.77:
                await self.restore()
            else:
                hosts.tick(self.random.random())
                await asyncio.sleep(0.003)
        except (InputError, ConflictError, NotFoundError):
            self.refused += 1

    async def submit(self):
        """A job like any other."""
        rng = self.random
        made = JobRequest(
            command=("sleep", str(rng.choice([0.2, 1, 3, 10]))),
            cpu_cores=rng.choice([0.5, 1.0, 3.0]),
            tasks=rng.choice([1, 1, 1, 2, 3]),
            memory_bytes=rng.choice([GIB // 4, GIB, 4 * GIB]),
            restart=rng.choice(["never", "on-node-loss"]),
            environment={"SUBMISSION": str(len(self.hosts.history))},
        )
        jobs = await self.controller.submit(made, "ann", "ann")
        self.submitted.update(jobs)
        self.submissions |= dict.fromkeys(jobs, made.environment["SUBMISSION"])

    async def calm(self):
        """Everything works again; every job ends."""
        hosts = self.hosts
        hosts.chaos = 0.0
        for node in hosts.nodes.values():
            node.unable = node.problem = ""
        for name in hosts.nodes:
            await self.controller.undrain(name, "root")
        hosts.attach_all(self.controller)
        for job in sorted(self.submitted):
            if self.controller.job(job).state is JobState.HELD:
                await self.controller.release(job, "ann")
        for _ in range(4000):
            if all(self.controller.job(job).state in ENDED for job in self.submitted):
                return
            hosts.tick(0.5)
            await asyncio.sleep(0.003)
        left = [self.controller.job(job) for job in self.submitted if self.controller.job(job).state not in ENDED]
        raise AssertionError(f"never ended: {left[:3]}")

    async def story(self):
        """All of it. The hosts fail it at the first step at which two attempts at one task run."""
        await self.start()
        await until(lambda: len(self.controller.nodes()) == len(self.hosts.nodes))
        for _ in range(ACTS):
            await self.act()
        await self.calm()
        controller = self.controller
        assert controller.state.mismatches == 0
        assert controller.state.refused == 0
        assert not self.hosts.broken
        assert not self.hosts.running()
        attempts = {(task.job, task.rank, task.attempt) for task in self.hosts.starts}
        assert self.forks or len(attempts) == len(self.hosts.starts), "an attempt has two generations"
        for job in controller.jobs(states=frozenset({JobState.DONE}), limit=1000) if self.forks else ():
            name = TaskId(job=job.id, rank=0, attempt=job.attempt, generation=job.generation)
            assert self.hosts.programs[name] == self.submissions[job.id], f"{name} ran what another job was to run"
        assert self.submitted == {job.id for job in controller.jobs(states=ENDED, limit=1000)}
        await controller.stop()
        entries = [each for each in read_log(self.path) if each[1]["event"] != "restart"]
        assert replay(Core(find_policy(DEFAULT_POLICY), np.zeros((0, 2))), entries) is None


def read_log(path):
    """(time, event, digest) of all that a database has recorded."""
    engine = create_engine(f"sqlite:///{path}/live.db")
    with engine.connect() as connection:
        rows = connection.execute(text("select time_s, event, digest from events order by sequence")).all()
    engine.dispose()
    return [(row.time_s, json.loads(row.event), row.digest) for row in rows]


def storm(seed):
    """The storm of that seed after its end, and a digest of what happened. Raises AssertionError if it went wrong."""
    path = tempfile.mkdtemp(prefix="dfrs-storm-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    made = []

    async def story(loop):
        made.append(Storm(path, seed, loop))
        await made[0].story()

    try:
        _, steps = run_virtually(seed, story)
        events = json.dumps([read_log(path), [list(map(str, each)) for each in made[0].hosts.history], steps])
        return made[0], sha256(events.encode()).hexdigest()[:16]
    except Exception as error:
        error.add_note(f"seed {seed}, after {len(made[0].hosts.history) if made else 0} acts of nodes")
        error.hosts = made[0].hosts if made else None
        raise
    finally:
        shutil.rmtree(path, ignore_errors=True)


def told(seed):
    """One line on the storm of that seed; whether all was well."""
    begin_s = time.process_time()
    try:
        over, digest = storm(seed)
    except Exception as error:
        return seed, False, f"{type(error).__name__}: {str(error)[:300]}"
    spent_s = time.process_time() - begin_s
    return seed, True, f"{len(over.submitted)} jobs, {over.kills} kills, {digest}, {spent_s:.2f} s of CPU"


def main():
    """Tell storms; exit status 1 if any went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", help="one seed, or FIRST:END")
    parser.add_argument("--trace", metavar="TASK", help="print what became of this task, as 7.0.0")
    parser.add_argument("--quiet", action="store_true", help="only those that went wrong")
    options = parser.parse_args()
    first, _, end = options.seeds.partition(":")
    if not (first.isdecimal() and (end.isdecimal() or not end)) or (end and int(end) <= int(first)):
        parser.error(f'seeds "{options.seeds}": must be one number, as 8, or FIRST:END with END above FIRST, as 0:1000')
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if options.trace:
        trace(int(first), options.trace)
        return
    bad = []
    seeds = range(int(first), int(end or int(first) + 1))
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for seed, good, line in pool.map(told, seeds, chunksize=1):
            bad += [] if good else [seed]
            if not good or not options.quiet:
                print(f"{seed}: {'' if good else 'WRONG: '}{line}", flush=True)
    print(f"{len(seeds)} storms, {len(bad)} went wrong{': ' if bad else ''}{' '.join(map(str, bad))}")
    sys.exit(bool(bad))


def trace(seed, task):
    """Print what became of a task."""
    hosts = None
    try:
        over, _ = storm(seed)
        hosts = over.hosts
    except Exception as error:
        hosts = error.hosts
        print(f"{type(error).__name__}: {error}")
    for each in hosts.history if hosts else ():
        names = {".".join(str(part).split(".")[:3]) for part in each[1:]}
        if each[0] in {"kill", "restore", "reboot", "cut", "attach"} or names & {task, task.partition(".")[0]}:
            print(*each)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
