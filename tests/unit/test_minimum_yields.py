"""Simulated jobs that must have some yield while they are on nodes."""

import csv

import numpy as np
import pytest

from dfrs.experiments.simulations import measured
from dfrs.model.elastic import CommandKind, ElasticCommands
from dfrs.model.errors import InputError
from dfrs.model.run import Action
from dfrs.policies.names import find_policy
from dfrs.runs.directory import read_run, workload_digest, write_run
from dfrs.runs.validator.runs import validate_run
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.workloads.job_values import with_job_values
from tests.online_cases import random_workload

POLICY = "GreedyPM*/per=60/OPT=MIN/MVT=60"
POLICIES = [
    POLICY,
    "MCB*/per=60/OPT=MIN",
    "Greedy*/OPT=AVG",
    "EASY",
    "GreedyP/stretch-per=60",
]
ON_NODES = (Action.START, Action.RESUME, Action.MIGRATE, Action.SHARE)


def demanding(seed, jobs=60):
    """Half of the jobs must have half of what they need, or all of it."""
    work = random_workload(seed, jobs=jobs, spread_s=15.0)
    rng = np.random.default_rng(seed)
    return work.with_columns(minimum_yield=rng.choice([0.0, 0.0, 0.5, 1.0], jobs))


def simulated(work, name):
    return Simulation(work, find_policy(name), name, SimulationSettings()).run()


@pytest.mark.parametrize("name", POLICIES)
def test_they_have_it_and_every_job_is_done(tmp_path, name):
    for seed in range(3):
        run = simulated(demanding(seed), name)
        assert run.complete
        least = run.workload.minimum_yield
        on = np.isin(run.events.action, ON_NODES) & (run.events.job >= 0)
        assert (run.events.yield_[on] >= least[run.events.job[on]] - 1e-9).all()
        write_run(run, tmp_path / str(seed), measured(run, bound=True), "1")
        assert validate_run(tmp_path / str(seed)).problems == []
        again = read_run(tmp_path / str(seed))
        assert again.workload.minimum_yield.tolist() == least.tolist()


def test_without_them_some_would_have_less(tmp_path):
    work = demanding(1)
    free = simulated(work.with_columns(minimum_yield=np.zeros(len(work))), POLICY)
    on = np.isin(free.events.action, ON_NODES) & (free.events.job >= 0)
    assert (free.events.yield_[on] < work.minimum_yield[free.events.job[on]] - 1e-9).any()


def test_the_checker_finds_a_yield_that_is_less(tmp_path):
    work = demanding(1)
    run = simulated(work, POLICY)
    write_run(run, tmp_path / "run", measured(run, bound=False), "1")
    path = tmp_path / "run" / "jobs.csv"
    rows = list(csv.reader(path.read_text().splitlines()))
    at = rows[0].index("minimum_yield")
    less = next(job for job in range(len(work)) if work.minimum_yield[job] == 0.5 and min(of(run, job)) < 1.0)
    rows[less + 1][at] = "1.0"
    path.write_text("\n".join(map(",".join, rows)) + "\n")
    problems = validate_run(tmp_path / "run").problems
    assert any("must be at least 1.0, the job's minimum" in problem for problem in problems), problems
    rows[less + 1][at] = "1.5"
    path.write_text("\n".join(map(",".join, rows)) + "\n")
    with pytest.raises(InputError, match=r"minimum_yield = 1.5: must be from 0 to 1"):
        validate_run(tmp_path / "run")


def of(run, job):
    """Yields that a job had on nodes."""
    return run.events.yield_[(run.events.job == job) & np.isin(run.events.action, ON_NODES)].tolist()


def test_where_there_are_none_files_and_digests_are_as_they_were(tmp_path):
    work = random_workload(1, jobs=20, spread_s=15.0)
    run = simulated(work, POLICY)
    write_run(run, tmp_path / "run", measured(run, bound=False), "1")
    assert "minimum_yield" not in (tmp_path / "run" / "jobs.csv").read_text()
    assert read_run(tmp_path / "run").workload.minimum_yield.tolist() == [0.0] * 20
    assert workload_digest(work) != workload_digest(work.with_columns(minimum_yield=np.full(20, 0.1)))


def test_a_file_gives_them(tmp_path):
    work = random_workload(1, jobs=3, spread_s=15.0).with_columns(user=np.array([1, 2, 2]))
    file = tmp_path / "w.csv"
    file.write_text("user,min_yield,weight\n2,0.25,3\n")
    found = with_job_values(work, file)
    assert (found.minimum_yield.tolist(), found.weight.tolist()) == ([0.0, 0.25, 0.25], [1.0, 3.0, 3.0])
    for text, rule in (
        ("user,min_yield\n2,1.1\n", r":2: min_yield = 1.1: must be from 0 to 1"),
        ("user,min_yield\n2,-0.1\n", r":2: min_yield = -0.1: must be from 0 to 1"),
        ("user,min_yield,weight\n2,0.1\n", r":2: .*must be a number and a min yield and weight"),
        ("user,min_yield\n2,0,1\n", r':2: "2,0,1": must be a number and a min yield'),
        ("user,weight\n2,3\n1,1\n2,1\n", r":4: user = 2: stands in line 2, too"),
        ("user,weight,weight\n2,1,1\n", "columns must be"),
        ("user\n2\n", "columns must be"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=rule):
            with_job_values(work, file)


@pytest.mark.parametrize("least", [-0.1, 1.5, float("nan")])
def test_what_is_no_yield_is_refused(least):
    work = random_workload(1, jobs=3, spread_s=15.0)
    with pytest.raises(InputError, match=r"minimum_yield = .*: must be from 0 to 1"):
        work.with_columns(minimum_yield=np.array([0.0, least, 0.0]))


@pytest.mark.parametrize("name", [POLICY, "Greedy*/OPT=AVG"])
def test_a_job_whose_minimum_no_cluster_has_is_refused(name):
    work = random_workload(1, jobs=3, nodes=2, spread_s=15.0)
    work = work.with_columns(
        tasks=np.array([3, 3, 2]),
        need=np.ones(3),
        memory=np.full(3, 0.1),
        minimum_yield=np.array([1.0, 0.6, 1.0]),
    )
    run = simulated(work, name)
    assert run.refused == (0, 1)
    assert run.complete


@pytest.mark.parametrize("name", [POLICY, "GreedyP*", "Greedy*/OPT=AVG"])
def test_commands_make_no_job_larger_than_its_minimum_allows(tmp_path, name):
    granted = 0
    for seed in range(6):
        work = demanding(seed)
        rng = np.random.default_rng(seed)
        commands = ElasticCommands(
            time_s=np.sort(rng.uniform(0.0, 600.0, 80)),
            job_id=rng.choice(work.job_id, 80),
            kind=np.full(80, int(CommandKind.EP)),
            amount=np.ones(80),
        )
        run = simulated(work.with_columns(commands=commands), name)
        assert run.complete
        granted += int(run.answers.granted.sum())
        write_run(run, tmp_path / f"{seed}", measured(run, bound=False), "1")
        assert validate_run(tmp_path / f"{seed}").problems == []
    assert granted
