"""Nodes that come, fall silent, are lost, are drained and come back: what the core is told of them."""

from collections.abc import Iterable, Sequence

import structlog

from dfrs.engine.events import Event
from dfrs.live.controller import cluster_views, tables, views
from dfrs.live.controller.backend import Backend, Newcomer
from dfrs.live.controller.planner import ControllerPlan, Planner, Request
from dfrs.live.controller.reasons import clock_words
from dfrs.live.controller.records import JobOutcome, JobRecord, NodeRecord, TaskRecord
from dfrs.live.controller.starting import StartWatch, forgive, stall
from dfrs.live.controller.state import State
from dfrs.live.drivers.base import ExitKind
from dfrs.live.errors import ConflictError, NotFoundError
from dfrs.live.protocol.observed import NodeFacts
from dfrs.live.protocol.resources import JobState
from dfrs.model.named_resources import NodeResources
from dfrs.model.nodes import Capacity, Condition, IslandsJoined, Join, NodeChange, PauseAbility

TAKEOVER_S = 5.0
"""A connection that has been silent for so long gives way to a new one of the same name."""

log = structlog.get_logger(__name__)


class NodeLifecycle:
    """Plans for nodes."""

    def __init__(self, state: State, planner: Planner, backend: Backend) -> None:
        self._state = state
        self._planner = planner
        self.starts = StartWatch(state, backend)
        self._said = ""
        self.described = 1
        """How often nodes were described anew."""
        self._joined = 0
        """That number when it was last recorded which of them exchange tasks."""
        self._looked_at = 0.0
        """The wall clock when nodes were last watched: by that it is judged which are reserved."""

    def refuse(self, facts: NodeFacts, now: float) -> None:
        """Raise ConflictError where another node is connected under that name.

        One of the same host is the same node, restarted or with a broken connection: it takes the place of the old one
        at once. One of another host does so only when the old one has been silent for some seconds, and, as it may
        still run jobs, only when the node counts as lost.
        """
        node = self.find(facts.node)
        if node is None or self.known(facts) is not None:
            return
        if node.connected and now - node.seen_at < TAKEOVER_S:
            raise ConflictError(f"node {facts.node}: an agent on another host is connected under this name")
        if node.condition is not Condition.DOWN:
            raise ConflictError(
                f"node {facts.node}: was on another host, and is not given up yet: wait, or use another name"
            )

    def find(self, name: str) -> NodeRecord | None:
        """The node of that name."""
        number = self._state.numbers.get(name)
        return None if number is None else self._state.nodes[number]

    def known(self, facts: NodeFacts) -> NodeRecord | None:
        """The node that is described so, if it is in the record. One of the same name on another host is another."""
        node = self.find(facts.node)
        return node if node is not None and node.facts.host == facts.host else None

    def apply(self, plan: ControllerPlan, requests: Iterable[Request]) -> None:
        """Drain and undrain."""
        for request in requests:
            node = self.find(str(request.subject))
            if node is None or not views.is_present(self._state, node):
                request.done.set_exception(NotFoundError(f"node {request.subject}: there is no such node"))
                continue
            wanted = request.verb == "drain"
            if not (wanted or node.drained) and (problem := self._reserved(node)):
                request.done.set_exception(ConflictError(problem))
                continue
            row = {"b_number": node.number, "b_drained": wanted, "b_drain_reason": request.why}
            plan.rows.append((tables.SET_DRAINED, row))
            self._planner.note(plan, request.verb, node=node.name, by=request.by, why=request.why)
            plan.after.append(lambda node=node, wanted=wanted, why=request.why: _set_drained(node, wanted, why))
            plan.answered.append(request)

    def _reserved(self, node: NodeRecord) -> str:
        """Why a node that nobody drained stays closed; empty if it does not."""
        now = self._state.settings.clock()
        found = self._state.reservations.on(node.name, now)
        if found is None:
            return ""
        until = clock_words(found.end_at, now)
        return f"node {node.name}: is reserved until {until}, not drained: cancel reservation {found.id}"

    def join(self, plan: ControllerPlan, newcomers: Iterable[Newcomer]) -> None:
        """Nodes that the core has never heard of."""
        state, now = self._state, self._state.settings.clock()
        nodes = list(state.nodes)
        new = [newcomer.facts for newcomer in newcomers]
        cores, bytes_ = state.reference_cores, state.reference_bytes
        if cores is None or bytes_ is None:
            # No task can have more: of nodes that come together the largest counts.
            cores = state.settings.reference_cores or max((facts.cpus for facts in new), default=1.0)
            bytes_ = state.settings.reference_bytes or max((facts.memory_bytes for facts in new), default=1)
            if new:
                self._set_reference(plan, cores, bytes_)
        for facts in new:
            # One that is opened only to be closed would be given jobs in between.
            closed = facts.problem != "" or state.reservations.on(facts.node, now) is not None
            condition = Condition.DRAIN if closed else Condition.UP
            node = NodeRecord(len(nodes), facts, _island(facts, nodes), condition)
            nodes.append(node)
            pauses = facts.abilities.pause_frees_memory
            plan.events.append(
                Join(
                    facts.cpus / cores,
                    facts.memory_bytes / bytes_,
                    island=node.island,
                    pause_frees_memory=pauses,
                    open=not closed,
                )
            )
            plan.rows.append((tables.ADD_NODE, node.row()))
            self._planner.note(plan, "join", node=node.name)
            if facts.problem:
                self._planner.note(plan, "unhealthy", node=node.name, why=facts.problem)
            plan.after.append(lambda node=node: self._add(node))

    def _set_reference(self, plan: ControllerPlan, cores: float, bytes_: int) -> None:
        plan.rows += [
            (tables.ADD_META, {"key": "reference_cores", "value": repr(float(cores))}),
            (tables.ADD_META, {"key": "reference_bytes", "value": str(bytes_)}),
        ]

        def after() -> None:
            self._state.set_reference(cores, bytes_)
            self._state.candidates |= dict.fromkeys(self._state.jobs)

        plan.after.append(after)

    def _add(self, node: NodeRecord) -> None:
        state = self._state
        node.seen_at = state.settings.steady()
        self.described += 1
        state.nodes.append(node)
        state.numbers[node.name] = node.number
        self._say_abilities()

    def _say_abilities(self) -> None:
        """Log by what the policy decides, when that has changed."""
        can = cluster_views.abilities(self._state.nodes)
        if can != self._said:
            self._said = can
            log.info("what nodes can do", policy=self._state.settings.policy, can=can)

    def _join_islands(self, plan: ControllerPlan) -> None:
        """Tell the core of nodes between which tasks can go since they were described anew.

        Where they no longer can, each move is refused when it is tried.
        """
        island = {node.number: node.island for node in self._state.nodes}
        first: dict[object, int] = {}
        for node in self._state.nodes:
            for way in node.facts.ways if views.is_present(self._state, node) else ():
                old, into = island[node.number], island[first.setdefault(way, node.number)]
                if old != into:
                    plan.events.append(IslandsJoined(old, into))
                    island |= {number: into for number, name in island.items() if name == old}
        moved = [node for node in self._state.nodes if island[node.number] != node.island]
        for node in moved:
            name = island[node.number]
            plan.rows.append((tables.SET_ISLAND, {"b_number": node.number, "b_island": name}))
            plan.after.append(lambda node=node, name=name: setattr(node, "island", name))
        described = self.described
        if moved:
            plan.after += [self._say_abilities, lambda: setattr(self, "_joined", described)]
        else:
            self._joined = described

    def watch(self, plan: ControllerPlan) -> None:
        """Tell the core of nodes whose condition is another one, and which jobs lose a node by that."""
        state, now = self._state, self._state.settings.steady()
        jobs_of_lost: set[int] = set()
        self._looked_at = state.settings.clock()
        if self.described != self._joined:
            self._join_islands(plan)
        overdue = self.starts.overdue()
        for _, task in overdue:
            self._stall(task, now)
        known_frees = state.core.frees_memory.tolist()
        for node in state.nodes:
            if state.numbers[node.name] != node.number:
                continue
            forgive(node, now)
            gone = not node.connected and now - node.seen_at >= state.settings.lost_s
            if node.condition is Condition.DOWN and gone and state.placement.on(node.number):
                # It came back for too short a time to be told so: what it said that it has is lost again.
                state.placement.lose(node.number)
            frees = node.facts.abilities.pause_frees_memory
            if known_frees[node.number] != frees:
                plan.events.append(PauseAbility(node.number, frees))
                plan.after.append(self._say_abilities)
            counts = tuple(sorted(node.facts.resources.items()))
            if state.core.resources(node.number) != counts:
                plan.events.append(NodeResources(node.number, counts))
            condition = self.condition(node, now)
            if condition is not node.condition:
                self._change(plan, node, condition, jobs_of_lost)
        for job, task in overdue:
            if job.id not in plan.jobs:
                self._planner.start_elsewhere(plan, job, task)

    def evacuate(self, plan: ControllerPlan) -> None:
        """Queue again what is on nodes that are reserved and to be empty. They are closed when they are watched."""
        state = self._state
        if not state.reservations:
            return
        for node in state.nodes:
            found = state.reservations.emptied(node.name, self._looked_at)
            if found is None or node.condition is Condition.DOWN or state.numbers[node.name] != node.number:
                continue
            said = f": {found.reason}" if found.reason else ""
            why = f"{node.name} is reserved until {clock_words(found.end_at, self._looked_at)}{said}; queued again"
            for name in sorted(self._jobs_to_be_moved(node)):
                self._planner.evacuate(plan, state.jobs[name], why)

    def _jobs_to_be_moved(self, node: NodeRecord) -> set[int]:
        """Those with a task of their present attempt that is to be there, and that the node has or may have."""
        state = self._state
        there = {task.id.job for task in state.placement.on(node.number)} & state.jobs.keys()
        return {name for name in there if any(_is_for(task, node) for task in state.jobs[name].tasks)}

    def _stall(self, task: TaskRecord, now: float) -> None:
        node = self._state.nodes[task.target]
        said = task.at[task.target].error
        words = f"could not start task {task.id} within {self._state.settings.start_s:g} s"
        stall(node, f"{words}: {said}" if said else words, now)

    def condition(self, node: NodeRecord, now: float) -> Condition:
        """What the core is to take it for."""
        settings = self._state.settings
        if node.condition is Condition.DOWN and not node.connected:
            return Condition.DOWN
        silent_s = now - node.seen_at
        if silent_s >= settings.lost_s:
            return Condition.DOWN
        reserved = self._state.reservations.on(node.name, self._looked_at) is not None
        wanted = node.drained or reserved or node.problem != ""
        closed = wanted or silent_s >= settings.silent_s or self._to_empty(node)
        return Condition.DRAIN if closed else Condition.UP

    def _to_empty(self, node: NodeRecord) -> bool:
        """Whether it has become another size: then the core can be told only while it is closed and empty."""
        state = self._state
        if self._size(node) == state.core.capacity[node.number].tolist():
            return False
        return node.condition is Condition.UP or bool(self._jobs_on(node))

    def _size(self, node: NodeRecord) -> list[float]:
        state = self._state
        if state.reference_cores is None or state.reference_bytes is None:
            return state.core.capacity[node.number].tolist()
        return [node.facts.cpus / state.reference_cores, node.facts.memory_bytes / state.reference_bytes]

    def _jobs_on(self, node: NodeRecord) -> list[JobRecord]:
        """Those that run there, and those that are held with their memory there."""
        state = self._state
        names = [name for name in state.picture.on(node.number) if name in state.jobs]
        held = (job for job in state.jobs.values() if job.held and any(t.target == node.number for t in job.tasks))
        return [state.jobs[name] for name in names] + [job for job in held if job.id not in names]

    def _change(self, plan: ControllerPlan, node: NodeRecord, condition: Condition, jobs_of_lost: set[int]) -> None:
        if condition is Condition.DOWN:
            for job in self._jobs_on(node):
                if job.id not in jobs_of_lost and job.outcome is None and not _has_ended(job):
                    jobs_of_lost.add(job.id)
                    self._lose(plan, job, node)
        plan.events += self._capacity(node) if condition is Condition.UP else ()
        plan.events.append(NodeChange(node.number, condition))
        plan.rows.append((tables.SET_CONDITION, {"b_number": node.number, "b_condition": condition.value}))
        words = {Condition.DOWN: "lost", Condition.UP: "up", Condition.DRAIN: "closed"}
        word, why = words[condition], ""
        reserved = self._state.reservations.on(node.name, self._looked_at)
        if condition is Condition.DRAIN and not node.drained:
            word, why = ("unhealthy", node.problem) if node.problem else ("silent", "")
            if reserved is not None:
                word, why = "reserved", reserved.reason
        self._planner.note(plan, word, node=node.name, why=why)
        plan.after.append(lambda: setattr(node, "condition", condition))

    def _lose(self, plan: ControllerPlan, job: JobRecord, node: NodeRecord) -> None:
        plan.jobs.add(job.id)
        plan.fates.add(job.id)
        why = f"its node {node.name} was lost"
        if self._planner.restarts(job):
            self._planner.count_loss(plan, job)
            self._planner.note(plan, "lost", job=job, why=f"{why}; queued again")
            return
        outcome = JobOutcome(state=JobState.FAILED, exit=why)
        plan.rows.append((tables.SET_JOB, {**job.columns(), "b_outcome": outcome.text()}))
        self._planner.note(plan, "fail", job=job, why=why)

        def after() -> None:
            job.outcome, job.why = outcome, why
            self._state.placement.touch(job)

        plan.after.append(after)

    def _capacity(self, node: NodeRecord) -> list[Event]:
        """A node that comes back may have become another size."""
        size = self._size(node)
        if size == self._state.core.capacity[node.number].tolist():
            return []
        return [Capacity(node.number, *size)]


def _has_ended(job: JobRecord) -> bool:
    """Whether it is known how all of it ended: that says more than that its node is lost."""
    ends = [task.exit for task in job.tasks]
    return bool(ends) and all(end is not None and end.kind is not ExitKind.LOST for end in ends)


def _is_for(task: TaskRecord, node: NodeRecord) -> bool:
    return task.target == node.number and task.exit is None


def _set_drained(node: NodeRecord, drained: bool, reason: str) -> None:
    node.drained, node.drain_reason = drained, reason
    if not drained:
        # Who undrains it wants it to be tried.
        node.stalled, node.stalls = "", 0


def _island(facts: NodeFacts, nodes: Sequence[NodeRecord]) -> int:
    """Tasks move between nodes that exchange them; a node that exchanges none is its own island."""
    ways = facts.ways
    return next((node.island for node in nodes if ways & node.facts.ways), len(nodes))
