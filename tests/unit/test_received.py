"""What tasks receive of the CPU: how long they are held up, and the yields and virtual times that follow."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.engine.core import Core
from dfrs.engine.events import Progressed, Ready, Submit
from dfrs.live.controller.received import WINDOW_S, ReceivedTime
from dfrs.live.controller.records import HostLoad
from dfrs.live.drivers.base import TaskId
from dfrs.live.drivers.cpu_times import CpuTimes, cpu_times, stolen_part
from dfrs.live.drivers.run_delays import RunDelays
from dfrs.live.protocol.observed import HostUse, Sample
from dfrs.model.errors import InputError
from tests.small_policies import FairShare

TASK = TaskId(job=1, rank=0, attempt=0)


def looked(*looks, stopped=()):
    """What a driver says after looks at (time, CPU, {thread: (ran, waited)})."""
    delays = RunDelays()
    found = (0.0, 0.0, 0.0)
    for k, (time_s, cpu_s, threads) in enumerate(looks):
        found = delays.look(TASK, time_s, cpu_s, threads, stopped=k in stopped)
    return found


def alone(seconds, ran, waited):
    """Looks at a task of one thread, of which these were counted in each second."""
    return [(float(k), k * ran, {7: (k * ran, k * waited)}) for k in range(seconds + 1)]


@pytest.mark.parametrize(("ran", "waited"), [(1.0, 0.0), (0.25, 0.75), (0.3, 0.2), (0.0, 0.0), (0.0, 1.0)])
def test_one_thread_is_held_up_as_long_as_it_waits(ran, waited):
    assert looked(*alone(8, ran, waited)) == pytest.approx((8.0, 8 * waited, 8 * waited))


def test_threads_that_sleep_hide_nothing():
    looks = [(float(k), 0.25 * k, {1: (0.25 * k, 0.75 * k), 2: (0.0, 0.0), 3: (0.0, 0.0)}) for k in range(5)]
    assert looked(*looks) == pytest.approx((4.0, 3.0, 3.0))


def test_a_wait_that_is_counted_when_it_is_over_is_not_cut_short():
    looks = [(0.0, 0.0, {1: (0.0, 0.0)}), (1.0, 0.1, {1: (0.1, 0.0)}), (2.0, 0.2, {1: (0.2, 1.8)})]
    assert looked(*looks) == pytest.approx((2.0, 1.8, 1.8))


def test_threads_that_have_ended_fared_like_the_others():
    looks = [(0.0, 0.0, {1: (0.0, 0.0)}), (1.0, 0.5, {2: (0.25, 0.25)})]
    assert looked(*looks) == pytest.approx((1.0, 0.5, 0.5))
    nothing_left = [(0.0, 0.0, {}), (1.0, 0.5, {1: (0.5, 0.5)}), (2.0, 1.0, {})]
    assert looked(*nothing_left)[1] == pytest.approx(1.0)


def test_threads_that_were_not_looked_at_fared_like_the_others_at_the_same_time():
    # 128 threads on 64 CPUs: each is held up half of the time.
    delays = RunDelays()
    for k in range(4):
        threads = dict.fromkeys(range(64), (0.5 * k, 0.5 * k))
        found = delays.look(TASK, float(k), 64.0 * k, threads, stopped=False, there=128)
    assert found == pytest.approx((3.0, 1.5, 3 * 64.0))


def test_of_many_threads_those_that_sleep_wait_for_nothing():
    delays = RunDelays()
    for k in range(4):
        threads = {0: (0.25 * k, 0.75 * k)} | dict.fromkeys(range(1, 64), (0.0, 0.0))
        found = delays.look(TASK, float(k), 0.25 * k, threads, stopped=False, there=256)
    assert found == pytest.approx((3.0, 2.25, 2.25))


def test_a_task_that_is_young_is_watched_since_it_began():
    delays = RunDelays()
    counted = {1: (0.5, 1.5)}
    assert delays.look(TASK, 7.0, 0.5, counted, stopped=False, age_s=2.5) == pytest.approx((2.5, 1.5, 1.5))
    # What it got on another host is not counted again.
    assert RunDelays().look(TASK, 7.0, 30.5, counted, stopped=False, age_s=2.5) == pytest.approx((2.5, 1.5, 1.5))
    assert RunDelays().look(TASK, 7.0, 0.5, counted, stopped=False, age_s=60.0) == (0.0, 0.0, 0.0)
    assert RunDelays().look(TASK, 7.0, 0.5, counted, stopped=True, age_s=2.5) == (0.0, 0.0, 0.0)


def test_while_it_is_stopped_nothing_counts():
    looks = alone(4, 0.5, 0.5)
    assert looked(*looks, stopped={2, 3}) == pytest.approx((2.0, 1.0, 1.0))


def test_what_is_gone_is_forgotten():
    delays = RunDelays()
    delays.look(TASK, 0.0, 0.0, {}, stopped=False)
    delays.look(TASK, 1.0, 1.0, {1: (1.0, 0.0)}, stopped=False)
    delays.keep([])
    assert delays.look(TASK, 2.0, 2.0, {1: (2.0, 0.0)}, stopped=False) == (0.0, 0.0, 0.0)


def reported(seconds, cpu, waiting, delayed, most=1.0, received=None):
    """Of a task that uses and waits so much in each of these seconds."""
    received = ReceivedTime() if received is None else received
    for k in range(seconds + 1):
        sample = Sample(
            task=TASK, cpu_s=k * cpu, memory_bytes=1, waiting_s=k * waiting, watched_s=k, delayed_s=k * delayed
        )
        received.report(1.0 if k else 0.0, sample, most)
    return received


@pytest.mark.parametrize(
    ("cpu", "waiting", "delayed", "most", "expected"),
    [
        (0.25, 0.75, 0.75, 1.0, 0.25),
        (0.0, 0.0, 0.0, 1.0, 1.0),
        (0.3, 0.0, 0.0, 1.0, 1.0),
        (0.3, 0.4, 0.4, 1.0, 0.6),
        # It declared half of what it could use: more than that it cannot miss.
        (0.3, 0.7, 0.7, 0.5, 0.6),
        (0.8, 0.2, 0.2, 0.5, 1.0),
        # Four threads on one CPU, which is all that it may have; and on one of two.
        (1.0, 3.0, 0.75, 1.0, 1.0),
        (1.0, 3.0, 0.75, 2.0, 0.5),
    ],
)
def test_the_yield_received(cpu, waiting, delayed, most, expected):
    received = reported(25, cpu, waiting, delayed, most)
    assert received.yield_now == pytest.approx((expected, 0.01))
    assert received.mean_yield == pytest.approx(expected)
    received.run(100.0)
    assert received.virtual_s(140.0) == pytest.approx(40.0 * expected)
    received.stop(150.0)
    assert received.virtual_s(1000.0) == pytest.approx(50.0 * expected)
    assert received.yield_now is None


def test_without_a_measurement_nothing_is_said():
    received = ReceivedTime()
    received.run(0.0)
    received.report(1.0, Sample(task=TASK, cpu_s=1.0, memory_bytes=1), 1.0)
    assert (received.yield_now, received.mean_yield, received.virtual_s(9.0)) == (None, None, None)


def test_another_driver_counts_anew_and_nothing_is_counted_twice():
    received = reported(12, 0.5, 0.5, 0.5)
    reported(12, 1.0, 0.0, 0.0, received=received)
    assert received.mean_yield == pytest.approx(0.75)


def test_the_error_bar_is_short_where_seconds_agree():
    received, cpu, waiting = ReceivedTime(), 0.0, 0.0
    for k in range(11):
        received.report(
            1.0 if k else 0.0,
            Sample(task=TASK, cpu_s=cpu, memory_bytes=1, waiting_s=waiting, watched_s=k, delayed_s=waiting),
            1.0,
        )
        cpu, waiting = cpu + (0.2 if k % 2 else 0.8), waiting + (0.8 if k % 2 else 0.2)
    mean, error = received.yield_now
    assert mean == pytest.approx(0.5)
    assert error == pytest.approx(0.3 / math.sqrt(WINDOW_S))


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=60),
    st.integers(0, 60),
    st.floats(0.1, 2.0),
)
def test_it_goes_on_as_it_was_stored_and_no_yield_leaves_its_range(seconds, stored_after, most):
    received, cpu, waiting = ReceivedTime(), 0.0, 0.0
    whole = ReceivedTime()
    for k, (ran, waited) in enumerate([(0.0, 0.0), *seconds]):
        cpu, waiting = cpu + ran, waiting + waited
        sample = Sample(
            task=TASK, cpu_s=cpu, memory_bytes=1, waiting_s=waiting, watched_s=float(k), delayed_s=min(waiting, k)
        )
        for each in (received, whole):
            each.report(1.0, sample, most)
        if k == stored_after:
            received = ReceivedTime.restored(received.state(1e9), 1e9)
            received.most_cores = most
    assert received.mean_yield == pytest.approx(whole.mean_yield)
    assert 0.0 <= whole.mean_yield <= 1.0
    assert whole.watched_s + whole.block.watched == pytest.approx(len(seconds))


def test_the_core_takes_over_what_was_received():
    core = Core(FairShare(), np.ones((1, 2)))
    commands = core.handle(Submit(1, 1, 1.0, 0.1), 0.0)
    core.handle(Ready(commands.serial, np.zeros(1)), 0.0)
    core.handle(Progressed(np.array([0, 7]), np.array([3.0, 9.0])), 10.0)
    assert core.snapshot().jobs["virtual_s"].tolist() == [3.0]
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="virtual_s"):
            core.handle(Progressed(np.array([0]), np.array([bad])), 11.0)


def test_what_a_host_does_is_read_of_the_cpus_that_are_asked_for(tmp_path):
    line = "{} 100 10 40 5000 30 4 6 25 0 0\n"
    (tmp_path / "stat").write_text("".join(line.format(name) for name in ("cpu", "cpu0", "cpu1", "cpu10")) + "intr 1\n")
    assert cpu_times([0, 10], tmp_path) == pytest.approx(CpuTimes(busy_s=3.2, steal_s=0.5))
    assert cpu_times([0, 2], tmp_path) is None
    assert cpu_times([], tmp_path) is None
    assert cpu_times([0], tmp_path / "none") is None


def test_the_part_that_is_stolen():
    first, second = CpuTimes(3.0, 1.0), CpuTimes(3.6, 1.4)
    assert stolen_part(first, second) == pytest.approx(0.4)
    # A host that counts anew says nothing.
    assert stolen_part(second, first) == stolen_part(first, first) == 0.0


def test_a_tick_or_two_do_not_say_what_was_stolen():
    # It runs for 5 ms in each second, and 10 ms are stolen of it: after seven seconds that is known.
    delays = RunDelays()
    for k in range(12):
        threads = {1: (0.005 * k, 0.0)}
        found = delays.look(TASK, float(k), 0.005 * k, threads, stopped=False, host=CpuTimes(0.005 * k, 0.01 * k))
    assert found[1] == pytest.approx(0.05, abs=0.011)


@pytest.mark.parametrize(
    ("ran", "waited", "stolen", "held_up"),
    [(0.6, 0.0, 0.4, 0.4), (0.3, 0.5, 0.2, 0.7), (0.3, 0.0, 0.3, 0.3), (1.0, 0.0, 0.4, 0.0), (0.6, 0.0, 0.0, 0.0)],
)
def test_what_is_stolen_of_a_cpu_holds_up_who_has_it(ran, waited, stolen, held_up):
    # Of a CPU that was wanted in all of the time that the task did not sleep. A kernel that counts stolen time as run
    # has no time left.
    delays, found = RunDelays(), None
    for k, (time_s, cpu_s, threads) in enumerate(alone(8, ran, waited)):
        host = CpuTimes((ran + waited) * k, stolen / ran * (ran + waited) * k if waited else stolen * k)
        found = delays.look(TASK, time_s, cpu_s, threads, stopped=False, host=host)
    assert found == pytest.approx((8.0, 8 * held_up, 8 * held_up), rel=1e-6)


def test_what_a_host_does_now_follows_its_reports():
    load = HostLoad()
    for k in range(40):
        load.report(float(k), HostUse(cpus=(0, 1), busy_s=1.5 * k, steal_s=0.25 * k))
    assert (load.busy_cores, load.steal_cores) == pytest.approx((1.5, 0.25), abs=1e-3)
    load.report(40.0, None)
    assert (load.busy_cores, load.steal_cores) == (0.0, 0.0)
