"""Users' commands and requested starts in whole runs: what the simulated world makes of them."""

from itertools import count

import numpy as np
import pytest

import dfrs
from dfrs.model.decisions import Cause, Traits
from dfrs.model.elastic import Answer, CommandKind, ElasticCommands
from dfrs.model.jobs import Workload
from dfrs.policies.names import find_policy
from dfrs.simulator import simulation as simulator
from dfrs.simulator.simulation import PolicyStoppedError, Simulation


def elastic_workload(*commands, rows=((0.0, 1, 10.0, np.nan),), **columns):
    """Jobs (submission, tasks, run time, requested start) on two nodes; commands (time, job, kind, amount)."""
    submit_s, tasks, run_s, wanted_s = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    time_s, job_id, kind, amount = zip(*commands, strict=True) if commands else 4 * ([],)
    jobs = len(rows)
    known = {"need": np.ones(jobs), "memory": np.full(jobs, 0.5), "nodes": 2, "job_id": np.arange(1, jobs + 1)}
    return Workload(
        submit_s=submit_s,
        tasks=tasks.astype(np.int64),
        run_s=run_s,
        estimate_s=run_s,
        user=np.full(jobs, -1),
        weight=np.ones(jobs),
        requested_start_s=wanted_s,
        commands=ElasticCommands(
            time_s=np.array(time_s, np.float64),
            job_id=np.array(job_id, np.int64),
            kind=np.array(kind, np.int64),
            amount=np.array(amount, np.float64),
        ),
        **(known | columns),
    )


ET, RT, EP, RP = map(int, CommandKind)


def test_jobs_told_at_their_requested_start_keep_their_own_rows():
    rows = ((0.0, 1, 5.0, 20.0), (1.0, 2, 7.0, np.nan), (2.0, 1, 3.0, np.nan))
    run = dfrs.simulate(elastic_workload(rows=rows), "FCFS")
    assert (run.start_s.tolist(), run.finish_s.tolist()) == ([20.0, 1.0, 8.0], [25.0, 8.0, 11.0])


@pytest.mark.parametrize("amount", [0.1, 0.3, 1.7, 33.3])
def test_a_full_reduction_is_granted_and_not_cut_by_rounding(amount):
    run = dfrs.simulate(elastic_workload((1.0, 1, RT, amount), rows=((0.0, 1, 100.3, np.nan),)), "LOS-E")
    assert (run.answers.answer.tolist(), run.answers.change_s.tolist()) == ([Answer.GRANTED], [-amount])


def test_a_reduction_below_what_has_been_done_ends_the_job_now():
    run = dfrs.simulate(elastic_workload((4.0, 1, RT, 50.0)), "LOS-E")
    assert (run.answers.answer.tolist(), run.answers.change_s.tolist()) == ([Answer.CUT], [-6.0])
    assert (run.finish_s.tolist(), run.process_s.tolist(), run.stretch.tolist()) == ([4.0], [4.0], [1.0])


def test_a_run_that_the_policy_ends_on_a_command_has_its_answer():
    class Fails:
        traits = Traits(elastic=True)

        def decide(self, snapshot, /):
            if snapshot.cause is Cause.COMMAND:
                raise ValueError("no")
            return find_policy("FCFS").decide(snapshot)

    with pytest.raises(PolicyStoppedError) as caught:
        Simulation(elastic_workload((4.0, 1, RT, 50.0)), Fails(), "fails").run()
    assert caught.value.run.process_s.tolist() == [4.0]


def test_commands_on_nobody_are_answered_in_a_run_without_jobs():
    work = elastic_workload((4.0, 9, ET, 5.0)).select(np.zeros(1, np.bool_))
    run = dfrs.simulate(work.with_columns(commands=elastic_workload((4.0, 9, ET, 5.0)).commands), "LOS-E")
    assert (run.answers.answer.tolist(), run.process_s.tolist()) == ([Answer.UNKNOWN], [])


def test_no_job_grows_without_limit():
    work = elastic_workload((4.0, 1, EP, 1e9), (5.0, 1, EP, 2.0), memory=np.zeros(1))
    assert dfrs.simulate(work, "Greedy*").answers.answer.tolist() == [Answer.TOO_LARGE, Answer.GRANTED]


def test_large_job_numbers_are_kept_in_the_answers():
    name = 2**53 + 1
    work = elastic_workload(job_id=np.array([name]))
    one = np.ones(1)
    commands = ElasticCommands(time_s=one, job_id=np.array([name]), kind=np.zeros(1, np.int64), amount=one)
    assert dfrs.simulate(work.with_columns(commands=commands), "LOS-E").answers.job_id.tolist() == [name]


def test_a_dedicated_job_that_could_never_have_its_share_is_refused_and_may_not_grow_so():
    rows = ((0.0, 3, 10.0, 5.0), (0.0, 2, 10.0, 5.0))
    run = dfrs.simulate(elastic_workload((1.0, 2, EP, 1.0), rows=rows, memory=np.full(2, 0.1)), "Greedy*")
    assert (run.refused, run.answers.answer.tolist()) == ((0,), [Answer.TOO_LARGE])
    assert run.finish_s[1] == 15.0


def test_a_run_with_commands_continues_to_the_same_end_from_any_state(monkeypatch):
    monkeypatch.setattr(simulator, "WATCHED", 1)
    rows = ((0.0, 1, 10.0, np.nan), (1.0, 2, 20.0, 12.0), (2.0, 1, 30.0, np.nan))
    work = elastic_workload((3.0, 1, ET, 4.0), (5.0, 2, RT, 4.0), (15.0, 3, EP, 1.0), (90.0, 3, RP, 1.0), rows=rows)
    whole = dfrs.simulate(work, "Hybrid-LOS-E")
    for stop in count(1):
        seen = count()
        first = Simulation(work, find_policy("Hybrid-LOS-E"), "Hybrid-LOS-E")
        if first.run(lambda _, seen=seen, stop=stop: next(seen) < stop).complete:
            break
        second = Simulation(work, find_policy("Hybrid-LOS-E"), "Hybrid-LOS-E")
        second.restore({name: array.copy() for name, array in first.state().items()})
        again = second.run()
        assert again.finish_s.tolist() == whole.finish_s.tolist()
        assert again.answers.answer.tolist() == whole.answers.answer.tolist()
        assert again.answers.change_s.tolist() == whole.answers.change_s.tolist()
    assert stop > 8
