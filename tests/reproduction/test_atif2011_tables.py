"""[Atif2011]'s tables: recomputed predictions, runs of the appendix's streams, and pages beside what was printed."""

import json
import tomllib
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.experiments.farm_compare import done_by, throughput
from dfrs.experiments.farm_runs import measured, moves_of, place, placed, prepare_stream, simulation
from dfrs.experiments.kinds.farm import FARM, FarmConfiguration, FarmScenario, factors, prepare, times_of
from dfrs.experiments.planned_runs import PlannedRun, Work, failure, perform, source_digest
from dfrs.experiments.spec import build_campaign
from dfrs.experiments.spec_text import campaign_toml
from dfrs.model.errors import InputError
from dfrs.model.run import Action
from dfrs.report.partition_gantt import GanttLayout, GanttPanel, draw_partitions, moved_jobs, stays
from dfrs.report.tables import markdown
from dfrs_reproduction.atif2011 import moves
from dfrs_reproduction.atif2011.programs import PROGRAMS, arrive_f
from dfrs_reproduction.atif2011.published import EXPERIMENTS, MIGRATIONS
from dfrs_reproduction.atif2011.streams import READ, jobs_of, stream
from dfrs_reproduction.catalogue import EXHIBITS, choose
from dfrs_reproduction.sizes import FULL, QUICK

NAMES = [f"atif2011-table-{number}" for number in range(2, 22)]
SIMULATED = [
    "atif2011-table-10",
    "atif2011-table-15",
    "atif2011-table-17",
    "atif2011-table-21",
    "atif2011-table-14",
    "atif2011-table-19",
]


def cells_of(name, frame=None):
    report = EXHIBITS[name].report(QUICK, lambda _: frame)
    cells = {(cell.row, cell.metric): cell for grid in report.content.grids for cell in grid.cells}
    return report, cells


def test_every_table_has_its_name_and_they_are_in_order():
    assert [item.name for item in choose(["atif2011-*"])] == NAMES
    with pytest.raises(InputError, match="atif2011-table-2"):
        choose(["atif2011-table-22"])


def test_the_worked_examples_are_recomputed():
    _, cells = cells_of("atif2011-table-4")
    assert cells["FT.B.8 A to B", "saved in tau, s"].measured == pytest.approx(9.47, abs=0.02)
    assert cells["LU.B.8 A to B", "saved in all, s"].measured == pytest.approx(92.6, abs=0.5)
    _, cells = cells_of("atif2011-table-6")
    assert cells["FT.B.8 C to B", "saved in all, s"].measured == pytest.approx(281.3, abs=1.0)
    _, cells = cells_of("atif2011-table-2")
    assert cells["LU.B.8", "predicted on B, s"].measured == pytest.approx(107.1, abs=0.5)
    for (_, measure), cell in cells.items():
        if measure == "accuracy of the printed times, %":
            assert cell.measured == pytest.approx(cell.published, abs=0.15)


@pytest.mark.parametrize(
    ("name", "closes"), [("atif2011-table-7", True), ("atif2011-table-8", True), ("atif2011-table-9", True)]
)
def test_printed_savings_close(name, closes):
    report, _ = cells_of(name)
    assert [claim.holds for claim in report.content.claims] == [closes]


def test_table_18_does_not_close_and_13_does():
    assert moves.recomputed(MIGRATIONS[18].jobs) == 786
    assert MIGRATIONS[18].saved_s == 719
    assert moves.recomputed(MIGRATIONS[13].jobs) == MIGRATIONS[13].saved_s


@pytest.mark.parametrize("name", SIMULATED)
def test_the_campaign_and_its_file_turn_into_each_other(name):
    campaign = EXHIBITS[name].campaign(QUICK)
    again = build_campaign(tomllib.loads(campaign_toml(campaign)), Path())
    assert [cell.key for cell in again.runs] == [cell.key for cell in campaign.runs]
    assert {cell.key for cell in campaign.runs} < {cell.key for cell in EXHIBITS[name].campaign(FULL).runs}


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"streams": [{"experiment": 4, "seeds": 1}], "policies": ["ARRIVE-F"]}, "experiment"),
        (
            {"streams": [{"experiment": 1, "seeds": 1, "order": "ABB"}], "policies": ["ARRIVE-F"]},
            "each sub-cluster once",
        ),
        ({"streams": [{"experiment": 1, "seeds": 1}], "policies": ["ARIVE-F"]}, "did you mean"),
        ({"streams": [{"experiment": 1, "seeds": 1, "jitter": 1.0}], "policies": ["ARRIVE-F"]}, "jitter"),
        ({"streams": [{"experiment": 1, "seeds": 1}]}, "policies"),
    ],
)
def test_a_wrong_study_is_refused(said, match):
    with pytest.raises(InputError, match=match):
        build_campaign({"format": "dfrs-campaign/1", "name": "c", **said}, Path())


@pytest.fixture(scope="module")
def frames():
    """Results of two seeds of each study, by its name."""
    found = {}
    for name in SIMULATED:
        for study in EXHIBITS[name].needs(replace(QUICK, needs=2)).values():
            if study.name not in found:
                rows = [
                    {"algorithm": cell.configuration.label}
                    | perform(Work(runs=(cell,), source=source_digest(FARM.code)))[0]
                    for cell in study.runs
                ]
                found[study.name] = pl.DataFrame(rows, schema={"algorithm": pl.String, **FARM.columns})
    return found


@pytest.mark.parametrize("name", [name for name in NAMES if int(name.rpartition("-")[2]) > 9])
def test_a_page_stands_beside_what_was_printed(name, frames):
    report = EXHIBITS[name].report(replace(QUICK, needs=2), lambda study: frames[study.name])
    assert report.content.grids
    assert all(cell.measured is not None for grid in report.content.grids for cell in grid.cells)
    assert not any("runs failed" in note for note in report.content.notes)


def failing(study, frame, lost):
    """The results of a study of which some runs failed, by policy and seed."""
    rows = [
        {"algorithm": run.configuration.label} | failure(run, "killed")
        if (run.configuration.label, run.scenario.seed) in lost
        else row
        for run, row in zip(study.runs, frame.to_dicts(), strict=True)
    ]
    return pl.DataFrame(rows, schema=frame.schema)


@pytest.mark.parametrize("name", [name for name in NAMES if int(name.rpartition("-")[2]) > 9])
@pytest.mark.parametrize("seeds", [(1,), (0, 1)])
def test_a_page_is_made_of_the_runs_that_did_not_fail(name, seeds, frames):
    lost = {("ARRIVE-F", seed) for seed in seeds}
    size = replace(QUICK, needs=2)
    with warnings.catch_warnings(action="error"):
        report = EXHIBITS[name].report(size, lambda study: failing(study, frames[study.name], lost))
    assert f"ARRIVE-F: {len(seeds)} of 2 runs failed; the first: killed" in report.content.notes
    assert "nan" not in markdown(report)


@pytest.mark.parametrize("name", ["atif2011-table-10", "atif2011-table-15", "atif2011-table-17", "atif2011-table-21"])
def test_runs_are_compared_on_the_seeds_on_which_both_are_complete(name, frames):
    size = replace(QUICK, needs=2)
    one, other = ("ARRIVE-F/HEAD" if name == "atif2011-table-21" else "FARM-EASY"), "ARRIVE-F"

    def without(*lost):
        return EXHIBITS[name].report(size, lambda study: failing(study, frames[study.name], lost)).content

    alone = EXHIBITS[name].report(size, lambda study: frames[study.name].filter(pl.col("seed") == 0)).content
    assert (without((other, 1)).grids[:2], without((other, 1)).claims) == (alone.grids[:2], alone.claims)
    assert without((one, 1)).claims == alone.claims
    assert {(claim.measured, claim.instances) for claim in without((one, 0), (other, 1)).claims} == {("no instance", 0)}


def test_table_10_has_the_published_averages_and_both_bases(frames):
    report = EXHIBITS["atif2011-table-10"].report(replace(QUICK, needs=2), lambda study: frames[study.name])
    cells = {(cell.row, cell.metric): cell for grid in report.content.grids for cell in grid.cells}
    assert cells["base run", "average wait, s"].published == 4498
    assert cells["throughput", "of the base run, %"].published == 27
    saved = [cells["total time saved", f"of the {run} run, %"].published for run in ("base", "migration")]
    assert [round(value, 1) for value in saved] == [24.5, 32.4]
    frame = frames["experiment-1"]
    base = frame.filter(pl.col("algorithm") == "FARM-EASY")["total_s"].mean()
    assert cells["base run", "total time, s"].measured == pytest.approx(base)


def test_throughput_is_that_of_the_document():
    for known in EXPERIMENTS.values():
        mean = float(throughput(known.jobs, np.array([float(known.average.jobs_then)]))[0])
        assert mean == pytest.approx(known.throughput, abs=0.6)


def test_a_cell_repeats_and_seeds_differ_by_one_percent_at_most():
    assert (factors("experiment-1", 0, 50) == 1.0).all()
    first, second = (factors("experiment-1", seed, 50) for seed in (1, 2))
    assert (first == factors("experiment-1", 1, 50)).all()
    assert (first != second).any()
    assert np.abs(first - 1.0).max() <= 0.01
    cell = PlannedRun(
        kind=FARM,
        scenario=FarmScenario(experiment=3, seed=1, order="CBAD"),
        configuration=FarmConfiguration(label="ARRIVE-F", policy="ARRIVE-F"),
    )
    rows = [perform(Work(runs=(cell,), source=source_digest(FARM.code)))[0] for _ in range(2)]
    assert [row | {"cell_s": 0} for row in rows] == [rows[0] | {"cell_s": 0}] * 2
    assert len(times_of(rows[0])) == 194
    assert all("why" in move for move in json.loads(rows[0]["moves"]))


def test_experiment_3_makes_the_published_first_migration():
    """[Atif2011] Table 18: LU.B.8.2279 from A to B, CG.B.2.1184 the other way."""
    made = prepare(FarmScenario(experiment=3, seed=0, order="CBAD"))
    run = simulation(made, "ARRIVE-F").run()
    first = {(made.names[m.job], m.source.rstrip("'"), m.target.rstrip("'")) for m in moves_of(run, made.farm)[:2]}
    assert first == {("LU.B.8.2279", "A", "B"), ("CG.B.2.1184", "B", "A")}
    base = placed(simulation(made, "FARM-EASY").run(), made.farm)
    start_s, end_s, where = base[made.names.index("CG.B.2.1184")]
    assert where == "B'"
    assert end_s - start_s == pytest.approx(1272, abs=1)


def test_job_6_is_put_right_unless_as_printed():
    assert jobs_of(1)[5].name == READ[1][6]
    assert (jobs_of(1)[5].benchmark, jobs_of(1)[5].class_, jobs_of(1)[5].iterations) == ("FT", "B", 20)
    assert jobs_of(1, printed=True) == stream(1)
    assert jobs_of(2) == stream(2)


def test_farm_orders_are_permutations():
    with pytest.raises(InputError, match="each sub-cluster once"):
        prepare_stream(PROGRAMS, stream(3)[:5], name="x", order="ABCX")
    made = prepare_stream(PROGRAMS, stream(3)[:5], name="x", without="C")
    assert [cluster.name for cluster in made.farm.partitions] == [c for c in PROGRAMS.order if c != "C"]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 300), st.integers(2, 25), st.sampled_from(["ABCD", PROGRAMS.order, "DCBA"]), st.booleans())
def test_runs_keep_what_a_farm_is(first, count, order, errors):
    """Every job is done, in one sub-cluster, and takes at least its time on the best one: whatever was moved."""
    jobs = stream(1)[first : first + count]
    made = prepare_stream(PROGRAMS, jobs, name="x", order=order, errors=errors)
    run = simulation(made, "ARRIVE-F").run()
    assert not run.refused
    found = placed(run, made.farm)
    assert len(found) == len(jobs)
    for job, (start_s, end_s, where) in found.items():
        assert end_s - start_s >= made.workload.run_s[job] - 1e-6
        assert "+" not in where
    assert measured(run)["turnaround_s"] >= measured(run)["wait_s"] >= 0
    assert measured(run)["total_s"] == run.finish_s.max() - run.workload.submit_s.min()
    assert done_by(run.finish_s, run.finish_s.max()) == len(jobs)
    layout = GanttLayout(hardware=made.farm)
    drawn = stays(run, layout, 0.0, run.end_s)
    # What is drawn is node seconds of the log: no band is drawn twice, none is forgotten.
    total = sum((stay.high - stay.low) * (stay.end_s - stay.begin_s) for stay in drawn)
    used = sum((end_s - start_s) * made.workload.tasks[job] for job, (start_s, end_s, _) in found.items())
    assert total == pytest.approx(used)
    by_node: dict[int, list[tuple[float, float]]] = {}
    for stay in drawn:
        for node in range(stay.low, stay.high):
            by_node.setdefault(node, []).append((stay.begin_s, stay.end_s))
    for spans in by_node.values():
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(sorted(spans)))


def test_places_are_named():
    farm = arrive_f()
    assert place(np.array([0, 1, 4, 5]), farm) == "A"
    assert place(np.array([0, 1]), farm) == "A'"
    assert place(np.array([8]), farm) == "B"
    assert place(np.array([0, 8]), farm) == "A+B"


def test_the_picture_has_the_moved_jobs_first_and_refuses_other_farms(tmp_path):
    made = prepare(FarmScenario(experiment=3, seed=0, order="CBAD"))
    run = simulation(made, "ARRIVE-F").run()
    assert moved_jobs([run]) == list(dict.fromkeys(run.events.job[run.events.action == Action.MIGRATE].tolist()))
    draw_partitions([GanttPanel(label="x", run=run)], made.farm, made.names, tmp_path / "a.png", to_s=3000.0)
    draw_partitions([GanttPanel(label="x", run=run)], made.farm, made.names, tmp_path / "b.png", to_s=3000.0)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with pytest.raises(InputError, match="32 nodes of the farm"):
        draw_partitions([GanttPanel(label="x", run=run)], arrive_f(), made.names, tmp_path / "c.png")
    with pytest.raises(InputError, match="outside"):
        draw_partitions(
            [GanttPanel(label="x", run=run)], made.farm, made.names, tmp_path / "c.png", from_s=1e6, to_s=2e6
        )
    assert not (tmp_path / "c.png").exists()
