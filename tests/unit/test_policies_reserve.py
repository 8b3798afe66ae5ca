"""Dedicated jobs under DFRS policies: on time, untouched, and without effect on others before their requested start."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.engine.check import check
from dfrs.kernels import reserve as kernels
from dfrs.model.decisions import WAITING, Cause, Reason, Target, Traits
from dfrs.model.elastic import ElasticCommands
from dfrs.model.nodes import Condition, NodeChange, most_tasks
from dfrs.model.run import Action, Penalty
from dfrs.policies.fractional.actions import MARGIN
from dfrs.policies.names import find_policy
from dfrs.simulator.simulation import Simulation, SimulationSettings
from tests.naive import compare_policies as naive
from tests.online_cases import plain_workload, random_workload
from tests.policy_cases import crowded_case, drawn, policy_case

STILL = ("Greedy*", "GreedyP*", "GreedyP*/PRIO=VT")
"""Never migrate."""
MIGRATING = (
    "GreedyPM*",
    "Greedy*/due",
    "GreedyPM*/per/OPT=MIN/MVT=600",
    "MCB*/per",
    "/per",
    "/stretch-per",
    "MCB*",
    "GreedyP/per/OPT=AVG",
    "Greedy*/per/BUDGET=1",
    "/stretch-per/OPT=AVG/MVT=600",
    "GreedyPM*/due/WEIGHT",
    "MCB*/per/MCB8/MFT=600",
    "GreedyPM*/per/VP_CPSUM/MVT=600",
)
NAMES = (*STILL, *MIGRATING)
LATE = (Reason.LATE_DEDICATED, Reason.LATE_CLOSED)


def dedicated_workload(seed, *, jobs=24, some=0.35, commands=0):
    """Some jobs of a random workload have a requested start, soon, later, or already over."""
    rng = np.random.default_rng(seed)
    capacity = np.ones((4, 2))
    if seed % 2:
        capacity = rng.choice([0.5, 1.0, 1.0, 2.0], (5, 2))
    work = random_workload(seed, jobs=jobs, nodes=4)
    start_s = work.submit_s + rng.choice([-7.0, 0.0, 12.5, 60.0, 300.0, 1000.0], jobs)
    start_s = np.where(rng.random(jobs) < 0.3, 600.0 * np.ceil(start_s / 600.0), start_s)
    fits = [
        most_tasks(capacity, need, memory, exclusive=True) for need, memory in zip(work.need, work.memory, strict=True)
    ]
    chosen = (rng.random(jobs) < some) & (np.array(fits) >= work.tasks)
    ids = rng.choice(work.job_id, commands)
    kinds = rng.integers(0, 4, commands)
    asked = ElasticCommands(
        time_s=np.round(rng.uniform(0, work.submit_s[-1] * 1.5, commands), 1),
        job_id=ids,
        kind=kinds,
        amount=np.where(kinds < 2, rng.integers(1, 200, commands), rng.integers(1, 3, commands)).astype(float),
    )
    return work.with_columns(requested_start_s=np.where(chosen, start_s, np.nan), commands=asked), capacity


def node_changes(seed, nodes, span_s):
    """Every node fails twice, sometimes after it was drained for a while, and is back each time."""
    rng = np.random.default_rng(seed)
    changes = []
    for n in rng.permutation(nodes).tolist():
        for begin, middle, end in span_s * np.array([[0], [1]]) + np.sort(rng.uniform(0, span_s, (2, 3)).round(1)):
            if rng.random() < 0.5:
                changes.append((begin, NodeChange(n, Condition.DRAIN)))
            changes += [(middle, NodeChange(n, Condition.DOWN)), (end, NodeChange(n, Condition.UP))]
    return changes


class Account:
    """A run's log, replayed: who is where at the end of each instant."""

    def __init__(self, run):
        self.run, self.work = run, run.workload
        self.nodes, self.yields = {}, {}
        self.open = np.ones(len(run.capacity), np.bool_)

    def instants(self):
        """(time, rows of the log) at each change, answer and release, one by one, each applied."""
        events = self.run.events
        times = np.concatenate([events.time_s, self.run.answers.time_s, self.work.release_s])
        for now_s in np.unique(times[times <= self.run.end_s]):
            rows = np.flatnonzero(events.time_s == now_s)
            for k in rows:
                self._apply(Action(events.action[k]), int(events.job[k]), events.nodes_of(k), float(events.yield_[k]))
            yield now_s, rows

    def _apply(self, action, job, nodes, yield_):
        if action in (Action.DOWN, Action.DRAIN, Action.UP):
            self.open[nodes[0]] = action is Action.UP
        elif action in (Action.PAUSE, Action.FINISH, Action.LOST):
            self.nodes.pop(job), self.yields.pop(job)
        else:
            self.yields[job] = yield_
            if action is not Action.SHARE:
                self.nodes[job] = nodes.tolist()

    def used(self, jobs, *, full=False):
        """(N, 2) what these jobs use, or, with `full`, their needs and memory."""
        used = np.zeros_like(self.run.capacity)
        for j in jobs:
            share = 1.0 if full else self.yields[j]
            np.add.at(used, self.nodes[j], [self.work.need[j] * share, self.work.memory[j]])
        return used

    def has_room(self, job, now_s):
        """Whether the open nodes hold all tasks of a dedicated job beside other dedicated ones."""
        free = self.run.capacity - self.used([j for j in self.nodes if self.work.dedicated[j]], full=True)
        each = np.floor((free[:, 0] + 1e-10) / self.work.need[job])
        if self.work.memory[job] > 0:
            each = np.minimum(each, np.floor((free[:, 1] + 1e-10) / self.work.memory[job]))
        answers = self.run.answers
        changed = (answers.job_id == self.work.job_id[job]) & (answers.time_s <= now_s)
        tasks = self.work.tasks[job] + answers.change_tasks[changed].sum()
        return each[self.open].clip(0).sum() >= tasks


def audit(run):
    """Judge a run's log by what is promised of dedicated jobs; returns how many starts had each reason."""
    work, events = run.workload, run.events
    account = Account(run)
    mine = np.flatnonzero(work.dedicated)
    had, finished, count = {}, set(), dict.fromkeys(Reason, 0)
    for now_s, rows in account.instants():
        for k in rows:
            j, action, nodes = int(events.job[k]), Action(events.action[k]), events.nodes_of(k).tolist()
            if j < 0 or not work.dedicated[j]:
                continue
            assert action in (Action.START, Action.FINISH, Action.LOST, Action.RESIZE)
            if action is Action.START:
                assert events.yield_[k] == 1.0
                expected = {Reason.ON_TIME} if now_s == work.release_s[j] else {*LATE}
                reason = Reason(events.why[k])
                assert reason in ({Reason.FREED} if j in had else expected)
                assert now_s >= work.release_s[j]
                count[reason] += 1
            elif action is Action.RESIZE:
                both = min(len(had[j]), len(nodes))
                assert had[j][:both] == nodes[:both]
            elif action is Action.FINISH:
                finished.add(j)
            had[j] = nodes
        for j in mine:
            if work.release_s[j] <= now_s and j not in account.nodes and j not in finished:
                assert not account.has_room(j, now_s)
        used = account.used(account.nodes)
        assert (used <= run.capacity + 1e-8).all()
        guests = account.used([j for j in account.nodes if not work.dedicated[j]], full=True)
        rest = run.capacity[:, 0] - account.used([j for j in account.nodes if work.dedicated[j]])[:, 0]
        assert not ((guests[:, 0] > 0) & (rest < 0.01 * run.capacity[:, 0] - 1e-9)).any()
    return count


def run_of(name, work, capacity=None, **settings):
    policy = find_policy(name)
    return Simulation(work, policy, name, SimulationSettings(capacity=capacity, **settings)).run()


@pytest.mark.parametrize("penalty_s", [0.0, 20.0])
@pytest.mark.parametrize("name", NAMES)
def test_dedicated_jobs_start_on_time_unless_others_of_them_have_the_nodes(name, penalty_s):
    if penalty_s and name.startswith("MCB"):
        pytest.skip("packed anew at each event, jobs may make no headway")
    starts = dict.fromkeys(Reason, 0)
    for seed in range(6):
        work, capacity = dedicated_workload(seed, commands=8 * (seed % 3))
        run = run_of(name, work, capacity, penalty=Penalty(seconds=penalty_s))
        assert run.complete
        assert not np.isnan(np.delete(run.finish_s, run.refused)).any()
        for reason, count in audit(run).items():
            starts[reason] += count
        if name in STILL:
            assert not run.count(Action.MIGRATE).any()
    assert starts[Reason.ON_TIME] > starts[Reason.LATE_DEDICATED] > 0
    assert starts[Reason.FREED] == starts[Reason.LATE_CLOSED] == 0


@pytest.mark.parametrize("name", NAMES)
def test_dedicated_jobs_outlast_their_nodes(name):
    starts = dict.fromkeys(Reason, 0)
    for seed in range(6):
        work, capacity = dedicated_workload(seed, jobs=16, some=0.6, commands=6)
        changes = node_changes(seed, len(capacity), 500.0)
        run = run_of(
            name, work, capacity, node_events=changes, order=("completions-first", "submissions-first")[seed % 2]
        )
        assert run.complete
        for reason, count in audit(run).items():
            starts[reason] += count
    assert min(starts[Reason.FREED], starts[Reason.LATE_CLOSED], starts[Reason.ON_TIME]) > 0


class Plain:
    """A Dfrs that knows nothing of dedicated jobs; told of them only when they may run."""

    traits = Traits(elastic=True)

    def __init__(self, policy):
        self.policy = policy

    def expand(self, snapshot, row, more):
        return self.policy.expand(snapshot, row, more)

    def decide(self, snapshot):
        policy, slots = self.policy, snapshot.task_nodes.copy()
        actions = policy.on_submission, policy.on_completion, policy.on_wake, policy.on_nodes, policy.on_completion
        action = actions[snapshot.cause]
        reasons = np.zeros(len(snapshot.jobs), np.int64)
        if action is not None:
            action(snapshot, slots, reasons)
            yields = policy.shares(snapshot, slots)
        elif snapshot.cause is Cause.SUBMISSION:
            yields = snapshot.jobs["yield_"].copy()
        else:
            yields = policy.shares(snapshot, slots)
        return Target(slots, yields, policy._wake_at(snapshot, yields), reasons)


def log_of(run, jobs):
    """The rows of these jobs, comparable to the bit."""
    events = run.events
    names = run.workload.job_id
    return [
        (t.hex(), int(names[j]), a, y.hex(), w, events.nodes_of(k).tolist())
        for k, (t, j, a, y, w) in enumerate(
            zip(*(getattr(events, c).tolist() for c in ("time_s", "job", "action", "yield_", "why")), strict=True)
        )
        if j in jobs
    ]


@pytest.mark.parametrize("name", NAMES)
def test_without_dedicated_jobs_nothing_is_decided_otherwise(name):
    for seed in range(4):
        work, capacity = dedicated_workload(seed, some=0.0, commands=6 * (seed % 2))
        everyone = range(len(work))
        plain = Simulation(work, Plain(find_policy(name)), name, SimulationSettings(capacity=capacity)).run()
        assert log_of(run_of(name, work, capacity), everyone) == log_of(plain, everyone)


@pytest.mark.parametrize("name", NAMES)
def test_dedicated_jobs_take_part_in_nothing_before_their_requested_start(name):
    """Some are told of between batch jobs that are done before any of them starts."""
    for seed in range(4):
        work, capacity = dedicated_workload(seed, some=0.0)
        rng = np.random.default_rng(seed)
        ahead = (rng.random(len(work)) < 0.3) & (work.tasks <= 2)
        assert ahead.any()
        booked = work.with_columns(requested_start_s=np.where(ahead, 1e6 + np.arange(len(work)), np.nan))
        alone = work.select(~ahead)
        got = log_of(run_of(name, booked, capacity), set(np.flatnonzero(~ahead)))
        assert got == log_of(run_of(name, alone, capacity), range(len(alone)))


def at(*rows):
    """Rows (submission, tasks, need, memory, processing time, requested start or None), by submission."""
    work = plain_workload([row[:5] for row in rows], nodes=2)
    return work.with_columns(requested_start_s=np.array([np.nan if row[5] is None else row[5] for row in rows]))


def starts(name, *rows, **settings):
    return run_of(name, at(*rows), **settings).start_s.tolist()


@pytest.mark.parametrize("start_s", [100.0, 600.0, 600.5])
@pytest.mark.parametrize("name", ["/per", "/stretch-per", "Greedy/per"])
def test_a_requested_start_is_no_wake_of_the_policy(name, start_s):
    """From 10 s to 30 s memory is full, so that the batch job waits for the policy's next wake, and no longer."""
    rows = [(0.0, 1, 0.1, 0.1, 1.0, start_s), (10.0, 2, 0.1, 1.0, 20.0, 10.0), (20.0, 1, 0.1, 0.1, 5.0, None)]
    assert starts(name, *rows) == [start_s, 10.0, 600.0]


def test_a_requested_start_at_the_time_of_no_deadline_is_no_deadline():
    """At a multiple of the period also; with a deadline then, it is one. Waiting jobs are due at the next multiple."""
    rows = [(0.0, 1, 1.0, 0.6, 3000.0, None), (0.0, 1, 1.0, 0.6, 2000.0, None), (0.0, 1, 0.5, 0.1, 1.0, 1200.0)]
    run = run_of("Greedy*/due", at(*rows))
    assert Reason.PACKED not in run.events.why[run.events.time_s == 1200.0]
    assert run.start_s.tolist() == [0.0, 0.0, 1200.0]


def test_guests_without_cpu_leave_a_node_and_are_moved_if_the_policy_migrates():
    """Both nodes run a batch job; the dedicated one takes all CPU of node 0 and no memory."""
    rows = [(0.0, 1, 0.5, 0.3, 100.0, None), (0.0, 1, 0.5, 0.3, 100.0, None), (0.0, 1, 1.0, 0.0, 10.0, 50.0)]
    moved = run_of("GreedyPM*", at(*rows))
    assert moved.count(Action.MIGRATE).tolist() == [0, 1, 0]
    assert Reason.MOVED_FOR in moved.events.why
    for name in STILL:
        paused = run_of(name, at(*rows))
        assert paused.count(Action.PAUSE).tolist() == [0, 1, 0]
        assert Reason.MADE_WAY in paused.events.why
        assert paused.finish_s.tolist() == [100.0, 110.0, 60.0]


def test_the_lowest_priority_leaves():
    """Both have used 50 s of 50 and 40 s of 40: the longer one has the lower priority, and has to leave."""
    rows = [(0.0, 1, 1.0, 1.0, 100.0, None), (10.0, 1, 1.0, 1.0, 100.0, None), (10.0, 1, 1.0, 1.0, 10.0, 50.0)]
    for name in (*STILL, "GreedyPM*", "GreedyPM*/per/OPT=MIN/MVT=600", "MCB*"):
        run = run_of(name, at(*rows))
        assert run.count(Action.PAUSE).tolist() == [1, 0, 0]
        assert run.start_s.tolist() == [0.0, 10.0, 50.0]


@pytest.mark.parametrize("name", [*STILL, "GreedyPM*"])
def test_a_node_with_less_than_a_hundredth_of_its_cpu_left_is_no_place_for_others(name):
    rows = [(0.0, 1, 1.0, 0.1, 100.0, None), (0.0, 2, 0.995, 0.1, 10.0, 50.0), (55.0, 1, 0.5, 0.1, 1.0, None)]
    run = run_of(name, at(*rows))
    assert run.start_s.tolist() == [0.0, 50.0, 60.0]
    assert run.count(Action.PAUSE).tolist() == [1, 0, 0]


@pytest.mark.parametrize("name", [*STILL, "GreedyPM*"])
def test_no_more_leave_than_must_for_each_to_have_the_least_yield(name):
    """Three jobs need three times a node; of the fortieth that is left, two could have a hundredth each."""
    rows = [*[(float(k), 2, 1.0, 0.1, 100.0, None) for k in range(3)], (3.0, 2, 0.975, 0.1, 10.0, 50.0)]
    run = run_of(name, at(*rows))
    assert run.start_s[3] == 50.0
    assert run.count(Action.PAUSE).sum() == 1


@pytest.mark.parametrize("name", ["Greedy*", "GreedyP*", "GreedyPM*"])
def test_who_does_not_migrate_does_not_resume_at_once_elsewhere(name):
    """At 50 s node 0 is free again, and the job on node 1 could have one task on each, beside the dedicated one."""
    rows = [(0.0, 1, 1.0, 0.9, 50.0, None), (1.0, 2, 0.5, 0.25, 100.0, None), (2.0, 2, 0.5, 0.6, 10.0, 50.0)]
    run = run_of(name, at(*rows))
    assert run.start_s.tolist() == [0.0, 1.0, 50.0]
    moved = name in MIGRATING
    assert [run.count(Action.MIGRATE)[1], run.count(Action.PAUSE)[1]] == [int(moved), int(not moved)]
    assert run.finish_s[1] == (101.0 if moved else 111.0)


def test_who_had_to_leave_is_packed_with_the_others_where_it_is_time_for_that():
    """Without room for the youngest, which weighs nothing, on node 1, until one of the two there moves to node 0."""
    rows = [
        (0.0, 1, 1.0, 0.9, 10.0, None),
        (1.0, 1, 0.25, 0.3, 2000.0, None),
        (2.0, 1, 0.25, 0.3, 2000.0, None),
        (300.0, 1, 0.25, 0.5, 2000.0, None),
        (301.0, 1, 0.1, 0.6, 100.0, 600.0),
    ]
    work = at(*rows).with_columns(weight=np.array([1.0, 1.0, 1.0, 1e-9, 1.0]))
    run = run_of("Greedy/per/MVT=550", work)
    now = run.events.time_s == 600.0
    assert run.start_s[4] == 600.0
    assert sorted(run.events.job[now & (run.events.action == Action.MIGRATE)])[1:] == [3]
    assert run.events.why[now & (run.events.job == 3)].tolist() == [Reason.PACKED]
    assert not run.count(Action.PAUSE).any()


def test_a_late_dedicated_job_keeps_no_wake_from_the_others():
    rows = [(0.0, 2, 0.9, 0.1, 690.0, 10.0), (1.0, 2, 0.9, 0.1, 10.0, 20.0), (6.0, 1, 0.1, 0.1, 10.0, None)]
    assert starts("/per", *rows) == [10.0, 700.0, 600.0]


def test_who_has_to_leave_is_chosen_by_the_policy_s_priority():
    names = {"GreedyP*/PRIO=VT": 0, "/per/BUDGET=1/PRIO=FLOW/VT": 1, "MCB*/VP_CPSUM": 2, "/per/MCB8/PRIO=VT": 0}
    assert [find_policy(name)._priority for name in names] == list(names.values())


def test_dedicated_jobs_go_by_requested_start_then_submission():
    rows = [
        (0.0, 2, 1.0, 0.1, 100.0, 10.0),
        (1.0, 2, 1.0, 0.1, 50.0, 40.0),
        (2.0, 2, 1.0, 0.1, 50.0, 30.0),
        (3.0, 2, 1.0, 0.1, 50.0, 30.0),
        (4.0, 2, 1.0, 1.0, 1.0, None),
    ]
    run = run_of("GreedyPM*", at(*rows))
    assert run.start_s.tolist() == [10.0, 210.0, 110.0, 160.0, 4.0]
    assert run.count(Action.PAUSE).tolist() == [0, 0, 0, 0, 0]
    kinds = [Reason(w) for w, a in zip(run.events.why, run.events.action, strict=True) if a == Action.START]
    assert kinds == [Reason.ROOM, Reason.ON_TIME, *[Reason.LATE_DEDICATED] * 3]


@pytest.mark.parametrize("least", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", [name for name in NAMES if "per" in name or "due" in name])
def test_a_job_with_no_room_beside_dedicated_ones_stops_nobody(name, least):
    """From 50 s to 5050 s the last job finds CPU on half of its nodes only; the first goes on, at its wake at last."""
    rows = [(0.0, 1, 1.0, 0.5, 8000.0, None), (0.0, 2, 1.0, 0.1, 5000.0, 50.0), (60.0, 4, 0.5, 0.6, 100.0, None)]
    work = plain_workload([row[:5] for row in rows], nodes=4)
    work = work.with_columns(
        requested_start_s=np.array([np.nan if row[5] is None else row[5] for row in rows]),
        minimum_yield=np.array([0.0, 0.0, least]),
    )
    run = run_of(name, work)
    assert audit(run)[Reason.ON_TIME] == 1
    assert run.complete
    assert run.start_s[0] <= 600.0
    assert run.start_s[2] >= 5050.0
    paused = run.events.time_s[(run.events.job == 0) & (run.events.action == Action.PAUSE)]
    assert (paused >= 5050.0).all()


def test_a_job_told_of_after_its_requested_start_is_on_time_at_once():
    run = run_of("Greedy*", at((20.0, 1, 1.0, 0.5, 10.0, 5.0)))
    assert run.start_s.tolist() == [20.0]
    assert audit(run)[Reason.ON_TIME] == 1


def booked_case(source, build=policy_case):
    """Some rows have a requested start: those that run have their full need, or not; some are late, some to come."""
    case = build(source)
    jobs = case.jobs.copy()
    jobs["requested_start_s"] = np.nan
    for r in range(case.rows):
        if source.integer(0, 2) == 0 or r == case.subject:
            jobs["requested_start_s"][r] = case.now_s + source.pick((-300.0, -300.0, -50.0, 0.0, 0.0, 400.0))
            jobs["memory"][r] /= source.pick((1, 1, 2))
            jobs["policy_state"][r] = source.pick((0, 0, 1, int(Reason.LATE_DEDICATED), int(Reason.LATE_CLOSED)))
            if jobs["state"][r] == WAITING:
                jobs["start_s"][r] = source.pick((np.nan, np.nan, case.now_s - 90.0))
    return replace(case, jobs=jobs)


def fits(case, where, r, shares, guests):
    """Nodes with room for one more task of row `r`, each with the CPU load that it would have."""
    found = {}
    for n, (cpu, memory) in enumerate(case.capacity.tolist()):
        here = [q for q, nodes in where.items() for m in nodes if m == n]
        left = cpu - sum(case.jobs["need"][q] for q in here if q in shares) - case.jobs["need"][r]
        wanted = sum(case.jobs["need"][q] for q in here if q in guests)
        full = sum(case.jobs["memory"][q] for q in here) + case.jobs["memory"][r] > memory + 1e-9
        enough = left >= 0.01 * max(wanted, cpu) if any(q in guests for q in here) else left >= -1e-9
        if case.open[n] and enough and not full:
            found[n] = sum(case.jobs["need"][q] for q in here) + case.jobs["need"][r]
    return {n: load / case.capacity[n, 0] for n, load in found.items()}


def spread(case, where, r, shares, guests):
    """Sorted nodes for all tasks of row `r`, one after the other, or None."""
    mine = []
    for _ in range(case.jobs["tasks"][r]):
        found = fits(case, {**where, r: mine}, r, {*shares, r}, guests)
        if not found:
            return None
        mine = [*mine, min(found, key=lambda n: (found[n], n))]
    return sorted(mine)


def room_made(case, where, r, shares, guests, order):
    """Guests that must leave for row `r`, and its nodes then; (…, None) if in vain."""
    marked = []
    placed = spread(case, where, r, shares, guests)
    for q in reversed(order):
        if placed is None and q in guests and q in where:
            marked.append(q)
            placed = spread(case, naive.policies.without(where, marked), r, shares, guests)
    for q in list(reversed(marked)):
        others = [m for m in marked if m != q]
        if placed is not None and spread(case, naive.policies.without(where, others), r, shares, guests) is not None:
            marked = others
    return marked, spread(case, naive.policies.without(where, marked), r, shares, guests)


def reserved_slowly(case, kind, migrates):
    """(nodes of each row, reasons, memos, capacity left) by the words of the rules."""
    jobs, where, order = case.jobs, case.where(), naive.policies.by_priority(case.jobs, case.now_s, kind)
    dedicated = [r for r in range(case.rows) if not np.isnan(jobs["requested_start_s"][r])]
    shares = set()
    for r in dedicated:
        trial = [n for q in {*shares, r} if q in where for n in where[q]] if r in where else []
        needs = [jobs["need"][q] for q in {*shares, r} if q in where for _ in where[q]] if r in where else []
        load = np.bincount(trial, needs, len(case.capacity))
        if r in where and (load[where[r]] <= case.capacity[where[r], 0] + 1e-9).all():
            shares.add(r)
    guests = {r for r in range(case.rows) if r not in dedicated or (r in where and r not in shares)}
    reasons, policy_state, gone = dict.fromkeys(range(case.rows), 0), jobs["policy_state"].tolist(), set()
    due = [r for r in dedicated if r not in where and jobs["requested_start_s"][r] <= case.now_s]
    for r in sorted(due, key=lambda r: jobs["requested_start_s"][r]):
        marked, nodes = room_made(case, where, r, shares, guests, order)
        if nodes is None:
            alone = spread(case, {}, r, set(), set())
            policy_state[r] = (
                policy_state[r]
                if policy_state[r] in LATE
                else Reason.LATE_CLOSED
                if alone is None
                else Reason.LATE_DEDICATED
            )
            continue
        where = {**naive.policies.without(where, marked), r: nodes}
        shares.add(r)
        gone |= set(marked)
        reasons |= dict.fromkeys(marked, Reason.MADE_WAY)
        reasons[r] = policy_state[r] if policy_state[r] in LATE else Reason.ON_TIME
        if not np.isnan(jobs["start_s"][r]):
            reasons[r] = Reason.FREED
    rest = case.capacity.copy()
    for r in shares:
        np.subtract.at(rest, where[r], [jobs["need"][r], jobs["memory"][r]])
    rest[rest[:, 0] < 0.01 * case.capacity[:, 0], 0] = 0.0
    for r in order:
        beside = {q: nodes for q, nodes in where.items() if q in guests}
        placed = migrates and r in gone and naive.policies.greedy(replace(case, capacity=rest), beside, r, MARGIN)
        if placed:
            where, reasons[r] = {**where, r: sorted(placed[r])}, Reason.MOVED_FOR
    return where, reasons, policy_state, rest


@pytest.mark.parametrize("build", [policy_case, crowded_case])
@given(data=st.data(), kind=st.integers(0, 2), migrates=st.booleans())
def test_the_kernel_equals_its_twin(build, data, kind, migrates):
    case = data.draw(drawn(lambda source: booked_case(source, build)))
    slots, policy_state = case.before.copy(), case.jobs["policy_state"].copy()
    kinds, reasons = np.empty((2, case.rows), np.int64)
    rest = np.empty(case.capacity.shape)
    placed = kernels.reserve(
        case.jobs,
        case.first,
        case.before,
        case.capacity,
        case.open,
        case.now_s,
        kind,
        migrates,
        MARGIN,
        slots,
        kinds,
        reasons,
        policy_state,
        rest,
    )
    where, expected, notes, left = reserved_slowly(case, kind, migrates)
    assert case.where(slots) == where
    assert dict(enumerate(reasons.tolist())) == expected
    assert policy_state.tolist() == notes
    assert rest.tolist() == left.tolist()
    assert placed == sum(reason in (*LATE, Reason.ON_TIME, Reason.FREED) for reason in expected.values())


@given(case=drawn(booked_case), name=st.sampled_from(NAMES), cause=st.sampled_from(tuple(Cause)))
def test_whatever_another_policy_left_the_target_can_be_performed(case, name, cause):
    """Dedicated jobs that are paused, or run with less than their need, beside others that run."""
    shot = case.snapshot(cause)
    target = find_policy(name).decide(shot)
    check(shot, target)
    kinds, reserved = np.empty(case.rows, np.int64), np.empty(case.capacity.shape)
    kernels.find_kinds(case.jobs, case.first, case.before, case.capacity, case.now_s, MARGIN / 2, kinds, reserved)
    for r in range(case.rows):
        if kinds[r] == kernels.HELD:
            assert target.task_nodes[case.slots(r)].tolist() == case.before[case.slots(r)].tolist()
            assert target.yields[r] == 1.0
        elif kinds[r] == kernels.AHEAD:
            assert target.yields[r] == 0.0
            assert (target.task_nodes[case.slots(r)] == -1).all()
            assert target.wake_at_s <= case.jobs["requested_start_s"][r]
        elif kinds[r] == kernels.DUE:
            assert (target.yields[r] == 1.0) == (target.task_nodes[case.first[r]] >= 0)
        else:
            assert target.policy_state[r] == case.jobs["policy_state"][r]
    again = find_policy(name).decide(case.snapshot(cause))
    assert again.task_nodes.tobytes() == target.task_nodes.tobytes()
    assert again.yields.tobytes() == target.yields.tobytes()
