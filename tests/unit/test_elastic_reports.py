"""What pictures, pages and stories make of dedicated jobs and of users' commands."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.experiments.simulations import SimulationTask, measured
from dfrs.model.decisions import RUNNING, WAITING
from dfrs.model.run import Action
from dfrs.report.explain import stories, story_document, tell
from dfrs.report.gantt import fill, window_of
from dfrs.report.run_page import page
from dfrs.report.witness import answer, answer_document
from dfrs.runs.directory import workload_digest
from dfrs.runs.metrics.intervals import job_intervals, tasks_of, virtual_time
from dfrs.runs.metrics.schedule import utilisation_timeline
from dfrs.runs.replay import Replay
from dfrs.simulator.simulation import SimulationSettings
from tests.cases import Seeded
from tests.elastic_cases import POLICIES, elastic_run, random_elastic_workload, random_settings
from tests.online_cases import plain_workload
from tests.unit.test_validate_commands import ROWS
from tests.unit.test_validate_commands import elastic_run as run_by_hand

DIGEST = "303dc37f62c8c5bab542281f56d040aba4b13ee983385c3a79b0fb03848e9558"
"""Of a workload without dedicated jobs and commands, from before there were any."""


def random_run(seed, policy):
    source = Seeded(np.random.default_rng(seed))
    workload = random_elastic_workload(source)
    return elastic_run(workload, POLICIES[policy], random_settings(source, workload.nodes))


def test_a_job_waits_from_its_requested_start_and_has_its_tasks_of_each_time():
    run = run_by_hand()
    intervals = job_intervals(run)
    told = list(
        zip(
            intervals.job.tolist(),
            intervals.begin_s.tolist(),
            intervals.end_s.tolist(),
            intervals.state.tolist(),
            tasks_of(run, intervals).tolist(),
            strict=True,
        )
    )
    assert told == [
        (0, 0, 4, RUNNING, 1),
        (0, 4, 11, RUNNING, 2),
        (1, 8, 9, WAITING, 0),
        (1, 9, 10, RUNNING, 2),
        (1, 10, 12, RUNNING, 1),
    ]
    use = utilisation_timeline(run)
    assert dict(zip(use.time_s.tolist(), use.cpu.tolist(), strict=False)) == pytest.approx(
        {0: 0.5, 4: 1.0, 8: 1.0, 9: 2.0, 10: 1.5, 11: 0.5}
    )
    assert virtual_time(run).tolist() == [11, 3, 0]


def test_the_story_has_the_requested_start_the_delay_and_the_commands():
    story = tell(run_by_hand(), 1)
    assert [(step.time_s, step.action) for step in story.steps] == [
        (0.5, "command"),
        (1, "submit"),
        (2, "command"),
        (9, "start"),
        (9.5, "command"),
        (10, "command"),
        (10, "resize"),
        (10.5, "command"),
        (12, "command"),
        (12, "finish"),
        (12, "command"),
    ]
    early, submit, more, start, large, fewer, resize, room, cut, finish, late = (step.text for step in story.steps)
    assert early == "command ET, 1 s more: refused: the job was not known yet"
    assert submit == "submitted, to start at 0+00:00:08"
    assert more == "command EP, 1 tasks more: granted"
    assert "0+00:00:01 after its requested start: late: jobs from before" in start
    assert large.endswith("refused: so many tasks could never run here")
    assert fewer == "command RP, 5 tasks less: granted in part, 1 tasks"
    assert resize == "had 1 tasks from then on, on node 1 at yield 1.000: a command changed its size"
    assert room.endswith("refused: there were no nodes for more tasks")
    assert cut == "command RT, 50 s less: granted in part, 1 s"
    assert (finish, late) == ("finished", "command ET, 1 s more: refused: the job was done")
    assert story.summary == "stretch 1.333: 0+00:00:04 for 0+00:00:03 of work; never paused; 7 commands, 3 granted"


@pytest.mark.parametrize(
    ("time_s", "state", "words"),
    [
        (5.0, "booked", "to start at 0+00:00:08"),
        (8.5, "waiting", "waiting, for 0+00:00:00"),
        (8.5, "waiting", "memory was free for 2 of its 2 tasks"),
        (9.5, "running", "on nodes 0-1"),
        (11.5, "running", "Resized there at 0+00:00:10: a command changed its size"),
        (12.0, "finished", "finished"),
    ],
)
def test_what_the_job_was_doing(time_s, state, words):
    found = answer(run_by_hand(), 1, time_s)
    assert found.state == state
    assert words in " ".join(found.sentences)


def test_the_gantt_diagram_has_the_nodes_of_each_time():
    run = run_by_hand()
    jobs, _ = fill(run, window_of(run, 0.0, 12.0), 24, 10)
    shown = [[{*jobs[10 * node : 10 * node + 10, c].tolist()} - {-1} for c in (3, 12, 19, 21, 23)] for node in (0, 1)]
    assert shown == [[{0}, {0}, {0, 1}, {0}, set()], [set(), {0}, {0, 1}, {0, 1}, {1}]]


@given(seed=st.integers(0, 10**6), policy=st.sampled_from(sorted(POLICIES)))
def test_stories_agree_with_log_and_metrics(seed, policy):
    run = random_run(seed, policy)
    told = stories(run, range(len(run.workload)))
    named = np.isin(run.answers.job_id, run.workload.job_id)
    assert sum(step.action == "command" for story in told for step in story.steps) == named.sum()
    for job, story in enumerate(told):
        assert [s.time_s for s in story.steps] == sorted(s.time_s for s in story.steps)
        mine = run.events.action[run.events.job == job]
        for action in (Action.START, Action.PAUSE, Action.RESIZE, Action.MIGRATE):
            assert sum(s.action == action.name.lower() for s in story.steps) == (mine == action).sum()
        json.dumps(story_document(story), allow_nan=False)
        for time_s in (0.0, run.end_s / 2, run.end_s):
            json.dumps(answer_document(answer(run, job, time_s)), allow_nan=False)
    replay = Replay(run)
    for _ in replay:
        pass
    ends = [replay.virtual_s(job, run.end_s) for job in range(len(run.workload))]
    assert ends == pytest.approx(virtual_time(run).tolist(), abs=1e-6)


@given(seed=st.integers(0, 10**6), policy=st.sampled_from(sorted(POLICIES)))
def test_no_run_is_better_than_its_bound(seed, policy):
    metrics = measured(random_run(seed, policy), bound=True)
    for kind in ("", "bounded_"):
        if metrics[f"{kind}stretch_max"] is not None:
            assert metrics[f"{kind}degradation_from_bound"] >= 1 - 1e-9


def test_the_bound_is_that_of_the_jobs_as_they_were_in_the_end():
    # Job 1 needs 11 s, job 2 3 s from 8 on; both fit side by side all the time.
    assert measured(run_by_hand(), bound=True)["stretch_bound"] == 1.0


@pytest.mark.parametrize("seed", range(12))
def test_pages_hold_every_step(seed):
    run = random_run(seed, sorted(POLICIES)[seed % len(POLICIES)])
    text = page(run)
    document = json.loads(re.search(r'id="data"[^>]*>(.*?)</script>', text, re.DOTALL)[1])
    assert len(document["stories"]) == len(run.workload)


def test_digests_tell_requested_starts_and_commands_apart_and_are_what_they_were_without():
    run = run_by_hand()
    work = run.workload
    plain = work.with_columns(requested_start_s=np.zeros(0), commands=plain_workload([(0, 1, 0.1, 0.1, 1)], 1).commands)
    later = work.with_columns(requested_start_s=work.requested_start_s + 1)
    fewer = work.with_columns(commands=run_by_hand(ROWS[:3]).workload.commands)
    assert len({workload_digest(load) for load in (work, plain, later, fewer)}) == 4
    known = plain_workload([(0, 1, 0.5, 0.5, 10)], nodes=1)
    assert workload_digest(known) == DIGEST


def test_a_limit_of_commands_makes_another_task(tmp_path):
    keys = {
        SimulationTask(
            workload=run_by_hand().workload,
            policy="FCFS",
            settings=SimulationSettings(command_limit=limit),
            directory=tmp_path,
        ).key
        for limit in (None, 0, 1)
    }
    assert len(keys) == 3
