"""Slurm as the backend of one partition: it looks at Slurm now and then, and asks it for what is wanted.

Jobs come to Slurm's own queue, held. They are told to the controller under Slurm's numbers, and Slurm's word on their
end counts. What is wanted of each is stored with it before Slurm is asked for it (`marks.py`), and what to ask for next
is worked out from what Slurm has (`next_action.py`), whoever asked before. So the controller, Slurm and what runs
between them may end at any moment.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from dfrs.live.backends.slurm.admission import Admission
from dfrs.live.backends.slurm.jobs_seen import JobsSeen
from dfrs.live.backends.slurm.marks import Mark, reason
from dfrs.live.backends.slurm.next_action import present
from dfrs.live.backends.slurm.port import Found, Slurm
from dfrs.live.backends.slurm.records import SlurmNode
from dfrs.live.backends.slurm.scontrol import SlurmRefusedError
from dfrs.live.backends.slurm.shares import ShareBoard
from dfrs.live.backends.slurm.steering import Steering
from dfrs.live.controller.backend import Output
from dfrs.live.controller.control import Control
from dfrs.live.controller.records import JobRecord, NodeRecord, TaskRecord
from dfrs.live.drivers.base import DriverAbilities, InputPart, ProgramSpec, TaskId
from dfrs.live.errors import ConflictError, UnavailableError
from dfrs.live.protocol.observed import NodeFacts
from dfrs.live.protocol.ports import Piece
from dfrs.model.nodes import Condition

LOOK_S, SOON_S = 1.0, 0.2
"""Between two looks at Slurm; as long as it has been asked for something that it has not done yet."""
REST = 5.0
"""And at least so many times as long as the look took: so Slurm is looked at for a sixth of the time at most."""
EXPLAIN_S = 5.0
"""Between two times that reasons are written."""
MOST_WRITTEN = 250
"""Jobs that get another reason in one such time: slurmctld needs half a millisecond for each."""
TOGETHER = 50
"""Jobs with the same reason in one command: as long as it takes, none of them is started."""
MOST_ASKED = 1000
"""Jobs whose reasons are worked out in one such time."""
OF_THE_NODE = frozenset({"", "None", "Resources", "ReqNodeNotAvail"})
NODE_IS_AWAY = (
    "ReqNodeNotAvail, UnavailableNodes",
    "ReqNodeNotAvail, May be reserved",
    "Nodes required",
    "Nodes_required",
)
"""Reasons of a released job, and beginnings of such, that its node may be to blame for: all others, as limits,
licences, maintenance ahead and the state of the partition, may be the same everywhere."""
AWAY = "Slurm does not answer"
DOWN = "is down in Slurm"
LEFT = "is no longer in the partition"
NO_AGENT = "no share agent gives shares there: all tasks have Linux's equal ones; see dfrs slurm share-agent"

log = structlog.get_logger("dfrs.slurm")


@dataclass(frozen=True)
class SlurmNewcomer:
    """A node of Slurm's that is up, and that the controller has not taken in since, or is not what it was."""

    facts: NodeFacts


class SlurmBackend:
    """A `Backend`. Another controller on the same partition would be a second decider: the database's lease forbids."""

    facts = NodeFacts
    intake = "jobs: Slurm has this cluster's queue: submit with sbatch"

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self.board = ShareBoard()
        self._nodes: dict[str, SlurmNode] = {}
        self._made: dict[str, tuple[SlurmNode, str, NodeFacts]] = {}
        """Facts of nodes, and what they were made of."""
        self._taken: dict[str, NodeFacts] = {}
        """Nodes whose tasks were compared with what is on record, and as what."""
        self._running: list[asyncio.Task[None]] = []
        self._written: dict[str, str] = {}
        """Reasons, by job, as they were last written."""
        self._asked = 0
        """The last job whose reason was worked out: the others have their turn."""

    def open(self, control: Control) -> None:
        """As `Backend.open`."""
        self._control = control
        self.seen = JobsSeen(control, self._taken)
        self.steering = Steering(control, self._slurm, self.seen, self.board)
        self._admission = Admission(control, self._slurm, self.seen)
        self.board.open(control, self.seen)

    def begin(self) -> None:
        """As `Backend.begin`."""
        self._running = [
            asyncio.create_task(self._always(self._look_on)),
            asyncio.create_task(self._always(self.steering.run)),
            asyncio.create_task(self._always(self._explain_on)),
        ]

    async def end(self) -> None:
        """As `Backend.end`. What Slurm was asked for it does."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.steering.end()

    def let_go(self, why: str) -> None:
        """Slurm is asked for nothing as long as this controller may not lead (`Control.leads`). Share agents ask for a
        new answer all the time: the next one comes from the controller that leads.
        """

    async def _always(self, work: Callable[[], Awaitable[None]]) -> None:
        """Go on with it, whatever happens."""
        while True:
            try:
                await work()
            except Exception:
                log.exception("work on Slurm failed")
            await asyncio.sleep(LOOK_S)

    # What is wanted.

    def settle(self) -> None:
        """As `Backend.settle`."""
        self.steering.settle(self._control.unsettled())

    def starts(self, task: TaskRecord) -> bool:
        """Whether Slurm was told to start it, may start it elsewhere instead, and its node can be why it does not."""
        job = self._control.jobs.get(task.id.job)
        row = None if job is None else self.seen.rows.get(job.key)
        if row is None or present(row) is None:
            return False
        return row.pending and not row.held and row.requeue and is_of_the_node(row.reason)

    def forget(self, job: JobRecord) -> None:
        """As `Backend.forget`: it has no place in Slurm's queue any more, either."""
        self._written.pop(job.key, None)
        self.steering.forget(job)

    def give_up(self, node: NodeRecord) -> None:
        """As `Backend.give_up`."""
        self._taken.pop(node.name, None)

    async def read(self, node: NodeRecord, task: TaskId, piece: Piece) -> Output:
        """Slurm writes output where the job's user wants it."""
        job = self._control.jobs.get(task.job)
        which = f" of job {job.key}" if job is not None else ""
        raise UnavailableError(f"output: Slurm has written it to the files{which}: see StdOut of scontrol show job")

    async def write(self, node: NodeRecord, task: TaskId, part: InputPart) -> int:
        """Jobs that came by sbatch read files."""
        raise ConflictError("input: a job that came by sbatch reads files; to begin one with a terminal: srun --pty")

    async def execute(self, node: NodeRecord, task: TaskId, program: ProgramSpec) -> None:
        """Slurm has its own way."""
        raise ConflictError("program: Slurm starts those beside a job: srun --overlap --jobid NUMBER")

    # What is seen.

    async def _look_on(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            took_s = 0.0
            try:
                found = await self._slurm.look()
            except UnavailableError as error:
                self._is_away(str(error))
            else:
                took_s = loop.time() - began_s
                await self._take(found, began_s)
            pause_s = max(SOON_S if self.steering.expects else LOOK_S, REST * took_s)
            # Nodes of which nothing is heard for longer would get nothing new.
            await asyncio.sleep(min(pause_s, self._control.settings.silent_s / 2))

    def _is_away(self, why: str) -> None:
        """Nobody says that jobs have ended: they may run on."""
        log.warning("Slurm does not answer", why=why)
        self.steering.doubt()
        # Also before the first look: jobs ran on while nobody decided.
        for node in self._control.nodes:
            if node.condition is not Condition.DOWN:
                self._control.heard(node)
                self._control.problem(node, AWAY)

    async def _take(self, found: Found, began_s: float) -> None:
        self._nodes = {node.name: node for node in found.nodes}
        self.seen.take(found, began_s)
        # Jobs before nodes: how they ended says more than that their node is lost. None is to begin there meanwhile.
        for node in found.nodes:
            record = self._control.node(node.name)
            if record is not None and (node.down or node.problem):
                self._control.problem(record, DOWN if node.down else node.problem)
        await self.seen.report()
        strangers = self.seen.strangers()
        for node in found.nodes:
            self._report_node(node, strangers.get(node.name, ""))
        for node in self._control.nodes:
            if node.name not in self._nodes and self._control.node(node.name) is node:
                self._look_after(node)
        try:
            await self._admission.look(max((node.memory_bytes for node in found.nodes), default=0))
        finally:
            self.steering.look()

    def _look_after(self, node: NodeRecord) -> None:
        """It was taken out of the partition: Slurm lets what runs there run on."""
        if node.condition is not Condition.DOWN and self.seen.has_jobs_on(node.name):
            if node.name not in self._taken:
                self._compare(node, node.facts)
            self._control.heard(node)
            self._control.problem(node, LEFT)
        elif node.name in self._taken:
            self._lose(node)

    def _report_node(self, node: SlurmNode, strangers: str) -> None:
        record = self._control.node(node.name)
        if record is None or (not node.down and self._taken.get(node.name) != self._facts(node)):
            self._control.poke()
        elif node.down:
            self._lose(record)
        else:
            self._control.heard(record)
            self._control.problem(record, node.problem or strangers)

    def _lose(self, record: NodeRecord) -> None:
        if record.condition is not Condition.DOWN or record.connected:
            self._taken.pop(record.name, None)
            self._control.lost(record)

    def newcomers(self) -> Sequence[SlurmNewcomer]:
        """As `Backend.newcomers`."""
        facts = [self._facts(node) for node in self._nodes.values() if not node.down]
        return [SlurmNewcomer(each) for each in facts if self._taken.get(each.node) != each]

    def take_in(self, newcomers: Sequence[SlurmNewcomer]) -> None:
        """As `Backend.take_in`."""
        for newcomer in newcomers:
            node = self._control.known(newcomer.facts)
            if node is not None:
                self._compare(node, newcomer.facts)

    def _compare(self, node: NodeRecord, facts: NodeFacts) -> None:
        """Its tasks on record with what is there."""
        lost = self._control.has(node, self.seen.tasks_on(node.name))
        self._control.came(node, facts, lost)
        self._taken[node.name] = facts
        self.seen.say_again(node.name)

    def _facts(self, node: SlurmNode) -> NodeFacts:
        kind = self.board.kind(node.name)
        made = self._made.get(node.name)
        if made is None or made[:2] != (node, kind):
            made = self._made[node.name] = (node, kind, _facts(node, kind))
        return made[2]

    # Why jobs wait, where Slurm's users look.

    async def _explain_on(self) -> None:
        while True:
            await asyncio.sleep(EXPLAIN_S)
            await self._explain()

    async def _explain(self) -> None:
        by_text: dict[str, list[str]] = {}
        left = MOST_WRITTEN
        for job, why in self._control.whys(self._turn()):
            self._asked = job.id
            row = self.seen.rows.get(job.key)
            # In the place of what was written may stand which attempt it was.
            marked = row is not None and Mark.parse(row.admin_comment) is not None
            if self._written.get(job.key) != why or marked:
                by_text.setdefault(why, []).append(job.key)
                left -= 1
            if not left:
                break
        for why, keys in by_text.items():
            for k in range(0, len(keys), TOGETHER):
                await self._write(why, keys[k : k + TOGETHER])

    async def _write(self, why: str, keys: Sequence[str]) -> None:
        with self.steering.without(keys) as idle:
            # Where another controller leads, what stands there may be the mark of its start.
            if not idle or not self._control.leads:
                return
            try:
                await self._slurm.explain(idle, reason(why))
            except UnavailableError as error:
                log.warning("reasons cannot be written", why=str(error))
                return
            except SlurmRefusedError as error:
                # Of several jobs it is those that have ended.
                log.info("Slurm refuses a reason", why=str(error))
        self._written.update(dict.fromkeys(idle, why))

    def _turn(self) -> list[JobRecord]:
        """Jobs that wait, from the one after the last on, and then from the first on again; not too many at once."""
        jobs = [self._control.jobs[job] for job in self._control.arrived.values() if job in self._control.jobs]
        waiting = sorted((job for job in jobs if self.steering.is_idle(job)), key=lambda job: job.id)
        at = bisect_right(waiting, self._asked, key=lambda job: job.id)
        return [*waiting[at:], *waiting[:at]][:MOST_ASKED]


def is_of_the_node(reason: str) -> bool:
    """Whether a released job may wait for that reason because of the node that was chosen for it."""
    return reason in OF_THE_NODE or reason.startswith(NODE_IS_AWAY)


def _facts(node: SlurmNode, kind: str) -> NodeFacts:
    """What the controller knows of it; `kind`: by what shares are given there."""
    return NodeFacts(
        node=node.name,
        host=node.name,
        address=node.address,
        cpus=node.cpus,
        memory_bytes=node.memory_bytes,
        abilities=DriverAbilities(
            shares=kind or "equal",
            caps=False,
            memory_limits=True,
            pause_frees_memory=False,
            moves_on_host=False,
            measures_waiting=kind != "",
            notes=() if kind else (NO_AGENT,),
        ),
        version="",
    )
