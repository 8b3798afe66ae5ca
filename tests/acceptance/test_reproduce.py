"""`dfrs reproduce`: what it writes on a tiny sample, and the measures that the tables are made of."""

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dfrs.campaigns.offline import SCHEMA, Case, Entry, Study
from dfrs.campaigns.runner import Runner
from dfrs.campaigns.tables import ITEMS
from dfrs.campaigns.tables.best_quality import closed
from dfrs.campaigns.tables.d000_table_4_5 import dominates
from dfrs.campaigns.tables.measures import Sheet, degradation, distance, distance_cells, relative_to
from dfrs.campaigns.tables.sizes import FULL, QUICK, STANDARD, dissertation_cases, parse_size, spread
from dfrs.campaigns.tables.studies import PUBLISHED
from dfrs.model.errors import InputError
from dfrs.workloads.services import Scenario

DFRS = Path(sys.executable).with_name("dfrs")
TINY = "0.006"


def dfrs(*arguments, cwd):
    return subprocess.run([DFRS, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduce")
    names = ["000-table-4.4", "000-figure-4.2", "000-table-4.7", "000-table-6.1", "001-table-1", "001-figures-2-5"]
    done = dfrs("reproduce", *names, "--sample", TINY, "-o", "r", "--workers", "2", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_page_states_sample_published_measured_and_deviation(made):
    page = (made / "r/000-table-4.4.md").read_text()
    assert f"{parse_size(TINY).packing} of the 72,900 instances" in page
    row = next(line for line in page.splitlines() if line.startswith("| VP_CPSUM |"))
    assert "| 9.92 |" in row
    assert "| 8.20 |" in row
    assert "VP_PPMAX, text's order" in page
    assert "(ours)" in page
    assert "holds" in page


def test_an_online_page_has_the_policies_in_the_published_order(made):
    page = (made / "r/000-table-6.1.md").read_text()
    assert "1 of the 900 traces" in page
    rows = [line.split(" | ")[0][2:] for line in page.splitlines() if "OPT=" in line and line.count(" | ") > 9]
    assert len(rows) == 18
    assert (rows[0], rows[-1]) == ("Greedy*/OPT=MIN", "/stretch-per/OPT=MAX/MVT=600")


def test_cells_are_consistent(made):
    with (made / "r/cells.csv").open() as file:
        cells = list(csv.DictReader(file))
    assert {c["report"] for c in cells} >= {"000-table-4.4", "000-table-4.7", "001-table-1"}
    for cell in cells:
        assert int(cell["instances"]) >= 0
        if cell["published"] and cell["measured"]:
            difference = float(cell["measured"]) - float(cell["published"])
            assert float(cell["deviation"]) == pytest.approx(difference, rel=1e-6, abs=1e-6)
    claims = list(csv.DictReader((made / "r/claims.csv").open()))
    assert {c["holds"] for c in claims} <= {"yes", "no", ""}


def test_pictures_and_index_are_there(made):
    for name in ("000-figure-4.2.png", "001-figures-2-5.png"):
        assert (made / "r" / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert (made / "r" / name).stat().st_size > 20_000
    index = (made / "r/README.md").read_text()
    assert "[001-table-1](001-table-1.md)" in index


def test_results_are_kept_and_hold_certificates(made):
    kept = {path: path.stat().st_mtime_ns for path in (made / "r/results").iterdir()}
    assert all(path.suffix == ".parquet" for path in kept)
    done = dfrs("reproduce", "000-table-4.7", "--sample", TINY, "-o", "r", "--json", cwd=made)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)["reports"][0]
    assert report["name"] == "000-table-4.7"
    assert {path: path.stat().st_mtime_ns for path in (made / "r/results").iterdir()} == kept
    large = next(path for path in kept if path.name.startswith("large-"))
    frame = pl.read_parquet(large)
    assert dict(frame.schema) == SCHEMA
    solved = frame.filter(pl.col("minimum_yield").is_not_null())
    assert (solved["minimum_yield"] <= solved["bound"] + 1e-9).all()
    searched = solved.filter(pl.col("searched_yield").is_not_null())
    assert (searched["searched_yield"] <= searched["minimum_yield"] + 1e-9).all()
    phased = solved.filter(pl.col("average_after").is_not_null())
    assert len(phased) > 0
    assert (phased["average_after"] >= phased["average_before"] - 1e-9).all()


def test_what_is_wrong_is_one_line_with_the_nearest_name(tmp_path):
    done = dfrs("reproduce", "000-tabel-4.4", cwd=tmp_path)
    assert done.returncode == 2
    assert "000-table-4.4" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    done = dfrs("reproduce", "--sample", "huge", cwd=tmp_path)
    assert done.returncode == 2
    assert "quick, standard, full" in done.stderr
    assert not list(tmp_path.iterdir())


def test_everything_promised_is_listed(tmp_path):
    done = dfrs("reproduce", "--list", "--json", cwd=tmp_path)
    names = {item["name"] for item in json.loads(done.stdout)}
    assert names == set(ITEMS)
    assert names >= {f"000-table-4.{k}" for k in range(1, 8)} | {f"000-figure-4.{k}" for k in range(1, 4)}
    assert names >= {f"000-tables-b{k}" for k in range(1, 7)} | {f"000-figure-{k}.1" for k in (5, 6)}
    assert names >= {"000-table-5.2", "000-table-6.1", "001-table-1", "001-figure-7", "best-quality", "best-small"}


def test_results_do_not_depend_on_the_number_of_processes(tmp_path):
    study = Study(
        name="s",
        sample="",
        cases=dissertation_cases(3, nodes=4, services=(8,)),
        entries=tuple(Entry(label=n, algorithm=n, options=PUBLISHED) for n in ("GREEDY_S1_P7", "VP_CPSUM", "GA")),
    )
    one = Runner(tmp_path / "1", 1).results(study)
    several = Runner(tmp_path / "2", 2)
    two = several.results(study)
    several.close()
    assert one.drop("runtime_s").equals(two.drop("runtime_s"))


def test_a_result_is_kept_under_what_was_run():
    scenario = Scenario(nodes=2, services=3, dims=2, slack=0.5, sigma=0.25, rho=0.0)
    study = Study(
        name="s", sample="", cases=(Case(scenario=scenario, seed=0),), entries=(Entry(label="a", algorithm="VP_CPSUM"),)
    )
    other = replace(study, cases=(Case(scenario=scenario, seed=1),))
    third = replace(study, entries=(Entry(label="a", algorithm="VP_CPSUM", options=PUBLISHED),))
    assert len({study.key, other.key, third.key}) == 3
    assert replace(study, sample="said otherwise").key == study.key


def rows(*runs):
    """A sheet of one instance a pair; runs are (algorithm, [(bound, yield), ...])."""
    data = []
    for k in range(len(runs[0][1])):
        for label, values in runs:
            bound, value = values[k]
            status = "feasible" if value is not None else "not_found"
            row = {"algorithm": label, "bound": bound, "minimum_yield": value, "status": status, "seed": k}
            data.append(dict.fromkeys(SCHEMA) | row)
    return Sheet(pl.DataFrame(data, schema=SCHEMA))


def test_distance_counts_solved_instances_and_failures_on_three_bases():
    sheet = rows(
        ("A", [(0.8, 0.4), (0.5, 0.5), (0.5, None), (None, None)]),
        ("B", [(0.8, None), (0.5, None), (0.5, None), (None, None)]),
    )
    cells = {c.measure: c for c in distance_cells(sheet, "A", sheet.yields("A"), (0.1, 20.0, None, None, 7.0))}
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
    below = degradation({"A": np.array([0.5, np.nan, np.nan]), "B": np.array([0.4, 0.2, np.nan])})
    assert below["A"][:2].tolist() == [0.0, 100.0]
    assert below["B"][:2] == pytest.approx([20.0, 0.0])
    assert np.isnan(below["A"][2])


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


@pytest.mark.parametrize(("settings", "count"), [(729, 81), (486, 54), (108, 27), (144, 576)])
def test_samples_are_spread(settings, count):
    picked = spread(settings, count)
    assert len(set(picked)) == count
    fast = min(27, count)
    assert len({k % fast for k, _ in picked}) == fast
    assert {s for _, s in picked} == set(range(-(-count // settings)))


def test_a_thin_sample_has_every_slack_and_size_equally_often():
    cases = dissertation_cases(54, services=(100, 200))
    seen = [(c.scenario.slack, c.scenario.services, c.scenario.dims) for c in cases]
    assert len(set(seen)) == 54


def test_sizes_are_parsed_and_bounded():
    assert parse_size("quick") is QUICK
    assert parse_size("0.5").packing == round(0.5 * STANDARD.packing)
    assert parse_size("1e9").packing == FULL.packing
    for wrong in ("0", "-1", "nan", "inf", "much"):
        with pytest.raises(InputError):
            parse_size(wrong)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs processor affinity")
def test_timed_studies_are_marked():
    for name in ("best-quality", "best-small", "000-table-4.2"):
        assert all(study.timed for study in ITEMS[name].needs(QUICK).values())
