"""From traces to workloads: the documents' annotations, estimates, overruns, and what is dropped or repaired."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.workloads.annotate import Annotation, to_workload
from dfrs.workloads.load import load_workload
from dfrs.workloads.lublin import Lublin, generate
from dfrs.workloads.swf import COLUMNS, Swf, read_swf
from tests.traces import TRACES, needs_traces


def trace(jobs=None, header=(" MaxProcs: 240",), **columns):
    """A trace of as many jobs as the first column has; one processor, 100 s, and nothing else known."""
    jobs = jobs or len(next(iter(columns.values())))
    usual = {"job_id": np.arange(1, jobs + 1), "submit_s": np.arange(jobs), "run_s": np.full(jobs, 100.0)}
    usual |= {"processors": np.ones(jobs)}
    given_ = {label: np.array(column) for label, column in columns.items()}
    rest = {label: np.full(jobs, -1) for label in COLUMNS}
    return Swf(**(rest | usual | given_), comments=tuple(header), name="t")


def odd(report):
    return {o.rule: (o.count, o.handled) for o in report.warnings}


def test_dissertation_needs_and_memory():
    workload, _ = to_workload(generate(Lublin(jobs=20_000), seed=1), seed=5)
    serial = workload.tasks == 1
    assert set(workload.need[serial]) == {0.25}
    assert set(workload.need[~serial]) == {1.0}
    share = {round(10 * m): f for m, f in zip(*np.unique(workload.memory, return_counts=True), strict=True)}
    assert list(share) == list(range(1, 11))
    assert share[1] / 20_000 == pytest.approx(0.55, abs=0.01)
    for x in range(2, 11):
        assert share[x] / 20_000 == pytest.approx(0.05, abs=0.005)
    assert workload.nodes == 128
    assert np.corrcoef(workload.memory, workload.tasks)[0, 1] == pytest.approx(0, abs=0.02)


def test_what_is_drawn_hangs_on_seed_and_place_alone():
    swf = generate(Lublin(jobs=300), seed=1)
    whole, _ = to_workload(swf, seed=2)
    part, _ = to_workload(swf.select(np.arange(100)), seed=2)
    assert np.array_equal(part.memory, whole.memory[:100])
    broken = swf.with_columns(run_s=np.where(np.arange(300) % 3 == 0, -1, swf.run_s))
    fewer, report = to_workload(broken, seed=2)
    assert odd(report)["run time unknown"] == (100, "dropped")
    assert np.array_equal(fewer.memory, whole.memory[np.arange(300) % 3 != 0])
    assert np.array_equal(to_workload(swf, seed=2)[0].memory, whole.memory)
    assert not np.array_equal(to_workload(swf, seed=3)[0].memory, whole.memory)
    rng = np.random.default_rng(2)
    for k in range(50):
        small, size = rng.random(), rng.random()
        assert whole.memory[k] == (0.1 if small < 0.55 else (2 + int(9 * size)) / 10)


# Processors, requested and used KB; tasks, need, memory expected on nodes of 2 processors and 2 GB = 2,097,152 KB.
HPC2N = [
    (8, 409_600, -1, 4, 1.0, 0.390625),
    (8, -1, 409_600, 4, 1.0, 0.390625),
    (8, 409_600, 524_288, 4, 1.0, 0.5),
    (7, 409_600, -1, 7, 0.5, 0.1953125),
    (1, 409_600, 1, 1, 0.5, 0.1953125),
    (2, 1_048_575, 5, 1, 1.0, 2 * 1_048_575 / 2**21),
    (2, 1_048_576, 5, 2, 0.5, 0.5),
    (2, 2_000_000, 5, 2, 0.5, 2_000_000 / 2**21),
    (6, -1, -1, 3, 1.0, 0.2),
    (3, -1, -1, 3, 0.5, 0.1),
    (4, 0, 1_024, 2, 1.0, 0.2),
    (1, 1_024, -1, 1, 0.5, 0.1),
    (2, 3_000_000, -1, 2, 0.5, 1.0),
]


def test_hpc2n_tasks_needs_and_memory():
    processors, requested, used, *expected = map(list, zip(*HPC2N, strict=True))
    swf = trace(processors=processors, requested_kb=requested, used_kb=used)
    workload, report = to_workload(swf, annotate="hpc2n")
    assert [workload.tasks.tolist(), workload.need.tolist(), workload.memory.tolist()] == expected
    assert workload.nodes == 120
    assert odd(report) == {
        "no memory given": (2, "10 % of a node taken"),
        "memory above that of a node": (1, "a whole node's taken"),
    }
    same, _ = to_workload(swf, annotate="smp:2:2")
    assert np.array_equal(same.memory, workload.memory)


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(-1, 2**22)), min_size=1, max_size=20), st.integers(1, 8))
def test_threads_change_neither_cpu_nor_memory_of_a_job(jobs, cores):
    processors, known = map(list, zip(*jobs, strict=True))
    workload, _ = to_workload(trace(processors=processors, used_kb=known), annotate=f"smp:{cores}:2")
    assert (workload.tasks * workload.need).tolist() == pytest.approx([p / cores for p in processors])
    share = np.clip(np.array(known) / 2**21, min(0.1, 0.2 / cores), 1.0)
    assert (workload.tasks * workload.memory).tolist() == pytest.approx(list(np.array(processors) * share))
    threaded = workload.tasks < processors
    assert (workload.tasks[threaded] * cores == np.array(processors)[threaded]).all()
    possible = (np.array(processors) % cores == 0) & (share * cores < 1)
    assert np.array_equal(threaded, possible & (cores > 1))


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 16, 128])
def test_without_memory_all_cores_of_a_node_can_be_used(cores):
    swf = trace(processors=[1] * cores, header=(f" MaxProcs: {cores}",))
    workload, report = to_workload(swf, annotate=f"smp:{cores}:64")
    assert workload.nodes == 1
    assert workload.memory.sum() == pytest.approx(0.1 if cores == 1 else 0.2)
    assert (workload.tasks * workload.need).sum() == pytest.approx(1.0)
    (count, handled) = odd(report)["no memory given"]
    assert count == cores
    assert handled == f"{100 * workload.memory[0]:.3g} % of a node taken"


def test_an_annotation_says_what_it_means_with_units():
    smp = Annotation.parse("smp:16:64")
    assert smp.node_bytes == 64 * 2**30
    assert smp.meaning == (
        "a node has 16 processors of the trace and 64 GiB; each processor of a job needs the memory that the trace "
        "says, at least 1.25 % of a node (819 MiB)"
    )
    assert Annotation.parse("hpc2n").node_bytes == 2 * 2**30
    assert "at least 10 % of a node (205 MiB)" in Annotation.parse("hpc2n").meaning
    for name in ("dfrs", "none", "unit:32"):
        assert Annotation.parse(name).node_bytes is None
    assert Annotation.parse("unit:32").meaning.startswith("a node is 32 processors of the trace")
    assert Annotation.parse("none").meaning.startswith("a node is a processor of the trace")


def test_whole_processors():
    for name in ("none", "processors"):
        workload, _ = to_workload(trace(processors=[3, 1, 240]), annotate=name)
        assert workload.tasks.tolist() == [3, 1, 240]
        assert set(workload.need) == {1.0}
        assert set(workload.memory) == {0.0}
        assert workload.nodes == 240


def test_cancelled_jobs_that_never_had_processors_are_counted_apart():
    swf = trace(processors=[-1, -1, 2], requested_processors=[8, 4, 2], status=[5, 1, 5])
    workload, report = to_workload(swf, annotate="none")
    assert workload.tasks.tolist() == [8, 4, 2]
    assert odd(report) == {
        "number of processors unknown": (1, "requested processors taken"),
        "cancelled, processors unknown": (1, "requested processors taken"),
    }


def test_odd_jobs_are_repaired_or_dropped_and_counted():
    swf = trace(
        run_s=[-1, 0, 5, 5, 5, 5.5],
        processors=[1, 1, -1, 0, 300, 1],
        requested_processors=[1, 1, 4, -1, 1, 1],
        user=[1, 2, 3, 4, 5, -7],
        requested_s=[9, 9, 9, 9, 9, 5],
    )
    workload, report = to_workload(swf, annotate="none", estimates="user")
    assert workload.job_id.tolist() == [2, 3, 5, 6]
    assert workload.run_s.tolist() == [1, 5, 5, 5.5]
    assert workload.tasks.tolist() == [1, 4, 300, 1]
    assert workload.user.tolist() == [2, 3, 5, -1]
    assert odd(report) == {
        "number of processors unknown": (1, "requested processors taken"),
        "number of processors unknown, none requested": (1, "dropped"),
        "larger than the cluster": (1, "kept"),
        "run time unknown": (1, "dropped"),
        "run time 0": (1, "1 s taken"),
        "run time above the requested time": (1, "kept"),
    }
    clamped, _ = to_workload(swf, annotate="none", larger="clamp")
    assert clamped.tasks.tolist() == [1, 4, 240, 1]
    dropped, report = to_workload(swf, annotate="none", larger="drop")
    assert dropped.job_id.tolist() == [2, 3, 6]
    assert odd(report)["larger than the cluster"] == (1, "dropped")
    fits, report = to_workload(swf, annotate="hpc2n", nodes=150)
    assert "larger than the cluster" not in odd(report)
    assert fits.nodes == 150


def test_estimates_and_overruns():
    swf = trace(run_s=[100, 100, 100, 0.25], requested_s=[60, 500, -1, 0])

    def times(**options):
        workload, _ = to_workload(swf, **options)
        return workload.run_s.tolist(), workload.estimate_s.tolist()

    runs, cut = [100, 100, 100, 0.25], [60, 100, 100, 0.25]
    assert times() == (runs, runs)
    assert times(estimates="user") == (runs, [60, 500, 100, 0.25])
    assert times(estimates="raised") == (runs, [100, 500, 100, 1])
    assert times(estimates=2) == times(estimates="2.0") == (runs, [200, 200, 200, 0.5])
    assert times(overrun="cut") == (cut, cut)
    assert times(overrun="cut", estimates="user") == (cut, [60, 500, 100, 0.25])
    assert times(overrun="cut", estimates="raised") == (cut, [100, 500, 100, 1])
    assert times(overrun="cut", estimates="1.5") == (cut, [90, 150, 150, 0.375])
    assert np.isnan(times(estimates="none")[1]).all()


BAD_OPTIONS = [
    ({"annotate": "magic"}, 'annotate = "magic": must be dfrs, hpc2n, none, smp:CORES:GIB or unit:N'),
    ({"annotate": "smp:2"}, "must be dfrs, hpc2n"),
    ({"annotate": "smp:two:2"}, "must be dfrs, hpc2n"),
    ({"annotate": "smp:0:2"}, "cores and memory must be above 0"),
    ({"annotate": "smp:2:nan"}, "cores and memory must be above 0"),
    ({"estimates": "guess"}, 'estimates = "guess": must be perfect'),
    ({"estimates": "0.5"}, "a factor of at least 1"),
    ({"estimates": float("inf")}, "a factor of at least 1"),
    ({"overrun": "kill"}, 'overrun = "kill": must be one of keep, cut'),
    ({"larger": "eat"}, 'larger = "eat": must be one of keep, drop, clamp'),
    ({"nodes": 0}, "nodes = 0: must be at least 1"),
]


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS)
def test_unknown_options_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        to_workload(trace(1), **options)


def test_nodes_come_from_the_header_or_must_be_given():
    assert to_workload(trace(1, header=(" MaxNodes: 12",)))[0].nodes == 12
    assert to_workload(trace(1, header=(" MaxNodes: 12", " MaxProcs: 48")))[0].nodes == 48
    assert to_workload(trace(1, header=(" MaxProcs: 1",)), annotate="hpc2n")[0].nodes == 1
    assert to_workload(trace(1, header=()), nodes=3)[0].nodes == 3
    for header in ((), (" MaxProcs: -1",), (" MaxProcs: many",)):
        with pytest.raises(InputError, match="give the number of nodes"):
            to_workload(trace(1, header=header))


def test_no_job_left_is_an_error():
    with pytest.raises(InputError, match=r"no valid job remains of 2; .*run_s = -1: run time unknown \(and 1 more\)"):
        to_workload(trace(run_s=[-1, -1]))


@needs_traces
def test_hpc2n_as_the_archive_has_it():
    workload, report = load_workload(TRACES / "HPC2N-2002-2.2-cln.swf.gz", annotate="hpc2n", strict=True)
    assert len(workload) == 202_871
    assert workload.nodes == 120
    assert odd(report) == {
        "run time above the requested time": (14_817, "kept"),
        "no memory given": (2_137, "10 % of a node taken"),
    }
    assert (workload.memory >= 0.1).all()
    assert set(workload.need) == {0.5, 1.0}
    assert workload.name == "HPC2N-2002-2.2-cln"
    assert (workload.tasks * workload.need * 2).sum() == read_swf(TRACES / "HPC2N-2002-2.2-cln.swf.gz").processors.sum()
