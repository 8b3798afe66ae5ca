"""From what ranks counted to a profile: differences, means, the model of collectives, the substitute for counters."""

import math
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.cli.heterogeneous.profile_output import show, store
from dfrs.model.errors import InputError
from dfrs.model.hardware import SECOND, Hardware, Latency, Partition
from dfrs.profiling.calibrate import REFERENCE_FLOPS, CpuRates, sub_cluster, with_cluster
from dfrs.profiling.collectives import barriers_of, blocking_of, messages_of
from dfrs.profiling.memory import ProcessUse, read_process
from dfrs.profiling.picture import draw
from dfrs.profiling.predict import cpu_time, predict
from dfrs.profiling.reader import Moment, RankMoment, profile_of, taken_on, totals
from dfrs.profiling.records import Calls, RankFigures, Sizes
from dfrs.profiling.summary import summary


def rank(number, *, messages=None, calls=None, cpu_s=1.0, mpi_s=0.0, elapsed_s=10.0, size=2, host="h", net=1, rss=1000):
    figures = RankFigures(
        rank=number,
        size=size,
        pid=100 + number,
        host=host,
        network_namespace=net,
        finished=False,
        elapsed_s=elapsed_s,
        start_s=0.0,
        mpi_s=mpi_s,
        cpu_s=None,
        faults=0,
        switches=0,
        peak_rss_bytes=0,
        untracked=0,
        messages=messages or {},
        calls=calls or {},
    )
    use = ProcessUse(cpu_s=cpu_s, rss_bytes=rss, swap_bytes=0, faults=0, switches=0)
    return RankMoment(figures=figures, cpu_s=cpu_s, use=use)


def moment(*ranks, at_s=10.0, counts=None):
    return Moment(at_s=at_s, ranks=tuple(ranks), counts=counts or {})


def cluster(name="A", flops=2e9, seconds=(1e-3, 2e-3)):
    cpu = CpuRates(hertz=3e9, flops=flops, l1_s=5e-9, l2_s=5e-8)
    return sub_cluster(name, None, cpu, Latency(sizes_bytes=(1, 1000), seconds=seconds), 2, 1)


@pytest.mark.parametrize(
    ("kind", "processes", "expected"),
    [
        ("alltoall", 8, 16),
        ("alltoall", 2, 4),
        ("allgather", 3, 6),
        ("bcast", 2, 1),
        ("bcast", 5, 3),
        ("bcast", 8, 3),
        ("reduce", 9, 4),
        ("allreduce", 4, 2),
        ("barrier", 8, 0),
        ("alltoall", 1, 0),
        ("bcast", 1, 0),
    ],
)
def test_messages_of_a_collective_call(kind, processes, expected):
    assert messages_of(kind, processes) == expected


def test_blocking_messages_are_the_mean_over_ranks_of_the_difference():
    before = moment(rank(0, messages={8: Sizes(sent=5)}), rank(1), at_s=10.0)
    calls = {("alltoall", 100, 2): Calls(count=3, seconds=0.1), ("barrier", 0, 2): Calls(count=4, seconds=0.2)}
    now = moment(
        rank(0, messages={8: Sizes(sent=9, received=2), 0: Sizes(sent=1)}, calls=calls),
        rank(1, messages={8: Sizes(received=4)}, calls=calls),
        at_s=15.0,
    )
    found = profile_of(now, before, "j", None)
    assert found.tau_s == 5.0
    # An empty message counts as one of a byte.
    assert dict(found.blocking) == {1: 0.5, 8: (4 + 2 + 4) / 2, 100: 3 * 4}
    assert found.waiting[1].count == 4
    assert found.waiting[1].mean_s == pytest.approx(0.05)
    assert found.colocated


def test_waits_are_means_over_messages():
    now = moment(
        rank(0, messages={64: Sizes(isent=3, ireceived=1, waited_s=0.8)}),
        rank(1, messages={64: Sizes(ireceived=4, waited_s=0.0)}),
    )
    (waits,) = profile_of(now, None, "j", None).waiting.values()
    assert waits.count == 4
    assert waits.mean_s == pytest.approx(0.1)


def test_one_rank_elsewhere_is_not_co_located():
    assert not moment(rank(0), rank(1, host="other")).colocated
    assert not moment(rank(0), rank(1, net=2)).colocated
    assert not moment(rank(0)).colocated, "another rank was not seen"


def test_ranks_of_several_programs_are_told_apart():
    assert moment().worlds == 0
    assert moment(rank(0), rank(1)).worlds == 1
    assert moment(rank(0), rank(1), rank(0), rank(1)).worlds == 2
    assert moment(rank(0), rank(1), rank(0, size=1)).worlds == 2
    # Also where most ranks are elsewhere.
    assert moment(rank(0, size=8), rank(0, size=8), rank(1, size=8)).worlds == 2


def test_what_several_programs_did_is_told_and_not_stored(tmp_path, capsys):
    """Their means and times, of all together, would be taken for those of one program."""
    now = moment(rank(0), rank(1), rank(0), rank(1))
    whole = profile_of(now, None, "j", None)
    seen = summary(now, whole, "counted")
    show(seen, whole, "")
    assert "j: 4 processes of at least 2 MPI programs" in capsys.readouterr().err
    for output, picture in ((tmp_path / "p.json", None), (None, tmp_path / "p.png")):
        with pytest.raises(InputError, match=r"p\.(json|png): not written: a profile is of one MPI program"):
            store(seen, whole, output, picture)
    assert not list(tmp_path.iterdir())
    # Of jobs that ended under an older agent.
    del seen["worlds"]
    store(seen, whole, tmp_path / "p.json", None)
    assert (tmp_path / "p.json").exists()


@given(cpu_s=st.floats(0.01, 100), share=st.floats(0, 1), flops=st.floats(1e8, 1e11), other=st.floats(1e8, 1e11))
def test_seconds_cost_what_they_took_here_and_scale_by_rates_of_operation(cpu_s, share, flops, other):
    here, there = cluster("A", flops), cluster("B", other)
    now = moment(*(rank(k, cpu_s=cpu_s, mpi_s=10.0 * share) for k in (0, 1)))
    found = profile_of(now, None, "j", here, tau_s=200.0)
    assert cpu_time(found.counters, here) == pytest.approx(cpu_s * (1 - share), rel=1e-9, abs=1e-12)
    predicted = predict(found, Hardware(name="f", partitions=(here, there)))
    assert predicted.cpu_s[1] == pytest.approx(cpu_s * (1 - share) * flops / other, rel=1e-9, abs=1e-12)
    # Operations are CPU seconds times the rate, in units of the reference's second.
    assert found.counters[SECOND] == pytest.approx(cpu_s * (1 - share) * flops / REFERENCE_FLOPS, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("counts", [{}, {"flop": 8e9, "l2_miss": 4.0}], ids=["seconds", "counted"])
def test_a_profile_of_a_place_that_nobody_knew_is_as_if_taken_on_the_cluster_named_later(counts):
    seen = moment(rank(0, cpu_s=5.0, mpi_s=1.0), rank(1, cpu_s=7.0), counts=counts)
    for where in (cluster("B", 5e8), cluster("C", 3e9)):
        assert taken_on(profile_of(seen, None, "j", None), where) == profile_of(seen, None, "j", where)


def test_counters_are_taken_where_there_are_some():
    counts = {"flop": 3e9, "cycles": 9e9, "instructions": 8e9, "l2_miss": 4e6}
    found = profile_of(moment(rank(0), rank(1), counts=counts), None, "j", cluster())
    assert dict(found.counters) == {"flop": 1.5e9, "l2_miss": 2e6}


@pytest.mark.parametrize("counts", [{"l1_miss": 1e6, "l2_miss": 4e6}, {"flop": 0.0, "l2_miss": 4e6}])
def test_cache_misses_alone_do_not_stand_for_the_work_of_the_cpu(counts):
    """A program without floating point, or a CPU that does not count it: its seconds shrink where CPUs are faster."""
    here, there = cluster("A", 2e9), cluster("B", 4e9)
    found = profile_of(moment(rank(0, cpu_s=10.0), rank(1, cpu_s=10.0), counts=counts), None, "j", here, tau_s=10.0)
    assert list(found.counters) == [SECOND]
    assert predict(found, Hardware(name="f", partitions=(here, there))).time_s[1, 1] == pytest.approx(5.0)
    no_rates = replace(here, cycles={SECOND: 1.0, "l2_miss": 100.0})
    assert list(
        profile_of(moment(rank(0), rank(1), counts={"flop": 1e9, "l2_miss": 4e6}), None, "j", no_rates).counters
    ) == [SECOND]


def test_no_rank_no_profile():
    assert profile_of(moment(), None, "j", None) is None


def test_totals_are_over_ranks():
    key = ("bcast", 8, 2)
    ranks = [rank(k, messages={8: Sizes(sent=k + 1)}, calls={key: Calls(count=1, seconds=0.5)}) for k in (0, 1)]
    messages, calls = totals(moment(*ranks))
    assert messages == {8: Sizes(sent=3)}
    assert calls == {key: Calls(count=2, seconds=1.0)}
    assert blocking_of(calls) == {8: 2}
    assert barriers_of(calls) == Calls(count=0, seconds=0)


def test_memory_and_cpu_of_a_process(tmp_path):
    ours = read_process(os.getpid())
    assert ours.cpu_s > 0.1
    assert 1e6 < ours.rss_bytes < 1e12
    assert read_process(2**22 + 1) is None
    place = tmp_path / "7"
    place.mkdir()
    fields = ["S", *["0"] * 6, "11", "0", "13", "0", "150", "50", *["0"] * 10]
    (place / "stat").write_text(f"7 (a) b (c) {' '.join(fields)}\n")
    status = "VmRSS:\t  20 kB\nVmSwap:\t 3 kB\nvoluntary_ctxt_switches:\t4\nnonvoluntary_ctxt_switches:\t5\n"
    (place / "status").write_text(status)
    found = read_process(7, tmp_path)
    assert found == ProcessUse(
        cpu_s=200 / os.sysconf("SC_CLK_TCK"), rss_bytes=20480, swap_bytes=3072, faults=24, switches=9
    )


def test_a_calibrated_sub_cluster_takes_the_place_of_the_old_one():
    old = cluster()
    farm = with_cluster(None, old, "f")
    faster = sub_cluster("A", old, None, Latency(sizes_bytes=(1,), seconds=(1e-6,)), 9, 9)
    assert faster.machines == 2
    assert faster.cycles == old.cycles
    farm = with_cluster(with_cluster(farm, faster, ""), cluster("B"), "")
    assert [c.name for c in farm.partitions] == ["A", "B"]
    assert farm.partitions[0].latency.seconds == (1e-6,)


def test_the_picture_has_every_size_and_none():
    for messages in ({}, {0: Sizes(sent=1)}, {5: Sizes(sent=3), 4096: Sizes(isent=2, waited_s=1.0)}):
        figure = draw(profile_of(moment(rank(0, messages=messages), rank(1)), None, "j", None))
        heights = [bar.get_height() for bar in figure.axes[0].patches]
        assert sum(heights) == pytest.approx(sum(s.sent + s.isent for s in messages.values()) / 2)
        assert not any(math.isnan(h) for h in heights)


def test_sub_clusters_agree_on_what_a_second_is():
    # Twice the rate of operation: half the time, whatever the frequencies are.
    slow = Partition(
        name="s",
        machines=1,
        cores=1,
        frequency_hz=1e9,
        latency=None,
        node_memory_bytes=1,
        machine_memory_bytes=1,
        cycles=CpuRates(hertz=1e9, flops=1e9, l1_s=0, l2_s=0).cycles,
    )
    fast = Partition(
        name="f",
        machines=1,
        cores=1,
        frequency_hz=5e9,
        latency=None,
        node_memory_bytes=1,
        machine_memory_bytes=1,
        cycles=CpuRates(hertz=5e9, flops=2e9, l1_s=0, l2_s=0).cycles,
    )
    assert cpu_time({SECOND: 3.0}, slow) == pytest.approx(2 * cpu_time({SECOND: 3.0}, fast))
