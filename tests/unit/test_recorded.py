"""Logs of live clusters: decided again to the same targets, and runs that the independent checker accepts."""

import inspect
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.cli.simulate.simulate import simulate
from dfrs.engine import codec
from dfrs.engine.core import Core
from dfrs.experiments.simulations import measured
from dfrs.model.errors import InputError
from dfrs.policies.names import find_policy
from dfrs.runs.directory import read_run, write_run
from dfrs.runs.metrics.intervals import down_times
from dfrs.runs.validator.runs import validate_run
from dfrs.simulator.recorded_log import LEAST_RUN_S, decide_again
from dfrs.workloads.live_log import FILE, read_live_log
from tests.live_events import Site, drive

POLICIES = ("GreedyPM*/per/OPT=MIN/MVT=600", "MCB*/OPT=MIN/NEEDS=0.1", "EASY")
CORES = 4.0
SITES = (Site(changes=False), Site(changes=False, frees=(False,), islands=2), Site(changes=False, alike=True))


def write_log(directory, record, policy, jobs=(), restarts=()):
    """`restarts`: (index, policy) of the event before which a controller started."""
    header = {"format": "dfrs-log/1", "policy": policy, "discovery": "NONE", "command_limit": None}
    header["reference_cores"] = CORES
    events = [{"time_s": time_s, "event": event, "digest": digest} for time_s, event, digest in record]
    for index, name in sorted(restarts, reverse=True):
        events.insert(index, {"time_s": record[index][0], "restart": {"policy": name, "version": "test"}})
    lines = [header, *events, *({"job": job} for job in jobs)]
    directory.mkdir(exist_ok=True)
    (directory / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("seed", range(3))
def test_the_same_targets_and_a_run_that_is_valid(tmp_path, policy, site, seed):
    core = Core(find_policy(policy), np.zeros((0, 2)))
    # Batch policies are not told of needs.
    record, _ = drive(core, seed, replace(site, revisions=policy != "EASY"), steps=300)
    log = read_live_log(write_log(tmp_path / "day", record, policy))
    recorded = decide_again(log, find_policy)
    assert recorded.mismatch is None
    assert recorded.decisions == core.decisions
    submitted = {event["job_id"] for _, event, _ in record if event["event"] == "submit"}
    assert len(recorded.run.workload) + recorded.left_out == len(submitted)
    if len(recorded.run.workload):
        write_run(recorded.run, tmp_path / "day", measured(recorded.run, bound=True), "test")
        assert not validate_run(tmp_path / "day").problems


def test_prices_in_a_log_count_again(tmp_path):
    policy, site = "GreedyPM*/per=auto/OPT=MIN/MVT=600", Site(changes=False, prices=True)
    record, _ = drive(Core(find_policy(policy), np.zeros((0, 2))), 4, site, steps=300)
    priced = [event for _, event, _ in record if event["event"] == "prices"]
    assert len(priced) > 5
    log = read_live_log(write_log(tmp_path / "day", record, policy))
    assert decide_again(log, find_policy).mismatch is None
    cheap = [(at, {**event, "resume_s": 0.0} if event in priced else event, made) for at, event, made in record]
    assert decide_again(read_live_log(write_log(tmp_path / "other", cheap, policy)), find_policy).mismatch is not None


def test_another_target_is_found(tmp_path):
    policy = POLICIES[0]
    record, _ = drive(Core(find_policy(policy), np.zeros((0, 2))), 1, SITES[0], steps=40)
    at = next(k for k, (_, _, digest) in enumerate(record) if digest and k > 20)
    record[at] = (*record[at][:2], "0" * 32)
    recorded = decide_again(read_live_log(write_log(tmp_path / "day", record, policy)), find_policy)
    assert recorded.mismatch is not None
    assert recorded.mismatch.index == at


def submit(job, need, tasks=1):
    return {"event": "submit", "job_id": job, "tasks": tasks, "need": need, "memory": 0.1}


def measured_job(job, received_s, cpu_s=1.0, need=None, tasks=1, granted_s=0.0):
    """As the API shows one that has ended; `need` where its user declared it."""
    declared = None if need is None else need * CORES
    seconds = {"virtual_s": received_s, "virtual_granted_s": granted_s, "cpu_s": cpu_s}
    wall = {"started_at": 0.0, "ended_at": 30.0}
    return {"id": job, "user": "ann", "tasks": tasks, "cpu_cores": declared, **seconds, **wall}


def two_beside_each_other(policy=POLICIES[0]):
    """Two jobs on a node from 0 s; the first ends after 20 s, the second after 30 s."""
    entries = [
        (0.0, {"event": "join", "cpu": 1.0, "memory": 1.0}),
        (0.0, submit(1, 1.0)),
        (0.0, submit(2, 1.0)),
        (20.0, {"event": "complete", "job_id": 1}),
        (30.0, {"event": "complete", "job_id": 2}),
    ]
    return digested(entries, policy), policy


def decided_again(directory, record, policy, jobs):
    """The run of a log with these jobs, which the checker accepts."""
    log = read_live_log(write_log(directory, record, policy, jobs))
    recorded = decide_again(log, find_policy, directory.name)
    assert recorded.mismatch is None
    write_run(recorded.run, directory, measured(recorded.run, bound=True), "test")
    assert not validate_run(directory).problems
    return recorded


def digested(entries, policy, restarts=()):
    """Entries (time, event) as a core of that policy decides them, until others take over."""
    core, record = Core(find_policy(policy), np.zeros((0, 2))), []
    for k, (time_s, event) in enumerate(entries):
        for name in (name for index, name in restarts if index == k and name != policy):
            core.hand_over(find_policy(name))
            policy = name
        before = core.decisions
        core.handle(codec.decode(event), time_s)
        record.append((time_s, event, codec.digest(core.target) if core.decisions > before else ""))
    return record


def test_yields_are_told_in_the_last_need(tmp_path):
    join = {"event": "join", "cpu": 1.0, "memory": 1.0}
    entries = [
        (0.0, join),
        (10.0, submit(1, 1.0)),
        (10.0, submit(2, 1.0)),
        (20.0, {"event": "revise", "job_id": 1, "need": 0.25}),
        (50.0, {"event": "complete", "job_id": 1}),
        (60.0, {"event": "complete", "job_id": 2}),
    ]
    policy = "Greedy*/OPT=MIN"
    run = decide_again(read_live_log(write_log(tmp_path / "day", digested(entries, policy), policy)), find_policy).run
    # Job 1 had half a node for 10 s, which is more than its last need; then both had 0.8 of their needs until it ended.
    assert run.workload.need.tolist() == [0.25, 1.0]
    assert run.workload.run_s == pytest.approx([10 + 0.8 * 30, 0.5 * 10 + 0.8 * 30 + 10])


def test_each_event_is_decided_by_the_policy_of_its_time(tmp_path, dfrs):
    entries = [
        (0.0, {"event": "join", "cpu": 1.0, "memory": 1.0}),
        (10.0, submit(1, 1.0)),
        (10.0, submit(2, 1.0)),
        (20.0, submit(3, 1.0)),
        (50.0, {"event": "complete", "job_id": 1}),
        (60.0, {"event": "complete", "job_id": 2}),
        (70.0, submit(4, 1.0)),
        (75.0, submit(5, 1.0)),
        (80.0, {"event": "complete", "job_id": 3}),
        (90.0, {"event": "complete", "job_id": 4}),
        (99.0, {"event": "complete", "job_id": 5}),
    ]
    restarts = [
        (0, "Greedy*/OPT=MIN"),
        (2, "Greedy*/OPT=MIN"),
        (3, "FCFS"),
        (7, "EQUIPARTITION"),
        (7, "Greedy*/OPT=MIN"),
    ]
    record = digested(entries, "Greedy*/OPT=MIN", restarts)
    directory = write_log(tmp_path / "day", record, "Greedy*/OPT=MIN", restarts=restarts)
    log = read_live_log(directory)
    assert log.policies == ((0, "Greedy*/OPT=MIN"), (3, "FCFS"), (7, "Greedy*/OPT=MIN"))
    recorded = decide_again(log, find_policy)
    assert recorded.mismatch is None
    yields = dict(zip(recorded.run.workload.job_id.tolist(), recorded.run.workload.run_s.tolist(), strict=True))
    # Jobs 1 and 2 had halves when FCFS took over, under which job 3 waited until both had ended; then it shared.
    assert yields[3] == pytest.approx(15 * 1.0 + 5 * 0.5)
    write_run(recorded.run, directory, measured(recorded.run, bound=True), "test")
    assert not validate_run(directory).problems
    status, out, _ = dfrs("simulate", "--from-log", directory)
    assert (status, out.startswith("Greedy*/OPT=MIN, then FCFS, then Greedy")) == (0, True)
    text = (directory / FILE).read_text()
    (directory / FILE).write_text(text.replace("FCFS", "GONE"))
    status, out, err = dfrs("simulate", "--from-log", directory)
    assert (status, err) == (1, "policy GONE is not there any more: the one after it decides in its place\n")
    lines = [line for line in text.splitlines() if "restart" not in line]
    (directory / FILE).write_text("\n".join(lines))
    assert decide_again(read_live_log(directory), find_policy).mismatch is not None


def test_a_job_submitted_anew_counts_from_there(tmp_path):
    entries = [
        (0.0, {"event": "join", "cpu": 1.0, "memory": 1.0}),
        (1.0, submit(7, 1.0)),
        (5.0, {"event": "complete", "job_id": 7}),
        (5.0, submit(7, 1.0)),
        (8.0, {"event": "complete", "job_id": 7}),
    ]
    policy = "Greedy*/OPT=MIN"
    recorded = decide_again(read_live_log(write_log(tmp_path / "day", digested(entries, policy), policy)), find_policy)
    assert recorded.mismatch is None
    assert recorded.left_out == 0
    assert (recorded.run.workload.submit_s.tolist(), recorded.run.workload.run_s.tolist()) == ([5.0], [3.0])


@pytest.mark.parametrize(
    ("line", "text", "problem"),
    [
        (1, "{}", "line 1: format = None"),
        (2, "{", "line 2: is no JSON"),
        (2, "[]", "line 2: must be a JSON object"),
        (2, '{"time_s": "x", "event": {}, "digest": ""}', "line 2: time_s = 'x'"),
        (2, '{"job": {"id": "x"}}', "line 2: id = 'x'"),
    ],
)
def test_a_damaged_log_is_refused_in_one_line(tmp_path, line, text, problem):
    directory = write_log(tmp_path / "day", [(0.0, {"event": "join", "cpu": 1.0, "memory": 1.0}, "")], POLICIES[0])
    lines = (directory / FILE).read_text().splitlines()
    lines[line - 1] = text
    (directory / FILE).write_text("\n".join(lines))
    with pytest.raises(InputError, match="log") as raised:
        read_live_log(directory)
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_events_that_cannot_be_true_are_named(tmp_path, dfrs):
    for event, problem in (
        ({"event": "complete", "job_id": 3}, "event 2 of the log: job 3"),
        ({"event": "revise", "job_id": 3, "need": 0.5}, "event 2 of the log: job 3 was not submitted"),
        ({"event": "dance"}, "must be one of"),
    ):
        join = (0.0, {"event": "join", "cpu": 1.0, "memory": 1.0}, "")
        directory = write_log(tmp_path / "day", [join, (1.0, event, "")], POLICIES[0])
        status, out, err = dfrs("simulate", "--from-log", directory)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert problem in err


def test_the_verb_says_whether_decisions_are_the_same(tmp_path, dfrs):
    policy = POLICIES[0]
    record, _ = drive(Core(find_policy(policy), np.zeros((0, 2))), 2, SITES[0], steps=60)
    directory = write_log(tmp_path / "day", record, policy)
    status, out, _ = dfrs("simulate", "--from-log", directory)
    assert (status, "all as recorded" in out) == (0, True)
    record[-1] = (*record[-1][:2], "0" * 32)
    write_log(directory, record, policy)
    status, out, _ = dfrs("simulate", "--from-log", directory, "--json")
    assert (status, json.loads(out)["mismatch"]["event"]) == (1, len(record))


def test_other_policies_get_the_same_jobs(tmp_path, dfrs):
    join = {"event": "join", "cpu": 1.0, "memory": 1.0}
    entries = [
        (0.0, join),
        (1.0, submit(1, 1.0)),
        (2.0, submit(2, 0.5)),
        (3.0, join),
        (4.0, submit(3, 1.0)),
        (5.0, {"event": "hold", "job_id": 3}),
        (6.0, {"event": "node", "node": 0, "condition": "down"}),
        (9.0, {"event": "node", "node": 0, "condition": "up"}),
        (20.0, {"event": "unhold", "job_id": 3}),
        (30.0, {"event": "complete", "job_id": 1}),
        (40.0, {"event": "complete", "job_id": 2}),
        (50.0, {"event": "complete", "job_id": 3}),
        (900.0, {"event": "node", "node": 0, "condition": "down"}),
    ]
    policy = POLICIES[0]
    directory = write_log(tmp_path / "day", digested(entries, policy), policy)
    recorded = decide_again(read_live_log(directory), find_policy)
    assert recorded.mismatch is None
    # The run ends with its last job, and the second node counts from when it was there.
    assert recorded.run.end_s == 50.0
    down = down_times(recorded.run, 1.0, 50.0)
    assert sorted(zip(down.node.tolist(), down.begin_s.tolist(), down.end_s.tolist(), strict=True)) == [
        (0, 6.0, 9.0),
        (1, 1.0, 3.0),
    ]
    assert len(recorded.run.workload) == 3
    write_run(recorded.run, directory, measured(recorded.run, bound=True), "test")
    assert not validate_run(directory).problems
    status, out, err = dfrs(
        "simulate", "--from-log", directory, "-p", "EASY", "-p", "FCFS", "-o", tmp_path / "sim", "--json"
    )
    assert status == 0, err
    given = tmp_path / "values.csv"
    given.write_text("job_id,weight\n2,3\n")
    common = ("simulate", "--from-log", directory, "-p", "FCFS", "-o", tmp_path / "other")
    assert dfrs(*common, "--job-values", given)[0] == 0
    assert read_run(tmp_path / "other/FCFS").workload.weight.tolist() == [1.0, 3.0, 1.0]
    (tmp_path / "one.csv").write_text("cpu,memory\n1,1\n")
    (tmp_path / "none.csv").write_text("time_s,node,condition\n")
    for option, nodes, repeated in (
        ((), 2, True),
        (("--node-file", tmp_path / "one.csv"), 1, False),
        (("--node-events", tmp_path / "none.csv"), 2, False),
    ):
        assert dfrs(*common, *option)[0] == 0
        run = read_run(tmp_path / "other/FCFS")
        assert (len(run.capacity), (run.events.job < 0).any()) == (nodes, repeated)
    for option in (("--nodes", 3), ("--annotate", "none"), ("--overrun", "cut"), ("--strict",)):
        status, _, err = dfrs(*common, *option)
        assert (status, f"{option[0]}: cannot go with --from-log" in err) == (2, True)
    for run in json.loads(out)["runs"]:
        assert (run["complete"], run["refused"]) == (True, [])
        assert (tmp_path / "sim" / run["policy"] / "jobs.csv").read_text().count("\n") == 4
        assert not validate_run(tmp_path / "sim" / run["policy"]).problems


def test_work_is_what_was_measured_not_what_was_granted(tmp_path):
    record, policy = two_beside_each_other()
    # Granted were 10 s and 20 s. The first waits for itself and used a quarter of the node; the second got the rest.
    jobs = [measured_job(1, 20.0, cpu_s=20.0), measured_job(2, 24.0, cpu_s=96.0)]
    recorded = decided_again(tmp_path / "day", record, policy, jobs)
    work = recorded.run.workload
    assert work.need.tolist() == pytest.approx([0.25, 1.0])
    assert work.run_s.tolist() == pytest.approx([20.0, 24.0], rel=1e-5)
    assert (work.need * work.run_s * CORES).tolist() == pytest.approx([20.0, 96.0], rel=1e-5)
    assert recorded.run.stretch.tolist() == pytest.approx([1.0, 30 / 24], rel=1e-5)
    assert recorded.unfitted == 0


def test_other_programs_take_their_part_of_what_was_granted(tmp_path):
    record, policy = two_beside_each_other()
    recorded = decided_again(tmp_path / "day", record, policy, [measured_job(1, 4.0, 16.0), measured_job(2, 5.0, 20.0)])
    assert recorded.run.workload.run_s.tolist() == pytest.approx([4.0, 5.0])
    assert recorded.run.stretch.tolist() == pytest.approx([5.0, 6.0])
    assert recorded.run.workload.need.tolist() == pytest.approx([1.0, 1.0])


def test_a_job_did_no_less_than_its_cpu_time_says(tmp_path):
    record, policy = two_beside_each_other()
    # A yield of three hundredths, measured as two; and one that ran for 22 s, and used more CPU than it declared.
    jobs = [measured_job(1, 0.4, cpu_s=0.6 * CORES)]
    jobs += [measured_job(2, 20.0, cpu_s=50.0 * CORES, need=1.0) | {"ended_at": 22.0}]
    run = decided_again(tmp_path / "day", record, policy, jobs).run
    assert run.workload.run_s.tolist() == pytest.approx([0.6, 22.0], rel=1e-4)
    assert run.workload.need.tolist() == pytest.approx([1.0, 1.0])


def test_a_declared_need_stays_and_is_shared_by_all_tasks(tmp_path):
    entries = [
        (0.0, {"event": "join", "cpu": 1.0, "memory": 1.0}),
        (0.0, {"event": "join", "cpu": 1.0, "memory": 1.0}),
        (0.0, submit(1, 0.5)),
        (0.0, submit(2, 1.0, tasks=2)),
        (40.0, {"event": "complete", "job_id": 1}),
        (40.0, {"event": "complete", "job_id": 2}),
    ]
    policy = POLICIES[0]
    jobs = [measured_job(1, 10.0, cpu_s=8.0, need=0.5), measured_job(2, 20.0, cpu_s=64.0, tasks=2)]
    run = decided_again(tmp_path / "day", digested(entries, policy), policy, jobs).run
    assert run.workload.need.tolist() == pytest.approx([0.5, 64.0 / 20.0 / 2 / CORES])
    assert run.workload.run_s.tolist() == pytest.approx([10.0, 20.0])


def test_where_nothing_was_measured_what_was_granted_counts(tmp_path):
    record, policy = two_beside_each_other()
    plain = decided_again(tmp_path / "plain", record, policy, ())
    jobs = [measured_job(1, 7.0, granted_s=7.0), measured_job(2, 8.0, granted_s=8.0)]
    same = decided_again(tmp_path / "same", record, policy, jobs)
    assert same.run.workload.run_s.tolist() == plain.run.workload.run_s.tolist() == [10.0, 20.0]
    assert same.run.events.yield_.tolist() == pytest.approx(plain.run.events.yield_.tolist(), nan_ok=True, abs=0)
    # Nor does it where that is what was received.
    jobs = [measured_job(1, 10.0, need=1.0), measured_job(2, 20.0, need=1.0)]
    same = decided_again(tmp_path / "received", record, policy, jobs)
    assert same.run.events.yield_.tolist() == pytest.approx(plain.run.events.yield_.tolist(), nan_ok=True, abs=0)


def test_what_the_nodes_do_not_have_is_left_out_and_said(tmp_path, dfrs):
    record, policy = two_beside_each_other()
    # Both declared a whole node and slept: 20 s and 30 s of 30 s.
    jobs = [measured_job(1, 20.0, need=1.0), measured_job(2, 30.0, need=1.0)]
    recorded = decided_again(tmp_path / "day", record, policy, jobs)
    done = recorded.run.workload.run_s
    assert done.sum() == pytest.approx(30.0)
    assert recorded.unfitted == 2
    assert recorded.unfitted_part == pytest.approx(max(1 - done / [20.0, 30.0]))
    status, _, err = dfrs("simulate", "--from-log", tmp_path / "day", "-p", "EASY", "-o", tmp_path / "easy")
    assert status == 0
    said = f"less of their work is in the run, by at most {recorded.unfitted_part:.1%}"
    assert f"2 of 2 jobs received more than nodes have in declared needs: {said}\n" in err


def test_jobs_with_nodes_of_their_own_can_receive_less(tmp_path):
    record, policy = two_beside_each_other("FCFS")
    recorded = decided_again(
        tmp_path / "day", record, policy, [measured_job(1, 10.0, 10.0), measured_job(2, 4.0, 16.0)]
    )
    assert recorded.run.workload.run_s.tolist() == pytest.approx([10.0, 4.0])
    assert not recorded.run.configuration["exclusive"]
    assert decided_again(tmp_path / "own", record, policy, ()).run.configuration["exclusive"]


def test_a_node_that_became_smaller_was_used_as_it_was(tmp_path):
    entries = [
        (0.0, {"event": "join", "cpu": 1.0, "memory": 1.0}),
        (0.0, submit(1, 1.0)),
        (10.0, {"event": "complete", "job_id": 1}),
        (11.0, {"event": "node", "node": 0, "condition": "down"}),
        (11.0, {"event": "capacity", "node": 0, "cpu": 0.5, "memory": 1.0}),
        (12.0, {"event": "node", "node": 0, "condition": "up"}),
        (13.0, submit(2, 0.5)),
        (23.0, {"event": "complete", "job_id": 2}),
    ]
    policy = POLICIES[0]
    recorded = decided_again(tmp_path / "day", digested(entries, policy), policy, ())
    assert recorded.run.capacity.tolist() == [[1.0, 1.0]]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(SITES), st.sampled_from(POLICIES), st.sampled_from([0.2, 1.0, 5.0]))
def test_any_log_gives_a_valid_run(tmp_path_factory, seed, site, policy, most):
    record, _ = drive(Core(find_policy(policy), np.zeros((0, 2))), seed, site, steps=100)
    folder, rng = tmp_path_factory.mktemp("logs"), np.random.default_rng(seed)
    granted = decide_again(read_live_log(write_log(folder / "day", record, policy)), find_policy).run.workload
    jobs = [
        measured_job(job, run_s * most * rng.random(), cpu_s=0.0, need=need, tasks=tasks)
        for job, run_s, need, tasks in zip(
            granted.job_id.tolist(), granted.run_s.tolist(), granted.need.tolist(), granted.tasks.tolist(), strict=True
        )
        if rng.random() < 0.8
    ]
    if not jobs:
        return
    recorded = decided_again(folder / "day", record, policy, jobs)
    done = dict(zip(recorded.run.workload.job_id.tolist(), recorded.run.workload.run_s.tolist(), strict=True))
    received = {job["id"]: job["virtual_s"] for job in jobs}
    assert all(done[job] <= max(seconds, LEAST_RUN_S) * (1 + 1e-9) + 1e-9 for job, seconds in received.items())
    if most <= 1.0:
        # Whoever receives no more than was granted can be told exactly.
        assert [done[job] for job in received] == pytest.approx(list(received.values()), rel=1e-4, abs=1e-3)
        assert recorded.unfitted_part < 1e-3


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("virtual_s", "x", "job 1 of the log: virtual_s = 'x'"),
        ("cpu_s", -1.0, "job 1 of the log: cpu_s = -1.0: must be at least 0"),
        ("tasks", None, "job 1 of the log: tasks = None"),
    ],
)
def test_a_measurement_that_is_none_is_refused_in_one_line(tmp_path, dfrs, field, value, problem):
    record, policy = two_beside_each_other()
    directory = write_log(tmp_path / "day", record, policy, [measured_job(1, 5.0) | {field: value}])
    status, out, err = dfrs("simulate", "--from-log", directory)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert problem in err
    text = (directory / FILE).read_text()
    (directory / FILE).write_text(text.replace(f'"reference_cores": {CORES}', '"reference_cores": 0'))
    status, _, err = dfrs("simulate", "--from-log", directory)
    assert (status, "line 1: reference_cores = 0: must be above 0" in err) == (2, True)


def test_a_live_run_stands_beside_its_replays(tmp_path, dfrs):
    record, policy = two_beside_each_other()
    decided_again(tmp_path / "day", record, policy, [measured_job(1, 10.0, need=1.0), measured_job(2, 20.0, need=1.0)])
    named = ("-p", policy, "-p", "EASY")
    assert dfrs("simulate", "--from-log", tmp_path / "day", *named, "-o", tmp_path / "sim")[0] == 0
    status, out, _ = dfrs("compare", tmp_path / "day", tmp_path / "sim")
    assert status == 0
    assert sorted(line.split()[0] for line in out.splitlines()[2:]) == sorted(["EASY", policy, policy])
    assert f"{policy} (live)" in out
    rows = json.loads(dfrs("compare", tmp_path / "day", tmp_path / "sim", "--json")[1])
    stretches = {(row["policy"], "live" in row["configuration"]): row["metrics"]["stretch_mean"] for row in rows}
    assert stretches[policy, True] == pytest.approx(stretches[policy, False])
    assert stretches["EASY", False] == pytest.approx(1.25)


OPTIONS = inspect.signature(simulate).parameters


@pytest.mark.parametrize("option", [name for name in OPTIONS if name not in {"from_log", "policies", "as_json"}])
def test_no_option_of_runs_is_taken_where_a_log_is_only_decided_again(option):
    usual = OPTIONS[option].default
    other = not usual if isinstance(usual, bool) else f"{usual} no more" if isinstance(usual, str) else 1
    with pytest.raises(InputError, match=r"cannot go with|only"):
        simulate(from_log=Path("none"), **{option: other})
