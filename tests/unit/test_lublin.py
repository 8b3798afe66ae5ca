"""The Lublin-Feitelson model: the authors' output job by job, its published statistics, and its distributions."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.workloads import lublin
from dfrs.workloads.lublin import BATCH_128, INTERACTIVE_128, WHOLE_SAMPLE_128, Lublin, generate
from dfrs.workloads.swf import COLUMNS, read_swf
from tests.traces import TRACES, needs_traces


@needs_traces
@pytest.mark.parametrize("start", range(1, 101, 20))
def test_output_is_that_of_the_authors_program(start):
    for seed in range(start, start + 20):
        expected = read_swf(TRACES / "lublin128" / f"lublin128_s{seed:03d}.swf.gz")
        got = generate(Lublin(), seed=seed)
        for label in COLUMNS:
            assert np.array_equal(getattr(got, label), getattr(expected, label)), (seed, label)


# Minimum, median, mean and maximum over the typeless traces of seeds 1 to 100, from the authors' program.
TYPELESS = {
    "mean size": (10.89, 12.36, 12.32, 13.71),
    "median size": (4, 4, 4.075, 6),
    "serial": (0.210, 0.2415, 0.2415, 0.268),
    "power of 2": (0.852, 0.871, 0.8707, 0.899),
    "mean run": (3_749, 4_386, 4_375, 5_106),
    "median run": (77, 109.5, 112.4, 173),
    "longest run": (44_570, 90_190, 99_340, 160_900),
    "mean gap": (558.6, 916.9, 947.0, 1_535),
    "median gap": (98, 118, 118.1, 138),
    "span": (6.459, 10.60, 10.95, 17.74),
    "load": (0.3742, 0.7218, 0.7492, 1.244),
}


def test_one_stream_has_the_statistics_of_the_authors_program():
    rows = []
    for seed in range(1, 101):
        swf = generate(Lublin.of(typed=False), seed=seed)
        gaps, size, run = np.diff(swf.submit_s), swf.processors, swf.run_s
        assert set(swf.queue) == {0}
        rows.append(
            (
                size.mean(),
                np.median(size),
                (size == 1).mean(),
                np.isin(size, 2 ** np.arange(8)).mean(),
                run.mean(),
                np.median(run),
                run.max(),
                gaps.mean(),
                np.median(gaps),
                gaps.sum() / 86_400,
                (run * size).sum() / (128 * gaps.sum()),
            )
        )
    for column, (name, expected) in zip(np.array(rows).T, TYPELESS.items(), strict=True):
        got = (column.min(), np.median(column), column.mean(), column.max())
        assert got == pytest.approx(expected, rel=6e-4), name


def test_drand48_is_the_posix_one():
    uniform = lublin._drand48(1)
    x = (1 << 16) | 0x330E
    for _ in range(5):
        x = (0x5DEECE66D * x + 0xB) % 2**48
        assert uniform() == x / 2**48
    assert lublin._drand48(2**32 + 7)() == lublin._drand48(7)()
    # What glibc gives after srand48(1).
    uniform = lublin._drand48(1)
    assert [round(uniform(), 6) for _ in range(3)] == [0.041630, 0.454492, 0.834817]


@pytest.mark.parametrize("rng", ["drand48", "numpy"])
def test_the_same_seed_gives_the_same_trace_and_a_longer_one_begins_with_it(rng):
    one = generate(Lublin(jobs=200), seed=3, rng=rng)
    assert one == generate(Lublin(jobs=200), seed=3, rng=rng)
    longer = generate(Lublin(jobs=300), seed=3, rng=rng)
    assert np.array_equal(longer.select(np.arange(200)).submit_s, one.submit_s)
    assert not np.array_equal(one.run_s, generate(Lublin(jobs=200), seed=4, rng=rng).run_s)


@given(nodes=st.integers(1, 5_000), typed=st.booleans(), seed=st.integers(0, 2**33))
def test_jobs_fit_on_any_machine(nodes, typed, seed):
    swf = generate(Lublin.of(jobs=40, nodes=nodes, typed=typed), seed=seed, rng="numpy")
    assert swf.processors.min() >= 1
    assert swf.processors.max() <= nodes
    assert swf.run_s.min() >= 1
    assert swf.run_s.max() <= math.exp(12)
    assert (np.diff(swf.submit_s) >= 0).all()
    assert (swf.submit_s % 1 == 0).all()
    assert swf.machine_processors == nodes


def test_sizes_on_another_machine_follow_the_authors_advice():
    for stream in (BATCH_128, WHOLE_SAMPLE_128, INTERACTIVE_128):
        assert lublin.for_machine(stream, 128) == stream
        for nodes in (64, 100, 1_024):
            other = lublin.for_machine(stream, nodes)
            assert other.high - other.medium == pytest.approx(stream.high - stream.medium)
            assert stream.high - other.high == pytest.approx(math.log2(128 / nodes))
            assert other.low == stream.low
    sizes = generate(Lublin.of(jobs=20_000, nodes=1_024, typed=False), seed=1, rng="numpy").processors
    assert sizes.max() > 900
    assert (sizes == 1).mean() == pytest.approx(0.244, abs=0.01)
    parallel = sizes[sizes > 1]
    assert (parallel <= 2**7.5).mean() == pytest.approx(0.86, abs=0.02)


def test_gammas_have_their_mean_and_variance():
    uniform = lublin._numpy(1)
    for shape, scale in ((6.57, 0.823), (0.3, 2.0), (4.0, 1.5)):
        values = np.array([lublin._gamma(shape, scale, uniform) for _ in range(40_000)])
        assert values.mean() == pytest.approx(shape * scale, rel=0.03)
        assert values.var() == pytest.approx(shape * scale**2, rel=0.06)


@pytest.mark.parametrize("shape", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("z", [0.1, 1.0, 3.0, 5.0, 9.0, 20.0, 40.0])
def test_the_incomplete_gamma_function_of_whole_shapes_is_a_poisson_sum(shape, z):
    below = sum(math.exp(-z) * z**k / math.factorial(k) for k in range(shape))
    assert lublin._gamma_cdf(z * 2.5, shape, 2.5) == pytest.approx(1 - below, abs=2e-10)


def test_the_day_has_the_published_peaks():
    for stream, peak, most, least_at, least in (
        (BATCH_128, 26, 1.666, 9, 0.235),
        (INTERACTIVE_128, 28, 1.881, 10, 0.119),
        (WHOLE_SAMPLE_128, 27, 1.833, 10, 0.165),
    ):
        weights = lublin._weights(stream)
        assert (int(np.argmax(weights)), int(np.argmin(weights))) == (peak, least_at)
        assert (round(max(weights), 3), round(min(weights), 3)) == (most, least)
        assert np.mean(weights) == pytest.approx(1.0)


BAD_STREAMS = {
    "serial": (1.5, "serial = 1.5: must be from 0 to 1"),
    "power_of_2": (0.9, "power_of_2 = 0.9: must be at most 1 - serial"),
    "medium": (8.0, "medium = 8: must be from low = 1.2 to high = 7"),
    "low": (-1.0, "must be from low = -1"),
    "scale_1": (0.0, "scale_1 = 0: must be above 0"),
    "shape_2": (math.nan, "shape_2 = nan: must be finite"),
    "scale_2": (1.0, "shape_2 \\* scale_2 = 639.1: must be at most 12"),
    "gap_scale": (5.0, "must be at most 13"),
}


@pytest.mark.parametrize("name", BAD_STREAMS)
def test_streams_are_checked(name):
    value, words = BAD_STREAMS[name]
    with pytest.raises(InputError, match=words):
        dataclasses.replace(BATCH_128, **{name: value})


def test_models_are_checked():
    for options, words in (
        ({"jobs": 0}, "jobs = 0"),
        ({"nodes": 0}, "nodes = 0"),
        ({"nodes": 64}, r"high = 7: must be at most log2\(nodes\) = 6"),
        ({"streams": ()}, "streams"),
        ({"streams": (dataclasses.replace(BATCH_128, day_scale=1e-3),)}, "some half hour has no arrivals"),
    ):
        with pytest.raises(InputError, match=words):
            Lublin(**options)
    with pytest.raises(InputError, match="nodes = -3"):
        Lublin.of(nodes=-3)
    with pytest.raises(InputError, match="seed = -1"):
        generate(Lublin(), seed=-1)
    with pytest.raises(InputError, match='rng = "random"'):
        generate(Lublin(), seed=1, rng="random")
