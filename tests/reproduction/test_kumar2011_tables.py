"""Traces of the elastic workload model in campaigns, and the tables of [Kumar2011] made of them."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dfrs.experiments.kinds.online import METRICS, ONLINE, OnlineConfiguration
from dfrs.experiments.planned_runs import PlannedRun, Work, perform, source_digest
from dfrs.experiments.sources.traces import ElasticTrace, TracePart
from dfrs.experiments.spec import Campaign, ReportSettings, build_campaign, read_campaign
from dfrs.experiments.spec_text import campaign_toml
from dfrs.model.errors import InputError
from dfrs.report.tables import markdown
from dfrs.workloads.cwf import write_cwf
from dfrs.workloads.elastic_model import ElasticModel, generate
from dfrs_reproduction.catalogue import EXHIBITS
from dfrs_reproduction.kumar2011 import elastic, tables
from dfrs_reproduction.kumar2011.skips import COUNTS, best, flatness, knee, label_of
from dfrs_reproduction.metrics import ResultTable
from dfrs_reproduction.sizes import FULL, QUICK, STANDARD
from tests.traces import needs_traces

CWF = {"model": "cwf", "jobs": 60, "seeds": "1-2"}
SMALL = ElasticTrace(seed=1, jobs=60, load=0.9, pd=0.5, pe=0.2, pr=0.1)
SCHEMA = {"source": pl.String, "algorithm": pl.String, **ONLINE.columns}
NAMES = [name for name in EXHIBITS if name.startswith("kumar2011-")]
OF_LOGS = "kumar2011-figure-1"
OF_RUNS = [pytest.param(name, marks=needs_traces if name == OF_LOGS else ()) for name in NAMES]


def built(**source):
    return build_campaign({"name": "c", "policies": ["EASY"], "workloads": [CWF | source]}, Path())


def cases(**source):
    return [cell.scenario for cell in built(**source).runs]


def run_all(entries, case):
    cells = tuple(PlannedRun(kind=ONLINE, scenario=case, configuration=entry) for entry in entries)
    return perform(Work(runs=cells, source=source_digest(ONLINE.code)))


# Cells and sources.


def test_a_trace_is_that_of_the_generator():
    workload = SMALL.workload()
    trace = generate(ElasticModel(jobs=60, load=0.9, pd=0.5, pe=0.2, pr=0.1), seed=1)
    assert (len(workload), workload.nodes) == (60, 10)
    assert workload.load == pytest.approx(0.9, rel=1e-3)
    assert (workload.tasks * 32 == trace.jobs.processors).all()
    assert np.array_equal(workload.requested_start_s, trace.requested_start_s, equal_nan=True)
    assert len(workload.commands) == len(trace.commands) > 0
    assert replace(SMALL, annotate="none").workload().nodes == 320


def test_the_name_says_every_parameter_and_stays_what_it_is():
    assert SMALL.name == (
        "cwf-1 jobs=60 procs=320 unit=32 ps=0.5 load=0.9 pd=0.5 pe=0.2 pr=0.1 pep=0 prp=0 start_mean_s=3600 "
        "amount_mean_s=1800 annotate=unit:32"
    )
    other = {
        "seed": 2,
        "jobs": 61,
        "procs": 640,
        "unit": 16,
        "ps": 0.2,
        "load": None,
        "pd": 0.4,
        "pe": 0.3,
        "pr": 0.3,
        "pep": 0.1,
        "prp": 0.1,
        "start_mean_s": 60.0,
        "amount_mean_s": 60.0,
        "annotate": "unit:16",
    }
    names = {replace(SMALL, **{field: value}).name for field, value in other.items()}
    assert len(names | {SMALL.name}) == len(other) + 1


def test_a_row_has_what_002_measures():
    entries = (
        OnlineConfiguration(label="a", policy="Hybrid-LOS-E/CS=3"),
        OnlineConfiguration(label="b", policy="EASY-DE", command_limit=0),
    )
    elastic_row, limited = run_all(entries, SMALL)
    assert set(elastic_row) == set(ONLINE.columns)
    assert {"slowdown_of_means", "dedicated_on_time", "commands_granted"} <= set(METRICS)
    for row in (elastic_row, limited):
        assert row["status"] == "complete"
        assert (row["trace"], row["number"], row["nodes"], row["jobs"]) == ("cwf", 1, 10, 60)
        assert (row["ps"], row["pd"], row["pe"], row["pr"], row["target_load"]) == (0.5, 0.5, 0.2, 0.1, 0.9)
        slowdown = (row["wait_mean_s"] + row["run_mean_s"]) / row["run_mean_s"]
        assert row["slowdown_of_means"] == pytest.approx(slowdown)
        assert row["dedicated_jobs"] == SMALL.workload().dedicated.sum()
        assert row["commands"] == len(SMALL.workload().commands)
        assert row["commands_granted"] + row["commands_refused"] == row["commands"]
    assert elastic_row["commands_granted"] > 0
    assert (elastic_row["command_limit"], limited["command_limit"], limited["commands_granted"]) == (None, 0, 0)


def test_every_seed_is_run_at_every_share_and_load():
    found = cases(ps=[0.2, 0.8], loads=[0.5, 1.0])
    assert [(c.seed, c.ps, c.load) for c in found] == list(product((1, 2), (0.2, 0.8), (0.5, 1.0)))
    assert {c.annotate for c in found} == {"unit:32"}
    assert {c.annotate for c in cases(procs=160, unit=16)} == {"unit:16"}
    assert cases(ps=[0.2, 0.8], loads=[0.5, 1.0], first=3) == found[:3]
    assert [c.load for c in cases()] == [None, None]


@pytest.mark.parametrize(
    ("match", "source"),
    [
        (r"workloads\[0\]\.ps", {"ps": [0.5, 0.5]}),
        (r"workloads\[0\]\.ps", {"ps": []}),
        (r"workloads\[0\]\.pd", {"pd": 1.5}),
        (r"workloads\[0\]\.annotate", {"annotate": "unit:0"}),
        (r"workloads\[0\]\.start_mean_s", {"start_mean_s": 0}),
        (r"workloads\[0\].*procs = 100: must be a multiple", {"procs": 100}),
        (r"workloads\[0\].*jobs = 1: must be from 2", {"jobs": 1}),
        (r"workloads\[0\].*first = 9: there are 2", {"first": 9}),
        (r"workloads\[0\]\.nodes", {"nodes": 10}),
    ],
)
def test_what_is_no_source_is_one_line_with_its_place(match, source):
    with pytest.raises(InputError, match=match) as caught:
        built(**source)
    assert "\n" not in str(caught.value)


def test_a_campaign_is_read_as_it_is_written(tmp_path):
    document = {
        "name": "c",
        "policies": ["EASY-DE", {"policy": "Hybrid-LOS-E", "command_limit": 2}],
        "settings": {"command_limit": [0, 1]},
        "report": {"measures": ["slowdown_of_means"], "x": "ps"},
        "workloads": [
            CWF | {"ps": [0.2, 0.5], "loads": 0.9, "pd": 0.5, "pe": 0.2, "pr": 0.1, "pep": 0.1, "prp": 0.1},
            CWF | {"name": "other", "start_mean_s": 60, "amount_mean_s": 600, "annotate": "none", "first": 1},
        ],
    }
    campaign = build_campaign(document, tmp_path)
    assert [entry.command_limit for entry in campaign.studies[0].configurations] == [0, 1, 2]
    assert campaign.studies[0].configurations[0].name.endswith("completions-first command_limit=0")
    (tmp_path / "c.toml").write_text(campaign_toml(campaign))
    again = read_campaign(tmp_path / "c.toml")
    assert [cell.name for cell in again.runs] == [cell.name for cell in campaign.runs]
    assert again.report == ReportSettings(measures=("slowdown_of_means",), x="ps")


def test_a_cwf_file_is_a_trace_of_which_loads_move_starts_and_commands(tmp_path):
    write_cwf(tmp_path / "t.cwf.gz", generate(ElasticModel(jobs=40, pd=0.5, pe=0.5), seed=3))
    document = {
        "name": "c",
        "policies": ["EASY-DE"],
        "workloads": [
            {"model": "swf", "file": "t.cwf.gz", "annotate": "unit:32", "loads": [0.5, 0.25], "jobs": "0:20"}
        ],
    }
    campaign = build_campaign(document, tmp_path)
    assert campaign.studies[0].sources[0].name == "t"
    one, other = (cell.scenario.workload() for cell in campaign.runs)
    assert isinstance(campaign.runs[0].scenario, TracePart)
    assert [w.load for w in (one, other)] == [pytest.approx(0.5), pytest.approx(0.25)]
    dedicated = one.dedicated
    assert 0 < dedicated.sum() < 20
    ahead = [(w.requested_start_s - w.submit_s)[dedicated] for w in (one, other)]
    assert ahead[0] == pytest.approx(ahead[1])
    assert len(one.commands) == len(other.commands) > 0


# Tables.


def sheet(waits, loads=(0.5, 0.9), seeds=8):
    """Results in which a policy's wait on each seed is so many times the seed's number."""
    rows = [
        dict.fromkeys(SCHEMA)
        | {"algorithm": label, "status": "complete", "target_load": load, "number": seed, "wait_mean_s": seed * wait}
        | {"slowdown_of_means": 1.0 + seed * wait, "cpu_utilisation": 1.0 / (1.0 + wait), "flow_mean_s": seed * wait}
        | {"dedicated_jobs": 4.0, "dedicated_on_time": 2.0, "bounded_stretch_mean": 1.0 + wait, "commands_granted": 3.0}
        | {"dedicated_delay_mean_s": wait, "bounded_stretch_max": 2.0, "migrations_per_job": 0.0}
        for seed in range(1, seeds + 1)
        for load in loads
        for label, wait in waits.items()
    ]
    return ResultTable(pl.DataFrame(rows, schema=SCHEMA))


def test_an_improvement_is_of_means_over_seeds():
    results = sheet({"new": 8.0, "old": 10.0}, loads=(0.9,))
    change = elastic.improvement(results, "new", "old", "wait_mean_s")
    assert change.percent == pytest.approx(20.0)
    assert 0.0 < change.low < 20.0 < change.high
    assert change.sure
    back = elastic.improvement(results, "old", "new", "wait_mean_s")
    assert back.percent == pytest.approx(-25.0)
    assert back.low < -25.0 < back.high < 0.0
    used = elastic.improvement(results, "new", "old", "cpu_utilisation")
    assert used.percent == pytest.approx(100.0 * ((1 / 9) / (1 / 11) - 1.0))


def test_of_nothing_and_of_few_seeds_there_is_no_interval():
    nothing = np.array([np.nan, 1.0])
    assert np.isnan(elastic.change(nothing, nothing[::-1], "s").percent)
    zeros = np.zeros(3)
    assert elastic.change(zeros, zeros, "s").percent == 0.0
    few = elastic.change(np.array([1.0, 2.0]), np.array([2.0, 4.0]), "s")
    assert (few.percent, few.low, few.sure) == (50.0, None, None)


def test_the_largest_improvement_is_found_with_its_load():
    frames = [sheet({"new": new, "old": 10.0}, loads=(load,)).frame for load, new in ((0.5, 9.0), (0.8, 7.0))]
    results = ResultTable(pl.concat(frames))
    load, change = tables.maximum(results, "new", "old", "wait_mean_s")
    assert (load, change.percent) == (0.8, pytest.approx(30.0))
    assert tables.alone(results, "new", "old", "wait_mean_s") == pytest.approx(np.full(8, 30.0))


@pytest.mark.parametrize("failed", [0.5, 0.8])
def test_what_failed_at_a_load_leaves_open_what_holds_at_every_load(failed):
    whole = sheet({"new": 9.0, "old": 10.0}, loads=(0.5, 0.8))
    gone = (pl.col("algorithm") == "new") & (pl.col("target_load") == failed)
    part = ResultTable(whole.frame.with_columns(pl.when(~gone).then("wait_mean_s").alias("wait_mean_s")))
    assert elastic.better_claim("", whole, "new", "old").holds is True
    assert elastic.better_claim("", whole, "old", "new").holds is False
    claim, there = elastic.better_claim("", part, "new", "old"), 1.3 - failed
    assert claim.holds is None
    assert claim.measured.startswith(f"by +10.0 % (load {there:g}) to +10.0 % (load {there:g}); nothing to compare")
    assert f"at load {failed};" in claim.measured
    assert elastic.better_claim("", part, "old", "new").holds is False
    load, change = tables.maximum(part, "new", "old", "wait_mean_s")
    assert (load, change.percent) == (pytest.approx(there), pytest.approx(10.0))


def test_the_knee_of_a_curve_is_the_least_count_near_its_least_wait():
    waits = dict.fromkeys(COUNTS, 100.0) | {1: 120.0, 2: 110.0, 3: 100.9, 4: 100.0, 5: 100.5, 9: 99.95}
    results = sheet({label_of(count): wait for count, wait in waits.items()}, loads=(0.9,))
    assert (knee(results), best(results)) == (3, 9)
    assert flatness(results, 3) < 1.0 < flatness(results, 1)


def test_the_published_numbers_are_those_of_the_document():
    compared = {
        name: [c.published for c in content_of(name).grids[0].cells if c.published is not None]
        for name in NAMES
        if "table" in name
    }
    assert compared["kumar2011-table-4"] == [4.1, 31.88, 30.3, 1.52, 21.65, 20.41]
    assert compared["kumar2011-table-5"] == [4.55, 25.31, 24.29, 2.33, 18.24, 17.43]
    assert compared["kumar2011-table-6"] == [4.93, 18.94, 18.39, 1.78, 12.19, 11.79]
    assert compared["kumar2011-table-7"] == [1.88, 20.76, 19.81, 3.02, 10.18, 14.6]


def content_of(name, size=QUICK, seeds=3):
    """The content of an item where every policy waits longer than the one named before it."""
    needs = EXHIBITS[name].needs(size)
    results = {}
    for key, study in needs.items():
        labels = [entry.label for entry in study.configurations]
        loads = sorted({case.load for case in (cell.scenario for cell in study.runs)})
        waits = {label: 10.0 + k for k, label in enumerate(labels)}
        results[key] = sheet(waits, loads=loads, seeds=seeds)
    return EXHIBITS[name].content(results)


@pytest.mark.parametrize("name", OF_RUNS)
def test_every_item_makes_a_page_of_whatever_its_studies_give(name):
    item = EXHIBITS[name]
    content = content_of(name)
    report = item.report(QUICK, empty_frame)
    assert report.samples
    assert content.grids
    assert content.claims
    assert content.notes
    assert markdown(replace(report, content=content)).startswith(f"# {item.title}\n")


def empty_frame(study):
    """Results of a study of which nothing but waits is known."""
    labels = [entry.label for entry in study.configurations]
    loads = sorted({cell.scenario.load for cell in study.runs})
    return sheet({label: 10.0 + k for k, label in enumerate(labels)}, loads=loads, seeds=2).frame


def test_tables_and_figures_share_their_cells():
    cells = {name: {cell.key for cell in EXHIBITS[name].campaign(QUICK).runs} for name in NAMES}
    assert cells["kumar2011-table-4"] == cells["kumar2011-figure-7"]
    assert cells["kumar2011-table-5"] == cells["kumar2011-figure-9"]
    assert (
        cells["kumar2011-table-6"] | cells["kumar2011-table-7"]
        <= cells["kumar2011-figure-11"] | cells["kumar2011-figure-7"] | cells["kumar2011-figure-9"]
    )
    batch = cells["kumar2011-figure-7"]
    assert batch < cells["kumar2011-adaptive"]


@pytest.mark.parametrize("name", OF_RUNS)
def test_samples_are_nested(name):
    quick, standard, full = (
        {cell.key for cell in EXHIBITS[name].campaign(size).runs} for size in (QUICK, STANDARD, FULL)
    )
    assert quick < standard <= full


def test_without_the_logs_their_figure_says_how_to_get_them(monkeypatch, tmp_path):
    monkeypatch.setenv("DFRS_TRACES", str(tmp_path))
    item = EXHIBITS[OF_LOGS]
    assert item.needs(QUICK) == {}
    assert isinstance(item.campaign(QUICK), Campaign)
    (note,) = item.content({}).notes
    assert "DFRS_TRACES" in note
