"""Stories of jobs: one computed by hand, and for random runs what the log and the metrics say otherwise."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dfrs.cli.live.explain import explain
from dfrs.model.errors import InputError
from dfrs.model.jobs import Workload
from dfrs.model.run import Action
from dfrs.policies.fractional.actions import Priority
from dfrs.policies.fractional.grammar import FRACTIONAL
from dfrs.policies.names import find_policy
from dfrs.report.explain import find_job, stories, story_document, tell
from dfrs.report.witness import answer, answer_document
from dfrs.runs.directory import write_run
from dfrs.runs.metrics.intervals import virtual_time
from dfrs.runs.metrics.schedule import summarize
from dfrs.runs.replay import Replay, priority_kind
from dfrs.simulator.simulation import Simulation
from tests.random_runs import random_run
from tests.toy_runs import run_of, story_run, toy_run, workload


def test_the_story_of_a_job_that_gave_way():
    story = tell(story_run(), 0)
    told = [(s.time_s, s.action, s.virtual_s) for s in story.steps]
    assert told == [
        (0, "submit", 0),
        (0, "start", 0),
        (1000, "shares", 1000),
        (1500, "pause", 1250),
        (2100, "resume", 1250),
        (3000, "migrate", 1550),
        (3750, "finish", 2000),
    ]
    start, share, pause, resume, move = story.steps[1:6]
    assert "on nodes 0-1 at yield 1.000, at once" in start.text
    assert share.text == "yield 1.000 → 0.500, when job 20 started"
    assert pause.pause is not None
    assert pause.pause.cause == "submission"
    assert pause.pause.for_jobs == (30,)
    assert pause.pause.priority == pytest.approx(1500 / 1250**2)
    assert (pause.pause.rank, pause.pause.room, pause.pause.tasks) == (1, 1, 2)
    (rival,) = pause.pause.rivals
    assert (rival.job_id, rival.flow_s, rival.virtual_s, rival.fate) == (20, 500, 250, "kept")
    assert rival.priority == pytest.approx(500 / 250**2)
    assert "gave way to job 30" in pause.text
    assert "memory was free for 1 of its 2 tasks" in pause.text
    assert "after a pause of 0+00:10:00" in resume.text
    assert resume.penalty_s == move.penalty_s == 300
    assert "moved 1 of 2 tasks: from 1*2 to 1-2" in move.text
    assert story.summary == (
        "stretch 1.875: 0+01:02:30 for 0+00:33:20 of work; paused once; moved once; 600 s lost to penalties"
    )


def test_who_is_left_out_of_a_packing_is_compared_with_all_that_were_there():
    a, nan = Action, float("nan")
    load = workload(
        [(10, 0, 1, 1.0, 0.9, 900), (20, 100, 1, 1.0, 0.9, 500), (30, 150, 1, 1.0, 0.9, 10)], nodes=1, name="packing"
    )
    run = run_of(
        load,
        [
            (0, 0, a.START, [0], 1.0, ""),
            (100, 0, a.PAUSE, [], 0.0, "gave way to a submitted job"),
            (100, 1, a.START, [0], 1.0, ""),
            (300, 1, a.PAUSE, [], 0.0, "no packing of all jobs; lowest priority"),
            (300, 0, a.RESUME, [0], 1.0, "all jobs were packed anew"),
            (1400, 0, a.FINISH, [], nan, ""),
        ],
        end_s=1400.0,
        complete=False,
    )
    (pause,) = [step.pause for step in tell(run, 1).steps if step.pause is not None]
    assert pause.cause == "packing"
    assert pause.for_jobs == (10,)
    assert pause.priority == pytest.approx(200 / 200**2)
    assert [(r.job_id, r.fate, r.priority) for r in pause.rivals] == [
        (10, "resumed", pytest.approx(300 / 100**2)),
        (30, "out", None),
    ]
    assert pause.rank == 1
    assert pause.room is None
    text = tell(run, 1).steps[-1].text
    assert "left out when all jobs were packed anew; job 10 took its place" in text
    assert "the lowest of 3 jobs that were there; the next above that got nodes was job 10 with 0.03." in text


@pytest.mark.parametrize(
    ("time_s", "state", "virtual_s", "words"),
    [
        (0, "running", 0, "there was room at submission"),
        (1200, "running", 1100, "shared with job 20: needs of 2.00 for a CPU of 1, of which 1.00 was given out"),
        (1499, "running", 1249.5, "nodes 0-1 at yield 0.500"),
        (1500, "paused", 1250, "gave way to job 30"),
        (2000, "paused", 1250, "memory was free for 2 of its 2 tasks"),
        (2150, "penalty", 1250, "its penalty lasted until 0+00:40:00"),
        (2500, "running", 1300, "room became free"),
        (3100, "penalty", 1550, "Moved there at 0+00:50:00: all jobs were packed anew"),
        (3750, "finished", 2000, "had finished"),
    ],
)
def test_what_the_job_was_doing(time_s, state, virtual_s, words):
    found = answer(story_run(), 0, time_s)
    assert found.state == state
    assert found.virtual_s == pytest.approx(virtual_s)
    assert words in " ".join(found.sentences)


@pytest.mark.parametrize("condition", [Action.DOWN, Action.DRAIN])
def test_nodes_that_take_no_tasks_are_no_room(condition):
    a, nan = Action, float("nan")
    load = workload([(10, 0, 2, 1.0, 0.6, 100), (20, 0, 1, 1.0, 0.0, 10)], nodes=2)
    run = run_of(
        load,
        [
            (0, -1, condition, [0], nan, ""),
            (60, -1, condition, [1], nan, ""),
            (80, -1, a.UP, [0, 1], nan, ""),
            (100, 0, a.START, [0, 1], 1.0, ""),
            (200, 0, a.FINISH, [], nan, ""),
            (200, 1, a.START, [0], 1.0, ""),
            (210, 1, a.FINISH, [], nan, ""),
        ],
    )
    said = {(job, time_s): answer(run, job, time_s).sentences[-1] for job in (0, 1) for time_s in (50.0, 70.0, 90.0)}
    room, closed = "memory was free for 1 of its 2 tasks (0.6 of a node each)", "Of 2 nodes 1 took no new tasks"
    assert said[0, 50.0] == f"0 jobs were running; {room}. {closed}."
    assert "free for 0 of its 2 tasks" in said[0, 70.0]
    assert said[0, 90.0].endswith("memory was free for 2 of its 2 tasks (0.6 of a node each).")
    assert "free for 1 of its 1 tasks" in said[1, 50.0]
    assert "free for 0 of its 1 tasks" in said[1, 70.0]


def test_where_jobs_have_whole_nodes_only_free_ones_have_room():
    a, nan = Action, float("nan")
    load = workload([(10, 0, 1, 0.5, 0.0, 100), (20, 0, 2, 0.5, 0.0, 50), (30, 0, 5, 0.5, 0.0, 50)], nodes=3)
    rows = [
        (0, 0, a.START, [0], 1.0, ""),
        (0, 1, a.START, [1, 2], 1.0, ""),
        (50, 1, a.FINISH, [], nan, ""),
        (100, 0, a.FINISH, [], nan, ""),
        (100, 2, a.START, [0, 0, 1, 1, 2], 1.0, ""),
        (150, 2, a.FINISH, [], nan, ""),
    ]
    run = run_of(load, rows, policy="FCFS", configuration={"exclusive": True})
    # Two of its tasks fit on a free node.
    said = [answer(run, 2, time_s).sentences[-1] for time_s in (20.0, 60.0)]
    assert said[0] == "2 jobs were running; free nodes had room for 0 of its 5 tasks."
    assert "room for 4 of its 5 tasks" in said[1]


def test_before_its_submission_it_was_absent_and_the_end_is_named():
    assert answer(story_run(), 2, 100.0).state == "absent"
    with pytest.raises(InputError, match=r"3800.*ends at 3750"):
        answer(story_run(), 0, 3800.0)


def test_an_unknown_job_is_answered_with_the_nearest():
    with pytest.raises(InputError, match=r"job 21: is not in this run; the nearest ids are 10, 20, 30"):
        find_job(story_run(), 21)
    assert find_job(story_run(), 30) == 2


def priority(of):
    return math.inf if of.priority is None else of.priority


@given(seed=st.integers(0, 400), partial=st.booleans())
def test_stories_agree_with_log_and_metrics(seed, partial):
    run = random_run(seed, partial=partial)
    told = stories(run, range(len(run.workload)))
    for job, story in enumerate(told):
        mine = run.events.action[run.events.job == job]
        steps = story.steps
        assert [s.time_s for s in steps] == sorted(s.time_s for s in steps)
        assert sum(s.action == "pause" for s in steps) == (mine == Action.PAUSE).sum()
        assert (
            sum(s.action in {"start", "resume", "migrate"} for s in steps)
            == (mine <= Action.MIGRATE).sum() - (mine == Action.PAUSE).sum()
        )
        if Action.FINISH in mine:
            assert steps[-1].action == "finish"
            assert steps[-1].virtual_s == pytest.approx(run.workload.run_s[job])
        for step in steps:
            if step.pause is not None:
                below, mine_too = step.pause.rivals[: step.pause.rank - 1], priority(step.pause)
                assert all(priority(rival) <= mine_too for rival in below)
                assert all(priority(rival) >= mine_too for rival in step.pause.rivals[step.pause.rank - 1 :])
        json.dumps(story_document(story), allow_nan=False)
    assert [s.job_id for s in told] == run.workload.job_id.tolist()


@given(seed=st.integers(0, 400))
def test_replayed_virtual_times_are_those_of_the_metrics(seed):
    run = random_run(seed, partial=seed % 2 == 0)
    replay = Replay(run)
    for _ in replay:
        pass
    ends = [replay.virtual_s(job, run.end_s) for job in range(len(run.workload))]
    assert ends == pytest.approx(virtual_time(run).tolist(), abs=1e-6)


@given(seed=st.integers(0, 400), at=st.floats(0.0, 1.0))
def test_answers_agree_with_the_rows_before(seed, at):
    run = random_run(seed, partial=True)
    time_s = at * run.end_s
    for job in range(len(run.workload)):
        found = answer(run, job, time_s)
        rows = [e for e in range(len(run.events)) if run.events.job[e] == job and run.events.time_s[e] <= time_s]
        last = Action(run.events.action[rows[-1]]) if rows else None
        expected = {
            None: {"absent", "waiting", "refused"},
            Action.PAUSE: {"paused"},
            Action.FINISH: {"finished"},
            Action.LOST: {"waiting"},
        }.get(last, {"running", "penalty"})
        assert found.state in expected
        if found.state == "waiting":
            assert run.workload.submit_s[job] <= time_s
        json.dumps(answer_document(found), allow_nan=False)


def test_a_pause_without_a_submission_is_not_blamed_on_one():
    run = toy_run(16, 150, seed=3, load=1.3)
    causes = {
        step.pause.cause: step for story in stories(run, range(len(run.workload))) for step in story.steps if step.pause
    }
    assert set(causes) == {"submission"}
    for seed in range(40):
        for story in stories(random_run(seed), range(len(random_run(seed).workload))):
            for step in story.steps:
                if step.pause is not None and step.pause.cause == "submission":
                    assert step.time_s in random_run(seed).workload.submit_s


@pytest.fixture
def directory(tmp_path):
    run = story_run()
    write_run(run, tmp_path / "run", summarize(run), "0")
    return tmp_path / "run"


def cli(*arguments):
    app = typer.Typer()
    app.command()(explain)
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_command_tells_the_story_and_answers(directory):
    done = cli(directory, 10)
    assert done.exit_code == 0, done.output
    assert "gave way to job 30" in " ".join(done.output.split())
    assert "0+00:25:00" in done.output
    done = cli(directory, 10, "--at", "00:26")
    assert "paused" in done.output
    document = json.loads(cli(directory, 10, "--json").output)
    assert [s["action"] for s in document["steps"]][:3] == ["submit", "start", "shares"]
    assert document["steps"][3]["pause"]["others"][0]["job_id"] == 20
    document = json.loads(cli(directory, 10, "--at", "0-00:26:00", "--json").output)
    assert (document["state"], document["virtual_s"]) == ("paused", 1250)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((11,), "nearest ids are 10, 20, 30"), ((10, "--at", "noon"), "--at"), ((10, "--at", "9999"), "ends at 3750")],
)
def test_what_cannot_be_answered_is_said(directory, arguments, words):
    done = cli(directory, *arguments)
    assert isinstance(done.exception, InputError)
    assert words in str(done.exception)


@pytest.mark.parametrize(
    ("part", "flow_power", "virtual_power"),
    [("", 1, 2), ("/PRIO=VT", 0, 1), ("/PRIO=FLOW/VT", 1, 1), ("/PRIO=FLOW/VT^2", 1, 2)],
)
def test_priorities_are_those_of_the_definition(part, flow_power, virtual_power):
    run = toy_run(8, 60, seed=5, load=1.5)
    weight = np.arange(len(run.workload)) % 4 + 1.0
    run = replace(run, workload=run.workload.with_columns(weight=weight), policy=f"GreedyPM*{part}/per/OPT=MIN")
    replay = Replay(run)
    for instant in replay:
        for job in replay.running:
            virtual = replay.virtual_s(job, instant.time_s)
            flow = instant.time_s - run.workload.submit_s[job]
            expected = np.inf if virtual == 0 else weight[job] * flow**flow_power / virtual**virtual_power
            assert replay.priority(job, instant.time_s) == pytest.approx(expected)


def test_every_priority_that_a_name_may_have_is_known():
    (words,) = (option.values.values for option in FRACTIONAL.options if option.key == "PRIO")
    for word, (kind, _, _) in words.items():
        for name in (f"GreedyP*/PRIO={word}", f"GreedyP*/PRIO={word}/per"):
            assert priority_kind(name) == kind.value
    assert priority_kind("GreedyP*") == priority_kind("EASY") == Priority.FLOW_VIRTUAL_SQUARED.value


@pytest.mark.parametrize(
    ("weight", "part", "paused", "words"),
    [
        (1.3, "", 1, "Its priority, 0.00361, was the lowest of 2 running jobs"),
        (4.0, "", 2, "Its priority, 0.005, was the lowest of 2 running jobs"),
        (1.3, "/PRIO=FLOW/VT", 2, "Its priority, 2, was the lowest of 2 running jobs"),
    ],
)
def test_who_gave_way_is_the_job_whose_priority_the_story_says_was_the_lowest(weight, part, paused, words):
    # At 1000 job 1 has run for 200 s at yield 1 and for 800 s at a half, job 2 for 800 s at a half.
    load = workload([(1, 0, 1, 1.0, 0.4, 5000), (2, 200, 1, 1.0, 0.4, 5000), (3, 1000, 1, 1.0, 0.5, 10)], nodes=1)
    load = load.with_columns(weight=np.array([weight, 1.0, 1.0]))
    name = f"GreedyP*{part}"
    run = Simulation(load, find_policy(name), name).run()
    told = {story.job_id: next((step for step in story.steps if step.pause), None) for story in stories(run, [0, 1])}
    assert [job for job, step in told.items() if step is not None] == [paused]
    assert words in told[paused].text


def test_a_job_started_and_paused_at_one_time_has_both_in_its_story():
    jobs = 3
    three = Workload(
        job_id=np.arange(1, 4),
        submit_s=np.array([0.0, 10.0, 10.0]),
        tasks=np.ones(jobs, np.int64),
        need=np.ones(jobs),
        memory=np.full(jobs, 0.6),
        run_s=np.full(jobs, 50.0),
        estimate_s=np.full(jobs, np.nan),
        user=np.full(jobs, -1),
        weight=np.ones(jobs),
        nodes=1,
    )
    run = Simulation(three, find_policy("GreedyP*"), "GreedyP*").run()
    story = tell(run, 1)
    told = [(step.time_s, step.action) for step in story.steps]
    assert [action for time_s, action in told if time_s == 10.0][:3] == ["submit", "start", "pause"]
    paused = next(step for step in story.steps if step.action == "pause")
    assert paused.pause is not None
    assert paused.pause.for_jobs == (3,)


class _Listed(tuple):
    """Jobs that nobody looks for one by one: a trace may have 200,000, of which 10,000 are refused."""

    __slots__ = ()

    def __contains__(self, job):
        raise AssertionError(f"all that are refused were gone through for job {job}")


def test_refused_jobs_are_not_gone_through_for_each_job():
    seed = next(seed for seed in range(100) if random_run(seed).refused)
    run = random_run(seed)
    told = stories(replace(run, refused=_Listed(run.refused)), range(len(run.workload)))
    assert told == stories(run, range(len(run.workload)))
    assert [job for job, story in enumerate(told) if story.summary.startswith("refused")] == sorted(run.refused)
    assert answer(replace(run, refused=_Listed(run.refused)), run.refused[0], run.end_s).state == "refused"
