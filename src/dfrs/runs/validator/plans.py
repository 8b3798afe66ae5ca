"""An independent checker of plans: it carries them out on a clock and looks at every instant.

It reads the instance's document, with its rules, and the plan's, with the present placement, and shares no code with
what makes plans. Times are compared as they are written, without any tolerance: what begins when something else ends
comes after it, and moves that start at the same time start in the order in which they stand. `FORGIVEN` is for amounts.
"""

import heapq
import math
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from dfrs.model.errors import InputError
from dfrs.runs.validator.allocations import (
    BROKEN,
    FORGIVEN,
    Document,
    Problem,
    ValidationReport,
    instance_of,
    problem_of,
    read_document,
)
from dfrs.runs.validator.plan_rules import PlanRules

FORMAT = "dfrs-plan/1"

Task = tuple[str, int]


def holds_plan(path: Path) -> bool:
    """Whether a file says that it is a plan. Raises InputError where it cannot be read."""
    return read_document(path).get("format") == FORMAT


def validate_plan(path: Path, instance: Path | None = None, nodes: int | None = None) -> ValidationReport:
    """Check the plan file at `path` against its instance. Raises InputError where a file cannot be read."""
    document = read_document(path)
    instance, source, _ = instance_of(path, document, instance, nodes)
    try:
        return check_plan(source, document)
    except BROKEN as error:
        text = f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: not a {FORMAT} document for {instance}: {text}") from None


def check_plan(instance: Document, plan: Document) -> ValidationReport:
    """The same for documents in memory. Raises KeyError, TypeError or ValueError for one that is no plan."""
    report = ValidationReport()
    replay = _Replay(instance, plan, report)
    if report.problems:
        return report
    replay.run()
    report.summary = (
        f"{len(plan['steps'])} moves in {float(plan['makespan_s']):.6g} {plan['unit']}, {plan['temporary']} temporary, "
        f"{'complete' if plan['complete'] else 'incomplete'}, {report.checks} checks"
    )
    return report


@dataclass(frozen=True, slots=True)
class _Move:
    step: int
    task: Task
    source: str | None
    target: str
    start: float
    end: float
    bytes: float
    temporary: bool
    after: float | None

    @property
    def title(self) -> str:
        return f"step {self.step}: {self.task[0]}/{self.task[1]}"


@dataclass(slots=True)
class _Size:
    base: dict[str, float]
    slope: dict[str, float]
    bytes: float


_Running = list[tuple[float, int, list[_Move]]]


class _Replay:
    """One plan, carried out; what is wrong goes to `report`."""

    def __init__(self, instance: Document, plan: Document, report: ValidationReport) -> None:
        self.plan, self.report = plan, report
        problem = problem_of(instance)
        self.capacity = problem.capacity
        self.size = _sizes(problem, instance)
        self.traffic = _Traffic(instance, plan)
        self.target = self._placement("target", problem)
        self.place = self._placement("present", problem)
        self.moves = [_move(m) for m in plan["steps"]]
        for m in self.moves:
            report.check(m.task in self.size, f"no task {m.task} in the instance")
            report.check(m.target in self.capacity, f"no node is named {m.target}")
        if report.problems:
            return
        self.rules = PlanRules(instance, self.target, self.place)
        self.here: dict[str, set[Task]] = {n: set() for n in self.capacity}
        self.coming: dict[str, set[Task]] = {n: set() for n in self.capacity}
        for task, node in self.place.items():
            if node is not None:
                self.here[node].add(task)
        self.node_yield = {n: self._yield(n) for n in self.capacity}
        self.busy: set[Task] = set()
        self.clock = -math.inf
        self.ended: list[_Move] = []
        """Moves that ended at the present time of the clock."""

    def _placement(self, label: str, problem: Problem) -> dict[Task, str | None]:
        found: dict[Task, str | None] = {}
        given = self.plan[label]
        for service, tasks in problem.tasks.items():
            nodes = given.get(service)
            good = isinstance(nodes, list) and len(nodes) == len(tasks)
            self.report.check(good, f"{label}: service {service} has not one node for each of {len(tasks)} tasks")
            for k, node in enumerate(nodes if good else ()):
                known = node in self.capacity or (node is None and label == "present")
                self.report.check(known, f"{label}: service {service}: no node is named {node}")
                found[service, k] = node
        for service in given:
            self.report.check(service in problem.tasks, f"{label}: service {service} is not in the instance")
        return found

    def run(self) -> None:
        """Start and end every step in its turn, and look at what the plan says of the whole."""
        self._stated("minimum_yield_before", self.plan["minimum_yield_before"], self._minimum())
        running: _Running = []
        for number, (k, group) in enumerate(groupby(self.moves, key=lambda m: m.step)):
            step = list(group)
            now = step[0].start
            self.report.check(k == number, f"step {k}: must be {number}, steps are numbered in order")
            self.report.check(now >= self.clock, f"step {k}: starts at {now}, before the step above it")
            self._end_until(now, running)
            self._advance(now)
            self._check_step(step)
            # Of a step that cannot be made no more is known; what it would have brought is missed by those after it.
            if all(m.task not in self.busy and m.source == self.place[m.task] for m in step):
                self._start(step)
                heapq.heappush(running, (step[0].end, k, step))
        self._end_until(math.inf, running)
        self._advance(math.inf)
        self._check_figures()

    def _check_step(self, step: list[_Move]) -> None:
        lasts = max((self.traffic.lasts(self.size[m.task].bytes) for m in step if m.source is not None), default=0.0)
        check = self.report.check
        check(len({m.task for m in step}) == len(step), f"step {step[0].step}: a task moves twice in it")
        for m in step:
            here, goal = self.place[m.task], self.target[m.task]
            size = self.size[m.task].bytes if m.source is not None else 0.0
            taken = m.end - m.start
            check(m.task not in self.busy, f"{m.title}: moves already at {m.start}")
            check(m.source == here, f"{m.title}: is said to leave {m.source}, but is on {here}")
            check(m.source != m.target, f"{m.title}: goes to the node that it is on")
            check(m.start >= 0 and (m.start, m.end) == (step[0].start, step[0].end), f"{m.title}: not when its step is")
            good = abs(taken - lasts) <= FORGIVEN * max(1.0, m.end)
            check(good, f"{m.title}: lasts {taken:.9g}, must last {lasts:.9g}")
            good = abs(m.bytes - size) <= FORGIVEN * max(1.0, size)
            check(good, f"{m.title}: copies {m.bytes:.9g} bytes, has {size:.9g}")
            check(m.temporary == (m.target != goal), f"{m.title}: temporary is {m.temporary}, its target {goal}")

    def _start(self, step: list[_Move]) -> None:
        now = step[0].start
        for m in step:
            self.busy.add(m.task)
            self.coming[m.target].add(m.task)
        for node in dict.fromkeys(m.target for m in step):
            for resource, limit in self.capacity[node].items():
                if any(self.size[m.task].base[resource] > 0 for m in step if m.target == node):
                    load = math.fsum(self.size[t].base[resource] for t in self.here[node] | self.coming[node])
                    text = f"step {step[0].step}: at {now} {node} has {load:.9g} of {resource}, capacity {limit:.9g}"
                    self.report.check(load <= limit + FORGIVEN, text)
        for text in self.traffic.start(step):
            self.report.check(False, f"step {step[0].step}: at {now} {text}")
        self.report.checks += 1

    def _end_until(self, now: float, running: _Running) -> None:
        while running and running[0][0] <= now:
            end, k, step = heapq.heappop(running)
            self._advance(end)
            for m in step:
                self.busy.discard(m.task)
                self.coming[m.target].discard(m.task)
                if m.source is not None:
                    self.here[m.source].discard(m.task)
                self.here[m.target].add(m.task)
                self.place[m.task] = m.target
            for node in {n for m in step for n in (m.source, m.target) if n is not None}:
                self.node_yield[node] = self._yield(node)
            self.traffic.end(step)
            for problem in self.rules.move({m.task: m.target for m in step}):
                self.report.check(False, f"step {k}, ended at {end}: {problem}")
            self.report.checks += 1
            self.ended += step

    def _advance(self, now: float) -> None:
        """The clock goes on: what ended before was the last to end at its time."""
        if now > self.clock:
            for m in self.ended:
                self._stated(f"{m.title}: minimum_yield_after", m.after, self._minimum())
            self.ended = []
            self.clock = now

    def _minimum(self) -> float | None:
        value = min(self.node_yield.values())
        return value if value >= 0 else None

    def _yield(self, node: str) -> float:
        """Least scaled yield that the tasks on a node can have; -1 where not even their minimum fits."""
        value = 1.0
        for resource, limit in self.capacity[node].items():
            free = limit - math.fsum(self.size[t].base[resource] for t in self.here[node])
            rate = math.fsum(self.size[t].slope[resource] for t in self.here[node])
            if free < -FORGIVEN:
                return -1.0
            if rate > 0:
                value = min(value, max(free, 0.0) / rate)
        return value

    def _stated(self, label: str, stated: float | None, value: float | None) -> None:
        # A node that is full to the last bit may be over by one way of rounding and not by the other.
        good = abs((stated or 0.0) - (value or 0.0)) <= FORGIVEN and (value is not None or stated is None)
        self.report.check(good, f"{label} is stated as {stated}, but is {value}")

    def _check_figures(self) -> None:
        plan, check = self.plan, self.report.check
        ends = max((m.end for m in self.moves), default=0.0)
        check(
            plan["makespan_s"] == ends,
            f"makespan_s is stated as {plan['makespan_s']}, but the last move ends at {ends}",
        )
        bound = plan["makespan_bound_s"]
        check(0 <= bound <= ends * (1 + FORGIVEN), f"makespan_bound_s {bound} is above the makespan {ends}")
        total = math.fsum(m.bytes for m in self.moves)
        check(abs(plan["bytes"] - total) <= FORGIVEN * max(1.0, total), f"bytes is {plan['bytes']}, moves copy {total}")
        aside = sum(m.temporary for m in self.moves)
        check(plan["temporary"] == aside, f"temporary is {plan['temporary']}, but {aside} moves are")
        arrived = all(self.place[t] == node for t, node in self.target.items())
        check(plan["complete"] == arrived, f"complete is {plan['complete']}, but tasks at their targets: {arrived}")
        check(arrived == (not plan["problems"]), "problems must be said where tasks do not reach their targets")


class _Traffic:
    """Moves under way on nodes and links, and how long each takes."""

    def __init__(self, instance: Document, plan: Document) -> None:
        self.limits: Document = plan["limits"]
        self.bandwidth: float | None = self.limits.get("bandwidth_bytes_per_s")
        self.latency = float(self.limits.get("latency_s", 0.0))
        sized = any(r.get("bytes") is not None for r in instance["resources"])
        self.timed = sized if self.bandwidth is not None else self.latency > 0
        unit = "s" if self.timed else "move"
        if plan["unit"] != unit:
            raise ValueError(f"unit is {plan['unit']}, but the limits and sizes give {unit}")
        nodes: Any = instance["nodes"]
        self.labels = {} if isinstance(nodes, int) else {n["name"]: n.get("labels", {}) for n in nodes}
        self.count: Counter[tuple[str, str]] = Counter()

    def lasts(self, size: float) -> float:
        """Duration of a move of so many bytes."""
        if not self.timed:
            return 1.0
        return self.latency + (size / self.bandwidth if self.bandwidth is not None else 0.0)

    def start(self, step: list[_Move]) -> list[str]:
        """Count the moves of a step; what limits they pass."""
        touched = [use for m in step for use in self._uses(m)]
        self.count.update(touched)
        return [
            f"{self.count[use]} moves of {use[1]}, {use[0]} is {self.limits[use[0]]}"
            for use in dict.fromkeys(touched)
            if self.limits.get(use[0]) is not None and self.count[use] > self.limits[use[0]]
        ]

    def end(self, step: list[_Move]) -> None:
        """The moves of a step are over."""
        self.count.subtract([use for m in step for use in self._uses(m)])

    def _uses(self, m: _Move) -> list[tuple[str, str]]:
        if m.source is None:
            return []
        uses = [("at_once", "all"), ("per_node", m.source), ("per_node", m.target)]
        level = self.limits.get("link_level")
        if self.limits.get("per_link") is not None:
            ends = [n if level == "node" else self.labels[n][level] for n in (m.source, m.target)]
            uses += [("per_link", end) for end in ends if ends[0] != ends[1]]
        return uses


def _move(m: Document) -> _Move:
    return _Move(
        step=m["step"],
        task=(m["service"], m["rank"]),
        source=m["from"],
        target=m["to"],
        start=float(m["start_s"]),
        end=float(m["end_s"]),
        bytes=float(m["bytes"]),
        temporary=m["temporary"],
        after=m["minimum_yield_after"],
    )


def _sizes(problem: Problem, instance: Document) -> dict[Task, _Size]:
    """What each task takes at scaled yield Y, base + Y * slope, and the bytes that it copies."""
    per_node = {r["name"]: float(r["bytes"]) for r in instance["resources"] if r.get("bytes") is not None}
    found: dict[Task, _Size] = {}
    for service, tasks in problem.tasks.items():
        low = problem.minimum[service]
        for k, task in enumerate(tasks):
            found[service, k] = _Size(
                base={r: need * (1.0 if task.rigid[r] else low) for r, need in task.needs.items()},
                slope={r: need * (0.0 if task.rigid[r] else 1.0 - low) for r, need in task.needs.items()},
                bytes=math.fsum(task.needs[r] * size for r, size in per_node.items()),
            )
    return found
