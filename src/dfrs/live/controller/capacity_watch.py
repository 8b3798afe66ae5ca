"""Nodes of which programs beside the cluster's use the CPUs: the core is told what is left, when that has changed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dfrs.engine.events import Event
from dfrs.live.controller import views
from dfrs.live.controller.capacity_left import CpuUse, LeftEstimate, Revisions
from dfrs.live.controller.planner import ControllerPlan, Planner
from dfrs.live.controller.records import NodeRecord
from dfrs.live.controller.state import State
from dfrs.model.decisions import CPU
from dfrs.model.nodes import CapacityLeft, Condition

LONGEST_S = 10.0
"""What a report shows is taken to have been so for no longer than this."""
SLIGHT = 0.02
"""Where others use less than this part of the CPUs it does not matter what tasks wait for."""
SAME_SIZE = 1e-9
NICE = "nice"
"""How nodes share CPU on which a smaller share also counts for less beside programs that are no tasks."""


class CapacityWatch:
    """Estimates what is left, and plans the events that say so.

    An exclusive policy is told nothing. Nor is anything told of nodes whose shares are nice levels: tasks with less of
    a share would get less beside programs that are no tasks, and less again would be left.
    """

    def __init__(self, state: State, planner: Planner) -> None:
        self._state = state
        self._planner = planner
        self._estimates: dict[views.Processors, LeftEstimate] = {}
        self._seen: dict[views.Processors, tuple[float, float]] = {}
        """When they were looked at, and the time of the report that was the last by then."""
        self._revisions: dict[int, Revisions] = {}
        self._due: dict[int, float] = {}

    def look(self, used: Mapping[int, float]) -> None:
        """Take in what nodes have reported; `used`: cores that tasks use, by node."""
        state = self._state
        if state.exclusive:
            return
        now_s = state.now_s()
        for same, nodes in self._groups().items():
            times = [node.load.last[0] for node in nodes if node.load.last is not None and node.connected]
            if not times:
                continue
            report_s = max(times)
            before_s, before_report_s = self._seen.get(same, (now_s, None))
            if report_s == before_report_s:
                continue
            self._seen[same] = now_s, report_s
            if before_report_s is not None:
                self._estimate(same, nodes, used, now_s, min(LONGEST_S, now_s - before_s))

    def _groups(self) -> Mapping[views.Processors, Sequence[NodeRecord]]:
        """Nodes by the CPUs that they have. Those whose agents are away are among them: their tasks may run on."""
        groups: dict[views.Processors, list[NodeRecord]] = {}
        for node in self._state.nodes:
            if node.load.last is not None and node.condition is not Condition.DOWN and self._sized(node):
                groups.setdefault(views.processors(node), []).append(node)
        return groups

    def _sized(self, node: NodeRecord) -> bool:
        """Whether the core knows it by its present size."""
        state = self._state
        known = node.number < len(state.core.capacity) and state.reference_cores is not None
        cores = (state.reference_cores or 0.0) * state.core.capacity[node.number, CPU] if known else 0.0
        return cores > 0.0 and abs(cores - node.facts.cpus) <= SAME_SIZE * node.facts.cpus

    def _estimate(
        self,
        same: views.Processors,
        nodes: Sequence[NodeRecord],
        used: Mapping[int, float],
        now_s: float,
        seconds: float,
    ) -> None:
        in_force = {node.number: self._part(node) for node in nodes}
        estimate = self._estimates.get(same)
        if estimate is None:
            # What was in force when the controller came back was learnt before.
            least = min(in_force.values())
            estimate = self._estimates[same] = LeftEstimate(least, 1.0 if least < 1.0 else 0.0)
        own = {node.number: used.get(node.number, 0.0) for node in nodes}
        told = [node for node in nodes if node.connected]
        total = sum(own.values())
        use = CpuUse(
            cpus=float(len(same[1])),
            declared=sum(node.facts.cpus for node in nodes),
            used=total,
            wanted=total,
            busy=max(node.load.busy_cores for node in told),
            steal=max(node.load.steal_cores for node in told),
        )
        if use.others + use.steal > SLIGHT * use.size:
            use = replace(use, wanted=sum(self._wanted(node, own[node.number]) for node in nodes))
        part = estimate.observe(seconds, use)
        for node in told:
            if node.facts.abilities.shares == NICE:
                continue
            # A node that is held to its capacity gets all of it, whatever is left for those that it shares CPUs with.
            has = max(part, min(1.0, own[node.number] / node.facts.cpus))
            revisions = self._revisions.setdefault(node.number, Revisions())
            found = revisions.look(now_s, has, in_force[node.number])
            if found is None or node.condition is not Condition.UP:
                self._due.pop(node.number, None)
            else:
                self._due[node.number] = found

    def _wanted(self, node: NodeRecord, used: float) -> float:
        """What tasks of a node used and waited for, at most what it has."""
        tasks = self._state.placement.on(node.number)
        waited = sum(task.waiting_cores or 0.0 for task in tasks if views.host_of(task) == node.number)
        return min(node.facts.cpus, used + waited)

    def _part(self, node: NodeRecord) -> float:
        core = self._state.core
        return float(core.left[node.number] / core.capacity[node.number, CPU])

    def plan(self, plan: ControllerPlan) -> None:
        """Tell the core."""
        for number, part in self._due.items():
            node = self._state.nodes[number]
            if node.condition is Condition.UP and self._sized(node) and not self._state.exclusive:
                plan.events.append(self._event(number, part))
                self._planner.note(plan, "capacity", node=node.name, why=self._words(node, part))
        numbers = tuple(self._due)

        def after() -> None:
            for number in numbers:
                self._revisions[number].told(plan.now_s)
                self._due.pop(number, None)
            # Shares that discovery found are to fit, too.
            self._state.tasks_changed = True

        if numbers:
            plan.after.append(after)

    def _event(self, number: int, part: float) -> Event:
        whole = float(self._state.core.capacity[number, CPU])
        return CapacityLeft(number, min(whole, part * whole))

    def _words(self, node: NodeRecord, part: float) -> str:
        cpus = node.facts.cpus
        if part == 1.0:
            return f"all of {cpus:g} CPU is left for the cluster's jobs again"
        promised = sum(
            job.promised * job.need
            for job in self._state.jobs.values()
            if job.placed and job.promised
            for task in job.tasks
            if task.target == node.number and task.exit is None
        )
        words = f"{part * cpus:.2f} of {cpus:g} CPU left, {views.who_else(self._state, node)} the rest"
        if promised * (self._state.reference_cores or 1.0) > part * cpus:
            words += "; minimum yields of its jobs have no room: each is kept in the same part"
        return words
