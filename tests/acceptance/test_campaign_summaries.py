"""What summaries count, what a page takes, and what stops a campaign instead of failing its cells."""

import errno
import json
from pathlib import Path

import pytest

from dfrs.experiments import saved_runs
from dfrs.experiments.kinds.online import ONLINE, OnlineConfiguration
from dfrs.experiments.planned_runs import PlannedRun, failure
from dfrs.experiments.sources.traces import LublinTrace
from dfrs.experiments.store import Store
from dfrs.report.dots import draw_dots
from dfrs.report.tables import Content, Grid, TableReport, dots
from dfrs.report.tables import TableCell as Number

TWO_LABELS = """
name = "two"
policies = ["EASY", {policy = "EASY", label = "the same"}]
[[workloads]]
model = "lublin"
jobs = 40
nodes = 8
seeds = "1-2"
"""
HARD = """
name = "hard"
algorithms = ["GREEDY_S1_P7", "VP_CPSUM"]
[[instances]]
model = "services"
nodes = 4
services = 10
slack = [0.05, 0.5]
sigma = 1.0
seeds = "1-7"
"""


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def test_a_policy_under_two_labels_is_run_once_and_both_are_on_the_page(dfrs):
    Path("c.toml").write_text(TWO_LABELS)
    status, out, _ = dfrs("campaign", "run", "c.toml", "--workers", "1", "--json")
    assert (status, json.loads(out)["run"]) == (0, 2)
    assert dfrs("campaign", "export", "c.toml", "-o", "c.html")[0] == 0
    assert "the same" in Path("c.html").read_text()


def test_what_is_not_solved_is_counted_and_one_seed_at_two_slacks_is_one(dfrs):
    Path("c.toml").write_text(HARD)
    assert dfrs("campaign", "run", "c.toml", "--workers", "1")[0] == 0
    _, out, _ = dfrs("campaign", "results", "c.toml", "--json", "-m", "minimum_yield")
    _, table, _ = dfrs("campaign", "results", "c.toml", "-m", "minimum_yield")
    means = json.loads(out)["means"]
    assert all(mean["runs"] == 14 and mean["independent"] <= 7 for mean in means)
    unsolved = [mean for mean in means if mean["count"] < 14]
    assert unsolved, "no instance is hard enough for the test to say anything"
    assert all(f"{mean['count']} of 14" in table for mean in unsolved)


def test_a_run_that_cannot_be_kept_ends_the_campaign_and_no_cell_is_blamed(dfrs, monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    Path("c.toml").write_text("keep_runs = true\n" + TWO_LABELS)
    monkeypatch.setattr(saved_runs, "write_run", full)
    status, _, err = dfrs("campaign", "run", "c.toml", "--workers", "1")
    assert (status, len(err.strip().splitlines())) == (2, 1)
    assert "No space left" in err
    assert (tmp_path / "c.results/store.json").exists()
    assert not Store(tmp_path / "c.results").known(ONLINE)


def test_a_table_of_cells_that_were_not_run_is_refused(dfrs):
    status, _, err = dfrs(
        "reproduce", "stillwell2010-table-4.3", "--sample", "0.0001", "--retry-failed", "--workers", "1"
    )
    assert status == 2
    assert "14 runs have no result yet" in err


def test_a_message_that_is_no_text_is_kept(tmp_path):
    cell = PlannedRun(
        kind=ONLINE, scenario=LublinTrace(seed=1), configuration=OnlineConfiguration(label="a", policy="EASY")
    )
    store = Store(tmp_path / "store")
    store.add(ONLINE, [failure(cell, ValueError("a\udcff"))])
    store.flush(ONLINE)
    assert Store(tmp_path / "store").known(ONLINE) == {cell.key: True}


def test_the_picture_of_a_table_has_what_was_published_and_nothing_else(tmp_path):
    def number(row, measure, published):
        return Number(row=row, metric=measure, measured=2.0, published=published, instances=3, low=1.0, high=4.0)

    ours = Grid(title="ours", heading="a", cells=(number("x", "m", None),))
    theirs = Grid(title="theirs", heading="a", cells=(number("x", "m", 1.0), number("x", "n", None)))
    report = TableReport(name="r", title="t", source="s", samples=(), content=Content(grids=(ours, theirs)))
    picture = dots(report)
    assert picture is not None
    assert [(dot.row, dot.metric, dot.published, dot.low, dot.high) for dot in picture.dots] == [
        ("x", "m", 1.0, 1.0, 4.0)
    ]
    assert draw_dots(picture, tmp_path).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert dots(TableReport(name="r", title="t", source="s", samples=(), content=Content(grids=(ours,)))) is None
