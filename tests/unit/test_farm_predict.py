"""Predictions: [Atif2011]'s worked examples to the digits printed, where they close; what holds of any profile."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.model.hardware import COLOCATED, SPREAD, Hardware, Latency, Partition, Profile, Waits
from dfrs.profiling.predict import (
    FREE,
    accuracy,
    blocking_time,
    cpu_time,
    non_blocking_time,
    predict,
    required_bytes,
    saved,
    saved_per_block,
    waiting_time,
)
from dfrs_reproduction.atif2011 import published
from dfrs_reproduction.atif2011.programs import arrive_f
from dfrs_reproduction.atif2011.published import (
    EVENTS_A_COUNT,
    MIGRATIONS,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TABLE_5,
    TABLE_6,
    TAU_S,
)

FARM = arrive_f()
EVENTS = ("flop", "l1_miss", "l2_miss")
A, B, C = FARM.partitions[:3]


def counters_of(benchmark: str) -> dict[str, float]:
    row = next(row for row in TABLE_4 if row.benchmark == benchmark)
    return {event: float(count * EVENTS_A_COUNT) for event, count in zip(EVENTS, row.counts, strict=True)}


def profile_of(benchmark: str, **changes: object) -> Profile:
    fields: dict[str, object] = {
        "job": benchmark,
        "cluster": "A",
        "tau_s": TAU_S,
        "processes": 8,
        "counters": counters_of(benchmark),
    }
    return Profile(**(fields | changes))  # type: ignore[arg-type]


# The worked examples of section 7.3.2: the CPU model, from A to B.


def test_the_farm_has_the_penalties_of_table_3():
    for cluster in (A, B):
        assert (cluster.frequency_hz, *(cluster.cycles[event] for event in EVENTS)) == TABLE_3[cluster.name]
    assert (C.frequency_hz, dict(C.cycles)) == (B.frequency_hz, dict(B.cycles))


@pytest.mark.parametrize("row", TABLE_4, ids=lambda row: row.benchmark)
def test_table_4_closes_with_counts_of_500_000_events_of_one_process(row: published.Counters):
    for cluster, printed in ((A, row.seconds_a), (B, row.seconds_b)):
        for event, value in zip(EVENTS, printed, strict=True):
            ours = cpu_time({event: counters_of(row.benchmark)[event]}, cluster)
            if (row.benchmark, cluster.name, event) == ("LU.B.8", "A", "flop"):
                assert (round(ours, 2), value) == (32.26, 32.2)  # cut off, where all others are rounded
            else:
                assert round(ours, 1) == value
    # Taken as sums over the eight processes, a process would be busy for 2 to 5 of the 50 seconds.
    assert cpu_time(counters_of(row.benchmark), A) / 8 < 6


def test_equations_17_and_18_ft():
    counters = counters_of("FT.B.8")
    block = saved_per_block((cpu_time(counters, A), cpu_time(counters, B)))
    assert block == pytest.approx(9.4818, abs=5e-5)  # eq 17 prints 9.47; its rounded terms add up to 9.5
    assert published.EQ_17 == 9.47
    assert round(saved(block, 98.2, TAU_S), 1) == published.EQ_18
    # 98.2 - 18.6 is 79.6, where the text has 79.4 and Table 2 has 79.3
    assert round(98.2 - published.EQ_18, 1) == 79.6
    assert (published.TEXT_PREDICTED_S["FT.B.8", "A"], TABLE_2[1].predicted_s) == (79.4, 79.3)
    assert round(accuracy(98.2 - saved(block, 98.2, TAU_S), 87.6), 1) == 90.8  # 90.5 is of Table 2's 79.3
    assert round(accuracy(79.3, 87.6), 1) == TABLE_2[1].accuracy == 90.5


def test_the_lu_example_closes_with_its_rounded_times():
    row = TABLE_4[1]
    block = saved_per_block((sum(row.seconds_a), sum(row.seconds_b)))
    assert block == pytest.approx(23.2)
    total = saved(block, 199.7, TAU_S)
    assert int(total * 10) / 10 == published.TEXT_SAVED_S["LU.B.8", "A"] == 92.6
    assert round(199.7 - 92.6, 1) == published.TEXT_PREDICTED_S["LU.B.8", "A"] == TABLE_2[2].predicted_s
    assert round(accuracy(107.1, 81.3)) == TABLE_2[2].accuracy == 76
    # with all digits of the counts it is 92.8, and 106.9 s
    counters = counters_of("LU.B.8")
    exact = saved(saved_per_block((cpu_time(counters, A), cpu_time(counters, B))), 199.7, TAU_S)
    assert (round(exact, 1), round(199.7 - exact, 1)) == (92.8, 106.9)


@pytest.mark.parametrize(("row", "ours"), [*zip(TABLE_2, (81.3, 90.5, 75.9, 90.8), strict=True)], ids=str)
def test_accuracies_of_table_2(row: published.Accuracy, ours: float):
    assert round(accuracy(row.predicted_s, row.there_s), 1) == ours
    assert row.accuracy == pytest.approx(ours, abs=0.1 + 1e-9)


@pytest.mark.parametrize(
    ("row", "ours"), [*zip(TABLE_2, (75.6, 82.2, 55.5, 56.3), strict=True)], ids=lambda x: getattr(x, "benchmark", "")
)
def test_accuracies_by_frequency_close_for_two_of_four(row: published.Accuracy, ours: float):
    assert row.by_frequency is not None
    assert round(accuracy(row.here_s * 2.2 / 3.0, row.there_s), 1) == ours
    closes = abs(row.by_frequency - ours) <= 0.1 + 1e-9
    assert closes == (row.benchmark in {"CG.B.8", "HPL.N15K"})  # FT: 88.6, LU: 46.0 are printed


# The worked examples of section 7.3.3: the communication model, from C to B.


def test_equations_19_and_20_ft():
    row = TABLE_6[0]
    block = saved_per_block((0.0, 0.0), (row.seconds_c, row.seconds_b))
    assert round(block, 2) == published.EQ_19
    total = saved(block, 375.0, TAU_S)
    assert round(total, 1) == published.EQ_20
    assert round(375 - total, 1) == published.TEXT_PREDICTED_S["FT.B.8", "C"] == 93.7
    assert round(accuracy(93.7, 87.6), 1) == 93.5
    # Table 5 has 90.15 s and 97.2 % of the same run; those two agree with each other
    assert (TABLE_5[1].predicted_s, TABLE_5[1].accuracy) == (90.15, 97.2)
    assert round(accuracy(90.15, 87.6), 1) == 97.2


def test_the_lu_messages_example_closes():
    rows = TABLE_6[1:]
    block = saved_per_block((0.0, 0.0), (sum(r.seconds_c for r in rows), sum(r.seconds_b for r in rows)))
    predicted = 106.8 - saved(block, 106.8, TAU_S)
    assert round(predicted, 2) == published.TEXT_PREDICTED_S["LU.B.8", "C"] == TABLE_5[2].predicted_s == 74.38
    assert round(accuracy(predicted, 81.3), 1) == TABLE_5[2].accuracy == 91.5


@pytest.mark.parametrize(
    ("row", "ours_c", "ours_b"),
    [(TABLE_6[0], 42.22, 4.63), (TABLE_6[1], 8.79, 6.02), (TABLE_6[2], 5.65, 0.64)],
    ids=["FT", "LU small", "LU large"],
)
def test_messages_times_latency_closes_for_ft_only(row: published.Messages, ours_c: float, ours_b: float):
    messages = {int(row.size_bytes): row.count}
    times = [round(blocking_time(messages, cluster.latency), 2) for cluster in (C, B)]
    assert times == [ours_c, ours_b]
    ratios = row.seconds_c / ours_c, row.seconds_b / ours_b
    if row.benchmark == "FT.B.8":
        assert ratios == pytest.approx((1.0, 1.0), abs=0.02)
    elif row.size_bytes < 1e4:
        assert ratios == pytest.approx((1.71, 1.71), abs=0.01)  # both sub-clusters alike: the count is too small
    else:
        assert ratios == pytest.approx((2.07, 1.97), abs=0.01)


@pytest.mark.parametrize(
    ("row", "ours"), [*zip(TABLE_5, (87.5, 97.2, 91.5, 77.6), strict=True)], ids=lambda x: getattr(x, "benchmark", "")
)
def test_accuracies_of_table_5_close_for_two_of_four(row: published.Accuracy, ours: float):
    assert round(accuracy(row.predicted_s, row.there_s), 1) == ours
    closes = abs(row.accuracy - ours) <= 0.1
    assert closes == (row.benchmark in {"FT.B.8", "LU.B.8"})  # CG: 88.8, HPL: 71.1 are printed


def test_hpl_on_c_is_printed_with_its_time_on_a():
    assert TABLE_5[3].here_s == TABLE_2[3].here_s == 150.7


# Tables of migrations and of experiments.


@pytest.mark.parametrize("table", sorted(MIGRATIONS))
def test_time_saved_closes_but_in_table_18(table: int):
    migration = MIGRATIONS[table]
    ours = sum(job.base_s - job.migrated_s for job in migration.jobs)
    expected = {14: (2697, None), 18: (786, 719)}.get(table, (migration.saved_s, migration.saved_s))
    assert (ours, migration.saved_s) == expected


def test_the_savings_of_experiment_1_do_not_add_up():
    ours = sum(job.base_s - job.migrated_s for table in (12, 13, 14) for job in MIGRATIONS[table].jobs)
    assert ours == 3727  # section 8.1 has 3984


@pytest.mark.parametrize("number", [1, 2, 3])
def test_averages_and_throughput_of_experiments_close(number: int):
    experiment = published.EXPERIMENTS[number]
    for field in dataclasses.fields(published.Runs):
        mean = np.mean([getattr(run, field.name) for run in experiment.runs])
        assert abs(mean - getattr(experiment.average, field.name)) < 1, field.name
    average = experiment.average
    assert round(100 * (experiment.jobs / average.jobs_then - 1)) == experiment.throughput


def test_percentages_of_experiments_have_different_bases():
    one, two, three = (published.EXPERIMENTS[k] for k in (1, 2, 3))
    a, b, c = one.average, two.average, three.average
    to_migration = [
        (x / y - 1) * 100
        for x, y in (
            (a.base_total_s, a.total_s),
            (a.base_wait_s, a.wait_s),
            (a.base_turnaround_s, a.turnaround_s),
        )
    ]
    assert to_migration == pytest.approx([one.total, one.wait, one.turnaround], abs=0.5)
    to_base = [
        (1 - y / x) * 100
        for x, y in (
            (a.base_total_s, a.total_s),
            (a.base_wait_s, a.wait_s),
            (a.base_turnaround_s, a.turnaround_s),
        )
    ]
    assert to_base == pytest.approx([24.5, 35.6, 35.0], abs=0.05)
    assert (1 - b.total_s / b.base_total_s) * 100 == pytest.approx(two.total, abs=0.05)
    assert (1 - b.turnaround_s / b.base_turnaround_s) * 100 == pytest.approx(1.0, abs=0.05)  # 7 is printed
    assert c.base_wait_s / c.wait_s * 100 == pytest.approx(three.wait, abs=0.5)
    assert c.base_turnaround_s / c.turnaround_s * 100 == pytest.approx(239.4, abs=0.05)  # 230 is printed
    assert (c.base_total_s / c.total_s - 1) * 100 == pytest.approx(three.total, abs=0.5)


# `predict` as a whole.


def test_predict_gives_the_worked_example():
    prediction = predict(profile_of("LU.B.8"), FARM)
    assert prediction.saved_s[1] == pytest.approx([23.238, 23.238], abs=1e-3)
    assert prediction.saved_of(199.7)[1, SPREAD] == pytest.approx(92.81, abs=0.01)
    assert prediction.speeds[1, SPREAD] == pytest.approx(50 / (50 - 23.238), abs=1e-3)
    assert prediction.speeds[0, SPREAD] == 1.0
    blocking = {8_388_608: 57.83}
    moved = predict(profile_of("FT.B.8", cluster="C", counters={}, blocking=blocking), FARM)
    assert moved.saved_s[1, SPREAD] == pytest.approx(57.83 * (0.73 - 0.08))
    assert moved.saved_s[2, COLOCATED] == pytest.approx(57.83 * 0.73)


def test_what_our_own_column_says_of_messages():
    """The last column of the page: counts times latencies, where the document has its printed times."""
    ft = profile_of("FT.B.8", cluster="C", counters={}, blocking={8_388_608: 57.83})
    lu = profile_of("LU.B.8", cluster="C", counters={}, blocking={1790: 46288.0, 250_000: 471.0})
    for profile, actual_s, there_s, time_s, percent in (
        (ft, 375.0, 87.6, 93.1, 94.1),
        (lu, 106.8, 81.3, 90.2, 90.2),
    ):
        ours = actual_s - predict(profile, FARM).saved_of(actual_s)[1, SPREAD]
        assert (round(ours, 1), round(accuracy(ours, there_s), 1)) == (time_s, percent)


def test_an_event_without_cycles_is_refused():
    with pytest.raises(InputError, match=r"counters.tlb_miss: sub-cluster A does not say how many cycles it costs"):
        predict(profile_of("FT.B.8", counters={"tlb_miss": 1.0}), FARM)
    with pytest.raises(InputError, match="cluster = Z: the farm ARRIVE-F has only A, B, C, D"):
        predict(profile_of("FT.B.8", cluster="Z"), FARM)


def test_a_network_that_was_not_measured_gives_nan():
    clusters = (A, dataclasses.replace(B, latency=None))
    farm = Hardware(name="", partitions=clusters)
    prediction = predict(profile_of("FT.B.8", blocking={8: 1.0}, waiting={8: Waits(count=1, mean_s=1)}), farm)
    assert np.isnan(prediction.speeds).tolist() == [[False, False], [True, False]]
    there = predict(profile_of("FT.B.8", cluster="B", blocking={8: 1.0}), farm)
    assert np.isnan(there.speeds).tolist() == [[True, True], [False, True]]
    assert there.speeds[1, SPREAD] == 1.0


def test_a_profile_that_explains_more_than_tau_is_taken_in_proportion():
    prediction = predict(profile_of("LU.B.8", tau_s=10.0), FARM)
    a, b = prediction.cpu_s[:2]
    assert prediction.speeds[1, SPREAD] == pytest.approx(a / b)
    assert prediction.saved_s[1, SPREAD] == pytest.approx(10.0 - prediction.time_s[1, SPREAD])
    assert prediction.saved_of(100.0)[1, SPREAD] == pytest.approx(100.0 * (1 - b / a))
    assert np.isfinite(prediction.speeds).all()


def test_memory_rule_of_section_6():
    plain = profile_of("FT.B.8", memory_bytes=300, swap_bytes=0)
    assert required_bytes(plain, 512) == 300
    assert required_bytes(dataclasses.replace(plain, swap_bytes=200), 512) == pytest.approx((512 + 200) * 1.1)
    assert predict(dataclasses.replace(plain, swap_bytes=200), FARM).swapping


AMOUNTS = st.floats(0, 1e12)
SIZES = st.integers(1, 2**30)
LATENCIES = st.lists(SIZES, min_size=1, max_size=5, unique=True).flatmap(
    lambda sizes: st.lists(st.floats(1e-6, 10), min_size=len(sizes), max_size=len(sizes)).map(
        lambda seconds: Latency(sizes_bytes=tuple(sorted(sizes)), seconds=tuple(seconds))
    )
)


@st.composite
def clusters(draw: st.DrawFn, name: str) -> Partition:
    return Partition(
        name=name,
        machines=draw(st.integers(1, 3)),
        cores=draw(st.integers(1, 4)),
        frequency_hz=draw(st.floats(1e8, 1e10)),
        cycles={"flop": draw(st.floats(0.1, 100)), "l1_miss": draw(st.floats(0.1, 100))},
        latency=draw(LATENCIES),
        node_memory_bytes=2**30,
        machine_memory_bytes=2**32,
    )


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    return Profile(
        job="",
        cluster="A",
        tau_s=draw(st.floats(1, 1000)),
        processes=8,
        counters={"flop": draw(AMOUNTS), "l1_miss": draw(AMOUNTS)},
        blocking=draw(st.dictionaries(SIZES, st.floats(0, 100), max_size=4)),
        waiting=draw(
            st.dictionaries(SIZES, st.builds(Waits, count=st.floats(0, 100), mean_s=st.floats(0, 10)), max_size=4)
        ),
        colocated=draw(st.booleans()),
    )


@given(profiles(), clusters("A"), clusters("B"))
def test_moving_to_identical_hardware_saves_nothing(profile: Profile, here: Partition, other: Partition):
    farm = Hardware(name="", partitions=(other, here, dataclasses.replace(here, name="twin")))
    prediction = predict(dataclasses.replace(profile, cluster="A"), farm)
    side = COLOCATED if profile.colocated else SPREAD
    scale = prediction.cpu_s.max() + prediction.blocking_s.max() + prediction.waiting_s.max()
    assert prediction.saved_s[1, side] == 0
    assert prediction.saved_s[2, side] == pytest.approx(0, abs=1e-9 * (scale + 1))
    assert prediction.speeds[2, side] == pytest.approx(1, rel=1e-6)


@given(profiles(), clusters("A"), clusters("B"), st.floats(0.01, 100))
def test_a_longer_profile_of_the_same_kind_predicts_the_same_speeds(
    profile: Profile, here: Partition, other: Partition, factor: float
):
    farm = Hardware(name="", partitions=(here, other))
    longer = dataclasses.replace(
        profile,
        tau_s=profile.tau_s * factor,
        counters={event: count * factor for event, count in profile.counters.items()},
        blocking={size: count * factor for size, count in profile.blocking.items()},
        waiting={size: Waits(count=w.count * factor, mean_s=w.mean_s) for size, w in profile.waiting.items()},
    )
    first, second = predict(profile, farm), predict(longer, farm)
    scale = first.cpu_s.max() + first.blocking_s.max() + first.waiting_s.max() + profile.tau_s
    assert second.saved_s / factor == pytest.approx(first.saved_s, abs=1e-9 * scale)
    assert second.time_s / factor == pytest.approx(first.time_s, abs=1e-9 * scale)


@given(profiles(), clusters("A"), clusters("B"))
def test_there_and_back_saves_nothing_when_profiles_agree(profile: Profile, here: Partition, other: Partition):
    """Both profiles are of the same work: tau there is the time predicted for it, and a wait takes what was predicted.

    Then eq 9 from B to A is minus eq 9 from A to B, and the speeds are reciprocal.
    """
    farm = Hardware(name="", partitions=(here, other))
    first = predict(dataclasses.replace(profile, colocated=False), farm)
    there_s = profile.tau_s - first.saved_s[1, SPREAD]
    base = first.cpu_s[0] + first.blocking_s[0, SPREAD] + first.waiting_s[0, SPREAD]
    # A predicted time is at least a millionth of what it is compared with.
    if base > profile.tau_s or not 1e-3 < there_s / profile.tau_s < 1e3:
        return
    assert here.latency is not None
    assert other.latency is not None
    waiting = {
        size: Waits(count=w.count, mean_s=w.mean_s * other.latency.at(size) / here.latency.at(size))
        for size, w in profile.waiting.items()
    }
    back = predict(
        dataclasses.replace(profile, cluster="B", colocated=False, tau_s=float(there_s), waiting=waiting), farm
    )
    scale = profile.tau_s + base + there_s
    assert back.saved_s[0, SPREAD] + first.saved_s[1, SPREAD] == pytest.approx(0, abs=1e-9 * scale)
    assert back.time_s[0, SPREAD] == pytest.approx(profile.tau_s, abs=1e-9 * scale)
    assert back.speeds[0, SPREAD] * first.speeds[1, SPREAD] == pytest.approx(1, rel=1e-5)


@given(profiles(), clusters("A"), clusters("B"))
def test_parts_add_up_to_what_is_saved(profile: Profile, here: Partition, other: Partition):
    prediction = predict(profile, Hardware(name="", partitions=(here, other)))
    side = COLOCATED if profile.colocated else SPREAD
    total = prediction.cpu_s[:, None] + prediction.blocking_s + prediction.waiting_s
    # What explains more than tau counts in proportion.
    part = min(1.0, profile.tau_s / total[0, side]) if total[0, side] > 0 else 1.0
    assert prediction.saved_s == pytest.approx(part * (total[0, side] - total), abs=1e-9 * (total.max() + 1))
    assert (prediction.blocking_s[:, COLOCATED] == 0).all()
    assert (prediction.waiting_s[:, COLOCATED] == 0).all()
    assert (prediction.speeds > 0).all()
    assert np.isfinite(prediction.speeds).all()


def test_waits_go_by_the_ratio_of_latencies():
    here, there = Latency(sizes_bytes=(8,), seconds=(2.0,)), Latency(sizes_bytes=(8,), seconds=(6.0,))
    waiting = {8: Waits(count=10, mean_s=0.5)}
    assert waiting_time(waiting) == 5.0
    assert non_blocking_time(waiting, here, there) == 15.0
    assert non_blocking_time(waiting, FREE, there) == 60.0
    assert non_blocking_time(waiting, here, FREE) == 0.0
    assert np.isnan(non_blocking_time(waiting, here, None))
    assert non_blocking_time({}, None, None) == 0.0


def test_waits_of_a_co_located_job_are_whole_messages_elsewhere():
    waiting = {8: Waits(count=1000, mean_s=1e-6)}
    prediction = predict(profile_of("FT.B.8", counters={}, waiting=waiting, colocated=True), FARM)
    assert B.latency is not None
    assert prediction.saved_s[1] == pytest.approx([-1000 * B.latency.at(8), 0])
    assert prediction.saved_s[0] == pytest.approx([-1000 * B.latency.at(8), 0])


def test_waits_that_were_measured_are_saved_even_where_the_network_was_not():
    farm = Hardware(name="", partitions=(dataclasses.replace(A, latency=None), B))
    waiting = {8: Waits(count=1000, mean_s=1e-3)}
    prediction = predict(profile_of("FT.B.8", counters={}, waiting=waiting), farm)
    assert prediction.saved_s[:, COLOCATED] == pytest.approx([1, 1])
    assert np.isnan(prediction.saved_s[1, SPREAD])
