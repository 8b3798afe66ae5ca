"""What pauses, resumes and moves cost: measured, estimated, told once for each change, heeded."""

import asyncio
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.cli.views.live import price_line
from dfrs.live.api.prometheus import Meters
from dfrs.live.controller.prices import GAP_S, MOST_SAMPLES, PriceEstimates
from dfrs.live.controller.records import TaskRecord
from dfrs.live.drivers.base import TaskState
from dfrs.live.protocol.observed import Cost
from dfrs.live.protocol.resources import JobState, Price
from dfrs.model.decisions import Prices
from dfrs.model.run import Penalty
from dfrs.policies.names import find_policy
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.testing import InMemoryCluster, until
from dfrs.testing.policies import SnapshotJob, build_snapshot, random_workload
from tests.live_fakes import task_id

AUTO = "GreedyPM*/per=auto/OPT=MIN/MVT=600"


def observed(*seconds, verb="pause", estimates=None):
    estimates = estimates or PriceEstimates()
    for version, each in enumerate(seconds, 1):
        estimates.observe(TaskRecord(task_id()), Cost(verb=verb, version=version, seconds=each))
    return estimates


def test_an_estimate_is_a_median_and_needs_three():
    assert observed(1.0, 1.0).changed(Prices(), 0.0) is None
    assert observed(1.0, 2.0, 900.0).changed(Prices(), 0.0) == Prices(pause_s=2.0)
    assert observed(*[5.0] * 20, *[1.0] * MOST_SAMPLES).changed(Prices(), 0.0) == Prices(pause_s=1.0)
    assert observed(1.0, 2.0, 900.0).samples == {"pause": 3, "resume": 0, "move": 0}


@pytest.mark.parametrize(
    ("told_s", "found_s", "changed"),
    [
        (0.0, 0.1, False),
        (0.0, 0.11, True),
        (0.2, 0.29, False),
        (1.0, 1.25, False),
        (1.0, 1.3, True),
        (1.0, 0.7, True),
        (0.2, 0.05, True),
        (300.0, 360.0, False),
    ],
)
def test_only_changes_by_a_quarter_and_a_tenth_of_a_second_are_told(told_s, found_s, changed):
    estimates = observed(*[found_s] * 3, verb="move")
    told = Prices(pause_s=4.0, move_s=told_s)
    assert estimates.changed(told, 0.0) == (replace(told, move_s=found_s) if changed else None)


def test_prices_change_at_most_once_a_minute():
    estimates = observed(*[1.0] * 3)
    assert estimates.changed(Prices(), 5.0) == Prices(pause_s=1.0)
    estimates.tell(5.0)
    observed(*[9.0] * MOST_SAMPLES, estimates=estimates)
    assert estimates.changed(Prices(pause_s=1.0), 5.0 + GAP_S - 0.1) is None
    assert estimates.changed(Prices(pause_s=1.0), 5.0 + GAP_S) == Prices(pause_s=9.0)


COSTS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["pause", "resume", "move"])), max_size=12)


@given(said=COSTS, data=st.data())
def test_costs_that_are_repeated_or_come_late_change_nothing(said, data):
    """An agent says its last cost again and again; a message from before may come after one from later."""
    order = sorted(set(said))
    seconds = {each: float(k) for k, each in enumerate(order)}
    estimates, task, taken = PriceEstimates(), TaskRecord(task_id()), []
    for k, each in enumerate(order):
        taken.append(each)
        again = data.draw(st.lists(st.sampled_from(order[: k + 1]), max_size=3))
        for version, verb in (each, *again):
            estimates.observe(task, Cost(verb=verb, version=version, seconds=seconds[version, verb]))
    for verb, deque in estimates._measured.items():
        assert list(deque) == [seconds[each] for each in taken if each[1] == verb]
        if len(deque) >= 3:
            found = getattr(estimates.changed(Prices(), 0.0) or Prices(), f"{verb}_s")
            assert found == pytest.approx(median(deque))


def test_the_core_is_told_once_and_again_after_a_restart_of_the_controller(tmp_path):
    async def story():
        async with InMemoryCluster(AUTO, nodes=1, directory=tmp_path) as live:
            live.nodes["n1"].costs = {"pause": 2.0, "resume": 0.5}
            job = await live.submit(cpu_cores=1.0)
            await live.reaches(job, JobState.RUNNING)
            for _ in range(5):
                await live.controller.hold(job, "ann")
                await live.reaches(job, JobState.HELD)
                await until(lambda: states(live) == [TaskState.PAUSED])
                await live.controller.release(job, "ann")
                await live.reaches(job, JobState.RUNNING)
                await until(lambda: states(live) == [TaskState.RUNNING])
                live.hosts.tick(0.1)
            await until(lambda: live.controller.state.prices.samples == {"pause": 5, "resume": 5, "move": 0})
            live.hosts.tick(70)
            await until(lambda: live.controller.cluster().prices["resume"].seconds == 0.5)
            assert live.controller.cluster().prices == {
                "pause": Price(seconds=2.0, samples=5),
                "resume": Price(seconds=0.5, samples=5),
                "move": Price(seconds=0.0, samples=0),
            }
            text = Meters().text(live.controller.snapshots.make(), live.controller.measures()).decode()
            assert 'dfrs_price_seconds{of="pause"} 2.0' in text
            for _ in range(5):
                live.hosts.tick(70)
                await until(lambda steps=live.controller.engine.steps: live.controller.engine.steps > steps + 2)
            assert len(await told(live)) in {1, 2}
            before = await told(live)
            await live.restart()
            assert live.controller.state.core.prices == Prices(2.0, 0.5, 0.0)
            assert live.controller.state.mismatches == 0
            assert await told(live) == before

    def states(live):
        return [task.state for task in live.nodes["n1"].tasks.values()]

    async def told(live):
        return [line for line in [line async for line in live.controller.log()] if '"prices"' in line]

    asyncio.run(story())


def test_prices_are_shown_with_the_number_measured():
    prices = {"pause": Price(seconds=1.25, samples=12), "resume": Price(seconds=0.5, samples=1)}
    line = price_line(prices | {"move": Price(seconds=0.0, samples=0)})
    assert line.plain == "measured cost to a job: pause 1.2 s (12 times), resume 0.5 s (once)"


@given(pause_s=st.floats(0, 1e6), resume_s=st.floats(0, 1e6), move_s=st.floats(0, 1e6), now_s=st.floats(0, 1e6))
def test_the_period_is_thirty_times_the_price_within_an_hour_and_a_minute(pause_s, resume_s, move_s, now_s):
    shot = replace(build_snapshot([SnapshotJob()], now_s=now_s), prices=Prices(pause_s, resume_s, move_s))
    period_s = min(max(30.0 * max(pause_s + resume_s, move_s), 60.0), 3600.0)
    wake_at_s = find_policy(AUTO).decide(shot).wake_at_s
    assert wake_at_s == find_policy(f"GreedyPM*/per={period_s!r}/OPT=MIN/MVT=600").decide(shot).wake_at_s


@pytest.mark.parametrize(
    ("penalty", "seconds"),
    [(Penalty(), 0.0), (Penalty(seconds=300.0), 300.0), (Penalty(seconds=1.0, bytes_per_s=1e9, node_bytes=8e9), 9.0)],
)
def test_a_policy_sees_in_simulation_what_the_run_assumes(penalty, seconds):
    seen = []

    class Looks:
        def decide(self, snapshot):
            seen.append(snapshot.prices)
            return find_policy("EASY").decide(snapshot)

    workload = random_workload(1, jobs=20)
    workload = workload.with_columns(tasks=np.full(20, 2), memory=np.full(20, 0.5))
    simulation = Simulation(workload, Looks(), "Looks", SimulationSettings(penalty=penalty))
    simulation.run()
    assert set(seen) == {Prices(resume_s=seconds, move_s=seconds)}
    before = Simulation(workload, Looks(), "Looks", SimulationSettings(penalty=penalty))
    before.restore({name: array for name, array in simulation.state().items() if name != "core_prices"})
    assert before._core.prices == seen[0]
