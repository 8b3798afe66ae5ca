"""Slow (`make test-slow`): every published policy with every option, on three traces, checked independently."""

import pytest

from dfrs.experiments.simulations import SimulationTask, perform
from dfrs.model.run import Penalty
from dfrs.policies.names import all_published
from dfrs.runs.validator.runs import validate_run
from dfrs.simulator.simulation import SimulationSettings
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.lublin import Lublin, generate
from tests.small_policies import BATCH

SEEDS = (1, 2, 10)
"""Reference traces with load 0.42, 0.73 and 1.08."""


@pytest.fixture(scope="module")
def workloads():
    return [to_workload(generate(Lublin(), seed=seed), nodes=128, seed=seed)[0] for seed in SEEDS]


@pytest.mark.slow
@pytest.mark.parametrize("policy", [*BATCH, *all_published()])
def test_its_runs_are_valid(workloads, policy, tmp_path):
    settings = SimulationSettings(penalty=Penalty(seconds=300.0))
    for k, workload in enumerate(workloads):
        task = SimulationTask(workload=workload, policy=policy, settings=settings, directory=tmp_path / str(k))
        run, document = perform(task)
        assert run.complete
        assert document["metrics"]["degradation_from_bound"] >= 1.0 - 1e-9
        report = validate_run(task.directory)
        assert not report.problems, report.problems[:5]
