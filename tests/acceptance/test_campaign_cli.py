"""`dfrs campaign` as a user meets it: what it runs, what it says of it, and what it refuses."""

import base64
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dfrs.experiments.kinds.online import METRICS, ONLINE
from dfrs.experiments.planned_runs import code_digest
from dfrs.experiments.results import TIMES
from tests.acceptance.test_simulate_cli import swf

DFRS = Path(sys.executable).with_name("dfrs")
HEAD = 'name = "small"\npolicies = ["EASY", "GreedyPM*"]\n'
WORKLOADS = '[[workloads]]\nmodel = "lublin"\njobs = 60\nnodes = 8\nseeds = "1-3"\nloads = [0.5, 0.9]\n'
SMALL = HEAD + WORKLOADS
KEPT = SMALL.replace("small", "kept").replace('"1-3"', "1").replace("name", "keep_runs = true\nname", 1)
MEASURES = ("bounded_degradation_from_bound", "bounded_stretch_mean", "minimum_yield_mean", "pauses_per_job")


@pytest.fixture
def campaign(dfrs, monkeypatch, tmp_path):
    """`dfrs campaign` on SMALL in a directory of its own; `run` runs in this process."""
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(SMALL)

    def called(verb, *arguments, file="c.toml"):
        return dfrs("campaign", verb, file, *arguments, *(["--workers", 1] if verb == "run" else []))

    return called


def document_of(answer):
    status, out, err = answer
    assert status == 0, err
    return json.loads(out)


def one_line(answer, status=2):
    """What a refusal says: one line, and nothing on standard output."""
    code, out, err = answer
    assert (code, out) == (status, ""), err
    assert err.startswith("dfrs: ")
    assert len(err.strip().splitlines()) == 1
    return err.strip()


def keys(frame):
    return frame["key"].to_list()


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The table of a whole run, made by `dfrs` itself, with two processes."""
    folder = tmp_path_factory.mktemp("done")
    (folder / "c.toml").write_text(SMALL)
    ran = subprocess.run(
        [DFRS, "campaign", "run", "c.toml", "--json", "--workers", "2"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    assert json.loads(ran.stdout) == {
        "campaign": "small",
        "cells": 12,
        "kept": 0,
        "run": 12,
        "failed": 0,
        "store": "c.results",
    }
    return folder


@pytest.fixture
def finished(done, dfrs, monkeypatch):
    """`dfrs campaign` where SMALL has been run."""
    monkeypatch.chdir(done)
    return lambda verb, *arguments: dfrs("campaign", verb, "c.toml", *arguments)


@pytest.fixture
def table(finished, tmp_path):
    """The results of SMALL."""
    assert finished("export", "-o", tmp_path / "table.parquet", "--times")[0] == 0
    return pl.read_parquet(tmp_path / "table.parquet")


def test_what_is_there_is_not_run_again(finished, done):
    before = {path: path.stat().st_mtime_ns for path in (done / "c.results").rglob("*.parquet")}
    again = document_of(finished("run", "--json", "--workers", 1))
    assert (again["cells"], again["kept"], again["run"], again["failed"]) == (12, 12, 0, 0)
    status, out, err = finished("run", "--workers", 1)
    assert (status, out) == (0, "")
    assert "12 were there, 0 executed" in err
    assert {path: path.stat().st_mtime_ns for path in (done / "c.results").rglob("*.parquet")} == before


def test_one_more_seed_runs_only_its_own(campaign):
    assert document_of(campaign("run", "--json"))["run"] == 12
    Path("c.toml").write_text(SMALL.replace("1-3", "2-4"))
    again = document_of(campaign("run", "--json"))
    assert (again["cells"], again["kept"], again["run"]) == (12, 8, 4)


def test_status_counts_what_is_done(finished):
    whole = document_of(finished("status", "--json"))
    (study,) = whole["studies"]
    assert (study["study"], study["cells"], study["done"], study["failed"]) == ("main", 12, 12, 0)
    assert study["seconds"] > 0
    assert (whole["failed"], whole["estimate"], whole["results_of_other_code"]) == ([], None, [])
    status, out, _ = finished("status")
    assert status == 0
    assert out.splitlines()[1].split()[:5] == ["main", "12", "12", "0", "0"]


def test_status_before_anything_is_run_creates_nothing(campaign):
    (study,) = document_of(campaign("status", "--json"))["studies"]
    assert (study["cells"], study["done"], study["seconds"]) == (12, 0, 0)
    assert [path.name for path in Path().iterdir()] == ["c.toml"]


def test_an_estimate_is_from_runs_that_are_kept(campaign):
    document = document_of(campaign("status", "--estimate", "--json", "--workers", 1))
    found = document["estimate"]
    assert (found["measured_cells"], found["workers"]) == (6, 1)
    assert document["studies"][0]["done"] == 6
    for what in ("whole", "left"):
        low, high = found[f"{what}_interval_s"]
        assert 0 <= low <= found[f"{what}_s"] <= high
    assert 0 < found["left_s"] < found["whole_s"]
    assert document["studies"][0]["seconds"] + found["left_s"] == pytest.approx(found["whole_s"])
    rest = document_of(campaign("run", "--json"))
    assert (rest["kept"], rest["run"]) == (6, 6)
    known = document_of(campaign("status", "--estimate", "--json", "--workers", 1))["estimate"]
    assert (known["measured_cells"], known["left_s"]) == (12, 0)
    assert known["whole_interval_s"] == [known["whole_s"]] * 2
    status, out, err = campaign("status", "--estimate", "--workers", 1)
    assert status == 0
    assert "12 runs" in out
    assert "95 %" in out
    assert "12 runs" in err


def test_an_estimate_of_what_runs_alone_is_of_one_process(campaign):
    Path("c.toml").write_text("alone = true\n" + SMALL.replace('"1-3"', "1"))
    assert campaign("run")[0] == 0
    document = document_of(campaign("status", "--estimate", "--json", "--workers", 2))
    assert document["estimate"]["whole_s"] == pytest.approx(document["studies"][0]["seconds"])


def test_an_estimate_counts_a_cell_of_two_studies_once(campaign):
    study = (HEAD + WORKLOADS.replace("[[workloads]]", "[[studies.workloads]]")).split("\n", 1)[1]
    Path("c.toml").write_text('name = "small"\n' + "".join(f'[[studies]]\nname = "{k}"\n{study}' for k in "ab"))
    assert document_of(campaign("run", "--json"))["cells"] == 12
    document = document_of(campaign("status", "--estimate", "--json", "--workers", 1))
    assert document["estimate"]["measured_cells"] == 12
    assert document["estimate"]["whole_s"] == pytest.approx(document["studies"][0]["seconds"])


def test_results_are_consistent_with_the_table(finished, table):
    document = document_of(finished("results", "--json"))
    assert document["campaign"] == "small"
    assert [(m["entry"], m["measure"]) for m in document["means"]] == [
        (entry, measure) for entry in ("EASY", "GreedyPM*") for measure in MEASURES
    ]
    for mean in document["means"]:
        values = table.filter(pl.col("algorithm") == mean["entry"])[mean["measure"]]
        assert mean["group"] == "lublin"
        assert (mean["count"], mean["runs"], mean["independent"]) == (len(values), 6, 3)
        assert mean["mean"] == pytest.approx(values.mean())
        # Three traces are too few for an interval.
        assert (mean["low"], mean["high"]) == (None, None)


def test_intervals_of_enough_traces_hold_their_means(campaign):
    Path("c.toml").write_text(SMALL.replace('"1-3"', '"1-7"'))
    assert campaign("run")[0] == 0
    document = document_of(campaign("results", "--json"))
    for mean in document["means"]:
        assert (mean["count"], mean["independent"]) == (14, 7)
        assert mean["low"] <= mean["mean"] <= mean["high"]
    for one in document["comparisons"]:
        assert one["difference_low"] <= one["difference"] <= one["difference_high"]
        assert one["ratio"] is None or one["ratio_low"] <= one["ratio"] <= one["ratio_high"]


def test_comparisons_are_of_the_same_cases(finished, table):
    found = {}
    for baseline in ("EASY", "GreedyPM*"):
        comparisons = document_of(finished("results", "--json", "--baseline", baseline))["comparisons"]
        assert [one["measure"] for one in comparisons] == list(MEASURES)
        for one in comparisons:
            assert one["baseline"] == baseline != one["entry"]
            assert one["wins"] + one["ties"] + one["losses"] == one["count"] == 6
            assert one["p_value"] is None or 0 <= one["p_value"] <= 1
            found[baseline, one["measure"]] = one
    values = {
        entry: table.filter(pl.col("algorithm") == entry).sort("case")[MEASURES[0]].to_numpy()
        for entry in ("EASY", "GreedyPM*")
    }
    one, other = found["EASY", MEASURES[0]], found["GreedyPM*", MEASURES[0]]
    assert one["wins"] == (values["GreedyPM*"] < values["EASY"]).sum() == other["losses"]
    assert one["ratio"] == pytest.approx(np.exp(np.log(values["GreedyPM*"] / values["EASY"]).mean()))
    assert one["ratio"] * other["ratio"] == pytest.approx(1.0)
    assert one["difference"] == pytest.approx(-other["difference"])


def test_results_as_text_name_entries_measures_and_the_baseline(finished):
    status, out, err = finished("results", "-m", "stretch_max", "--baseline", "GreedyPM*")
    assert (status, err) == (0, "")
    for word in ("lublin", "stretch max", "EASY", "GreedyPM*", "95 %"):
        assert word in out
    assert "pauses" not in out


def test_an_unknown_measure_or_baseline_is_refused_with_the_nearest_names(finished, tmp_path):
    for verb in (["results"], ["export", "-o", tmp_path / "x.html"]):
        assert "stretch_max" in one_line(finished(*verb, "-m", "stretch_maxx"))
        assert "did you mean EASY" in one_line(finished(*verb, "--baseline", "EASYY"))
    assert not (tmp_path / "x.html").exists()


def test_a_measure_that_is_no_number_is_refused(finished):
    assert "policy" in one_line(finished("results", "-m", "policy"))


def test_results_of_nothing_are_refused_and_those_of_a_part_told(campaign):
    assert "dfrs campaign run c.toml" in one_line(campaign("results"))
    assert [path.name for path in Path().iterdir()] == ["c.toml"]
    Path("c.toml").write_text(SMALL.replace('"1-3"', "1"))
    assert campaign("run")[0] == 0
    Path("c.toml").write_text(SMALL)
    status, _, err = campaign("results", "--json")
    assert status == 0
    assert err.strip() == "8 of 12 runs have no result yet"


def test_the_first_configuration_of_an_unfinished_campaign_stays_the_baseline(campaign):
    def write(policies, seeds):
        text = SMALL.replace('["EASY", "GreedyPM*"]', json.dumps(policies)).replace("1-3", seeds)
        Path("c.toml").write_text(text)

    def compared():
        document = document_of(campaign("results", "--json", "-m", "stretch_max"))
        means = [one["entry"] for one in document["means"]]
        return means, [(one["entry"], one["baseline"], one["count"]) for one in document["comparisons"]]

    write(["FCFS", "GreedyPM*"], "1")
    assert campaign("run")[0] == 0
    write(["EASY", "GreedyPM*", "FCFS"], "1-2")
    assert compared() == (["GreedyPM*", "FCFS"], [])
    write(["EASY", "GreedyPM*"], "2")
    assert campaign("run")[0] == 0
    write(["EASY", "GreedyPM*"], "1-2")
    assert compared() == (["EASY", "GreedyPM*"], [("GreedyPM*", "EASY", 2)])


def test_a_table_has_every_result_and_the_same_bytes_each_time(finished, table, tmp_path):
    for ending in ("csv", "parquet"):
        contents = []
        for name in ("a", "b"):
            status, out, err = finished("export", "-o", tmp_path / f"{name}.{ending}")
            assert (status, out) == (0, "")
            assert "12 results" in err
            contents.append((tmp_path / f"{name}.{ending}").read_bytes())
        assert contents[0] == contents[1]
    frame = pl.read_parquet(tmp_path / "a.parquet")
    assert frame.equals(table.drop(TIMES))
    read = pl.read_csv(io.BytesIO((tmp_path / "a.csv").read_bytes()), schema=frame.schema)
    assert read.equals(frame)
    assert table["cell_s"].min() > 0


def test_another_ending_is_refused(finished, done):
    for name in ("x.xlsx", "x", "csv"):
        message = one_line(finished("export", "-o", name))
        assert name in message
        assert ".html, .csv or .parquet" in message
        assert not (done / name).exists()


def same_run(directory, row, dfrs):
    """Check a run directory, and its figures against a row of results."""
    status, out, err = dfrs("validate", directory)
    assert status == 0, out + err
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["complete"]
    assert summary["policy"] == row["policy"]
    stated = {name: summary["metrics"][name] for name in METRICS if summary["metrics"].get(name) is not None}
    assert stated == {name: row[name] for name in METRICS if row[name] is not None}
    assert len(stated) > 30


def test_a_cell_is_shown_as_the_run_that_the_store_has_the_figures_of(finished, table, dfrs, tmp_path):
    row = table.row(7, named=True)
    status, out, err = finished("show", row["key"], "-o", tmp_path / "run")
    assert (status, err.strip()) == (0, row["cell"])
    assert out.strip() == str(tmp_path / "run/page.html")
    same_run(tmp_path / "run", row, dfrs)
    assert [path.name for path in tmp_path.iterdir()].count(row["key"]) == 0
    assert "is there already" in finished("show", row["key"], "-o", tmp_path / "run")[2]


def test_a_cell_is_found_by_the_beginning_of_its_key_and_by_its_name(table, campaign, dfrs):
    row = table.row(0, named=True)
    for named in (row["key"][:8], row["cell"]):
        assert campaign("show", named)[0] == 0
        same_run(Path("out/cells") / row["key"], row, dfrs)
    assert not Path("c.results").exists()


def test_a_key_of_none_or_of_several_cells_is_refused(campaign):
    assert "no key begins like that" in one_line(campaign("show", "xyz"))
    assert "12 keys" in one_line(campaign("show", ""))
    assert [path.name for path in Path().iterdir()] == ["c.toml"]


def test_kept_runs_are_valid_and_the_page_links_to_them(campaign, dfrs):
    Path("c.toml").write_text(KEPT)
    assert document_of(campaign("run", "--json"))["run"] == 4
    runs = Path(f"c.results/online-{code_digest(ONLINE.code)}/runs")
    assert campaign("export", "-o", "table.parquet")[0] == 0
    table = pl.read_parquet("table.parquet")
    assert sorted(path.name for path in runs.iterdir()) == sorted(keys(table))
    for row in table.iter_rows(named=True):
        same_run(runs / row["key"], row, dfrs)
    Path("pages/deep").mkdir(parents=True)
    for page in (Path("pages/deep/p.html"), Path("p.html")):
        assert campaign("export", "-o", page)[0] == 0
        links = [Path(text) for text in texts_of(page, "link")]
        assert {path.parent.name for path in links} == set(keys(table))
        assert all(not path.is_absolute() and (page.parent / path).is_file() for path in links)
    assert document_of(campaign("run", "--json"))["run"] == 0


def test_runs_that_were_not_kept_are_run_again_to_be_kept(campaign):
    Path("c.toml").write_text(KEPT.replace("keep_runs = true", "keep_runs = false"))
    assert campaign("run")[0] == 0
    assert campaign("export", "-o", "before.csv")[0] == 0
    Path("c.toml").write_text(KEPT)
    assert document_of(campaign("run", "--json"))["run"] == 4
    assert len(list(Path("c.results").glob("online-*/runs/*/page.html"))) == 4
    assert campaign("export", "-o", "after.csv")[0] == 0
    assert Path("before.csv").read_bytes() == Path("after.csv").read_bytes()


def texts_of(page, name):
    """Of the runs in a page that have such a text, by what its script reads."""
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)[1])
    texts, key = data["runs"][name], np.frombuffer(base64.b64decode(data["runs"]["key"]), np.uint8)
    own = [key[8 * k : 8 * k + 8].tobytes().hex() for k in range(len(key) // 8)]
    numbers, lengths = (
        np.frombuffer(base64.b64decode(texts[part][0]), texts[part][1]) for part in ("number", "length")
    )
    ends = np.cumsum(lengths)
    return [
        "".join(texts["words"][n] if n else own[k] for n in numbers[end - length : end])
        for k, (length, end) in enumerate(zip(lengths, ends, strict=True))
        if length
    ]


def test_the_page_says_how_to_show_a_run_that_was_not_kept(finished, table, tmp_path):
    assert finished("export", "-o", tmp_path / "p.html")[0] == 0
    assert texts_of(tmp_path / "p.html", "command") == [f"dfrs campaign show c.toml {key}" for key in keys(table)]


@pytest.mark.parametrize(
    "study",
    [
        'methods = ["EQUAL"]\n[[scenes]]\nseconds = 60\nseeds = 1\n',
        'policies = ["FARM-EASY"]\n[[streams]]\nexperiment = 1\nseeds = 0\n',
    ],
    ids=["scenes", "streams"],
)
def test_what_is_nothing_but_its_results_is_run_once_and_cannot_be_shown(campaign, study):
    Path("c.toml").write_text(f'name = "numbers"\nkeep_runs = true\n{study}')
    assert [document_of(campaign("run", "--json"))["run"] for _ in range(2)] == [1, 0]
    assert "nothing to show but its results: dfrs campaign export c.toml" in one_line(campaign("show", ""))
    assert not Path("out").exists()
    assert campaign("export", "-o", "p.html")[0] == 0
    assert texts_of(Path("p.html"), "command") == []


def test_a_run_that_fails_is_told_and_does_not_stop_the_others(campaign):
    swf(Path("t.swf"))
    Path("c.toml").write_text(HEAD + '[[workloads]]\nmodel = "swf"\nfile = "t.swf"\nweeks = [9, 1]\n')
    status, out, err = campaign("run", "--json")
    ran = json.loads(out)
    assert (status, ran["run"], ran["failed"]) == (1, 4, 2)
    assert "2 of 4 runs failed" in err
    state = document_of(campaign("status", "--json"))
    assert (state["studies"][0]["done"], state["studies"][0]["failed"], len(state["failed"])) == (2, 2, 2)
    assert all("week" in one["message"] and " week=9 " in one["cell"] for one in state["failed"])
    told = campaign("status")[1]
    assert all(one["key"] in told and one["message"] in told for one in state["failed"])
    again = campaign("run", "--json")
    assert (again[0], json.loads(again[1])["run"]) == (1, 0)
    estimate = document_of(campaign("status", "--estimate", "--json", "--workers", 1))["estimate"]
    assert (estimate["measured_cells"], estimate["left_s"], estimate["left_interval_s"]) == (2, 0, [0, 0])
    assert "the rest: 0 runs" in campaign("status", "--estimate", "--workers", 1)[1]
    again = campaign("run", "--json", "--retry-failed")
    assert (again[0], json.loads(again[1])["run"], json.loads(again[1])["failed"]) == (1, 2, 2)
    means = document_of(campaign("results", "--json", "-m", "stretch_max"))["means"]
    assert [(m["group"], m["count"], m["runs"]) for m in means] == [("t", 1, 2)] * 2
    assert all(m["low"] is m["high"] is None for m in means)
    shown = campaign("show", state["failed"][0]["key"])
    assert shown[0] == 1
    assert state["failed"][0]["message"] in shown[2]
    assert campaign("export", "-o", "t.html")[0] == 0


def test_allocations_are_campaigns_too(campaign, dfrs):
    Path("c.toml").write_text(
        'name = "packing"\nalgorithms = ["GREEDY", "VP_CPSUM"]\n'
        '[[instances]]\nmodel = "services"\nnodes = 4\nservices = [6, 8]\nslack = 0.5\nseeds = "0-2"\n'
    )
    ran = document_of(campaign("run", "--json"))
    assert (ran["cells"], ran["run"], ran["failed"]) == (12, 12, 0)
    means = document_of(campaign("results", "--json"))["means"]
    assert {m["measure"] for m in means} == {"minimum_yield", "average_before", "utilization_before"}
    assert campaign("export", "-o", "t.csv")[0] == 0
    row = next(row for row in pl.read_csv("t.csv").iter_rows(named=True) if row["minimum_yield"])
    assert campaign("show", row["key"], "-o", "shown")[0] == 0
    assert dfrs("validate", "shown/allocation.json", "--instance", "shown/instance.json")[0] == 0
    assert campaign("export", "-o", "t.html")[0] == 0
    assert Path("t.html").read_text().startswith("<!doctype html>")


def test_what_has_no_solution_is_run_once_where_runs_are_kept(campaign):
    needs = {"memory": 0.9, "cpu": 0.1}
    document = {
        "format": "dfrs-instance/1",
        "name": "too much",
        "nodes": 2,
        "resources": [{"name": "memory", "kind": "rigid"}, {"name": "cpu", "kind": "fluid"}],
        "services": [{"name": f"s{k}", "needs": needs} for k in range(3)],
    }
    Path("i.json").write_text(json.dumps(document))
    Path("c.toml").write_text(
        'name = "full"\nkeep_runs = true\nalgorithms = ["GREEDY"]\n[[instances]]\nmodel = "files"\nfiles = ["i.json"]\n'
    )
    ran = document_of(campaign("run", "--json"))
    assert (ran["run"], ran["failed"]) == (1, 0)
    assert campaign("export", "-o", "t.parquet")[0] == 0
    assert pl.read_parquet("t.parquet")["status"].to_list() == ["infeasible"]
    assert document_of(campaign("run", "--json"))["run"] == 0


def changed(old, new):
    assert old in SMALL
    return SMALL.replace(old, new)


BAD = {
    "policy": (changed("GreedyPM*", "GredyPM*"), ["policies[1]", '"GredyPM*"', "GreedyPM*"]),
    "batch policy": (changed("EASY", "EASYY"), ["policies[0]", '"EASYY"', "did you mean EASY"]),
    "set": (changed("EASY", "@table-5.9"), ["policies[0]", "@table-5.9", "@table-5.2"]),
    "algorithm": (
        'name = "a"\nalgorithms = ["GREDY"]\n[[instances]]\nmodel = "000"\nset = "small"\nfirst = 1\n',
        ["algorithms[0]", '"GREDY"', "GREEDY"],
    ),
    "field": (changed("jobs", "jbos"), ["workloads[0].jbos"]),
    "type": (changed("jobs = 60", 'jobs = "60"'), ["workloads[0].jobs", '"60"', "integer"]),
    "penalty": (HEAD + "settings = {penalty_s = -1}\n" + WORKLOADS, ["settings.penalty_s", "-1", "greater"]),
    "load": (changed("0.5,", "0,"), ["workloads[0].loads[0] = 0", "greater than 0"]),
    "policies": (changed('["EASY", "GreedyPM*"]', "[]"), ["policies", "at least one"]),
    "labels": (changed("GreedyPM*", "EASY"), ['"EASY" stands twice', "labels"]),
    "trace": (HEAD + '[[workloads]]\nmodel = "swf"\nfile = "no.swf"\n', ["no.swf", "no such file", "DFRS_TRACES"]),
    "not TOML": (SMALL + "[[[\n", ["not TOML", "line 9"]),
    "not UTF-8": (SMALL.encode() + b"# \xff\n", ["not UTF-8", f"byte {len(SMALL) + 2}"]),
    "no workloads": (HEAD, ["workloads", "missing"]),
    "both": (HEAD + 'algorithms = ["GREEDY"]\n' + WORKLOADS, ["either"]),
    "model": (changed("lublin", "lubln"), ["workloads[0]", "lubln", "lublin"]),
    "format": ('format = "dfrs-campaign/9"\n' + SMALL, ["format", "dfrs-campaign/9", "dfrs-campaign/1"]),
    "range": (changed("1-3", "5-1"), ["workloads[0].seeds", '"5-1"', "go up"]),
    "huge range": (changed("1-3", "1-99999999999"), ["workloads[0].seeds", "1-99999999999", "1,000,000"]),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_one_line_and_creates_nothing(campaign, what):
    content, words = BAD[what]
    Path("c.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    verbs = ("run", "status", "results") if what in {"policy", "load"} else ("run",)
    for verb in verbs:
        message = one_line(campaign(verb))
        for word in ("c.toml", *words):
            assert word in message
    assert [path.name for path in Path().iterdir()] == ["c.toml"]


def test_a_negative_penalty_of_one_policy_is_told_as_such(campaign):
    Path("c.toml").write_text(changed('"EASY"', '{policy = "EASY", penalty_s = -1}'))
    assert "policies[0].penalty_s = -1" in one_line(campaign("run"))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('model = "services"\nnodes = 4\nservices = 6\nslack = 2.0\nseeds = 1\n', ["instances[0]", "slack = 2"]),
        ('model = "000"\nset = "small"\nfirst = 1\nservices = 11\n', ["instances[0]", "services = [11]"]),
        ('model = "files"\nfiles = ["no.json"]\n', ["instances[0]", "no.json"]),
    ],
)
def test_what_is_wrong_with_instances_is_told_with_file_and_field(campaign, source, words):
    Path("c.toml").write_text(f'name = "a"\nalgorithms = ["GREEDY"]\n[[instances]]\n{source}')
    message = one_line(campaign("run"))
    assert all(word in message for word in ("c.toml", *words)), message


VERBS = (["run"], ["status"], ["results"], ["export", "-o", "x.html"], ["show", "ab"])


def test_a_file_that_is_absent_or_a_directory_is_one_line_and_creates_nothing(campaign):
    Path("folder").mkdir()
    for file in ("absent.toml", "absent/c.toml", "folder"):
        for verb, *more in VERBS:
            assert f"{file}: cannot read" in one_line(campaign(verb, *more, file=file))
    assert sorted(path.name for path in Path().iterdir()) == ["c.toml", "folder"]


@pytest.mark.parametrize(
    "verb",
    VERBS,
)
def test_the_directory_one_is_in_is_no_file_either(campaign, verb):
    assert ".: cannot read" in one_line(campaign(*verb, file="."))


def test_a_directory_that_is_no_store_is_left_as_it_is(campaign):
    Path("theirs").mkdir()
    Path("theirs/thing").write_text("x")
    for verb in ("run", "status", "results"):
        assert "theirs: is no store" in one_line(campaign(verb, "--store", "theirs"))
    assert [path.name for path in Path("theirs").iterdir()] == ["thing"]


def test_two_ways_to_run_are_refused_together(campaign):
    assert "give one of them" in one_line(campaign("run", "--dask-local", 2))
    assert [path.name for path in Path().iterdir()] == ["c.toml"]


def test_a_name_is_shown_as_it_is(campaign):
    Path("c.toml").write_text(SMALL.replace('"1-3"', "1").replace("seeds", 'name = "[red]part"\nseeds'))
    assert campaign("run")[0] == 0
    assert "[red]part" in campaign("results")[1]
