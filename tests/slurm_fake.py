"""Slurm in memory, behind the port by which the backend asks it: jobs, nodes, and what operators do beside dfrs."""

import itertools
import time
from dataclasses import replace

from dfrs.live.backends.slurm.marks import Mark
from dfrs.live.backends.slurm.port import Found
from dfrs.live.backends.slurm.records import SlurmJob, SlurmNode
from dfrs.live.backends.slurm.scontrol import SlurmRefusedError
from dfrs.live.drivers.base import TaskState
from dfrs.live.errors import UnavailableError

GIB = 1 << 30


class FakeSlurm:
    """A `Slurm`. It does what it is asked at once, as long as it is `up`."""

    def __init__(self, nodes=2):
        self.rows = {}
        self.others = []
        self.nodes = {
            f"n{k}": SlurmNode(name=f"n{k}", address="127.0.0.1", cpus=4, memory_bytes=8 * GIB)
            for k in range(1, nodes + 1)
        }
        self.up = True
        self.asked = []
        self.starts = []
        """(job, attempt) of every start."""
        self.refusing = set()
        """Verbs that it refuses."""
        self.fails_before = set()
        """Verbs on which it goes away instead."""
        self.slow = set()
        """Jobs that it does not start yet, and why."""
        self._numbers = itertools.count(100)

    # What users and operators do.

    def sbatch(self, **fields):
        number = next(self._numbers)
        name = fields.pop("id", str(number))
        fields = {"user": "eve", "name": "work", "command": "/work.sh", "memory_bytes": GIB} | fields
        fields = {"number": number, "held": True, "requeue": True, "submit_s": time.time()} | fields
        self.rows[name] = SlurmJob(id=name, **fields)
        return name

    def set(self, name, **fields):
        self.rows[name] = replace(self.rows[name], **fields)

    def finish(self, name, status=0):
        self.set(name, state="FAILED" if status else "COMPLETED", exit_status=status, since_s=time.time())

    def cancel_by_hand(self, name):
        self.set(name, state="CANCELLED", exit_status=15, since_s=time.time())

    def requeue_by_hand(self, name):
        row = self.rows[name]
        self.set(name, state="PENDING", held=False, restarts=row.restarts + 1)

    def release_by_hand(self, name, node="n1"):
        self.set(name, held=False, state="RUNNING", node=node, since_s=time.time())
        self.starts.append((name, ""))

    def fail(self, node, job_requeue=True):
        """`job_requeue`: what slurm.conf says, without which Slurm queues nothing again by itself."""
        self.nodes[node] = replace(self.nodes[node], down=True)
        for name, row in self.rows.items():
            if row.placed and row.node == node:
                if row.requeue and job_requeue:
                    self.requeue_by_hand(name)
                else:
                    self.set(name, state="NODE_FAIL", since_s=time.time())

    # The port.

    async def look(self):
        self._ask("look")
        return Found(list(self.rows.values()), list(self.others), list(self.nodes.values()))

    async def place(self, job, node, mark, *, requeue):
        self._ask("place", job)
        assert self.rows[job].pending
        assert self.rows[job].held
        self.set(job, node=node, admin_comment=mark, requeue=requeue)

    async def release(self, job):
        self._ask("release", job)
        assert self.rows[job].pending
        self.set(job, held=False)
        if job not in self.slow:
            self.start(job)

    def start(self, job):
        mark = Mark.parse(self.rows[job].admin_comment)
        assert mark is not None
        assert mark.state is TaskState.RUNNING
        start = (job, str(mark.task))
        assert start not in self.starts, f"{start} is started again"
        self.starts.append(start)
        self.set(job, state="RUNNING", since_s=time.time())

    async def hold(self, jobs):
        self._ask("hold", *jobs)
        for job in jobs:
            self.set(job, held=True)

    async def mark(self, job, mark):
        self._ask("mark", job)
        self.set(job, admin_comment=mark)

    async def explain(self, jobs, why):
        self._ask("explain", *jobs)
        for job in jobs:
            self.set(job, admin_comment=why)

    async def suspend(self, job):
        self._ask("suspend", job)
        self.set(job, state="SUSPENDED", since_s=time.time())

    async def resume(self, job):
        self._ask("resume", job)
        self.set(job, state="RUNNING", since_s=time.time())

    async def requeue(self, job, *, ended):
        self._ask("requeue", job)
        row = self.rows[job]
        assert row.ended is ended
        assert row.placed or (ended and row.requeue)
        self.set(job, state="PENDING", held=True, restarts=self.rows[job].restarts + 1)

    async def cancel(self, job):
        self._ask("cancel", job)
        self.set(job, state="CANCELLED", since_s=time.time())

    def _ask(self, verb, *jobs):
        if verb in self.fails_before:
            self.fails_before.discard(verb)
            self.up = False
        if not self.up:
            raise UnavailableError("Slurm: Unable to contact slurm controller")
        if verb in self.refusing:
            raise SlurmRefusedError(f"Slurm: {verb}: Invalid job id specified")
        if verb != "look":
            self.asked.append((verb, *jobs))
