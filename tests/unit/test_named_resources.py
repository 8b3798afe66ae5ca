"""Named resources and nodes to oneself: never overcommitted, whatever a policy wants, from the guard to the node."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.engine.check import check, check_resources
from dfrs.engine.codec import decode, encode
from dfrs.engine.core import Core
from dfrs.engine.events import Complete, Hold, Ready, Submit, Unhold
from dfrs.engine.executor_constraints import guard
from dfrs.engine.reconcile import reconcile
from dfrs.engine.resource_room import ResourceRoom, kept_nodes
from dfrs.engine.resource_table import ResourceTable
from dfrs.live.agent.devices import count_gpus
from dfrs.live.drivers.base import NotYetError, TaskId, TaskSpec
from dfrs.live.drivers.processes.admission import Admission
from dfrs.live.drivers.processes.directory import Owner, TaskDirectory
from dfrs.live.drivers.processes.launching import entries_of
from dfrs.live.drivers.processes.stake import Stake, stake_entries, stake_of
from dfrs.live.protocol.resources import JobState
from dfrs.model.decisions import RUNNING, PolicyError, Target, Traits
from dfrs.model.errors import InputError
from dfrs.model.named_resources import NamedResources, NodeResources
from dfrs.model.nodes import Join
from dfrs.policies.names import find_policy
from dfrs.testing import InMemoryCluster, SnapshotJob, build_snapshot, run_virtually
from dfrs.testing.in_memory import GIB
from tests.unit.test_executor_constraints import abilities, guarded_case

TRAITS = (Traits(), Traits(exclusive=True))


@st.composite
def resource_case(draw):
    """(snapshot, target), with named resources; who has any may be neither paused nor moved."""
    snapshot, target = draw(guarded_case())
    rows, nodes = len(snapshot.jobs), len(snapshot.capacity)
    few = st.integers(0, 2)
    claims = np.array(draw(st.lists(st.tuples(few, few), min_size=rows, max_size=rows)), np.int64).reshape(rows, 2)
    counts = np.array(draw(st.lists(st.tuples(few, few), min_size=nodes, max_size=nodes)), np.int64).reshape(nodes, 2)
    flags = draw(st.lists(st.integers(0, 5), min_size=rows, max_size=rows))
    held = draw(st.lists(st.integers(0, 9), min_size=nodes, max_size=nodes))
    inhabited = np.array([flag < 2 for flag in held], np.bool_)
    shut = np.array([flag == 0 for flag in held], np.bool_)
    alone = np.array([flag == 0 for flag in flags], np.bool_)
    named = NamedResources(
        ("gpu", "licence"), counts, np.minimum(counts, inhabited[:, None]), claims, alone, inhabited, shut
    )
    bound = named.claimed & (snapshot.jobs["state"] == RUNNING)
    able, known = snapshot.abilities, ("refused", "fixed", "restarts")
    refused, fixed, restarts = (np.asarray(getattr(able, name), np.bool_) for name in known)
    able = replace(able, refused=refused | bound, fixed=fixed | bound, restarts=restarts & ~bound, named=named)
    return replace(snapshot, abilities=able), target


def tenants(snapshot, slots):
    """By node: which rows have how many tasks there."""
    there = [{} for _ in snapshot.capacity]
    for row in range(len(snapshot.jobs)):
        for node in slots[snapshot.first[row] : snapshot.first[row + 1]]:
            if node >= 0:
                there[node][row] = there[node].get(row, 0) + 1
    return there


def wrongs(snapshot, slots):
    """What is wrong with `slots` and was not before, by the definitions, one node and one pair of jobs at a time."""
    named, found = snapshot.abilities.named, []
    for node, (before, after) in enumerate(
        zip(tenants(snapshot, snapshot.task_nodes), tenants(snapshot, slots), strict=True)
    ):
        for k in range(len(named.names)):
            had, has = (sum(named.claims[row, k] * count for row, count in each.items()) for each in (before, after))
            if has > had and has + named.held[node, k] > named.counts[node, k]:
                found.append((node, named.names[k]))
        for row in after.keys() - before.keys():
            others = after.keys() - {row}
            if others and (named.alone[row] or any(named.alone[other] for other in others)):
                found.append((node, "company"))
            if named.shut[node] or (named.inhabited[node] and named.alone[row]):
                found.append((node, "held"))
    return found


@settings(max_examples=60)
@given(case=resource_case(), traits=st.sampled_from(TRAITS))
def test_whatever_is_wanted_nobody_gets_what_others_have(case, traits):
    snapshot, target = case
    after = guard(snapshot, target, traits)
    check(snapshot, after)
    check_resources(snapshot, after)
    reconcile(snapshot, after)
    assert wrongs(snapshot, after.task_nodes) == []
    named, begins = snapshot.abilities.named, snapshot.first[:-1]
    for row in np.flatnonzero(named.claimed & (snapshot.jobs["state"] == RUNNING)):
        part = slice(snapshot.first[row], snapshot.first[row + 1])
        assert (np.sort(after.task_nodes[part]) == np.sort(snapshot.task_nodes[part])).all(), "it keeps what it has"
    wanted, given_ = target.task_nodes[begins] >= 0, after.task_nodes[begins] >= 0
    waits = {int(name) for name in snapshot.jobs["id"][wanted & ~given_ & (snapshot.jobs["state"] != RUNNING)]}
    assert waits <= set(after.why)


@settings(max_examples=40)
@given(case=resource_case())
def test_the_independent_check_finds_what_the_definitions_find(case):
    snapshot, target = case
    if wrongs(snapshot, target.task_nodes):
        with pytest.raises(PolicyError):
            check_resources(snapshot, target)
    else:
        check_resources(snapshot, target)


@settings(max_examples=40)
@given(case=resource_case())
def test_how_many_tasks_a_node_can_take_is_what_adding_one_by_one_finds(case):
    snapshot, _ = case
    named, kept = snapshot.abilities.named, kept_nodes(snapshot, snapshot.abilities.named)
    room, there = ResourceRoom(snapshot, named, exclusive=False), tenants(snapshot, snapshot.task_nodes)
    for row in np.flatnonzero(snapshot.jobs["state"] != RUNNING):
        for node, most in enumerate(room.most(row).tolist()):
            used = [sum(named.claims[r, k] * count for r, count in there[node].items()) for k in range(2)]
            company = any(named.alone[r] or named.alone[row] for r in there[node])
            barred = named.shut[node] or (named.alone[row] and named.inhabited[node])
            barred = barred or (kept is not None and row > kept.row and kept.nodes[node])
            count = 0
            while count < snapshot.jobs["tasks"][row] and not company and not barred:
                used = [used[k] + named.claims[row, k] for k in range(2)]
                if any(used[k] + named.held[node, k] > named.counts[node, k] for k in range(2) if named.claims[row, k]):
                    break
                count += 1
            assert most == count


def shot(jobs, *, nodes=2, gpus=(2, 2), claims=None, alone=None):
    """Of these jobs, of which each task wants so many GPUs, on nodes with so many."""
    made = build_snapshot(jobs, nodes=nodes)
    rows, none = len(made.jobs), np.zeros(nodes, np.bool_)
    able = abilities([False] * nodes, [0] * nodes, [-1] * len(made.task_nodes), [False] * rows)
    named = NamedResources(
        ("gpu",),
        np.array(gpus, np.int64).reshape(nodes, 1),
        np.zeros((nodes, 1), np.int64),
        np.array(claims or [0] * rows, np.int64).reshape(rows, 1),
        np.array(alone or [False] * rows, np.bool_),
        none,
        none,
    )
    return replace(made, abilities=replace(able, named=named))


def small(**fields):
    return SnapshotJob(need=0.1, memory=0.1, **fields)


def test_a_job_starts_where_its_gpus_are_and_says_for_what_it_waits():
    jobs = [small(nodes=(0,)), small(), small(), small(tasks=2), small()]
    present = shot(jobs, gpus=(2, 1), claims=[2, 1, 1, 1, 0])
    wanted = Target(np.array([0, 0, 0, 0, 0, 0]), np.ones(5))
    after = guard(present, wanted, Traits())
    assert after.task_nodes.tolist() == [0, 1, -1, -1, -1, 0]
    assert after.why == {3: "waits: gpu: all in use", 4: "waits: gpu: all in use"}


@pytest.mark.parametrize(
    ("tasks", "claim", "words"),
    [
        (1, 4, "waits: no node that is up has 4 gpu"),
        (4, 1, "waits: the nodes that are up have gpu for only 3 of its 4 tasks"),
        (2, 1, "waits: gpu: 1 of 3 not in use, too few for it"),
    ],
)
def test_what_is_missing_is_said_with_its_number(tasks, claim, words):
    present = shot([small(nodes=(0,)), small(tasks=tasks)], gpus=(2, 1), claims=[2, claim])
    assert ResourceRoom(present, present.abilities.named, exclusive=False).why(1) == words


def test_a_job_is_alone_on_its_node_and_lets_nobody_come():
    present = shot([small(nodes=(0,)), small(), small()], alone=[True, False, True])
    after = guard(present, Target(np.array([0, 0, 1]), np.ones(3)), Traits())
    assert after.task_nodes.tolist() == [0, 1, -1]
    assert after.why == {3: "waits: no node is without other tasks"}


def test_nodes_become_empty_for_the_first_job_that_is_to_be_alone():
    jobs = [small(nodes=(0,)), small(nodes=(1,)), small(nodes=(1,)), small(), small(), small(nodes=(1,))]
    present = shot(jobs, alone=[False, False, False, True, False, False])
    assert kept_nodes(present, present.abilities.named).nodes.tolist() == [True, False]
    # A later one neither starts nor moves there.
    after = guard(present, Target(np.array([0, 1, 1, 0, 0, 0]), np.ones(6)), Traits())
    assert after.task_nodes.tolist() == [0, 1, 1, -1, 1, 1]
    assert after.why == {4: "waits: no node is without other tasks"}


def test_an_exclusive_policy_that_knows_no_gpus_does_not_keep_a_job_from_them():
    jobs = [SnapshotJob(memory=0.1), SnapshotJob(memory=0.1)]
    present = shot(jobs, gpus=(0, 1), claims=[1, 0])
    after = guard(present, Target(np.array([0, 1]), np.ones(2)), Traits(exclusive=True))
    assert after.task_nodes.tolist() == [1, 0]
    assert not after.why


def submit(job, **fields):
    return Submit(job, 1, 0.1, 0.1, **fields)


@pytest.fixture
def core():
    core = Core(find_policy("GreedyPM*/per/OPT=MIN/MVT=600"), np.zeros((0, 2)))
    for node in range(2):
        core.handle(Join(1.0, 1.0), 0.0)
        core.handle(NodeResources(node, (("gpu", 1),)), 0.0)
    return core


def where(core):
    shot = core.snapshot()
    return {int(job["id"]): shot.task_nodes[shot.first[r]].item() for r, job in enumerate(shot.jobs)}


def test_without_jobs_that_want_any_nothing_is_limited(core):
    core.handle(submit(1), 0.0)
    assert core.snapshot().abilities is None
    core.handle(submit(2, resources=(("gpu", 1),)), 0.0)
    assert core.snapshot().abilities.named.names == ("gpu",)
    core.handle(Complete(2), 1.0)
    assert core.snapshot().abilities is None


def test_a_held_job_keeps_its_gpu_and_who_waits_for_it_stops_nobody(core):
    for job in (1, 2):
        core.handle(submit(job, resources=(("gpu", 1),)), 0.0)
    core.handle(Ready(np.array([0, 1]), np.zeros(2)), 0.0)
    assert sorted(where(core).values()) == [0, 1]
    there = where(core)[1]
    core.handle(Hold(1), 1.0)
    core.handle(submit(3, resources=(("gpu", 1),)), 2.0)
    core.handle(submit(4), 2.0)
    found = where(core)
    assert found[3] == -1
    assert found[4] >= 0
    core.handle(Unhold(1), 3.0)
    assert where(core)[1] == there
    core.handle(Complete(2), 4.0)
    assert where(core)[3] == 1 - there
    again = Core(find_policy("GreedyPM*/per/OPT=MIN/MVT=600"), np.zeros((0, 2)))
    again.restore({name: np.array(array) for name, array in core.state().items()})
    assert again.snapshot().abilities.named.claims.tolist() == core.snapshot().abilities.named.claims.tolist()
    assert again.resources(0) == (("gpu", 1),)


def test_a_node_that_has_less_now_keeps_what_runs_and_gets_no_more(core):
    core.handle(submit(1, resources=(("gpu", 1),)), 0.0)
    (node,) = where(core).values()
    core.handle(NodeResources(node, ()), 1.0)
    core.handle(NodeResources(1 - node, ()), 1.0)
    core.handle(submit(2, resources=(("gpu", 1),)), 2.0)
    assert where(core) == {1: node, 2: -1}


def test_a_checkpoint_without_named_resources_loads(core):
    state = {name: array for name, array in core.state().items() if not name.startswith("resources_")}
    again = Core(find_policy("GreedyPM*/per/OPT=MIN/MVT=600"), np.zeros((0, 2)))
    again.restore(state)
    assert again.resources(0) == ()


def test_events_come_back_and_those_of_before_mean_none():
    event = submit(1, estimate_s=1.0, requested_start_s=2.0, resources=(("gpu", 1), ("licence-x", 2)), alone=True)
    document = json.loads(json.dumps(encode(event)))
    assert document["resources"] == {"gpu": 1, "licence-x": 2}
    assert decode(document) == event
    old = {name: value for name, value in document.items() if name not in {"resources", "alone"}}
    assert (decode(old).resources, decode(old).alone) == ((), False)
    with pytest.raises(InputError, match=r"resources = .*: must be an object of whole numbers above 0"):
        decode(document | {"resources": {"gpu": 0}})


@pytest.mark.parametrize("counts", [(("gpu", 0),), (("b", 1), ("a", 1)), (("gpu", 1), ("gpu", 1)), (("", 1),)])
def test_counts_that_cannot_be_are_refused(core, counts):
    with pytest.raises(InputError, match="must be counts above 0, in order of their names"):
        core.handle(NodeResources(0, counts), 0.0)
    with pytest.raises(InputError, match="job 1: resources"):
        core.handle(submit(1, resources=counts), 0.0)
    with pytest.raises(InputError, match="node 9: there are 2"):
        core.handle(NodeResources(9, ()), 0.0)


def test_a_table_comes_back_from_its_arrays():
    table, again = ResourceTable(), ResourceTable()
    table.set_node(3, (("gpu", 2), ("licence-x", 1)))
    table.add(7, (("gpu", 1),), alone=False)
    table.add(8, (), alone=True)
    again.restore(table.state())
    assert (again.node(3), again.claims(7), again.is_alone(8)) == ((("gpu", 2), ("licence-x", 1)), True, True)
    again.forget(7)
    again.forget(8)
    assert table
    assert not again


# On the node.


def spec(**fields):
    return TaskSpec(command=("true",), directory="/", tasks=1, peers=("n",), memory_bytes=GIB, **fields)


def begin(files, admission, number, **fields):
    """A task of that job is there, as if its supervisor lived."""
    task, wants = TaskId(job=number, rank=0, attempt=0), spec(**fields)
    with admission.admitted(task, Stake(memory_bytes=GIB, alone=wants.exclusive), wants.resources) as numbers:
        owner = Owner(node="n0", place={}, carried={})
        files.create(task, owner, entries_of(task, wants, "n0") + stake_entries(wants, numbers))
        files.write(task, "supervisor.pid", b"1 0 0")
    return task, numbers


@pytest.fixture
def node(tmp_path):
    files = TaskDirectory(tmp_path)
    return files, Admission(files, "n0", 8 * GIB, {"gpu": 3})


def test_no_two_tasks_have_the_same_gpu_and_one_that_is_gone_leaves_it(node):
    files, admission = node
    first, numbers = begin(files, admission, 1, resources={"gpu": 2})
    assert numbers == {"gpu": (0, 1)}
    told = dict(entry[1].split("=", 1) for entry in stake_entries(spec(), numbers) if entry[0] == "environment")
    assert told == {"DFRS_RESOURCE_GPU": "0,1", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert begin(files, admission, 2, resources={"gpu": 1})[1] == {"gpu": (2,)}
    with pytest.raises(NotYetError, match=r"task 3\.0\.0: waits for 1 gpu of node n0: 0 are not in use"):
        begin(files, admission, 3, resources={"gpu": 1})
    # Paused, and its memory freed: its GPUs are its own nevertheless, and while it resumes.
    files.note_pause(first, freed=True)
    with admission.readmitted(first, GIB), pytest.raises(NotYetError):
        begin(files, admission, 3, resources={"gpu": 1})
    files.remove(first)
    assert begin(files, admission, 3, resources={"gpu": 1})[1] == {"gpu": (0,)}


def test_who_is_to_be_alone_waits_for_others_and_others_for_it(node):
    files, admission = node
    first, _ = begin(files, admission, 1)
    with pytest.raises(NotYetError, match=r"task 2\.0\.0: waits until task 1\.0\.0 has left node n0"):
        begin(files, admission, 2, exclusive=True)
    files.note_pause(first, freed=True)
    lone, _ = begin(files, admission, 2, exclusive=True)
    assert stake_of(files.spec(lone)).alone
    with pytest.raises(NotYetError, match=r"waits until task 2\.0\.0 has left"), admission.readmitted(first, GIB):
        pass
    files.remove(lone)
    with admission.readmitted(first, GIB):
        pass


def test_gpus_are_counted_by_the_program_of_their_maker_or_by_devices(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert count_gpus(tmp_path) == 2
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf 'GPU 0: A (UUID: x)\\n  MIG 1g\\nGPU 1: A\\nGPU 2: A\\n'\n")
    program.chmod(0o755)
    assert count_gpus(tmp_path) == 3
    program.write_text("#!/bin/sh\nexit 9\n")
    assert count_gpus(tmp_path) == 0


# All of it.


def test_jobs_share_the_gpus_of_a_cluster_one_at_a_time():
    async def story(_loop):
        live = InMemoryCluster(nodes=1)
        live.nodes["n1"].resources = {"gpu": 2}
        async with live:
            fields = {"cpu_cores": 0.5, "memory_bytes": GIB}
            one, two, three = [await live.submit(resources={"gpu": 1}, **fields) for _ in range(3)]
            other = await live.submit(**fields)
            for job in (one, two, other):
                await live.reaches(job, JobState.RUNNING)
            assert live.job(three).why == "waits: gpu: all in use"
            tasks = live.nodes["n1"].tasks.values()
            assert sorted(task.numbers["gpu"] for task in tasks if task.numbers) == [(0,), (1,)]
            (shown,) = live.controller.nodes()
            assert (shown.resources, shown.resources_used) == ({"gpu": 2}, {"gpu": 2})
            lone = await live.submit(exclusive=True, **fields)
            four = await live.submit(resources={"gpu": 4}, **fields)
            await live.controller.hold(one, "root")
            await live.reaches(one, JobState.HELD)
            await live.restart(kill=True)
            assert live.job(three).why == "waits: gpu: all in use"
            assert live.job(lone).why == "waits: no node is without other tasks"
            assert live.job(four).why == "waits: no node that is up has 4 gpu"
            await live.controller.cancel(two, "root")
            await live.reaches(three, JobState.RUNNING)
            for job in (one, three, other, four):
                await live.controller.cancel(job, "root")
            assert (await live.reaches(lone, JobState.RUNNING)).exclusive

    run_virtually(1, story)
