"""10,000 random streams of users' commands: no job is lost, and the independent checker accepts every run."""

import numpy as np
import pytest

from dfrs.policies.names import find_policy
from tests.cases import Seeded
from tests.elastic_cases import elastic_run, fast_directory, problems_of, random_elastic_workload, random_settings

POLICIES = (
    "EASY-E",
    "EASY-DE",
    "LOS-E",
    "LOS-DE/LOOKAHEAD=3",
    "Delayed-LOS-E/CS=2",
    "Hybrid-LOS-E",
    "Hybrid-LOS-E/CS=AUTO",
    "Delayed-LOS-E/UNIT=2",
    "GreedyPM*/per=10/OPT=MIN/MVT=5",
    "GreedyP*",
    "Greedy*/OPT=AVG",
    "MCB*/per=10",
    "/stretch-per=10",
    "Hybrid-LOS",
)
STREAMS, CHUNKS = 10_000, 20
ALWAYS = 3
"""So many chunks are part of `make test`; all are of `make test-slow`."""


@pytest.mark.parametrize(
    "chunk", [pytest.param(k, marks=[pytest.mark.slow] if k >= ALWAYS else []) for k in range(CHUNKS)]
)
def test_no_stream_of_commands_loses_a_job(chunk):
    wrong, granted = {}, 0
    with fast_directory() as directory:
        for seed in range(chunk, STREAMS, CHUNKS):
            name = POLICIES[seed // CHUNKS % len(POLICIES)]
            source = Seeded(np.random.default_rng(seed))
            workload = random_elastic_workload(source)
            # Batch policies plan with estimates; some are too short, some too long.
            known = np.where(np.isnan(workload.estimate_s), workload.run_s, workload.estimate_s)
            settings = random_settings(source, workload.nodes)
            run = elastic_run(workload.with_columns(estimate_s=known), find_policy(name), settings)
            assert len(run.answers) == len(workload.commands)
            granted += int(run.answers.granted.sum())
            done = np.isfinite(run.finish_s)
            done[list(run.refused)] = True
            problems = problems_of(run, directory)
            if problems or not done.all():
                wrong[seed, name] = problems[:2] or ["a job is lost"]
    assert not wrong, dict(list(wrong.items())[:5])
    assert granted > STREAMS // CHUNKS
