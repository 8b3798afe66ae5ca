"""Pictures of runs: what each pixel shows against the log read anew, curves that keep their area, files that repeat."""

import math
from dataclasses import replace

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dfrs.cli.simulate.plot import plot
from dfrs.model.errors import InputError
from dfrs.model.run import Action
from dfrs.report import timeline
from dfrs.report.clock import clock, parse_time, time_ticks
from dfrs.report.gantt import JOB_COLOURS, Window, busiest, colour_index, draw_gantt, fill, paint, window_of
from dfrs.report.run_page import _figure, page
from dfrs.report.timeline import draw_comparison, draw_stretches, draw_yields, resample, worse_share
from dfrs.runs.directory import write_run
from dfrs.runs.metrics.intervals import penalties
from dfrs.runs.metrics.schedule import bounded_stretch, summarize
from tests.random_runs import random_run
from tests.toy_runs import run_of, story_run, toy_run, workload

PLACING = {Action.START, Action.RESUME, Action.MIGRATE}


def held_at(run, time_s):
    """Job -> (nodes, yield, no progress before) of who runs at that time, from the rows up to it."""
    held, costs = {}, penalties(run)
    for e in range(len(run.events)):
        if run.events.time_s[e] > time_s:
            break
        job, action = int(run.events.job[e]), Action(run.events.action[e])
        if action in PLACING:
            held[job] = (run.events.nodes_of(e).tolist(), run.events.yield_[e], run.events.time_s[e] + costs[e])
        elif action == Action.SHARE:
            held[job] = (held[job][0], run.events.yield_[e], held[job][2])
        elif job >= 0:
            held.pop(job, None)
    return held


def check_column(run, jobs, penalty, band, column, time_s):
    held = held_at(run, time_s)
    usable = band - 1
    for node in range(jobs.shape[0] // band):
        shown = jobs[node * band : (node + 1) * band, column]
        late = penalty[node * band : (node + 1) * band, column]
        assert set(shown.tolist()) - {-1} <= set(held)
        bottom_up = [int(j) for j in shown[::-1] if j >= 0]
        assert bottom_up == sorted(bottom_up)
        for job, (nodes, yield_, ready_s) in held.items():
            share = nodes.count(node) * run.workload.need[job] * yield_ / run.capacity[node, 0]
            assert abs((shown == job).sum() - share * usable) <= 1.0 + 1e-6, (node, job)
            assert (late[shown == job] == (time_s < ready_s)).all()


@given(seed=st.integers(0, 400), partial=st.booleans())
def test_each_pixel_shows_who_had_that_part_of_the_node(seed, partial):
    run = random_run(seed, partial=partial)
    window = Window(from_s=0.0, to_s=max(run.end_s, 1.0), nodes=len(run.capacity))
    jobs, penalty = fill(run, window, 37, 20)
    for column in range(0, 37, 5):
        time_s = (column + 0.5) * window.to_s / 37
        if time_s < run.end_s and time_s not in run.events.time_s:
            check_column(run, jobs, penalty, 20, column, time_s)


def test_the_story_run_is_drawn_as_told():
    run = story_run()
    jobs, penalty = fill(run, Window(from_s=0.0, to_s=3750.0, nodes=3), 3750, 11)
    assert set(jobs[:11, 500]) == {0, -1}  # alone on node 0, under the line between bands
    assert jobs[:11, 1200].tolist() == [-1, *[1] * 5, *[0] * 5]
    assert 0 not in jobs[:, 1800]  # paused
    assert 0 not in jobs[:11, 2300]
    assert (jobs[11:22, 2300] == 0).sum() == 10  # both tasks at half
    assert penalty[11:22, 2300].sum() == 10
    assert not penalty[:, 2450].any()


def test_a_part_of_the_nodes_can_be_shown():
    run = story_run()
    whole, _ = fill(run, Window(from_s=0.0, to_s=3750.0, nodes=3), 100, 10)
    part, _ = fill(run, Window(from_s=0.0, to_s=3750.0, nodes=2), 100, 10)
    assert (part == whole[:20]).all()


def test_nodes_that_are_down_are_grey():
    load = workload([(1, 0, 1, 1.0, 0.5, 50)], nodes=2)
    nan = float("nan")
    rows = [
        (0, 0, Action.START, [0], 1.0, ""),
        (10, -1, Action.DOWN, [1], nan, ""),
        (20, -1, Action.UP, [1], nan, ""),
        (50, 0, Action.FINISH, [], nan, ""),
    ]
    run = run_of(load, rows)
    window = Window(from_s=0.0, to_s=50.0, nodes=2)
    image = paint(run, *fill(run, window, 50, 10), window, 10)
    idle, down = image[15, 5], image[15, 15]
    assert not (idle == down).all()
    assert (image[15, 25] == idle).all()


def test_the_busiest_window_is_where_most_changes_are():
    run = toy_run(16, 120)
    from_s, to_s = busiest(run, 6 * 3600.0)
    times = run.events.time_s[run.events.action != Action.SHARE]
    counts = [((times >= t) & (times < t + 6 * 3600)).sum() for t in times]
    assert to_s - from_s == pytest.approx(6 * 3600)
    assert ((times >= from_s) & (times < to_s)).sum() >= max(counts) - 1
    assert busiest(story_run(), 6 * 3600.0) == (0.0, 3750.0)


def test_windows_that_are_empty_are_refused():
    run = story_run()
    assert window_of(run, 1000.0).to_s == 3750.0
    assert window_of(run, to_s=1000.0).from_s == 0.0
    with pytest.raises(InputError, match="after the beginning"):
        window_of(run, 2000.0, 1000.0)
    with pytest.raises(InputError, match="from 0 to 3750"):
        window_of(run, 9000.0, 9100.0)


def test_jobs_that_start_one_after_the_other_differ_in_colour():
    run = toy_run(16, 120)
    started = np.argsort(run.start_s, kind="stable")
    colours = colour_index(run)[started]
    assert all(len(set(colours[k : k + 8])) == 8 for k in range(len(colours) - 8))
    assert colours.max() < len(JOB_COLOURS)


@given(
    lengths=st.lists(st.floats(0.01, 50.0), min_size=1, max_size=12),
    values=st.lists(st.one_of(st.floats(0.0, 1.0), st.just(math.nan)), min_size=12, max_size=12),
    columns=st.integers(1, 9),
)
def test_resampling_keeps_the_area_and_the_extremes(lengths, values, columns):
    time_s = np.concatenate([[0.0], np.cumsum(lengths)])
    values = np.array(values[: len(lengths)])
    edges = np.linspace(0.0, time_s[-1], columns + 1)
    got = resample(time_s, values, edges)
    for c in range(columns):
        pieces = [
            (min(edges[c + 1], time_s[k + 1]) - max(edges[c], time_s[k]), values[k])
            for k in range(len(values))
            if min(edges[c + 1], time_s[k + 1]) - max(edges[c], time_s[k]) > 1e-9 and np.isfinite(values[k])
        ]
        if not pieces:
            continue
        seconds = sum(length for length, _ in pieces)
        assert got.mean[c] == pytest.approx(sum(length * v for length, v in pieces) / seconds, abs=1e-6)
        assert got.low[c] <= min(v for _, v in pieces)
        assert got.high[c] >= max(v for _, v in pieces)
        assert got.low[c] - 1e-12 <= got.mean[c] <= got.high[c] + 1e-12


def test_the_tail_says_how_many_fare_at_least_so_badly():
    stretch = np.array([3.0, 1.0, math.nan, 2.0, 2.0])
    x, y = worse_share(stretch)
    assert x.tolist() == [1.0, 2.0, 2.0, 3.0]
    for value, share in zip([1.0, 2.0, 3.0], [1.0, 0.75, 0.25], strict=True):
        assert y[np.searchsorted(x, value)] == share == np.mean(x >= value)


@pytest.mark.parametrize("seed", range(2))
def test_every_run_can_be_drawn_and_the_bytes_repeat(tmp_path, seed):
    run = random_run(seed, partial=seed % 2 == 1)
    again = [tmp_path / "a", tmp_path / "b"]
    for place in again:
        place.mkdir()
        if run.end_s > run.workload.submit_s[0]:
            draw_gantt(run, place / "gantt.png")
        draw_yields(run, place / "yields.png")
        draw_stretches(run, place / "stretches.png", 1.5)
        draw_comparison([run, run], ["one", "two"], [1.5, None], place / "comparison.png")
        (place / "page.html").write_text(page(run))
    for first in sorted(again[0].iterdir()):
        data = first.read_bytes()
        assert data == (again[1] / first.name).read_bytes()
        assert b"Software" not in data


@pytest.mark.parametrize("end_s", [3750.0, 50_000.0])
def test_a_run_in_which_nothing_happened_can_be_drawn(tmp_path, end_s):
    run = replace(story_run(), refused=(0, 1, 2), end_s=end_s)
    none = replace(run.events, **{k: getattr(run.events, k)[:0] for k in ("time_s", "job", "action", "yield_", "why")})
    run = replace(run, events=replace(none, first=np.zeros(1, np.int64), nodes=np.zeros(0, np.int64)))
    draw_gantt(run, tmp_path / "gantt.png")
    draw_yields(run, tmp_path / "yields.png")
    draw_stretches(run, tmp_path / "stretches.png")
    draw_comparison([run, story_run()], ["none", "story"], [None, None], tmp_path / "comparison.png")
    assert "refused" in page(run)


def test_runs_are_compared_by_their_bounded_stretches():
    run = story_run()
    bars, tail, _ = timeline._comparison_figure([run, run], ["one", "two"], [1.5, 1.5], 5000.0).axes
    worst = np.nanmax(bounded_stretch(run, 5000.0))
    assert worst < np.nanmax(run.stretch)
    assert [text.get_text() for text in bars.texts] == [f"{worst / 1.5:,.2f}"] * 2
    assert "each at least 5000 s" in tail.get_xlabel()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        draw_yields(story_run(), tmp_path / "absent" / "yields.png")


def test_the_page_has_every_figure_on_its_tiles():
    run = story_run()
    text = page(run, summarize(run, stretch_bound=1.2))
    tiles = text[text.index('"tiles":') : text.index('"metrics":')]
    assert "–" not in tiles
    assert "1.88" in tiles
    assert "1.56 times the bound of 1.20" in tiles
    assert _figure(None) == "–"


def test_a_page_cannot_be_broken_by_names_and_is_refused_where_too_large():
    run = story_run()
    evil = replace(run, policy="</script><b>&", workload=replace(run.workload, name="<!-- </style>"))
    text = page(evil)
    assert text.count("</script>") == page(run).count("</script>") == 2
    with pytest.raises(InputError, match="too many for a page"):
        page(run.__class__(**{**vars_of(run), "workload": toy_run(4, 2).workload, "events": _many(run)}))


def vars_of(run):
    return {name: getattr(run, name) for name in ("policy", "capacity", "penalty", "complete", "end_s")}


def _many(run):
    rows = np.zeros(300_001, np.int64)
    return replace(run.events, time_s=rows.astype(float), job=rows, action=rows, yield_=rows.astype(float), why=rows)


@given(st.integers(0, 10**7))
def test_times_read_back(seconds):
    assert parse_time(clock(seconds)) == seconds
    assert parse_time(clock(seconds).replace("+", "-")) == seconds
    assert parse_time(str(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1:30", 5400), ("2-03:04:05", 183845), ("00:00:01.5", 1.5), ("12.25", 12.25), ("1d02:00", 93600)],
)
def test_ways_to_write_a_time(text, seconds):
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["noon", "1:2", "12:60", "", "inf", "nan", "1-2", "1:30:99"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(InputError, match="--at"):
        parse_time(text, "--at")


@given(st.floats(0, 1e8), st.floats(1, 1e8))
def test_ticks_are_few_and_inside(from_s, length_s):
    ticks = time_ticks(from_s, from_s + length_s)
    assert len(ticks) <= 13
    assert all(from_s - 1e-6 <= t <= from_s + length_s + 1e-6 for t in ticks)


@pytest.fixture
def directories(tmp_path):
    found = []
    for name, run in (("one", story_run()), ("two", replace(story_run(), policy="two"))):
        write_run(run, tmp_path / name, summarize(run, stretch_bound=1.2), "0")
        found.append(tmp_path / name)
    return found


def cli(*arguments):
    app = typer.Typer()
    app.command()(plot)
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_a_run_directory_becomes_pictures_and_a_page(directories, tmp_path):
    assert cli(directories[0], "--from", "0:10", "--to", "0:20").exit_code == 0
    made = {path.name for path in directories[0].iterdir()}
    assert made >= {"gantt.png", "yields.png", "stretches.png", "page.html"}
    assert cli(directories[0], "-o", tmp_path / "new" / "place", "--nodes", 2).exit_code == 0
    assert (tmp_path / "new" / "place" / "page.html").read_text() == (directories[0] / "page.html").read_text()
    assert (tmp_path / "new" / "place" / "gantt.png").read_bytes() != (directories[0] / "gantt.png").read_bytes()


def test_several_run_directories_are_compared(directories, tmp_path):
    assert cli(*directories, "-o", tmp_path).exit_code == 0
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert not (directories[0] / "gantt.png").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("one", "--from", "noon"), "--from"),
        (("one", "--title", "x"), "for an allocation"),
        (("one", "two", "--nodes", "2"), "for one run"),
        (("x.json", "--to", "1:00"), "for a run directory"),
        (("x.json", "y.json"), "one allocation at a time"),
        (("one", "--from", "9:00"), "outside of the run"),
        (("one", "absent"), "absent"),
        ((".",), "run directory"),
    ],
)
def test_what_cannot_be_drawn_is_said(directories, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    done = cli(*arguments)
    assert isinstance(done.exception, InputError)
    assert words in str(done.exception)
