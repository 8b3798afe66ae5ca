"""The elastic workload model: its distributions against closed forms, its load, and what the seed decides."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import gammainc

from dfrs.model.elastic import CommandKind
from dfrs.model.errors import InputError
from dfrs.workloads import elastic_model as module
from dfrs.workloads.cwf import Cwf, cwf_text
from dfrs.workloads.elastic_model import Arrivals, ElasticModel, generate, hour_weights, run_times, sizes

ET, RT, EP, RP = CommandKind
SHAPE = 13.2303 * 1.0225


def group_shares(low, high):
    """Probability of 1 to 10 groups, where a uniform draw from [low, high] is rounded."""
    k = np.arange(1, 11)
    return (np.clip(k + 0.5, low, high) - np.clip(k - 0.5, low, high)) / (high - low)


def mean_exp(shape, scale, limit):
    """Mean of e^X for X gamma, given that it is at most `limit`."""
    below = gammainc(shape, limit / scale)
    return (1 - scale) ** -shape * gammainc(shape, limit * (1 - scale) / scale) / below


@pytest.mark.parametrize(("ps", "mean"), [(0.2, 192.0), (0.5, 144.0), (0.8, 96.0)])
def test_sizes_are_rounded_uniform_draws_of_two_stages(ps, mean):
    expected = ps * group_shares(1, 3) + (1 - ps) * group_shares(4, 10)
    assert expected @ np.arange(1, 11) * 32 == pytest.approx(mean)
    size = sizes(ElasticModel(jobs=100_000, ps=ps), np.random.default_rng(1))
    counts = np.bincount(size // 32, minlength=11)
    assert counts[1:].sum() == (size % 32 == 0).sum() == 100_000
    assert stats.chisquare(counts[1:], expected * 100_000).pvalue > 1e-3
    assert np.mean([generate(ElasticModel(ps=ps), seed=s).jobs.processors.mean() for s in range(20)]) == pytest.approx(
        mean, rel=0.03
    )


@settings(max_examples=40)
@given(groups=st.integers(10, 200), unit=st.integers(1, 64), seed=st.integers(0, 2**40))
def test_sizes_on_any_machine_are_up_to_30_and_from_40_percent(groups, unit, seed):
    for ps, low, high in ((1.0, 1, 3 * groups / 10), (0.0, 4 * groups / 10, groups)):
        size = sizes(ElasticModel(jobs=50, procs=groups * unit, unit=unit, ps=ps), np.random.default_rng(seed))
        assert (size % unit == 0).all()
        assert low - 0.5 <= size.min() / unit
        assert size.max() / unit <= min(high + 0.5, groups)


@pytest.mark.parametrize("size", [32, 96, 144, 320])
def test_run_times_have_the_moments_of_the_truncated_mixture(size):
    p = min(max(-0.0054 * size + 0.78, 0), 1)
    likely = np.array([p * gammainc(4.2, 12 / 0.94), (1 - p) * gammainc(312, 12 / 0.03)])
    likely /= likely.sum()
    ln_mean = [a * b * gammainc(a + 1, 12 / b) / gammainc(a, 12 / b) for a, b in ((4.2, 0.94), (312, 0.03))]
    mean = likely @ [mean_exp(4.2, 0.94, 12), mean_exp(312, 0.03, 12)]
    run_s = run_times(np.full(100_000, size), np.random.default_rng(size))
    assert run_s.min() >= 1
    assert run_s.max() <= math.exp(12)
    assert (run_s == np.floor(run_s)).all()
    # Rounding down takes half a second from the mean.
    assert run_s.mean() == pytest.approx(mean - 0.5, rel=0.015)
    assert np.log(run_s + 0.5).mean() == pytest.approx(likely @ ln_mean, rel=0.01)


def test_mean_run_times_of_the_documents_machine():
    run_s = [generate(ElasticModel(load=None), seed=s).jobs.run_s.mean() for s in range(40)]
    shares = 0.5 * group_shares(1, 3) + 0.5 * group_shares(4, 10)
    p = np.clip(-0.0054 * 32 * np.arange(1, 11) + 0.78, 0, 1)
    first, second = p * gammainc(4.2, 12 / 0.94), (1 - p) * gammainc(312, 12 / 0.03)
    means = (first * mean_exp(4.2, 0.94, 12) + second * mean_exp(312, 0.03, 12)) / (first + second)
    assert np.mean(run_s) == pytest.approx(shares @ means, rel=0.02)


@pytest.mark.parametrize("scale", [0.4101, 0.5101, 0.6101])
def test_gaps_are_distributed_as_if_drawn_again_above_the_limit(scale):
    rng = np.random.default_rng(3)
    arrivals = Arrivals(ElasticModel(), phase=0.0, shares=rng.random(20_000))
    ln_gaps = arrivals.ln_gaps(scale)
    drawn = rng.gamma(SHAPE, scale, 40_000)
    drawn = drawn[drawn <= 13][:20_000]
    assert ln_gaps.max() <= 13
    assert stats.ks_2samp(ln_gaps, drawn).pvalue > 1e-3
    # Every quantile once: their mean is the distribution's, up to the last.
    even = Arrivals(ElasticModel(), phase=0.0, shares=rng.permutation((np.arange(100_000) + 0.5) / 100_000))
    times = even.times(scale)
    assert (times[-1] - times[0]) / 100_000 == pytest.approx(mean_exp(SHAPE, scale, 13), rel=0.01)


@settings(max_examples=60)
@given(
    shape=st.floats(0.2, 90),
    seed=st.integers(0, 2**40),
    jobs=st.integers(2, 40),
    scales=st.tuples(st.floats(0.01, 3), st.floats(0.01, 3)).map(sorted),
)
def test_every_gap_grows_with_the_scale_and_the_first_job_stays(shape, seed, jobs, scales):
    rng = np.random.default_rng(seed)
    model = ElasticModel(arrival_shape=shape)
    arrivals = Arrivals(model, phase=rng.random(), shares=rng.random(jobs - 1))
    short, long = (arrivals.ln_gaps(scale) for scale in scales)
    assert (long >= short - 1e-9).all()
    early, late = (arrivals.times(scale) for scale in scales)
    assert early[0] == late[0] <= 86_400
    assert (late >= early - 1e-6 * late).all()
    assert (np.diff(early) >= 0).all()


def test_the_day_has_one_hour_intervals_from_five_o_clock_on():
    weights = hour_weights(ElasticModel())
    assert weights.mean() == pytest.approx(1)
    assert (int(np.argmax(weights)), int(np.argmin(weights))) == (13, 4)
    gamma = stats.gamma(15.1737, scale=0.9631)
    whole = gamma.cdf(29.5) - gamma.cdf(5.5)
    assert weights[13] == pytest.approx(24 * (gamma.cdf(14.5) - gamma.cdf(13.5)) / whole)
    assert weights[5] == pytest.approx(24 * (gamma.cdf(6.5) - gamma.cdf(5.5)) / whole)
    assert weights[4] == pytest.approx(24 * (gamma.cdf(29.5) - gamma.cdf(28.5)) / whole)
    # Gaps much shorter than a day show the intensity of each hour.
    rng = np.random.default_rng(1)
    times = Arrivals(ElasticModel(), phase=0.0, shares=rng.random(40_000)).times(0.3)
    days = times[-1] // 86_400
    seen = np.bincount((times[times < days * 86_400] // 3_600 % 24).astype(int), minlength=24)
    assert seen / seen.mean() == pytest.approx(weights, abs=0.25)


def offered(cwf, procs=320):
    jobs = cwf.jobs
    return (jobs.processors * jobs.run_s).sum() / (procs * (jobs.submit_s[-1] - jobs.submit_s[0]))


@settings(max_examples=25, deadline=None)
@given(
    load=st.floats(0.1, 3),
    ps=st.floats(0, 1),
    seed=st.integers(0, 2**40),
    jobs=st.integers(100, 300),
)
def test_the_load_is_solved_for_and_the_header_tells_it(load, ps, seed, jobs):
    cwf = generate(ElasticModel(jobs=jobs, ps=ps, load=load), seed=seed)
    assert offered(cwf) == pytest.approx(load, rel=1e-3)
    assert float(cwf.jobs.header["OfferedLoad"]) == pytest.approx(offered(cwf), abs=1e-6)
    again = ElasticModel(jobs=jobs, ps=ps, load=None, arrival_scale=float(cwf.jobs.header["BetaArr"]))
    assert np.array_equal(generate(again, seed=seed).jobs.submit_s, cwf.jobs.submit_s)


@pytest.mark.parametrize("ps", [0.2, 0.5, 0.8])
def test_a_larger_load_has_a_smaller_scale_within_the_documents_range(ps):
    scales = [
        float(generate(ElasticModel(ps=ps, load=load), seed=1).jobs.header["BetaArr"]) for load in (0.5, 0.7, 0.9, 1.0)
    ]
    assert scales == sorted(scales, reverse=True)
    assert 0.4101 < scales[-1] < scales[0] < 0.6101


def test_the_shape_of_the_lublin_model_would_offer_far_too_much():
    shares = 0.5 * group_shares(1, 3) + 0.5 * group_shares(4, 10)
    size = 32 * np.arange(1, 11)
    p = np.clip(-0.0054 * size + 0.78, 0, 1)
    first, second = p * gammainc(4.2, 12 / 0.94), (1 - p) * gammainc(312, 12 / 0.03)
    run_s = (first * mean_exp(4.2, 0.94, 12) + second * mean_exp(312, 0.03, 12)) / (first + second)
    work = float(shares @ (size * run_s)) / 320

    def loads(shape):
        return [round(work / mean_exp(shape * 1.0225, scale, 13), 2) for scale in (0.4101, 0.6101)]

    assert loads(13.2303) == [4.80, 0.27]
    assert loads(10.2303) == [22.41, 1.07]


def test_without_a_load_the_scale_is_taken():
    cwf = generate(ElasticModel(load=None), seed=2)
    assert float(cwf.jobs.header["BetaArr"]) == 0.5101
    assert generate(ElasticModel(load=None, arrival_scale=0.45), seed=2).jobs.submit_s[-1] < cwf.jobs.submit_s[-1]


FULL = ElasticModel(pd=0.5, pe=0.2, pr=0.1, pep=0.3, prp=0.4)


def test_the_same_seed_gives_the_same_bytes_and_another_another_trace():
    assert cwf_text(generate(FULL, seed=5)) == cwf_text(generate(FULL, seed=5))
    assert cwf_text(generate(FULL, seed=5)) != cwf_text(generate(FULL, seed=6))
    assert generate(FULL, seed=2**80).jobs.job_id.tolist() == list(range(1, 501))


def table(cwf, kind):
    commands = cwf.commands
    mine = commands.kind == kind
    return [getattr(commands, label)[mine].tolist() for label in ("time_s", "job_id", "amount")]


def jobs_of(cwf):
    return cwf.jobs.with_columns(comments=())


def test_streams_are_separate():
    plain = generate(ElasticModel(), seed=7)
    assert plain.dedicated == len(plain.commands) == 0
    full = generate(FULL, seed=7)
    assert jobs_of(full) == jobs_of(plain)
    extended = generate(ElasticModel(pe=0.2), seed=7)
    both = generate(ElasticModel(pe=0.2, pr=0.1), seed=7)
    assert table(both, ET) == table(extended, ET)
    assert len(both.commands) > len(extended.commands)
    dedicated = generate(ElasticModel(pd=0.5), seed=7)
    assert jobs_of(dedicated) == jobs_of(plain)
    assert np.array_equal(dedicated.requested_start_s, full.requested_start_s, equal_nan=True)
    # With a larger probability there are more of them, and the others stay.
    more = generate(ElasticModel(pd=0.8), seed=7).requested_start_s
    kept = ~np.isnan(full.requested_start_s)
    assert np.array_equal(more[kept], full.requested_start_s[kept])
    # Another load moves the jobs and leaves what they are.
    other = generate(ElasticModel(load=0.5), seed=7).jobs
    assert np.array_equal(other.run_s, plain.jobs.run_s)
    assert np.array_equal(other.processors, plain.jobs.processors)


def test_dedicated_jobs_and_commands_have_their_frequencies_means_and_places():
    model = ElasticModel(
        jobs=20_000, pd=0.4, pe=0.2, pr=0.1, pep=0.3, prp=0.05, start_mean_s=500, amount_mean_s=40, amount_mean_units=3
    )
    cwf = generate(model, seed=1)
    jobs, start_s = cwf.jobs, cwf.requested_start_s
    assert cwf.dedicated / 20_000 == pytest.approx(0.4, abs=0.015)
    ahead = (start_s - jobs.submit_s)[~np.isnan(start_s)]
    assert ahead.min() >= 1
    assert ahead.mean() == pytest.approx(500, rel=0.05)
    assert ahead.std() == pytest.approx(500, rel=0.05)
    end_s = np.fmax(jobs.submit_s, start_s) + jobs.run_s
    for kind, often, mean in ((ET, 0.2, 40), (RT, 0.1, 40), (EP, 0.3, 3 * 32), (RP, 0.05, 3 * 32)):
        time_s, job_id, amount = map(np.array, table(cwf, kind))
        assert len(time_s) / 20_000 == pytest.approx(often, abs=0.012)
        assert len(np.unique(job_id)) == len(job_id)
        assert amount.mean() == pytest.approx(mean, rel=0.1)
        assert amount.min() == (1 if kind in (ET, RT) else 32)
        assert (amount % amount.min() == 0).all()
        row = job_id - 1
        assert (time_s == np.floor(time_s)).all()
        share = (time_s - jobs.submit_s[row]) / (end_s - jobs.submit_s)[row]
        assert share.min() >= 0
        assert share.max() <= 1
        long = jobs.run_s[row] > 100
        assert stats.kstest(share[long], "uniform").pvalue > 1e-3
    # Whether a job has one command says nothing about another.
    two = np.intersect1d(table(cwf, ET)[1], table(cwf, EP)[1])
    assert len(two) / 20_000 == pytest.approx(0.06, abs=0.01)


def test_a_trace_is_complete_and_its_header_true():
    cwf = generate(FULL, seed=1)
    jobs = cwf.jobs
    assert isinstance(cwf, Cwf)
    assert np.array_equal(jobs.processors, jobs.requested_processors)
    assert np.array_equal(jobs.run_s, jobs.requested_s)
    assert jobs.machine_processors == 320
    assert jobs.header_number("AllocationUnit") == 32
    assert jobs.header_number("MaxJobs") == 500
    assert set(jobs.user) == {-1}
    assert "seed=1 jobs=500 procs=320 unit=32 ps=0.5 load=0.9" in jobs.header["Note"]
    assert "amount_mean_units=1.0 arrival_shape=13.2303" in jobs.header["Note"]
    assert (jobs.submit_s == np.floor(jobs.submit_s)).all()


BAD = [
    ({"jobs": 1}, "jobs = 1: must be from 2 to 1000000"),
    ({"jobs": 10**9}, "jobs = 1000000000: must be"),
    ({"unit": 0}, "unit = 0: must be at least 1"),
    ({"procs": 330}, "procs = 330: must be a multiple of unit = 32"),
    ({"procs": 288}, r"procs = 288: must be from 10 \* unit = 320 to"),
    ({"procs": 0}, "procs = 0: must be from 10"),
    ({"procs": 2**30}, "procs = 1073741824: must be from 10"),
    ({"load": 0.0}, "load = 0: must be above 0"),
    ({"load": math.inf}, "load = inf: must be finite"),
    ({"arrival_scale": 0.0}, "arrival_scale = 0: must be above 0"),
    ({"arrival_scale": 4.0}, "arrival_scale = 4: must be from 0.01 to 3"),
    ({"arrival_shape": 500.0}, "arrival_shape = 500: times rush must be from 0.1 to 100"),
    ({"rush": -1.0}, "rush = -1: must be above 0"),
    ({"day_scale": 0.01}, "day_shape = 15.1737: with this scale, some hour has no arrivals"),
    ({"start_mean_s": 0.5}, "start_mean_s = 0.5: must be from 1 to 1e9"),
    ({"amount_mean_s": math.nan}, "amount_mean_s = nan: must be finite"),
    ({"amount_mean_units": 0.0}, "amount_mean_units = 0: must be from 1"),
    *(
        ({name: value}, f"{name} = {value:g}: must be from 0 to 1")
        for name in ("ps", "pd", "pe", "pr", "pep", "prp")
        for value in (-0.1, 1.5)
    ),
]


@pytest.mark.parametrize(("options", "words"), BAD, ids=lambda x: "-".join(x) if isinstance(x, dict) else "")
def test_models_are_checked(options, words):
    with pytest.raises(InputError, match=words):
        ElasticModel(**options)


def test_what_cannot_be_reached_is_refused():
    with pytest.raises(InputError, match="seed = -1: must be at least 0"):
        generate(ElasticModel(), seed=-1)
    for load in (1e-3, 1e6):
        with pytest.raises(
            InputError, match=rf"load = {re.escape(f'{load:g}')}: must be from 0.0.* to .* for these jobs"
        ):
            generate(ElasticModel(load=load), seed=1)
    with pytest.raises(InputError, match="load = 5000: cannot be reached with whole seconds; the nearest is"):
        generate(ElasticModel(load=5_000.0), seed=1)


def test_limits_are_those_of_the_lublin_model():
    assert (module.LONGEST_LN_RUN, module.LONGEST_LN_GAP) == (12, 13)
    run = module.RUN
    assert (run.shape_1, run.scale_1, run.shape_2, run.scale_2) == (4.2, 0.94, 312, 0.03)
    assert (run.slope, run.intercept) == (-0.0054, 0.78)
