"""How much the live controller bears: submissions a second, and decisions with 1,000 nodes and 10,000 running jobs.

Agents are in memory (`tests.live_cluster`), so what is measured is the controller: API and sockets are not in it.
"""

import asyncio
import resource
import sys
import tempfile
import time

from tests.live_cluster import GIB, World, make, until

from dfrs.live.resources import JobRequest, JobState

CLIENTS = 20
PATIENCE_S = 600.0


async def _begun(path, nodes, cpus=4.0):
    world = World(watched=False)
    controller = make(path, clock=time.time, report_s=1.0)
    await controller.start()
    for k in range(nodes):
        world.node(f"n{k}", host=f"h{k}", cpus=cpus).attach(controller)
    await until(lambda: all(node.welcomes for node in world.nodes.values()), "nodes welcomed", PATIENCE_S)
    return world, controller


async def _report_all(world):
    """All agents say each second that they live, one after the other."""
    while True:
        for node in world.nodes.values():
            node.clock_s += 1.0
            node.report()
            await asyncio.sleep(1.0 / len(world.nodes) / 2)


async def _slowest_turn(found):
    """The longest that the event loop did not come round, in seconds, into `found`."""
    while True:
        begin_s = time.perf_counter()
        await asyncio.sleep(0.005)
        found.append(time.perf_counter() - begin_s)


async def _load(path, nodes, jobs):
    world, controller = await _begun(path, nodes)
    turns = []
    watch = asyncio.create_task(_slowest_turn(turns))
    reports = asyncio.create_task(_report_all(world))
    left = iter(range(jobs))
    begin_s = time.perf_counter()

    async def client():
        for _ in left:
            await controller.submit(
                JobRequest(command=("forever",), cpu_cores=0.5, memory_bytes=GIB // 8), "ann", "ann"
            )

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    submitted_s = time.perf_counter() - begin_s
    await until(lambda: controller.cluster().jobs[JobState.RUNNING] == jobs, "all jobs run", PATIENCE_S)
    running_s = time.perf_counter() - begin_s
    result = {
        "submissions_per_s": jobs / submitted_s, "all_running_s": running_s,
        "decisions": controller.state.core.decisions, "slowest_turn_s": max(turns),
        "commit_s": controller.journal.commit_s,
    }  # fmt: skip
    turns.clear()
    decisions, steps = [], []
    for _ in range(5):
        before = controller.state.core.decisions
        begin_s = time.perf_counter()
        await controller.submit(JobRequest(command=("forever",), cpu_cores=0.5, memory_bytes=GIB // 8), "ann", "ann")
        await until(lambda before=before: controller.state.core.decisions > before, "a decision", PATIENCE_S)
        decisions.append(controller.state.decision_s)
        steps.append(time.perf_counter() - begin_s)
    watch.cancel()
    reports.cancel()
    result |= {
        "decision_s": max(decisions), "submit_to_decided_s": max(steps), "slowest_turn_later_s": max(turns),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip
    await controller.stop()
    return result


def load(nodes=1000, jobs=10_000):
    """Figures of one run, each with its unit in its name."""
    with tempfile.TemporaryDirectory() as path:
        return asyncio.run(_load(path, nodes, jobs))


if __name__ == "__main__":
    sizes = [int(each) for each in sys.argv[1:3]] or [1000, 10_000]
    for name, value in load(*sizes).items():
        print(f"{name:24} {value:.4g}")
