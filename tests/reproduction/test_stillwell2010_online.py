"""The on-line tables: their workloads, their rows, the published numbers, and what a page says of which results."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from dfrs.bounds.stretch import stretch_bound
from dfrs.experiments.campaign_engine import CampaignEngine
from dfrs.experiments.kinds import online
from dfrs.experiments.kinds.online import ONLINE, OnlineConfiguration
from dfrs.experiments.planned_runs import PlannedRun, Work, perform, source_digest
from dfrs.experiments.results import TIMES, study_frame
from dfrs.experiments.runners import InProcess, Processes
from dfrs.experiments.sources.traces import LublinSource, LublinTrace
from dfrs.experiments.spec import Study
from dfrs.experiments.store import Store
from dfrs.model.decisions import PolicyError
from dfrs.model.errors import DfrsError
from dfrs.policies.names import TABLE_5_2
from dfrs_reproduction.catalogue import EXHIBITS
from dfrs_reproduction.metrics import ResultTable, failures
from dfrs_reproduction.sizes import FULL, QUICK, STANDARD, scaled, unscaled, weeks
from dfrs_reproduction.stillwell2010.appendix_b import MOVES, STATISTICS, algorithms, published
from dfrs_reproduction.stillwell2010.figure_6_1 import periods
from dfrs_reproduction.stillwell2010.policies import BEST, NO_WEEKS, SETS, heavy
from dfrs_reproduction.stillwell2010.tables_b import deviation
from tests.traces import needs_traces

SMALL = LublinTrace(seed=3, jobs=60)
ONLINE_ITEMS = [
    name
    for name, item in EXHIBITS.items()
    if item.source.startswith(("[Stillwell2010] section 5", "[Stillwell2010] section 6", "[Stillwell2010] app"))
]
TABLES = {"weeks": "B1", "unscaled": "B2", "scaled": "B3"}
SCHEMA = {"algorithm": pl.String, **ONLINE.columns}


def run_all(entries, case):
    """The row of each entry, in their order."""
    cells = tuple(PlannedRun(kind=ONLINE, scenario=case, configuration=entry) for entry in entries)
    return perform(Work(runs=cells, source=source_digest(ONLINE.code)))


def as_published(part, loads=(0.9,)):
    """Results that are what was published: one trace a load, its degradation the published average."""
    rows = [
        dict.fromkeys(SCHEMA)
        | {"algorithm": label, "status": "complete", "target_load": load, "number": 1}
        | {"bounded_degradation_from_bound": published(TABLES[part], "mean", label), "degradation_from_bound": 1.0}
        | {"pause_and_resume_gb_per_s": published("B4", "pmtn_mean", label)}
        | {"migration_gb_per_s": published("B4", "mig_mean", label)}
        for load in loads
        for label in algorithms()
    ]
    return ResultTable(pl.DataFrame(rows, schema=SCHEMA))


def test_the_published_numbers_are_those_of_the_document():
    assert len(algorithms()) == 118
    assert algorithms()[:2] == ("FCFS", "EASY")
    assert set(TABLE_5_2) <= set(algorithms())
    assert [published(f"B{k}", "mean", BEST) for k in (1, 2, 3)] == [6.9, 4.8, 6.1]
    assert [published("B1", s, "FCFS") for s in STATISTICS] == [3578.5, 3727.8, 21718.4]
    assert [published("B4", c, "MCB*/OPT=MIN/MVT=600") for c in MOVES] == [0.13, 0.37, 0.53, 1.51]
    assert [published("B5", c, "MCB*/OPT=AVG/MFT=300") for c in MOVES] == [20.23, 162.72, 327.56, 1313.64]
    assert [published("B6", c, "/stretch-per/OPT=MAX/MVT=600") for c in MOVES] == [3.76, 17.52, 9.87, 25.78]
    assert published("B6", "pmtn_mean", "EASY") is None


def test_the_published_numbers_are_consistent_with_each_other():
    for label in algorithms():
        for table in TABLES.values():
            mean, std, most = (published(table, s, label) for s in STATISTICS)
            assert 0 < mean <= most
            assert 0 < std < most
        for table in ("B4", "B5", "B6"):
            moves = [published(table, c, label) for c in MOVES]
            if moves[0] is not None:
                assert moves[0] <= moves[1]
                assert moves[2] <= moves[3]


def test_a_trace_is_scaled_to_its_load_with_the_same_jobs():
    whole = LublinTrace(seed=7).workload()
    assert len(whole) == 1000
    assert whole.nodes == 128
    for load in (0.1, 0.9):
        other = LublinTrace(seed=7, load=load).workload()
        assert other.load == pytest.approx(load, rel=1e-9)
        assert (other.run_s == whole.run_s).all()
        assert (other.memory == whole.memory).all()


def test_a_row_has_its_bound_below_and_no_penalty_where_nothing_moves():
    entries = (
        OnlineConfiguration(label="a", policy="FCFS"),
        OnlineConfiguration(label="b", policy="FCFS", penalty_s=0.0),
        OnlineConfiguration(label="c", policy="EASY"),
    )
    one, other, easy = run_all(entries, SMALL)
    assert set(one) == set(ONLINE.columns)
    assert one["stretch_bound"] == stretch_bound(SMALL.workload()).value
    for row in (one, easy):
        assert row["status"] == "complete"
        assert row["degradation_from_bound"] == pytest.approx(row["stretch_max"] / row["stretch_bound"])
        assert row["degradation_from_bound"] >= 1.0
        assert row["bounded_degradation_from_bound"] <= row["degradation_from_bound"]
        assert row["pauses_per_job"] == row["migration_gb_per_s"] == 0
    assert (one["policy"], one["penalty_s"], one["order"]) == ("FCFS", 300.0, "completions-first")
    assert (one["trace"], one["number"], one["jobs"], one["nodes"]) == ("lublin", 3, 60, 128)
    different = {name for name in one if one[name] != other[name]}
    assert {"key", "cell", "penalty_s"} <= different <= {"key", "cell", "penalty_s", *TIMES}


def test_a_trimmed_row_has_the_metrics_of_its_part_and_no_bound():
    entries = (
        OnlineConfiguration(label="a", policy="EASY"),
        OnlineConfiguration(label="b", policy="EASY", trim="10%:20%"),
    )
    whole, part = run_all(entries, SMALL)
    assert (whole["trim"], part["trim"]) == ("0", "10%:20%")
    assert part["jobs_finished"] < whole["jobs_finished"]
    assert part["span_s"] < whole["span_s"]
    assert part.get("stretch_bound") is None


def test_penalty_and_period_reach_the_simulation():
    entries = (
        OnlineConfiguration(label="a", policy=BEST),
        OnlineConfiguration(label="c", policy=BEST.replace("/per", "/per=600")),
        OnlineConfiguration(label="d", policy=BEST.replace("/per", "/per=6000")),
        OnlineConfiguration(label="e", policy="MCB*/OPT=MIN"),
        OnlineConfiguration(label="f", policy="MCB*/OPT=MIN", penalty_s=0.0),
    )
    default, same, seldom, penalised, free = run_all(entries, LublinTrace(seed=3, jobs=300, load=0.9))
    figures = [(row["stretch_mean"], row["pauses_per_hour"], row["migrations_per_hour"]) for row in (default, same)]
    assert figures[0] == figures[1]
    assert free["stretch_mean"] < 0.9 * penalised["stretch_mean"]
    moves = [row["pauses_per_hour"] + row["migrations_per_hour"] for row in (default, seldom)]
    assert moves[1] < moves[0]


def test_results_do_not_depend_on_the_number_of_processes(tmp_path):
    study = Study(
        name="s",
        sources=(LublinSource(seeds=(3, 4), jobs=60),),
        configurations=tuple(OnlineConfiguration(label=name, policy=name) for name in ("FCFS", "EASY", BEST)),
    )
    frames = []
    for name, runner in (("one", InProcess()), ("two", Processes(2))):
        store = Store(tmp_path / name)
        tally = CampaignEngine(store, runner).run(study.runs)
        runner.close()
        assert (tally.executed, tally.failed) == (len(study.runs), 0)
        frames.append(study_frame(study, store).drop(TIMES))
        store.close()
    assert frames[0]["key"].to_list() == [cell.key for cell in study.runs]
    assert frames[0].equals(frames[1])


def test_a_key_is_of_workload_policy_and_settings_and_not_of_labels():
    entry = OnlineConfiguration(label="a", policy="FCFS")
    cell = PlannedRun(kind=ONLINE, scenario=SMALL, configuration=entry)
    others = [
        replace(cell, scenario=replace(SMALL, load=0.5)),
        replace(cell, scenario=replace(SMALL, estimates="requested")),
        replace(cell, configuration=replace(entry, policy="EASY")),
        replace(cell, configuration=replace(entry, penalty_s=0.0)),
        replace(cell, configuration=replace(entry, bandwidth_gb_s=1.0)),
        replace(cell, configuration=replace(entry, node_memory_gb=4.0)),
        replace(cell, configuration=replace(entry, order="submissions-first")),
        replace(cell, alone=True),
    ]
    assert len({cell.key, *(other.key for other in others)}) == 9
    assert len({cell.seed, *(other.seed for other in others)}) == 9
    assert replace(cell, configuration=replace(entry, label="said otherwise")).key == cell.key


class Raising:
    """A policy that raises at once."""

    def __init__(self, error):
        self.error = error

    def decide(self, snapshot):
        raise self.error


def test_a_run_that_a_policy_ends_is_a_row_and_a_note(monkeypatch):
    monkeypatch.setattr(online, "find_policy", lambda _: Raising(PolicyError(1, "is never placed")))
    row = run_all((OnlineConfiguration(label="a", policy="idle"),), SMALL)[0]
    assert row["status"] == "failed"
    assert row["message"].startswith("policy idle at ")
    assert row["degradation_from_bound"] is None
    assert (row["policy"], row["number"], row["nodes"]) == ("idle", 3, 128)
    note = failures([ResultTable(pl.DataFrame([row | {"algorithm": "a"}], schema=SCHEMA))])
    assert note == (f"a: 1 of 1 runs failed; the first: {row['message']}",)
    assert "job 1 is never placed" in note[0]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DfrsError("no such\n  thing"), "no such thing"),
        (ZeroDivisionError("by nothing"), "ZeroDivisionError: by nothing"),
    ],
)
def test_an_error_of_ours_is_not_taken_for_one_of_the_policy(monkeypatch, error, message):
    entry = OnlineConfiguration(label="a", policy="idle")
    monkeypatch.setattr(online, "find_policy", lambda _: Raising(error))
    policys = run_all((entry,), SMALL)[0]
    assert policys["message"].startswith("policy idle at ")

    def raising(_):
        raise error

    monkeypatch.setattr(online, "find_policy", raising)
    ours = run_all((entry,), SMALL)[0]
    assert (ours["status"], ours["message"]) == ("failed", message)


def test_samples_are_nested_and_those_of_the_document():
    assert len(unscaled(FULL.unscaled).scenarios()) == 100
    assert len(set(scaled(FULL.scaled).scenarios())) == 900
    for source in (unscaled, scaled):
        assert source(STANDARD.scaled).scenarios()[: QUICK.scaled] == source(QUICK.scaled).scenarios()
    assert [case.load for case in scaled(9).scenarios()] == [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]


@needs_traces
def test_a_week_of_hpc2n_is_seven_days_on_120_nodes():
    cases = weeks(FULL.weeks).scenarios()
    assert sorted(case.week for case in cases) == list(range(1, 183))
    assert weeks(STANDARD.weeks).scenarios() == cases[: STANDARD.weeks]
    workload = cases[0].workload()
    assert workload.nodes == 120
    assert 0 <= workload.submit_s[0] <= workload.submit_s[-1] < 7 * 86_400


def test_periods_are_those_of_the_figure():
    assert periods(39) == [600.0 + 300.0 * k for k in range(39)]
    assert periods(STANDARD.periods)[0] == 600.0
    assert periods(STANDARD.periods)[-1] == 12_000.0
    assert len(periods(2)) == 2


def test_heavy_traces_are_those_of_load_07_and_more():
    sheet = as_published("scaled", loads=[case.load for case in scaled(9).scenarios()])
    assert sorted(heavy(sheet).parameter("target_load").tolist()) == [0.7, 0.8, 0.9]


def test_a_deviation_is_that_of_a_sample():
    assert deviation(np.array([1.0, np.nan, 3.0])) == pytest.approx(2.0**0.5)
    assert deviation(np.array([1.0, np.nan])) is None


def test_the_published_results_have_no_deviation_and_their_order_is_theirs():
    content = EXHIBITS["stillwell2010-table-5.2"].content({part: as_published(part) for part in SETS})
    compared = [cell for cell in content.grids[0].cells if cell.published is not None]
    assert len(compared) == 60
    assert all(cell.deviation == 0 for cell in compared)
    order, *others = content.claims
    assert order.holds
    assert all(claim.published == claim.measured for claim in others)
    for k in (1, 2, 3):
        part = list(SETS)[k - 1]
        grid = EXHIBITS[f"stillwell2010-tables-b{k}"].content({part: as_published(part)}).grids[0]
        assert len(grid.cells) == 3 * 118
    table = EXHIBITS["stillwell2010-table-6.1"].content({"scaled": as_published("scaled")})
    assert len(table.grids[0].cells) == 4 * 18
    assert all(cell.deviation == 0 for cell in table.grids[0].cells if cell.metric.endswith("avg"))
    assert [claim.holds for claim in table.claims] == [True, True]


def test_the_order_claim_fails_where_the_order_is_turned():
    sheet = as_published("unscaled")
    turned = ResultTable(
        sheet.frame.with_columns(bounded_degradation_from_bound=1.0 / pl.col("bounded_degradation_from_bound"))
    )
    order = EXHIBITS["stillwell2010-table-5.2"].content({"unscaled": turned}).claims[0]
    assert order.holds is False
    assert order.measured == "unscaled 0 %"


def test_without_hpc2n_its_columns_are_left_out_and_the_page_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("DFRS_TRACES", str(tmp_path))
    assert weeks(5) is None
    for name in ("stillwell2010-table-5.2", "stillwell2010-figure-6.1"):
        assert set(EXHIBITS[name].needs(QUICK)) == {"unscaled", "scaled"}
    assert EXHIBITS["stillwell2010-tables-b1"].needs(QUICK) == {}
    assert EXHIBITS["stillwell2010-tables-b1"].content({}).notes == (NO_WEEKS,)
    content = EXHIBITS["stillwell2010-table-5.2"].content({part: as_published(part) for part in ("unscaled", "scaled")})
    assert {cell.metric for cell in content.grids[0].cells} == {"unscaled", "scaled"}
    assert NO_WEEKS in content.notes


def test_all_items_are_there():
    assert len(ONLINE_ITEMS) == 10
    studies = [study for name in ONLINE_ITEMS for study in EXHIBITS[name].needs(QUICK).values()]
    assert all(len(study.runs) > 0 and study.kind is ONLINE for study in studies)
