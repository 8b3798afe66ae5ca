"""`dfrs reproduce`: what it writes on a tiny sample, and the measures that the tables are made of."""

import csv
import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dfrs.experiments.campaign_engine import CampaignEngine
from dfrs.experiments.kinds.offline import OFFLINE, OfflineConfiguration
from dfrs.experiments.planned_runs import PlannedRun
from dfrs.experiments.results import TIMES, study_frame
from dfrs.experiments.runners import InProcess, Processes
from dfrs.experiments.sources.instances import RandomInstance
from dfrs.experiments.spec import Study, build_campaign
from dfrs.experiments.spec_text import campaign_toml
from dfrs.experiments.store import Store
from dfrs.model.errors import InputError
from dfrs.workloads.services import ServiceScenario
from dfrs_reproduction import catalogue
from dfrs_reproduction.catalogue import EXHIBITS
from dfrs_reproduction.metrics import ResultTable, degradation, distance, distance_cells, relative_to
from dfrs_reproduction.ours.best_quality import closed
from dfrs_reproduction.sizes import FULL, QUICK, STANDARD, dissertation, parse_size
from dfrs_reproduction.stillwell2010 import table_4_2
from dfrs_reproduction.stillwell2010.table_4_5 import dominates
from dfrs_reproduction.studies import PUBLISHED
from tests.traces import needs_traces

DFRS = Path(sys.executable).with_name("dfrs")
TINY = "0.0001"
SCHEMA = {"algorithm": pl.String, **OFFLINE.columns}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Reports and results, without weeks of HPC2N: every process would read the whole trace."""
    folder = tmp_path_factory.mktemp("reproduce")
    names = [
        "stillwell2010-table-4.4",
        "stillwell2010-figure-4.2",
        "stillwell2010-table-4.7",
        "stillwell2010-table-5.2",
        "stillwell2010-table-6.1",
        "stillwell2008-table-1",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DFRS_TRACES", str(folder))
        done = subprocess.run(
            [DFRS, "reproduce", *names, "stillwell2008-figures-2-5", "--sample", TINY, "-o", "r", "--workers", "1"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    return folder


def test_a_page_states_sample_published_measured_and_deviation(made):
    page = (made / "r/stillwell2010-table-4.4.md").read_text()
    assert f"{parse_size(TINY).packing} of the 72,900 instances" in page
    row = next(line for line in page.splitlines() if line.startswith("| VP_CPSUM |"))
    assert "| 9.92 |" in row
    assert "| 8.20 |" in row
    assert "VP_PPMAX, text's order" in page
    assert "(ours)" in page
    assert "holds" in page


def test_an_online_page_has_the_policies_in_the_published_order(made):
    page = (made / "r/stillwell2010-table-6.1.md").read_text()
    assert "1 of the 900 traces" in page
    rows = [line.split(" | ")[0][2:] for line in page.splitlines() if "OPT=" in line and line.count(" | ") > 9]
    assert len(rows) == 18
    assert (rows[0], rows[-1]) == ("Greedy*/OPT=MIN", "/stretch-per/OPT=MAX/MVT=600")


def test_cells_are_consistent(made):
    with (made / "r/cells.csv").open() as file:
        cells = list(csv.DictReader(file))
    assert {c["report"] for c in cells} >= {
        "stillwell2010-table-4.4",
        "stillwell2010-table-4.7",
        "stillwell2010-table-5.2",
        "stillwell2008-table-1",
    }
    for cell in cells:
        assert int(cell["instances"]) >= 0
        if cell["published"] and cell["measured"]:
            difference = float(cell["measured"]) - float(cell["published"])
            assert float(cell["deviation"]) == pytest.approx(difference, rel=1e-6, abs=1e-6)
    claims = list(csv.DictReader((made / "r/claims.csv").open()))
    assert {c["holds"] for c in claims} <= {"yes", "no", ""}


def test_pictures_and_index_are_there(made):
    for name in ("stillwell2010-figure-4.2.png", "stillwell2008-figures-2-5.png"):
        assert (made / "r" / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert (made / "r" / name).stat().st_size > 20_000
    index = (made / "r/README.md").read_text()
    assert "[stillwell2008-table-1](stillwell2008-table-1.md)" in index


def of_reports(file, names):
    """The lines of these reports in a CSV file."""
    with file.open() as opened:
        return [row for row in csv.DictReader(opened) if row["report"] in names]


def in_index(folder):
    """The sample of each page that is listed, by name."""
    rows = [line.split(" | ") for line in (folder / "README.md").read_text().splitlines() if line.startswith("| [")]
    return {row[0][3:].partition("]")[0]: row[-1].removesuffix(" |") for row in rows}


def test_index_and_files_are_of_all_pages_that_are_there(made, dfrs, tmp_path):
    shutil.copytree(made / "r", tmp_path / "r")
    gone, again = "stillwell2008-table-1", "stillwell2010-table-4.7"
    before = in_index(made / "r")
    others = before.keys() - {gone, again}
    assert list(before) == [name for name in EXHIBITS if name in before]
    (tmp_path / f"r/{gone}.md").unlink()
    assert dfrs("reproduce", again, "--sample", "0.0002", "-o", tmp_path / "r", "--workers", 1)[0] == 0
    sizes = {again: parse_size("0.0002").name}
    after = {name: sizes.get(name, parse_size(TINY).name) for name in before if name != gone}
    assert list(in_index(tmp_path / "r").items()) == list(after.items())
    for name in ("cells.csv", "claims.csv"):
        then, now = made / "r" / name, tmp_path / "r" / name
        assert of_reports(now, others) == of_reports(then, others) != []
        assert of_reports(now, {gone}) == [] != of_reports(then, {gone})
    then, now = (of_reports(folder / "r/cells.csv", {again}) for folder in (made, tmp_path))
    told = [[(row["table"], row["row"], row["measure"]) for row in rows] for rows in (then, now)]
    assert set(told[0]) < set(told[1])
    assert len(told[1]) == len(set(told[1]))


def test_a_file_of_other_columns_is_left_as_it_is(made, dfrs, tmp_path):
    shutil.copytree(made / "r", tmp_path / "r")
    (tmp_path / "r/cells.csv").write_text("theirs,too\n1,2\n")
    status, _, err = dfrs(
        "reproduce", "stillwell2010-table-4.7", "--sample", TINY, "-o", tmp_path / "r", "--workers", 1
    )
    assert status == 2
    assert "cells.csv: its columns are not those that this version writes" in err
    assert (tmp_path / "r/cells.csv").read_text() == "theirs,too\n1,2\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("README.md", "is no index of reproduced tables: name another directory with -o"),
        ("claims.csv", "its columns are not those that this version writes: move it away, and ask again"),
    ],
)
def test_files_of_somebody_else_are_told_before_anything_runs(dfrs, tmp_path, name, words):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / name).write_text("mine\n")
    status, out, err = dfrs(
        "reproduce", "stillwell2010-table-4.7", "--sample", TINY, "-o", tmp_path / "r", "--workers", 1
    )
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert f"{name}: {words}" in err
    assert {path: path.read_text() for path in (tmp_path / "r").iterdir()} == {tmp_path / "r" / name: "mine\n"}


def test_a_campaign_file_alone_replaces_none_that_a_page_was_made_from(made, dfrs, tmp_path):
    names = ("stillwell2010-table-4.3", "stillwell2010-table-4.7")
    other, file = (made / f"r/{name}.toml" for name in names)
    before = file.read_bytes()
    status, out, err = dfrs("reproduce", *names, "--full", "--only-files", "-o", made / "r")
    assert (status, out) == (2, "")
    assert "is what the page beside it was made from" in err
    assert (file.read_bytes(), other.exists()) == (before, False)
    assert dfrs("reproduce", names[1], "--sample", TINY, "--only-files", "-o", made / "r")[0] == 0
    assert file.read_bytes() == before
    assert dfrs("reproduce", *names, "--full", "--only-files", "-o", tmp_path)[0] == 0
    assert (tmp_path / file.name).read_bytes() != before


def files_of(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "r/results").rglob("*") if path.is_file()}


def test_results_are_kept_and_hold_certificates(made, dfrs):
    kept = files_of(made)
    assert len([path for path in kept if path.suffix == ".parquet"]) >= 2
    status, out, _ = dfrs(
        "reproduce", "stillwell2010-table-4.7", "--sample", TINY, "-o", made / "r", "--workers", 1, "--json"
    )
    assert status == 0
    document = json.loads(out)
    assert document["failed"] == 0
    assert [report["name"] for report in document["reports"]] == ["stillwell2010-table-4.7"]
    assert files_of(made) == kept
    frame = pl.concat(pl.read_parquet(path) for path in kept if path.parent.name.startswith("offline-"))
    assert dict(frame.schema) == OFFLINE.columns
    assert frame["key"].is_unique().all()
    solved = frame.filter(pl.col("minimum_yield").is_not_null())
    assert (solved["minimum_yield"] <= solved["bound"] + 1e-9).all()
    searched = solved.filter(pl.col("searched_yield").is_not_null())
    assert (searched["searched_yield"] <= searched["minimum_yield"] + 1e-9).all()
    phased = solved.filter(pl.col("average_after").is_not_null())
    assert len(phased) > 0
    assert (phased["average_after"] >= phased["average_before"] - 1e-9).all()


def nothing_to_run(dfrs, directory, name):
    """The number of runs of the campaign file beside a page, all of which are kept."""
    kept = files_of(directory)
    file = directory / f"r/{name}.toml"
    status, out, _ = dfrs("campaign", "run", file, "--store", directory / "r/results", "--workers", 1, "--json")
    document = json.loads(out)
    assert (status, document["campaign"]) == (0, name)
    assert (document["run"], document["failed"], document["kept"]) == (0, 0, document["cells"])
    assert files_of(directory) == kept
    return document["cells"]


@pytest.mark.parametrize("name", ["stillwell2010-table-4.4", "stillwell2010-table-5.2", "stillwell2008-table-1"])
def test_the_campaign_file_beside_a_page_is_of_the_runs_that_the_page_shows(made, dfrs, name):
    campaign = build_campaign(tomllib.loads((made / f"r/{name}.toml").read_text()), made)
    assert nothing_to_run(dfrs, made, name) == len(campaign.runs) > 0


@pytest.mark.parametrize(("name", "cells"), [("stillwell2010-table-4.2", 10), ("stillwell2010-figure-6.1", 4)])
def test_so_is_that_of_runs_that_run_alone_and_that_of_a_figure(tmp_path, monkeypatch, dfrs, name, cells):
    size = replace(QUICK, periods=2, periods_unscaled=1, periods_scaled=1, periods_weeks=1)
    monkeypatch.setattr(catalogue, "parse_size", lambda _: size)
    monkeypatch.setattr(table_4_2, "LIMIT_S", 0.05)
    monkeypatch.setenv("DFRS_TRACES", str(tmp_path))
    assert dfrs("reproduce", name, "-o", tmp_path / "r", "--workers", 1)[0] == 0
    assert nothing_to_run(dfrs, tmp_path, name) == cells
    campaign = build_campaign(tomllib.loads((tmp_path / f"r/{name}.toml").read_text()), tmp_path)
    assert {cell.name.endswith(" | alone") for cell in campaign.runs} == {name == "stillwell2010-table-4.2"}


def same_after_a_file(campaign):
    again = build_campaign(tomllib.loads(campaign_toml(campaign)), Path())
    assert (again.name, again.description) == (campaign.name, campaign.description)
    assert [study.name for study in again.studies] == [study.name for study in campaign.studies]
    for one, other in zip(campaign.studies, again.studies, strict=True):
        assert (one.sample, one.alone, one.kind) == (other.sample, other.alone, other.kind)
        told, read = (
            [(cell.name, cell.key, cell.configuration.label) for cell in study.runs] for study in (one, other)
        )
        assert told == read


@pytest.mark.parametrize("name", EXHIBITS)
def test_the_campaign_of_every_item_is_the_same_after_a_file(name):
    campaign = EXHIBITS[name].campaign(QUICK)
    if campaign.studies:
        same_after_a_file(campaign)


@needs_traces
def test_weeks_of_a_trace_are_among_those_campaigns():
    studies = [study for item in EXHIBITS.values() for study in item.campaign(QUICK).studies]
    assert any("HPC2N" in cell.name for study in studies for cell in study.runs)


def test_what_is_wrong_is_one_line_with_the_nearest_name(tmp_path, dfrs):
    status, out, err = dfrs("reproduce", "stillwell2010-tabel-4.4", "-o", tmp_path / "r")
    assert (status, out) == (2, "")
    assert "stillwell2010-table-4.4" in err
    assert len(err.strip().splitlines()) == 1
    status, out, err = dfrs("reproduce", "--sample", "huge", "-o", tmp_path / "r")
    assert (status, out) == (2, "")
    assert "quick, standard, full" in err
    assert "(0, 1]" in err
    assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_directory_of_something_else_is_left_as_it_is(tmp_path, dfrs):
    (tmp_path / "r/results").mkdir(parents=True)
    (tmp_path / "r/results/theirs").write_text("x")
    status, _, err = dfrs(
        "reproduce", "stillwell2010-table-4.7", "--sample", TINY, "-o", tmp_path / "r", "--workers", 1
    )
    assert status == 2
    assert "is no store of results" in err
    assert len(err.strip().splitlines()) == 1
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == [
        "r/results/theirs"
    ]


def test_everything_promised_is_listed(dfrs):
    status, out, _ = dfrs("reproduce", "--list", "--json")
    assert status == 0
    names = {item["name"] for item in json.loads(out)}
    assert names == set(EXHIBITS)
    assert names >= {f"stillwell2010-table-4.{k}" for k in range(1, 8)} | {
        f"stillwell2010-figure-4.{k}" for k in range(1, 4)
    }
    assert names >= {f"stillwell2010-tables-b{k}" for k in range(1, 7)} | {
        f"stillwell2010-figure-{k}.1" for k in (5, 6)
    }
    assert names >= {
        "stillwell2010-table-5.2",
        "stillwell2010-table-6.1",
        "stillwell2008-table-1",
        "stillwell2008-figure-7",
        "best-quality",
        "best-small",
    }


def test_results_do_not_depend_on_the_number_of_processes(tmp_path):
    study = Study(
        name="s",
        sources=(dissertation(3, small=True, services=(8,)),),
        configurations=tuple(
            OfflineConfiguration(label=n, algorithm=n, options=PUBLISHED) for n in ("GREEDY_S1_P7", "VP_CPSUM", "RRND")
        ),
    )
    frames = []
    for name, runner in (("one", InProcess()), ("two", Processes(2))):
        store = Store(tmp_path / name)
        tally = CampaignEngine(store, runner).run(study.runs)
        runner.close()
        assert (tally.executed, tally.failed) == (9, 0)
        frames.append(study_frame(study, store).drop(TIMES))
        store.close()
    assert frames[0]["key"].to_list() == [cell.key for cell in study.runs]
    assert frames[0].equals(frames[1])


def test_a_result_is_kept_under_what_was_run():
    scenario = ServiceScenario(nodes=2, services=3, dims=2, slack=0.5, sigma=0.25, rho=0.0)
    entry = OfflineConfiguration(label="a", algorithm="VP_CPSUM")
    cell = PlannedRun(kind=OFFLINE, scenario=RandomInstance(parameters=scenario, seed=0), configuration=entry)
    others = [
        replace(cell, scenario=RandomInstance(parameters=scenario, seed=1)),
        replace(cell, alone=True),
        replace(cell, scenario=RandomInstance(parameters=replace(scenario, rho=0.5), seed=0)),
        replace(cell, configuration=replace(entry, algorithm="VP_CPMAX")),
        replace(cell, configuration=replace(entry, options=PUBLISHED)),
        replace(cell, configuration=replace(entry, second_phase="average")),
    ]
    assert len({cell.key, *(other.key for other in others)}) == 7
    assert replace(cell, configuration=replace(entry, label="said otherwise")).key == cell.key


def rows(*runs):
    """A sheet of one instance a pair; runs are (algorithm, [(bound, yield), ...])."""
    data = []
    for k in range(len(runs[0][1])):
        for label, values in runs:
            bound, value = values[k]
            status = "feasible" if value is not None else "not_found"
            row = {"algorithm": label, "bound": bound, "minimum_yield": value, "status": status, "seed": k}
            data.append(dict.fromkeys(SCHEMA) | row)
    return ResultTable(pl.DataFrame(data, schema=SCHEMA))


def test_distance_counts_solved_instances_and_failures_on_three_bases():
    sheet = rows(
        ("A", [(0.8, 0.4), (0.5, 0.5), (0.5, None), (None, None)]),
        ("B", [(0.8, None), (0.5, None), (0.5, None), (None, None)]),
    )
    cells = {c.metric: c for c in distance_cells(sheet, "A", sheet.yields("A"), (0.1, 20.0, None, None, 7.0))}
    assert cells["dfb"].measured == pytest.approx(0.2)
    assert cells["dfb, %"].measured == pytest.approx(25.0)
    assert cells["dfb, %"].deviation == pytest.approx(5.0)
    assert cells["dfb"].instances == 2
    assert cells["failures, % of all"].measured == pytest.approx(50.0)
    assert cells["% of those with a bound"].measured == pytest.approx(100 / 3)
    assert cells["% of those that a published algorithm solves"].measured == 0.0


def test_a_bound_of_zero_is_no_distance():
    bound, below = np.array([0.0, 0.5, np.nan]), np.array([0.0, 0.25, 0.1])
    assert relative_to(bound, below)[:2].tolist() == [0.0, 50.0]
    assert np.isnan(relative_to(bound, below)[2])
    assert distance(bound, np.full(3, np.nan)).average is None


def test_degradation_counts_a_failure_as_a_hundred():
    below = degradation({"A": np.array([0.5, np.nan, np.nan, 0.0]), "B": np.array([0.4, 0.2, np.nan, np.nan])})
    assert below["A"] == pytest.approx([0.0, 100.0, np.nan, 0.0], nan_ok=True)
    assert below["B"] == pytest.approx([20.0, 0.0, np.nan, 100.0], nan_ok=True)


def test_domination_is_by_success_or_by_yield():
    better = rows(("A", [(1.0, 0.5)] * 4), ("B", [(1.0, 0.4)] * 4))
    assert dominates(better, "A", "B")
    assert not dominates(better, "B", "A")
    mixed = rows(("A", [(1.0, 0.5)] * 3 + [(1.0, None)]), ("B", [(1.0, 0.4)] * 4))
    assert not dominates(mixed, "A", "B")
    assert not dominates(mixed, "B", "A")


def test_distance_closed_starts_at_zero_where_vp_cpsum_fails():
    base = rows(("VP_CPSUM", [(0.8, 0.4), (0.8, None), (0.8, 0.8), (0.0, None)]))
    sheet = rows(("BEST", [(0.8, 0.7), (0.8, 0.4), (0.8, 0.8), (0.0, None)]))
    share = closed(base, sheet, "BEST")
    assert share[:2] == pytest.approx([75.0, 50.0])
    assert np.isnan(share[2:]).all()


def test_sizes_are_parsed_and_bounded():
    assert parse_size("quick") is QUICK
    assert parse_size("standard") is STANDARD
    assert parse_size("full") is FULL
    for share in (1e-9, 0.0001, 0.5, 1.0):
        size = parse_size(str(share))
        for field in fields(FULL):
            if field.name not in {"name", "programs_services", "periods"}:
                whole = getattr(FULL, field.name)
                assert getattr(size, field.name) == max(1, round(share * whole)) <= whole, field.name
    for wrong in ("0", "-1", "nan", "inf", "much", "1.01", "1e9", "50 %", ""):
        with pytest.raises(InputError, match="quick, standard, full"):
            parse_size(wrong)


def test_samples_of_every_size_are_no_larger_than_the_document():
    for size in (QUICK, STANDARD, parse_size(TINY)):
        for field in fields(FULL):
            if field.name != "name":
                assert 1 <= getattr(size, field.name) <= getattr(FULL, field.name), (size.name, field.name)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs processor affinity")
def test_timed_studies_are_marked():
    for name in ("best-quality", "best-small", "stillwell2010-table-4.2"):
        assert all(study.alone for study in EXHIBITS[name].needs(QUICK).values())
