"""A job that no open nodes can hold stops nobody on a live cluster either."""

import asyncio

import numpy as np
import pytest

from dfrs.live.protocol.resources import ENDED, JobState
from dfrs.testing import InMemoryCluster, run_virtually
from dfrs.testing.in_memory import GIB
from tests.unit.test_aside import NODES, POLICIES

STEP_S = 10.0


@pytest.mark.parametrize("name", [name for name in POLICIES if "MCB" in name or "/per" in name])
def test_twenty_jobs_and_a_wide_one_while_a_node_is_closed(name):
    """The jobs of the simulated test of that name."""
    rng = np.random.default_rng(1)
    submit_s, run_s = np.sort(rng.integers(1, 600, 20)).tolist(), rng.integers(100, 1_000, 20).tolist()

    async def story(_loop):
        async with InMemoryCluster(name, nodes=NODES, cpus=1.0, memory_bytes=GIB) as live:
            await live.controller.drain("n4", "root")
            begin, jobs, wide = live.hosts.now, [], None
            while len(jobs) < 20 or any(live.job(job).state not in ENDED for job in jobs):
                while len(jobs) < 20 and submit_s[len(jobs)] <= live.hosts.now - begin:
                    if len(jobs) == 4 and wide is None:
                        wide = await live.submit("work", "100", tasks=NODES, cpu_cores=1.0, memory_bytes=GIB)
                    work = str(run_s[len(jobs)])
                    jobs.append(await live.submit("work", work, cpu_cores=1.0, memory_bytes=int(0.4 * GIB)))
                live.tick(STEP_S)
                await asyncio.sleep(0.3)
                assert live.hosts.now - begin < 30_000.0
            ended = [live.job(job) for job in jobs]
            assert {job.state for job in ended} == {JobState.DONE}
            assert live.job(wide).state is JobState.WAITING
            assert "the nodes that are up can hold only 7 of its 8 tasks" in live.job(wide).why
            return np.array([job.ended_at - job.submitted_at for job in ended])

    flow_s, _ = run_virtually(1, story)
    assert (flow_s / run_s).mean() <= 5.5
