"""The checker on dedicated jobs and users' commands: what keeps the rules is valid, each lie alone is noticed."""

import json
import math

import numpy as np
import pytest

import dfrs
from dfrs.model.elastic import Answer, Answers, CommandKind, ElasticCommands
from dfrs.model.errors import InputError
from dfrs.model.run import Action
from dfrs.runs.directory import COMMANDS, read_run, workload_digest, write_run
from dfrs.runs.metrics.schedule import summarize
from dfrs.runs.validator.runs import validate_run
from dfrs.simulator import simulation as simulator
from dfrs.simulator.simulation import Simulation
from tests.cases import Seeded
from tests.elastic_cases import POLICIES, checked, problems_of, random_elastic_workload, random_settings
from tests.elastic_cases import elastic_run as simulated
from tests.online_cases import plain_workload
from tests.toy_runs import run_of, workload

K, A = CommandKind, Answer
ROWS = [
    (0.0, 77, K.ET, 1.0, A.UNKNOWN, 0.0, 0),
    (0.5, 2, K.ET, 1.0, A.UNKNOWN, 0.0, 0),
    (2.0, 1, K.ET, 5.0, A.GRANTED, 5.0, 0),
    (2.0, 2, K.EP, 1.0, A.GRANTED, 0.0, 1),
    (3.0, 3, K.ET, 1.0, A.UNKNOWN, 0.0, 0),
    (4.0, 1, K.EP, 1.0, A.GRANTED, 0.0, 1),
    (6.0, 1, K.RT, 4.0, A.GRANTED, -4.0, 0),
    (7.0, 1, K.ET, 1.0, A.LIMIT, 0.0, 0),
    (9.5, 2, K.EP, 9.0, A.TOO_LARGE, 0.0, 0),
    (10.0, 2, K.RP, 5.0, A.CUT, 0.0, -1),
    (10.5, 2, K.EP, 3.0, A.NO_ROOM, 0.0, 0),
    (12.0, 2, K.RT, 50.0, A.CUT, -1.0, 0),
    (12.0, 2, K.ET, 1.0, A.ENDED, 0.0, 0),
    (13.0, 1, K.RP, 1.0, A.ENDED, 0.0, 0),
]


def elastic_run(rows=ROWS):
    """Two nodes. Job 1 of 10 s has 15 s and two tasks by 4, and 11 s in the end. Job 2 shall start at 8 and is late by
    1 s; it has two tasks before, one from 10 on, and instead of 4 s the 3 s that it has had at 12. Job 3 is too large.
    """
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    names = ("time_s", "job_id", "kind", "amount", "answer", "change_s", "change_tasks")
    answers = Answers(**dict(zip(names, columns, strict=True)))
    commands = ElasticCommands(**{name: getattr(answers, name) for name in names[:4]})
    load = workload(
        [(1, 0, 1, 0.5, 0.5, 10), (2, 1, 1, 0.5, 0.5, 4), (3, 2, 9, 0.5, 0.5, 1)], nodes=2, name="elastic"
    ).with_columns(requested_start_s=np.array([math.nan, 8.0, math.nan]), commands=commands)
    log = [
        (0, 0, Action.START, [0], 1.0, ""),
        (4, 0, Action.RESIZE, [0, 1], 1.0, "a command changed its size"),
        (9, 1, Action.START, [0, 1], 1.0, "late: jobs from before its submission had the nodes"),
        (10, 1, Action.RESIZE, [1], 1.0, "a command changed its size"),
        (11, 0, Action.FINISH, [], math.nan, ""),
        (12, 1, Action.FINISH, [], math.nan, ""),
    ]
    return run_of(
        load,
        log,
        penalty=0.0,
        policy="by hand",
        refused=(2,),
        answers=answers,
        configuration={"dedicated": True, "command_limit": 3},
    )


def write(folder, run=None):
    run = run or elastic_run()
    write_run(run, folder, summarize(run), "0")
    return folder


def test_a_run_written_by_hand_is_valid(tmp_path):
    report = validate_run(write(tmp_path))
    assert report.problems == []


def test_its_figures_are_those_computed_by_hand():
    metrics = summarize(elastic_run(), stretch_bound=1.0)
    known = {
        "stretch_max": 4 / 3,
        "stretch_mean": (1 + 4 / 3) / 2,
        "wait_mean_s": 0.5,
        "run_mean_s": 7.0,
        "slowdown_of_means": 7.5 / 7,
        "flow_mean_s": 7.5,
        "makespan_s": 12.0,
        "dedicated_jobs": 1,
        "dedicated_on_time": 0,
        "dedicated_delay_mean_s": 1.0,
        "dedicated_delay_max_s": 1.0,
        "commands": 14,
        "commands_granted": 6,
        "commands_refused": 8,
        "cpu_utilisation": (0.5 * 4 + 1.0 * 7 + 1.0 * 1 + 0.5 * 2) / 24,
        "memory_utilisation": (0.5 * 4 + 1.0 * 7 + 1.0 * 1 + 0.5 * 2) / 24,
    }
    assert {name: metrics[name] for name in known} == pytest.approx(known)


def test_it_is_read_as_it_was_written(tmp_path):
    run = elastic_run()
    back = read_run(write(tmp_path / "a", run))
    for one, other in ((run.answers, back.answers), (run.workload.commands, back.workload.commands)):
        for name in one.__dataclass_fields__:
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert np.array_equal(run.workload.requested_start_s, back.workload.requested_start_s, equal_nan=True)
    write(tmp_path / "b", back)
    for file in (tmp_path / "a").iterdir():
        if file.name != "summary.json":
            assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_commands_of_an_earlier_run_do_not_stay(tmp_path):
    folder = write(tmp_path)
    assert (folder / COMMANDS).exists()
    plain = run_of(workload([(1, 0, 1, 1.0, 0.1, 10)], 1), [(0, 0, Action.START, [0], 1.0, "")], complete=False)
    write(folder, plain)
    assert not (folder / COMMANDS).exists()
    assert validate_run(folder).problems == []


def lie(name, old, new):
    def tell(folder):
        text = (folder / name).read_text()
        assert text.count(old) == 1, text
        (folder / name).write_text(text.replace(old, new))

    return tell


def commands(old, new):
    return lie(COMMANDS, old, new)


def events(old, new):
    return lie("events.csv", old, new)


def settings(change):
    def tell(folder):
        document = json.loads((folder / "summary.json").read_text())
        change(document)
        (folder / "summary.json").write_text(json.dumps(document))

    return tell


def metric(name, value):
    return settings(lambda document: document["metrics"].update({name: value}))


LIES = {
    "unknown but granted": (commands("77,ET,1.0,unknown", "77,ET,1.0,granted"), "answered granted, must be unknown"),
    "unknown but ended": (commands("0.5,2,ET,1.0,unknown", "0.5,2,ET,1.0,ended"), "answered ended, must be unknown"),
    "refused but limit": (commands("3,ET,1.0,unknown", "3,ET,1.0,limit"), "answered limit, must be unknown"),
    "granted but unknown": (
        commands("2.0,2,EP,1.0,granted,0.0,1", "2.0,2,EP,1.0,unknown,0.0,0"),
        "answered unknown, must be granted",
    ),
    "told of it later": (
        settings(lambda document: document["configuration"].update(dedicated=False)),
        "EP on job 2: answered granted, must be unknown",
    ),
    "ended before its end": (commands("1,ET,1.0,limit", "1,ET,1.0,ended"), "answered ended, must be limit"),
    "after its end": (commands("1,RP,1.0,ended", "1,RP,1.0,limit"), "answered limit, must be ended"),
    "after its end in the same instant": (
        commands("2,ET,1.0,ended,0.0,0", "2,ET,1.0,granted,1.0,0"),
        "ET on job 2: answered granted, must be ended",
    ),
    "at its end, before what ends it": (
        commands("12.0,2,RT,50.0,cut,-1.0,0", "12.0,2,RT,50.0,ended,0.0,0"),
        "RT on job 2: answered ended, must be cut",
    ),
    "limit not reached": (commands("6.0,1,RT,4.0,granted,-4.0", "6.0,1,RT,4.0,limit,0.0"), "must be granted"),
    "limit passed": (commands("7.0,1,ET,1.0,limit,0.0", "7.0,1,ET,1.0,granted,1.0"), "must be limit"),
    "another limit": (
        settings(lambda document: document["configuration"].update(command_limit=2)),
        "answered granted, must be limit",
    ),
    "no limit": (
        settings(lambda document: document["configuration"].update(command_limit=None)),
        "answered limit, must be granted",
    ),
    "some inelastic": (commands("9.5,2,EP,9.0,too_large", "9.5,2,EP,9.0,inelastic"), "line 10: inelastic, but the"),
    "not too large": (commands("10.5,2,EP,3.0,no_room", "10.5,2,EP,3.0,too_large"), "too_large, must be granted or no"),
    "too large": (commands("9.5,2,EP,9.0,too_large", "9.5,2,EP,9.0,no_room"), "no_room, must be too_large"),
    "no room before it runs": (
        commands("2.0,2,EP,1.0,granted,0.0,1", "2.0,2,EP,1.0,no_room,0.0,0"),
        "no_room, must be granted",
    ),
    "cut tasks said granted": (commands("RP,5.0,cut", "RP,5.0,granted"), "answered granted, must be cut"),
    "granted tasks said cut": (commands("10.0,2,RP,5.0", "10.0,2,RP,1.0"), "answered cut, must be granted"),
    "cut time said granted": (commands("RT,50.0,cut", "RT,50.0,granted"), "answered granted, must be cut"),
    "granted time said cut": (commands("1,RT,4.0,granted", "1,RT,4.0,cut"), "answered cut, must be granted"),
    "more cannot be cut": (commands("1,ET,5.0,granted", "1,ET,5.0,cut"), "answered cut, must be granted"),
    "extended by less": (commands("ET,5.0,granted,5.0", "ET,5.0,granted,4.0"), "changes 4.0 s and 0 tasks, must be 5"),
    "reduced by less": (commands("granted,-4.0", "granted,-3.0"), "changes -3.0 s and 0 tasks, must be -4.0 s"),
    "cut too far": (commands("cut,-1.0,0", "cut,-2.0,0"), "changes -2.0 s and 0 tasks, must be -1.0 s"),
    "tasks and time": (commands("ET,5.0,granted,5.0,0", "ET,5.0,granted,5.0,1"), "changes 5.0 s and 1 tasks"),
    "two tasks for one": (commands("4.0,1,EP,1.0,granted,0.0,1", "4.0,1,EP,1.0,granted,0.0,2"), "and 2 tasks, must be"),
    "refused, yet more time": (commands("limit,0.0,0", "limit,1.0,0"), "limit, but changes 1.0 s"),
    "refused, yet more tasks": (commands("no_room,0.0,0", "no_room,0.0,1"), "no_room, but changes 0.0 s and 1 tasks"),
    "another amount": (commands("ET,5.0,granted", "ET,6.0,granted"), "changes 5.0 s and 0 tasks, must be 6.0 s"),
    "later": (commands("6.0,1,RT", "11.5,1,RT"), "time_s = 7.0: before the row above it"),
    "a command missing": (commands("3.0,3,ET,1.0,unknown,0.0,0\n", ""), "commands = 14: commands.csv has 13"),
    "all missing": (lambda folder: (folder / COMMANDS).unlink(), "workload.commands = 14: commands.csv has 0"),
    "a metric less": (metric("commands", 13), "metrics.commands = 13: by the log 14"),
    "granted": (metric("commands_granted", 7), "metrics.commands_granted = 7: by the log 6"),
    "refused": (metric("commands_refused", 7), "metrics.commands_refused = 7: by the log 8"),
    "delay": (metric("dedicated_delay_mean_s", 0.0), "metrics.dedicated_delay_mean_s = 0.0: by the log 1.0"),
    "greatest delay": (metric("dedicated_delay_max_s", 0.0), "metrics.dedicated_delay_max_s = 0.0: by the log 1.0"),
    "on time": (metric("dedicated_on_time", 1), "metrics.dedicated_on_time = 1: by the log 0"),
    "wait from its submission": (metric("wait_mean_s", 4.0), "metrics.wait_mean_s = 4.0: by the log 0.5"),
    "slowdown": (metric("slowdown_of_means", 1.0), "metrics.slowdown_of_means = 1.0: by the log 1.07"),
    "started before its requested start": (
        lie("jobs.csv", ",8.0\n", ",9.5\n"),
        "start before its requested start at 9.5",
    ),
    "wait in jobs.csv": (lie("jobs.csv", "12.0,1.0,4.0,", "12.0,8.0,4.0,"), "waiting_time = 8.0: by the log 1.0"),
    "turnaround in jobs.csv": (lie("jobs.csv", "12.0,1.0,4.0,", "12.0,1.0,11.0,"), "turnaround_time = 11.0: by"),
    "stretch by the time as submitted": (
        lie("jobs.csv", "1.3333333333333333", "1.0"),
        "job 2: stretch = 1.0: by the log 1.333",
    ),
    "last nodes before a resize": (lie("jobs.csv", "1.3333333333333333,1,", "1.3333333333333333,0-1,"), "not its last"),
    "a resize for none": (events("4.0,1,resize,0-1", "5.0,1,resize,0-1"), "line 3: job 1: resize: no command changes"),
    "no resize": (
        events("10.0,2,resize,1,1.0,a command changed its size\n", ""),
        "at 10.0: job 2: a command leaves it 1 tasks",
    ),
    "resized to too many": (events("1,resize,0-1,", "1,resize,0-1*2,"), "resize names nodes for 4 tasks, must be 2"),
    "resized to too few": (events("1,resize,0-1,", "1,resize,0,"), "resize names nodes for 1 tasks, must be 2"),
    "resized and moved": (events("1,resize,0-1,", "1,resize,1*2,"), "resize moves tasks to other nodes"),
    "resized and slowed": (events("1,resize,0-1,1.0", "1,resize,0-1,0.9"), "yield = 0.9: a resize keeps it, 1.0"),
    "resized while it waits": (events("2,start,0-1,", "2,resize,0-1,"), "resize while it is waiting"),
    "started with what was asked for": (events("2,start,0-1,", "2,start,0,"), "names nodes for 1 tasks, must be 2"),
    "done in the time as submitted": (events("11.0,1,finish", "10.0,1,finish"), "finish at virtual time 10.0, pro"),
    "resized onto a drained node": (
        events("4.0,1,resize", "4.0,,drain,1,,\n4.0,1,resize"),
        "comes to node 1, which is drained",
    ),
    "answered after it was interrupted": (
        settings(lambda document: document.update(complete=False)),
        "time_s = 13.0: the log ends at 12.0, interrupted",
    ),
    "more answered than there are": (
        settings(lambda document: document["workload"].update(commands=13)),
        "workload.commands = 13: commands.csv has",
    ),
    "done later": (events("12.0,2,finish", "13.0,2,finish"), "virtual time 4.0 passes 3.0"),
}


@pytest.mark.parametrize("name", LIES)
def test_each_lie_is_noticed(tmp_path, name):
    tell, words = LIES[name]
    tell(write(tmp_path))
    problems = validate_run(tmp_path).problems
    assert any(words in problem for problem in problems), problems


UNREADABLE = {
    "command": (commands("6.0,1,RT", "6.0,1,XT"), "line 8: command = 'XT': must be one of ET, RT, EP, RP"),
    "answer": (commands("RP,5.0,cut", "RP,5.0,half"), "line 11: answer = 'half': must be one of granted, cut, "),
    "no amount": (commands("6.0,1,RT,4.0", "6.0,1,RT,0.0"), "line 8: amount = '0.0': must be above 0 for RT"),
    "half a task": (commands("RP,5.0,cut", "RP,0.5,cut"), "amount = '0.5': must be a whole number above 0 for RP"),
    "header": (commands("change_s", "seconds"), "line 1: column 6 is 'seconds': must be 'change_s'"),
    "no column": (lie("jobs.csv", ",requested_start_time", ""), "jobs.csv: line 2: 21 values: must be 20"),
    "limit": (settings(lambda d: d["configuration"].update(command_limit="x")), "must be a whole number from 0"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_said_in_one_line(tmp_path, name):
    tell, words = UNREADABLE[name]
    tell(write(tmp_path))
    with pytest.raises(InputError) as caught:
        validate_run(tmp_path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_directory_without_the_column_of_requested_starts_has_batch_jobs(tmp_path):
    run = dfrs.simulate(plain_workload([(0.0, 1, 1.0, 0.5, 7.0), (1.0, 1, 1.0, 0.5, 3.0)]), "FCFS")
    write_run(run, tmp_path, summarize(run), dfrs.__version__)
    text = (tmp_path / "jobs.csv").read_text()
    (tmp_path / "jobs.csv").write_text("".join(line.rpartition(",")[0] + "\n" for line in text.splitlines()))
    assert not read_run(tmp_path).workload.dedicated.any()
    assert validate_run(tmp_path).problems == []


@pytest.mark.parametrize("policy", POLICIES)
def test_random_streams_of_commands_are_answered_right(policy, tmp_path):
    for seed in range(60):
        assert checked(seed, policy, tmp_path) == [], seed


@pytest.mark.parametrize("policy", POLICIES)
def test_interrupted_runs_are_valid_and_have_the_commands_answered_so_far(policy, tmp_path, monkeypatch):
    monkeypatch.setattr(simulator, "WATCHED", 9)
    interrupted = 0
    for seed in range(20):
        workload = random_elastic_workload(seed)
        run = Simulation(workload, POLICIES[policy], policy).run(lambda _: False)
        interrupted += not run.complete
        assert problems_of(run, tmp_path) == []
        assert read_run(tmp_path).answers.time_s.tolist() == run.answers.time_s.tolist()
    assert interrupted


@pytest.mark.parametrize("policy", POLICIES)
def test_a_directory_read_and_written_again_is_the_same(policy, tmp_path):
    for seed in range(20):
        source = Seeded(np.random.default_rng(seed))
        workload = random_elastic_workload(source)
        run = simulated(workload, POLICIES[policy], random_settings(source, workload.nodes))
        write(tmp_path / "a", run)
        back = read_run(tmp_path / "a")
        assert workload_digest(back.workload) == workload_digest(workload)
        write(tmp_path / "b", back)
        files = sorted(file.name for file in (tmp_path / "a").iterdir())
        assert [(tmp_path / "a" / name).read_bytes() for name in files] == [
            (tmp_path / "b" / name).read_bytes() for name in files
        ]
