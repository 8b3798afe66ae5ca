"""How much the live controller bears: submissions a second, and decisions with 1,000 nodes and 10,000 running jobs.

Agents are in memory (`dfrs.testing`), so what is measured is the controller: API and sockets are not in it.
"""

import asyncio
import resource
import tempfile
import time

from benchmarks.common import console
from benchmarks.online import table
from dfrs.live.protocol.resources import JobRequest, JobState
from dfrs.testing import InMemoryHosts, make_controller, until
from dfrs.testing.in_memory import GIB

NODES, JOBS, CLIENTS = 1_000, 10_000, 20
DECISION_GOAL_S = 1.0
WORDS = {
    "submissions_per_s": "submissions of 20 clients, without HTTP",
    "decision_s": "slowest of 5 decisions",
    "submit_to_decided_s": "from submission to decision",
    "slowest_turn_s": "longest the API waits, while filling",
    "slowest_turn_later_s": "longest the API waits, afterwards",
    "memory_mib": "memory, agents included",
}
PATIENCE_S = 600.0


async def _begun(path, nodes, cpus=4.0):
    world = InMemoryHosts(watched=False)
    controller = make_controller(path, clock=time.time, report_s=1.0)
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
        "submissions_per_s": jobs / submitted_s,
        "all_running_s": running_s,
        "decisions": controller.state.core.decisions,
        "slowest_turn_s": max(turns),
        "commit_s": controller.database.commit_s,
    }
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
        "decision_s": max(decisions),
        "submit_to_decided_s": max(steps),
        "slowest_turn_later_s": max(turns),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    await controller.stop()
    return result


def load(nodes=NODES, jobs=JOBS):
    """Figures of one run, each with its unit in its name."""
    with tempfile.TemporaryDirectory() as path:
        return asyncio.run(_load(path, nodes, jobs))


def main():
    """The figures beside their goals."""
    found = load()
    made = table(f"{NODES:,} agents in memory, {JOBS:,} jobs running", "what", "measured", "goal", "met")
    for name, text, goal in (
        ("submissions_per_s", "{:,.0f}/s", None),
        ("decision_s", "{:.3f} s", DECISION_GOAL_S),
        ("submit_to_decided_s", "{:.3f} s", None),
        ("slowest_turn_s", "{:.3f} s", None),
        ("slowest_turn_later_s", "{:.3f} s", None),
        ("memory_mib", "{:,.0f} MiB", None),
    ):
        met = "" if goal is None else "yes" if found[name] <= goal else "NO"
        made.add_row(WORDS[name], text.format(found[name]), "" if goal is None else f"{goal:g} s", met)
    console.print()
    console.print(made)


if __name__ == "__main__":
    main()
