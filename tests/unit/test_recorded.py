"""Logs of live clusters: decided again to the same targets, and runs that the independent checker accepts."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dfrs.engine import codec
from dfrs.engine.core import Core
from dfrs.experiments.simulations import measured
from dfrs.model.errors import InputError
from dfrs.policies.names import find_policy
from dfrs.runs.directory import write_run
from dfrs.runs.validator.runs import validate_run
from dfrs.simulator.recorded_log import decide_again
from dfrs.workloads.live_log import FILE, read_live_log
from tests.live_events import Site, drive

POLICIES = ("GreedyPM*/per/OPT=MIN/MVT=600", "MCB*/OPT=MIN/NEEDS=0.1", "EASY")
SITES = (Site(changes=False), Site(changes=False, frees=(False,), islands=2), Site(changes=False, alike=True))


def write_log(directory, record, policy, jobs=(), restarts=()):
    """`restarts`: (index, policy) of the event before which a controller started."""
    header = {"format": "dfrs-log/1", "policy": policy, "discovery": "NONE", "command_limit": None}
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


def submit(job, need):
    return {"event": "submit", "job_id": job, "tasks": 1, "need": need, "memory": 0.1}


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
    ]
    policy = POLICIES[0]
    directory = write_log(tmp_path / "day", digested(entries, policy), policy)
    recorded = decide_again(read_live_log(directory), find_policy)
    assert recorded.mismatch is None
    assert len(recorded.run.workload) == 3
    write_run(recorded.run, directory, measured(recorded.run, bound=True), "test")
    assert not validate_run(directory).problems
    status, out, err = dfrs(
        "simulate", "--from-log", directory, "-p", "EASY", "-p", "FCFS", "-o", tmp_path / "sim", "--json"
    )
    assert status == 0, err
    for run in json.loads(out)["runs"]:
        assert (run["complete"], run["refused"]) == (True, [])
        assert (tmp_path / "sim" / run["policy"] / "jobs.csv").read_text().count("\n") == 4
        assert not validate_run(tmp_path / "sim" / run["policy"]).problems
