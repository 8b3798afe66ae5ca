"""Intervals and paired comparisons: against twins that share nothing with them, and where pages show them."""

import csv
import math
import subprocess
import sys
import tracemalloc
import warnings
from fractions import Fraction
from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from scipy import stats

from dfrs.model.errors import InputError
from dfrs.report import curves
from dfrs.report.curves import Panel, Picture, Series
from dfrs.report.tables import Content, Grid, TableCell, TableReport, brief_table, cells_csv, document, markdown
from dfrs.runs.metrics.statistics import Interval, mean_interval, paired
from dfrs_reproduction.metrics import ResultTable, distance_cells, mean_cell, mean_series
from dfrs_reproduction.stillwell2010 import figure_5_1, figure_6_1, table_5_2, tables_b
from dfrs_reproduction.stillwell2010.appendix_b import algorithms
from dfrs_reproduction.stillwell2010.moves import METRICS
from dfrs_reproduction.stillwell2010.policies import BEST, TOGETHER

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-6)
SAMPLES = st.lists(NUMBERS, min_size=2, max_size=30).map(np.array)
FEW = 300
"""Resamples, where only what holds for any number of them is asked."""


@pytest.fixture(autouse=True)
def _no_warning_escapes():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def draw(kind, count, seed=0):
    return getattr(np.random.default_rng(seed), kind)(size=count)


def percentile_twin(values, resamples=4000, seed=1):
    """A percentile bootstrap, one resample at a time."""
    generator = np.random.default_rng(seed)
    means = sorted(math.fsum(generator.choice(values, len(values))) / len(values) for _ in range(resamples))
    return means[round(0.025 * resamples)], means[round(0.975 * resamples)]


@pytest.mark.parametrize("kind", ["normal", "exponential", "lognormal", "random"])
@pytest.mark.parametrize("count", [8, 12, 40])
def test_an_interval_is_the_one_of_scipy(kind, count):
    values, many = draw(kind, count), 100_000
    ours = mean_interval(values, seed="s", resamples=many)
    drawn = {"n_resamples": many, "batch": 10_000, "rng": 5}
    theirs = stats.bootstrap((values,), np.mean, method="BCa", **drawn).confidence_interval
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.01 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.01 * width)


def test_an_interval_is_corrected_for_skew():
    values = np.append(draw("normal", 30), [8.0, 12.0])
    ours = mean_interval(values, seed="s", resamples=20_000)
    low, high = percentile_twin(values, 20_000)
    assert ours.low > low + 0.03 * (high - low)
    assert ours.high > high + 0.05 * (high - low)
    mirrored = mean_interval(-values, seed="s", resamples=20_000)
    assert mirrored.low == pytest.approx(-ours.high, abs=0.05 * (high - low))
    assert mirrored.high == pytest.approx(-ours.low, abs=0.05 * (high - low))


def test_without_skew_an_interval_is_the_plain_one():
    values = draw("normal", 200)
    values = np.concatenate([values, -values])
    ours = mean_interval(values, seed="s", resamples=20_000)
    low, high = percentile_twin(values)
    normal = 1.96 * values.std() / math.sqrt(len(values))
    for bound, twin, expected in ((ours.low, low, -normal), (ours.high, high, normal)):
        assert bound == pytest.approx(twin, abs=0.05 * normal * 2)
        assert bound == pytest.approx(expected, abs=0.05 * normal * 2)


@pytest.mark.parametrize(("kind", "truth"), [("normal", 0.0), ("exponential", 1.0)])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_mean_is_in_as_many_intervals_as_they_say(kind, truth, confidence):
    samples = draw(kind, (800, 60))
    found = [mean_interval(v, seed=str(k), confidence=confidence, resamples=400) for k, v in enumerate(samples)]
    inside = np.mean([i.low <= truth <= i.high for i in found])
    assert inside == pytest.approx(confidence, abs=0.035)
    below, above = np.mean([i.low > truth for i in found]), np.mean([i.high < truth for i in found])
    assert min(below, above) > 0.2 * (1 - confidence)


def test_four_times_the_instances_halve_the_interval():
    few, many = (mean_interval(draw("normal", n), seed="s") for n in (400, 1600))
    assert (few.high - few.low) / (many.high - many.low) == pytest.approx(2.0, rel=0.15)


@given(SAMPLES)
def test_an_interval_lies_within_the_values_and_is_in_order(values):
    found = mean_interval(values, seed="s", resamples=FEW)
    rounding = 1e-12 * np.abs(values).max()
    assert values.min() - rounding <= found.low <= found.high <= values.max() + rounding
    assert found.mean == values.mean()
    assert found.count == len(values)


@given(SAMPLES, st.randoms())
def test_the_order_of_the_instances_does_not_matter(values, random):
    shuffled = values.tolist()
    random.shuffle(shuffled)
    one, other = (mean_interval(v, seed="s", resamples=FEW) for v in (values, np.array(shuffled)))
    assert (one.low, one.high) == (other.low, other.high)
    assert one.mean == pytest.approx(other.mean, rel=1e-9, abs=1e-6)


@given(SAMPLES, st.sampled_from([0.1, 3.0, 7e5]))
def test_an_interval_has_the_unit_of_the_values(values, unit):
    one, other = mean_interval(values, seed="s", resamples=FEW), mean_interval(values * unit, seed="s", resamples=FEW)
    near = 1e-9 * unit * np.abs(values).max()
    assert other.low == pytest.approx(one.low * unit, abs=near)
    assert other.high == pytest.approx(one.high * unit, abs=near)


def test_resamples_that_tie_with_the_mean_count_half_whatever_their_rounding():
    """Of {-x, 0, x} the interval is symmetric: of all 27 resamples 7 have the mean of the values itself."""
    values = [Fraction(-1, 10), Fraction(0), Fraction(1, 10)]
    sums = [sum(chosen) for chosen in product(values, repeat=3)]
    assert (sum(s < 0 for s in sums), sum(s == 0 for s in sums)) == (10, 7)
    found = mean_interval(np.array([1.1, 1.2, 1.3]), seed="s", resamples=20_000)
    assert found.low + found.high == pytest.approx(2.4, abs=0.01)


def test_the_seed_alone_decides():
    values = draw("lognormal", 50)
    assert mean_interval(values, seed="s") == mean_interval(values, seed="s")
    assert mean_interval(values, seed="s") != mean_interval(values, seed="t")


def test_what_is_not_there_is_left_out():
    values = draw("exponential", 20)
    holes = np.insert(values, [0, 7, 7, 20], np.nan)
    assert mean_interval(holes, seed="s") == mean_interval(values, seed="s")
    nothing = Interval(mean=None, low=None, high=None, count=0, clusters=0)
    assert mean_interval(np.full(3, np.nan), seed="s") == mean_interval(np.zeros(0), seed="s") == nothing
    assert mean_interval(np.array([np.nan, 3.0]), seed="s") == Interval(
        mean=3.0, low=None, high=None, count=1, clusters=1
    )


def test_values_that_are_all_the_same_are_certain():
    for count in (2, 3, 50):
        found = mean_interval(np.full(count, 0.1), seed="s")
        assert found.low == found.high == found.mean == np.full(count, 0.1).mean()


@pytest.mark.parametrize(
    "values", [[1.0] * 60 + [1e9], [-1e9] + [0.0] * 60, [0.0, 5e-324, 0.0], [0.1, 0.1 + 2e-17, 0.3]]
)
def test_extremes_have_an_interval(values):
    values = np.array(values)
    for resamples, confidence in product((1, 2, 200), (0.0, 0.95, 1 - 1e-10)):
        for seed in "abcdef":
            found = mean_interval(values, seed=seed, confidence=confidence, resamples=resamples)
            assert values.min() <= found.low <= found.high <= values.max()


def test_many_instances_take_little_memory():
    """A jackknife of these would hold 2.5e9 values, all resamples at once 1e8."""
    values = draw("exponential", 50_000)
    tracemalloc.start()
    mean_interval(values, seed="s", resamples=200)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def clustered(count, spread=1.0, seed=0, most=9):
    """So many clusters of 1 to `most` values about one of their own; (I,) values and labels, in any order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(count), rng.integers(1, most + 1, size=count)))
    return rng.normal(size=count)[labels] * spread + 0.5 * rng.normal(size=len(labels)), labels


def clustered_percentile_twin(values, clusters, resamples, seed=1):
    """A percentile bootstrap of whole clusters, one at a time."""
    generator = np.random.default_rng(seed)
    members = {}
    for value, cluster in zip(values.tolist(), clusters.tolist(), strict=True):
        members.setdefault(cluster, []).append(value)
    means = []
    for _ in range(resamples):
        drawn = [value for cluster in generator.choice([*members], len(members)) for value in members[cluster]]
        means.append(math.fsum(drawn) / len(drawn))
    means.sort()
    return means[round(0.025 * resamples)], means[round(0.975 * resamples)]


@pytest.mark.parametrize(("count", "most"), [(60, 9), (30, 40)])
def test_without_skew_an_interval_of_clusters_is_the_plain_one(count, most):
    values, labels = clustered(count, most=most)
    values, labels = np.concatenate([values, -values]), np.concatenate([labels, labels + count])
    ours = mean_interval(values, seed="s", clusters=labels, resamples=20_000)
    low, high = clustered_percentile_twin(values, labels, 4000)
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.05 * (high - low))
    alone = mean_interval(values, seed="s", resamples=20_000)
    assert alone.high - alone.low < 0.7 * (high - low)
    assert (ours.count, ours.clusters, alone.clusters) == (len(values), 2 * count, len(values))


@pytest.mark.parametrize("large", [0, 30])
@pytest.mark.parametrize("most", [1, 9])
@pytest.mark.parametrize("count", [8, 40])
def test_an_interval_of_clusters_is_the_one_of_scipy(count, most, large):
    """Which draws sums and sizes in pairs, and leaves out one pair after the other."""
    values, labels = clustered(count, seed=count, most=most)
    values, labels = np.append(np.exp(values), np.full(large, 3.0)), np.append(labels, np.zeros(large, int))
    ours = mean_interval(values, seed="s", clusters=labels, resamples=100_000)
    theirs = stats.bootstrap(
        (np.bincount(labels, values), np.bincount(labels)),
        lambda s, n, axis: s.sum(axis=axis) / n.sum(axis=axis),
        method="BCa",
        paired=True,
        n_resamples=100_000,
        batch=10_000,
        rng=5,
    ).confidence_interval
    width = theirs.high - theirs.low
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.02 * width)


def test_of_values_that_share_something_the_mean_is_in_as_many_intervals_as_they_say():
    """Taken for independent, of clusters of five on average, they would be in far fewer."""
    inside, alone = 0, 0
    for seed in range(600):
        values, labels = clustered(50, seed=seed)
        found = mean_interval(values, seed=str(seed), clusters=labels, resamples=400)
        inside += found.low <= 0.0 <= found.high
        found = mean_interval(values, seed=str(seed), resamples=200)
        alone += found.low <= 0.0 <= found.high
    assert inside / 600 == pytest.approx(0.95, abs=0.03)
    assert alone / 600 < 0.75


@settings(max_examples=40)
@given(SAMPLES, st.randoms(), st.sampled_from([int, float, str]))
def test_clusters_of_one_instance_are_none(values, random, kind):
    labels = np.array([kind(label) for label in random.sample(range(-50, 50), len(values))])
    plain = mean_interval(values, seed="s", resamples=FEW)
    assert mean_interval(values, seed="s", clusters=labels, resamples=FEW) == plain


def test_pairs_in_clusters_of_one_are_in_none():
    a, b, labels = draw("lognormal", 30), draw("lognormal", 30, 1), np.random.default_rng(2).permutation(30)
    assert paired(a, b, seed="s", clusters=labels) == paired(a, b, seed="s")


@settings(max_examples=60)
@given(st.lists(st.tuples(NUMBERS, st.integers(0, 5)), min_size=2, max_size=30), st.randoms())
def test_neither_the_order_of_clusters_nor_their_names_matter(pairs, random):
    found = []
    names = random.sample("abcdef", 6)
    for name in (int, lambda k: names[k]):
        values, labels = zip(*pairs, strict=True)
        labels = np.array([name(label) for label in labels])
        found.append(mean_interval(np.array(values), seed="s", clusters=labels, resamples=FEW))
        random.shuffle(pairs)
    one, other = found
    assert (one.low, one.high, one.clusters) == (other.low, other.high, other.clusters)
    if one.low is not None:
        rounding = 1e-12 * max(abs(value) for value in values)
        assert min(values) - rounding <= one.low <= one.high <= max(values) + rounding
    assert (one.low is None) == (one.clusters < 2)


def test_clusters_of_one_sum_are_ordered_by_size():
    values, others = np.append(draw("normal", 20), [1.0, 1.0, 2.0]), np.arange(20)
    one, other = (mean_interval(values, seed="s", clusters=np.append(others, c)) for c in ([20, 20, 21], [21, 21, 20]))
    assert one == other


def test_as_many_copies_of_every_instance_make_nothing_surer():
    values = draw("lognormal", 40)
    once = mean_interval(values, seed="s")
    copies = mean_interval(np.tile(values, 9), seed="s", clusters=np.tile(np.arange(40), 9))
    assert (copies.low, copies.high) == pytest.approx((once.low, once.high))
    assert (copies.count, copies.clusters) == (360, 40)


def test_clusters_that_are_alike_are_certain():
    same = mean_interval(np.array([1.0, 3.0, 2.0, 2.0]), seed="s", clusters=np.array([0, 0, 1, 1]))
    assert (same.mean, same.low, same.high) == (2.0, 2.0, 2.0)
    uneven = mean_interval(np.array([-1.0, 1.0, 0.0]), seed="s", clusters=np.array([0, 0, 1]))
    assert (uneven.low, uneven.high) == (0.0, 0.0)
    equal = mean_interval(np.full(5, 0.1), seed="s", clusters=np.array([0, 0, 0, 1, 1]))
    assert (equal.low, equal.high) == (equal.mean, equal.mean)


def test_one_cluster_alone_has_no_interval():
    for values in (np.ones(4), np.arange(4.0)):
        found = mean_interval(values, seed="s", clusters=np.zeros(4))
        assert found == Interval(mean=values.mean(), low=None, high=None, count=4, clusters=1)


def test_what_is_not_there_is_left_out_of_its_cluster():
    values, labels = clustered(12)
    holes, marked = np.insert(values, [0, 7, 20], np.nan), np.insert(labels, [0, 7, 20], [99, 3, 4])
    plain = mean_interval(values, seed="s", clusters=labels)
    assert mean_interval(holes, seed="s", clusters=marked) == plain
    ones = np.ones_like(holes)
    found = paired(holes, ones, seed="s", clusters=marked)
    assert found.difference == mean_interval(values - 1.0, seed="s", clusters=labels)
    assert paired(ones, holes, seed="s", clusters=marked).count == len(values)


def test_pairs_of_one_cluster_are_drawn_together():
    effect, labels = clustered(40)
    shared = 100.0 * draw("lognormal", len(labels))
    a, b = shared * np.exp(effect), shared
    found, alone = paired(a, b, seed="s", clusters=labels), paired(a, b, seed="s")
    assert found.difference == mean_interval(a - b, seed="s", clusters=labels)
    logs = mean_interval(np.log(a) - np.log(b), seed="s", clusters=labels)
    assert (found.ratio.low, found.ratio.high) == pytest.approx((math.exp(logs.low), math.exp(logs.high)))
    assert (found.ratio.count, found.ratio.clusters) == (len(labels), 40)
    assert found.ratio.high / found.ratio.low > 1.3 * alone.ratio.high / alone.ratio.low
    assert (found.count, found.wins, found.ties, found.losses) == (alone.count, alone.wins, alone.ties, alone.losses)


def test_a_p_value_is_of_clusters():
    means = np.array([-2.5, -1.2, 0.4, 0.9, 1.7, 2.8, 3.1, 4.6, 5.3])
    labels = np.repeat(np.arange(9), 2 * np.arange(9, 0, -1))
    differences = means[labels] + np.tile([-2.0, 2.0], 45)
    b = draw("random", 90)
    found = paired(b + differences, b, seed="s", clusters=labels)
    assert found.p_value == pytest.approx(signed_rank_twin(means.tolist()))
    assert paired(b + differences, b, seed="s").p_value != pytest.approx(found.p_value, rel=0.1)
    few = labels < 5
    assert paired((b + differences)[few], b[few], seed="s", clusters=labels[few]).p_value is None
    # Clusters that tie say nothing, and an instance that ties is one without a difference.
    tied = paired(
        np.append(b + differences, b[:10]),
        np.append(b, b[:10] * (1 + 1e-13)),
        seed="s",
        clusters=np.append(labels, [9] * 10),
    )
    assert tied.p_value == pytest.approx(found.p_value)


def test_clusters_of_other_instances_are_refused():
    with pytest.raises(InputError, match="same instances"):
        mean_interval(np.zeros(3), seed="s", clusters=np.zeros(2))
    with pytest.raises(InputError, match="same instances"):
        paired(np.zeros(3), np.ones(3), seed="s", clusters=np.zeros(4))
    assert mean_interval(np.zeros(0), seed="s", clusters=np.zeros(0)).clusters == 0


def test_pairing_removes_what_the_instances_share():
    shared = 100.0 * draw("lognormal", 80)
    a = shared + draw("normal", 80, 1)
    b = shared + 1.0 + draw("normal", 80, 2)
    found = paired(a, b, seed="s")
    alone = [mean_interval(v, seed="s") for v in (a, b)]
    assert alone[0].high > alone[1].low
    assert found.difference.high < 0
    assert found.difference.high - found.difference.low < 0.05 * (alone[0].high - alone[0].low)
    assert found.difference.mean == (a - b).mean()
    assert found.p_value < 1e-6
    assert found.wins > 1.5 * found.losses


def test_wins_are_of_the_better():
    a = np.array([1.0, 5.0, 3.0, 3.0, np.nan, 2.0, -7.0, 0.0])
    b = np.array([2.0, 4.0, 3.0, 3.0 * (1 + 1e-12), 1.0, np.nan, -6.0, 0.0])
    low = paired(a, b, seed="s")
    assert (low.count, low.wins, low.ties, low.losses) == (6, 2, 3, 1)
    high = paired(a, b, seed="s", lower_is_better=False)
    assert (high.count, high.wins, high.ties, high.losses) == (6, 1, 3, 2)
    assert (low.difference, low.p_value) == (high.difference, high.p_value)
    assert low.difference.mean == pytest.approx(-1 / 6)


@settings(max_examples=25)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=9))
def test_turned_around_a_comparison_says_the_same(pairs):
    a, b = np.array(pairs, float).reshape(-1, 2).T
    one, other = paired(a, b, seed="s", resamples=FEW), paired(b, a, seed="s", resamples=FEW)
    assert (one.count, one.wins, one.ties, one.losses) == (other.count, other.losses, other.ties, other.wins)
    assert one.wins + one.ties + one.losses == len(pairs)
    assert one.p_value == other.p_value
    if pairs:
        assert one.difference.mean == -other.difference.mean


def test_a_ratio_is_a_geometric_mean():
    a, b = np.array([2.0, 8.0, 6.0]), np.array([1.0, 1.0, 12.0])
    found = paired(a, b, seed="s").ratio
    assert found.mean == pytest.approx(2.0)
    assert 0.5 - 1e-12 <= found.low <= 2.0 <= found.high <= 8.0 + 1e-12
    wide = draw("lognormal", 100)
    turned = [
        paired(x, y, seed="s", resamples=20_000).ratio for x, y in ((wide, wide[::-1] * 3), (wide[::-1] * 3, wide))
    ]
    assert turned[0].mean == pytest.approx(1 / 3)
    assert turned[0].low == pytest.approx(1 / turned[1].high, rel=0.02)
    logs = mean_interval(np.log(wide) - np.log(wide[::-1] * 3), seed="t", resamples=20_000)
    assert turned[0].high == pytest.approx(math.exp(logs.high), rel=0.02)


@pytest.mark.parametrize("wrong", [0.0, -1.0])
def test_without_positive_values_there_is_no_ratio(wrong):
    assert paired(np.array([1.0, wrong]), np.array([1.0, 2.0]), seed="s").ratio is None
    assert paired(np.array([1.0, 3.0]), np.array([wrong, 2.0]), seed="s").ratio is None
    assert paired(np.array([1.0, np.nan]), np.array([4.0, wrong]), seed="s").ratio.mean == 0.25


def signed_rank_twin(differences):
    """Wilcoxon's p-value by all assignments of signs."""
    order = sorted(differences, key=abs)
    seen = sum(rank for rank, d in enumerate(order, 1) if d > 0)
    sums = [sum(rank for rank, up in enumerate(signs, 1) if up) for signs in product((0, 1), repeat=len(order))]
    tails = (sum(s <= seen for s in sums), sum(s >= seen for s in sums))
    return min(1.0, 2 * min(tails) / len(sums))


def test_a_p_value_counts_signs_of_ranks():
    for seed in range(5):
        differences = draw("normal", 9, seed) + 0.7
        b = draw("random", 9, seed)
        found = paired(b + differences, b, seed="s").p_value
        assert found == pytest.approx(signed_rank_twin(differences.tolist()))
        # Instances on which they tie say nothing.
        tied = paired(np.append(b + differences, [1.0, 2.0]), np.append(b, [1.0, 2.0]), seed="s")
        assert tied.p_value == pytest.approx(found)
        assert tied.ties == 2


def test_too_few_pairs_have_no_p_value():
    a, b = np.arange(1.0, 7.0), np.zeros(6)
    assert paired(a, b, seed="s").p_value == pytest.approx(2 / 64)
    assert paired(a[:5], b[:5], seed="s").p_value is None
    assert paired(np.append(a[:5], np.nan), b, seed="s").p_value is None
    same = paired(a, a * (1 + 1e-13), seed="s")
    assert (same.ties, same.p_value) == (6, None)


def test_columns_of_other_instances_are_refused():
    with pytest.raises(InputError, match="same instances"):
        paired(np.zeros(3), np.zeros(1), seed="s")
    empty = paired(np.zeros(0), np.zeros(0), seed="s")
    assert (empty.count, empty.difference.mean, empty.ratio.mean, empty.p_value) == (0, None, None, None)


def test_scipy_is_imported_by_what_needs_it():
    code = (
        "import sys, numpy; from dfrs.runs.metrics.statistics import mean_interval\n"
        "mean_interval(numpy.arange(9.0), seed='s'); sys.exit('scipy.stats' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


SURE = TableCell(row="a", metric="m", measured=4.712, low=4.08, high=5.63, instances=9, published=4.8, decimals=1)
UNSURE = TableCell(row="b", metric="m", measured=1234.5, instances=1, decimals=1)


def report_of(*grids):
    return TableReport(name="n", title="t", source="s", samples=(), content=Content(grids=grids))


def test_a_page_shows_intervals_and_says_once_a_grid_what_they_are():
    page = markdown(report_of(*(Grid(title=t, heading="row", cells=(SURE, UNSURE)) for t in "xy")))
    assert "| a | 4.8 | 4.7 [4.1, 5.6] | -0.1 | 9 |" in page
    assert "| b |  | 1,234.5 |  | 1 |" in page
    assert page.count("\n\n[low, high]: 95 % bootstrap confidence interval of the mean.\n\n|") == 2
    assert "bootstrap" not in markdown(report_of(Grid(title="x", heading="row", cells=(UNSURE,))))
    assert brief_table(Grid(title="x", heading="row", cells=(SURE,)))[1] == ["a", "4.7 (4.8)"]


def test_files_hold_intervals():
    report = report_of(Grid(title="x", heading="row", cells=(SURE, UNSURE)))
    sure, unsure = csv.DictReader(cells_csv([report]).splitlines())
    assert list(sure)[4:9] == ["published", "measured", "low", "high", "deviation"]
    assert [sure[k] for k in ("measured", "low", "high", "deviation")] == ["4.712", "4.08", "5.63", "-0.088"]
    assert [unsure[k] for k in ("measured", "low", "high", "deviation")] == ["1234.5", "", "", ""]
    cells = document(report)["cells"]
    assert [(cell["low"], cell["high"]) for cell in cells] == [(4.08, 5.63), (None, None)]


def test_a_cell_is_a_mean_with_its_interval():
    values = np.append(draw("exponential", 30), np.nan)
    cell = mean_cell(values, report="r", row="a", metric="m", published=1.0, decimals=3)
    found = mean_interval(values, seed="r/a/m")
    assert (cell.measured, cell.low, cell.high, cell.instances) == (found.mean, found.low, found.high, 30)
    pairs = np.arange(31) // 2
    drawn = mean_cell(values, report="r", row="a", metric="m", clusters=pairs)
    found = mean_interval(values, seed="r/a/m", clusters=pairs)
    assert (drawn.low, drawn.high, drawn.instances) == (found.low, found.high, 30)
    assert (cell.row, cell.metric, cell.published, cell.decimals) == ("a", "m", 1.0, 3)


def test_averages_over_instances_have_intervals_and_percentiles_have_none():
    bounds, yields = draw("random", 40) + 1.0, np.where(np.arange(40) % 8, draw("random", 40, 1), np.nan)
    frame = pl.DataFrame({"algorithm": "A", "bound": bounds, "minimum_yield": yields}).fill_nan(None)
    cells = distance_cells(ResultTable(frame), "A", yields)
    assert [cell.metric for cell in cells if cell.low is not None] == ["dfb", "dfb, %"]
    for cell, values in zip(cells, (bounds - yields, 100 * (1 - yields / bounds)), strict=False):
        assert cell.measured == pytest.approx(np.nanmean(values))
        assert cell.low < cell.measured < cell.high
        assert cell.instances == 35


def test_policies_are_compared_on_the_same_traces(monkeypatch):
    shared = draw("lognormal", 40) + 1.0
    columns = dict.fromkeys(algorithms(), shared)
    columns |= {"EASY": 3.0 * shared, "FCFS": shared * np.where(np.arange(40) % 4, 2.0, 0.5)}
    columns["FCFS"][:4] = np.nan
    numbers = np.repeat(np.arange(10), 4)[np.random.default_rng(3).permutation(40)]
    monkeypatch.setattr(table_5_2, "degradation", lambda _, label: columns[label])
    grid = table_5_2._against_best({"scaled": ResultTable(pl.DataFrame({"algorithm": BEST, "number": numbers}))})
    cells = {(cell.row, cell.metric): cell for cell in grid.cells}
    assert BEST in grid.title
    assert BEST not in {cell.row for cell in grid.cells}
    easy, fcfs = cells["EASY", "scaled: ratio"], cells["FCFS", "scaled: ratio"]
    assert (easy.measured, easy.low, easy.high) == pytest.approx((3.0, 3.0, 3.0))
    assert fcfs.measured == pytest.approx(2.0**0.5)
    assert 1.0 < fcfs.low < fcfs.measured < fcfs.high < 2.0
    seed = f"000 Table 5.2, against {BEST}/FCFS/scaled"
    drawn = paired(columns["FCFS"], shared, seed=seed, clusters=numbers).ratio
    assert (fcfs.low, fcfs.high) == (drawn.low, drawn.high)
    assert [cells["FCFS", f"scaled: {what}, %"].measured for what in ("wins", "losses")] == [25.0, 75.0]
    assert {cell.instances for cell in grid.cells if cell.row == "FCFS"} == {36}
    assert cells["GreedyP*/per/OPT=MIN/MVT=600", "scaled: wins, %"].measured == 0.0


MEANS = {
    "Table 5.2": (table_5_2.EXHIBIT, 2 * 20),
    "Table B.3": (tables_b.EXHIBITS[2], 118),
    "Table B.4": (tables_b.EXHIBITS[3], 2 * 116),
    "Table B.5": (tables_b.EXHIBITS[4], 2 * 116),
    "Figure 5.1": (figure_5_1.EXHIBIT, 2 * 2 * 10),
    "Figure 6.1": (figure_6_1.EXHIBIT, 2 * 2 * 2 * 2),
}
"""Pages, and how many means of one set of traces they show."""


@pytest.mark.parametrize("page", MEANS)
def test_traces_made_from_one_are_drawn_together(page):
    """Three copies of each of twelve traces are as sure as twelve traces."""
    item, shown = MEANS[page]
    labels = ("600", "12000") if page == "Figure 6.1" else algorithms()
    once = draw("lognormal", 12)
    numbers = np.random.default_rng(4).permutation(np.repeat(np.arange(12), 3))
    columns = ["bounded_degradation_from_bound", "degradation_from_bound", *METRICS["B4"], *METRICS["B5"]]
    one = pl.DataFrame({"number": numbers, "target_load": 0.7, "status": "completed", "message": None})
    one = one.with_columns(**dict.fromkeys(columns, once[numbers]))
    sheet = ResultTable(pl.concat(one.with_columns(algorithm=pl.lit(label)) for label in labels))
    studies = ("penalty", "free", "thrashing") if page == "Figure 5.1" else ("scaled",)
    content = item.content(dict.fromkeys(studies, sheet))
    assert TOGETHER in content.notes
    drawn = [curve for picture in content.pictures for panel in picture.panels for curve in panel.series]
    bands = [place for curve in drawn for place in zip(curve.y, curve.low, curve.high, strict=True)]
    cells = [(cell.measured, cell.low, cell.high) for grid in content.grids for cell in grid.cells]
    found = mean_interval(once, seed="s")
    # Ratios to the best policy are all 1.
    means = [(mean, low, high) for mean, low, high in cells + bands if low is not None and low < high]
    assert len(means) == shown
    for mean, low, high in means:
        assert (high - low) * found.mean == pytest.approx((found.high - found.low) * mean, rel=0.15)


def test_a_band_is_the_interval_at_each_place():
    x, values = np.repeat([0.3, 0.1, 0.2], 20), draw("exponential", 60)
    values[x == 0.2] = np.nan
    series = mean_series("a", x, values, seed="s")
    found = mean_interval(values[x == 0.1], seed="s/0.1")
    assert (series.y[0], series.low[0], series.high[0]) == (found.mean, found.low, found.high)
    assert series.x == [0.1, 0.2, 0.3]
    assert np.isnan([series.y[1], series.low[1], series.high[1]]).all()
    assert mean_series("a", x, values).low == ()
    clusters = np.arange(60) ** 2 // 100
    series = mean_series("a", x, values, seed="s", clusters=clusters)
    found = mean_interval(values[x == 0.1], seed="s/0.1", clusters=clusters[x == 0.1])
    assert (series.low[0], series.high[0]) == (found.low, found.high)


@pytest.mark.parametrize("log_y", [False, True])
def test_a_band_is_drawn_behind_its_curve_in_its_colour(log_y):
    x, hole = [1.0, 2.0, 3.0, 4.0], math.nan
    series = (
        Series(label="a", x=x, y=[2.0, 3.0, hole, 3.0], low=[1.0, 2.0, hole, 2.0], high=[3.0, 9.0, hole, 4.0]),
        Series(label="b", x=x, y=[5.0] * 4),
    )
    panel = Panel(title="", x_label="x", y_label="y", series=series, log_y=log_y)
    figure = curves._figure(Picture(name="n", title="t", subtitle="s", panels=(panel,)))
    axes = figure.axes[0]
    curves.plt.close(figure)
    (band,) = axes.collections
    assert band.get_facecolor()[0][:3] == pytest.approx(to_rgb(axes.lines[0].get_color()))
    assert band.get_zorder() < axes.lines[0].get_zorder()
    assert band.get_datalim(axes.transData).ymax == 9.0
    assert axes.get_ylim()[1] > 9.0
