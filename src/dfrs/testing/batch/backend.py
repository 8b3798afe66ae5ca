"""The backend over `BatchEngine`: it looks at the engine's table now and then, and writes what is wanted into it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from dfrs.live.controller.backend import Output, Wanted
from dfrs.live.controller.control import Control
from dfrs.live.controller.records import JobRecord, NodeRecord, TaskRecord
from dfrs.live.drivers.base import DriverAbilities, InputPart, ProgramSpec, TaskId, TaskState
from dfrs.live.errors import ConflictError, UnavailableError
from dfrs.live.protocol.observed import NodeFacts
from dfrs.live.protocol.ports import Piece
from dfrs.live.protocol.resources import JobRequest
from dfrs.model.errors import DfrsError
from dfrs.model.nodes import Condition
from dfrs.testing.batch.engine import RUNS, BatchEngine, EngineJob, EngineNode

LOOK_S = 0.01
"""Between two looks at the table."""
ABILITIES = DriverAbilities(
    shares="engine",
    caps=False,
    memory_limits=True,
    pause_frees_memory=True,
    moves_on_host=False,
    measures_waiting=False,
)


@dataclass(frozen=True)
class EngineNewcomer:
    """A node of the engine that is up, and that the controller has not taken in since."""

    facts: NodeFacts


class BatchBackend:
    """A `Backend`. One controller's: another one on the same engine has its own."""

    facts = NodeFacts
    intake = ""

    def __init__(self, engine: BatchEngine) -> None:
        self.engine = engine
        self._control: Control
        self._taken: set[str] = set()
        """Nodes whose tasks were compared with what is on record, since they came up."""
        self._asked: dict[int, Wanted] = {}
        """What was last asked for, by the engine's number."""
        self._said: dict[int, object] = {}
        """What was last said of a job, by the engine's number."""
        self._looking: asyncio.Task[None] | None = None

    def open(self, control: Control) -> None:
        """As `Backend.open`."""
        self._control = control

    def begin(self) -> None:
        """As `Backend.begin`."""
        self._looking = asyncio.create_task(self._look_on())

    async def end(self) -> None:
        """As `Backend.end`."""
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking

    def let_go(self, why: str) -> None:
        """Nodes look for nobody."""

    # What is wanted.

    def settle(self) -> None:
        """Write into the table what is wanted and is not asked for yet."""
        for job in self._control.unsettled():
            for wanted in self._control.wanted(job):
                self._ask(job, wanted)

    def _ask(self, job: JobRecord, wanted: Wanted) -> None:
        if wanted.state is TaskState.ABSENT:
            self._end(wanted)
        elif set(wanted.nodes) <= self._taken:
            row = self._row(job) or self.engine.new_job(job.user)
            if self._asked.get(row.number) != wanted:
                self._asked[row.number] = wanted
                self._bring_about(row, wanted)

    def _bring_about(self, row: EngineJob, wanted: Wanted) -> None:
        down = next((name for name in wanted.nodes if not self.engine.nodes[name].up), None)
        if down is None:
            self.engine.bring_about(row, wanted, self._control.versions.next())
            return
        # It is lost as soon as the table is looked at.
        del self._asked[row.number]
        for task, name in zip(wanted.tasks, wanted.nodes, strict=True):
            node = self._control.node(name)
            assert node is not None
            self._control.trouble(task, node, f"node {down} is down")

    def _end(self, wanted: Wanted) -> None:
        row = self.engine.find(wanted.tasks[0])
        if row is not None and row.state in RUNS:
            self.engine.bring_about(row, wanted, self._control.versions.next())
            return
        for task in wanted.tasks:
            self._control.is_gone(task)

    def _row(self, job: JobRecord) -> EngineJob | None:
        """The engine's job: the one that was an attempt at it, or that came to the engine's queue."""
        queued = self.engine.jobs.get(int(job.key)) if job.key else None
        return self.engine.of_job(job.id) or queued

    def starts(self, task: TaskRecord) -> bool:
        """The engine starts what it is told to, or says why not."""
        return False

    def forget(self, job: JobRecord) -> None:
        """Have the engine forget it, too."""
        row = self._row(job)
        if row is not None:
            self._drop(row)

    def _drop(self, row: EngineJob) -> None:
        self.engine.forget(row)
        self._asked.pop(row.number, None)
        self._said.pop(row.number, None)

    def give_up(self, node: NodeRecord) -> None:
        """If it comes up again, it is another one."""
        self._taken.discard(node.name)

    async def read(self, node: NodeRecord, task: TaskId, piece: Piece) -> Output:
        """Every task writes its name."""
        if not self.engine.nodes[node.name].up:
            raise UnavailableError(f"node {node.name}: is down")
        text = f"{task}\n".encode() if piece.stream == "out" else b""
        return Output(data=text[piece.offset : piece.offset + piece.limit], offset=piece.offset, end=len(text))

    async def write(self, node: NodeRecord, task: TaskId, part: InputPart) -> int:
        """Its tasks take none."""
        raise ConflictError(f"task {task}: tasks of this engine take no input")

    async def execute(self, node: NodeRecord, task: TaskId, program: ProgramSpec) -> None:
        """It cannot."""
        raise ConflictError(f"task {task}: this engine starts no programs beside its tasks")

    # What is seen.

    async def _look_on(self) -> None:
        while True:
            for node in list(self.engine.nodes.values()):
                self._look_at_node(node)
            for row in list(self.engine.jobs.values()):
                if row.request is not None and not row.tasks:
                    await self._report_queued(row, row.request)
                elif row.tasks:
                    self._report(row)
            await asyncio.sleep(LOOK_S)

    def _look_at_node(self, node: EngineNode) -> None:
        record = self._control.node(node.name)
        if record is None or (node.up and node.name not in self._taken):
            self._control.poke()
        elif node.up:
            self._control.heard(record)
            self._control.problem(record, node.drained)
        elif record.condition is not Condition.DOWN:
            self._taken.discard(node.name)
            self._control.lost(record)

    def newcomers(self) -> Sequence[EngineNewcomer]:
        """Nodes that are up and were not compared yet."""
        up = [node for node in self.engine.nodes.values() if node.up and node.name not in self._taken]
        return [EngineNewcomer(_facts(node)) for node in up]

    def take_in(self, newcomers: Sequence[EngineNewcomer]) -> None:
        """Say of each what it has; what it is to have beside that is asked for when `settle` is next called."""
        for newcomer in newcomers:
            node = self._control.known(newcomer.facts)
            if node is None:
                continue
            rows = [row for row in self.engine.jobs.values() if node.name in row.nodes]
            pairs = [pair for row in rows for pair in zip(row.tasks, row.nodes, strict=True)]
            here = [task for task, name in pairs if name == node.name]
            lost = self._control.has(node, here)
            self._control.came(node, newcomer.facts, lost)
            self._taken.add(node.name)
            for row in rows:
                self._said.pop(row.number, None)
                self._report(row)

    async def _report_queued(self, row: EngineJob, request: JobRequest) -> None:
        """A user's job waits in the engine's queue: have it scheduled."""
        with suppress(DfrsError):
            await self._control.submit(request, row.user, str(row.number))

    def _report(self, row: EngineJob) -> None:
        news = (row.state, row.tasks, row.nodes, row.kept, row.version)
        if self._said.get(row.number) == news or not set(row.nodes) & self._taken:
            return
        self._said[row.number] = news
        for task, name in zip(row.tasks, row.nodes, strict=True):
            node = self._control.node(name)
            if node is None:
                continue
            known = self._control.saw(
                task, node, row.state, since_s=row.since_s, found=row.found, kept=row.kept and row.state in RUNS
            )
            if not known:
                self._drop(row)
                return


def _facts(node: EngineNode) -> NodeFacts:
    return NodeFacts(
        node=node.name,
        host=node.name,
        address=node.name,
        cpus=node.cpus,
        memory_bytes=node.memory_bytes,
        abilities=ABILITIES,
        problem=node.drained,
        version="",
    )
