"""`dfrs farm predict` and `dfrs farm simulate` as a user meets them, also with input that is wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dfrs.campaigns.tables.d003_predictions import cpu_profiles, message_profiles
from dfrs.farm.files import arrive_f, write_farm, write_profile

DFRS = Path(sys.executable).with_name("dfrs")
HEAD = "job,arrival_s,name,processes,expected_s\n"
FEW = HEAD + "1,0,ft.B.8.400,8,1700\n2,1,lu.B.8.3000,8,2600\n3,5,ft.B.4.20,4,92\n4,9,cg.A.2.100,2,22\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.csv").write_text(FEW)
    write_profile(cpu_profiles()["LU.B.8"], tmp_path / "lu.json")
    write_profile(message_profiles()["FT.B.8"], tmp_path / "ft.json")
    write_farm(arrive_f(), tmp_path / "farm.json")
    return tmp_path


def test_predict_gives_the_worked_example(folder, dfrs):
    status, out, _ = dfrs("farm", "predict", "--profile", "lu.json", "--estimate", "199.7", "--json")
    assert status == 0
    rows = {(row["cluster"], row["placement"]): row for row in json.loads(out)["predictions"]}
    assert rows["B", "spread"]["saved_s"] == pytest.approx(92.6, abs=0.5)
    assert rows["B", "spread"]["left_s"] == pytest.approx(107.1, abs=0.5)
    assert rows["A", "spread"]["here"]
    assert rows["A", "spread"]["saved_per_block_s"] == 0
    assert len(rows) == 8
    assert not rows["B", "co-located"]["possible"], "eight processes have no machine"


def test_predict_of_what_is_left_is_a_share_of_the_whole(folder, dfrs):
    documents = [
        json.loads(dfrs("farm", "predict", "--profile", "ft.json", "--farm", "farm.json", "--json", *more)[1])
        for more in (("--estimate", "400"), ("--estimate", "400", "--elapsed", "300"))
    ]
    whole, rest = (document["predictions"][2]["saved_s"] for document in documents)
    assert whole > 0
    assert rest == pytest.approx(whole / 4)
    table = dfrs("farm", "predict", "--profile", "ft.json", "--estimate", "400", "--elapsed", "300")[1]
    assert "left of the run where it is: 100 s" in table
    assert "(here)" in table


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("--profile", "no.json"), "no.json: cannot read"),
        (("--profile", "farm.json"), "farm.json: format"),
        (("--profile", "few.csv"), "not JSON"),
        (("--profile", "lu.json", "--farm", "lu.json"), "lu.json: format"),
        (("--profile", "lu.json", "--elapsed", "5"), "--elapsed: says nothing without"),
        (("--profile", "lu.json", "--elapsed", "5", "--estimate", "4"), "at most the estimate"),
        (("--profile", "lu.json", "--estimate", "0"), "must be above 0"),
        (("--profile", "lu.json", "--estimate", "nan"), "estimate"),
        ((), "profile"),
    ],
)
def test_predict_refuses_with_one_line(folder, dfrs, arguments, match):
    status, out, err = dfrs("farm", "predict", *arguments)
    assert (status, out) == (2, "")
    assert match in err
    assert err.count("\n") == 1


def test_simulate_compares_and_writes(folder, dfrs):
    status, out, _ = dfrs(
        "farm", "simulate", "few.csv", "--json", "--explain", "--out", "runs", "--picture", "p.png", "--runs", "2"
    )
    assert status == 0
    document = json.loads(out)
    assert [run["policy"] for run in document["runs"]] == ["FARM-EASY", "ARRIVE-F"]
    assert [run["seeds"] for run in document["runs"]] == [[0, 1], [0, 1]]
    assert document["jobs"] == 4
    assert document["comparisons"][0]["verdicts"] == [], "nothing was published of this stream"
    assert all({"gain_s", "threshold_s", "why_not"} <= set(entry) for entry in document["considered"])
    moved = [line for entry in document["migrations"] for line in entry["moved"]]
    assert any(line["name"] == "LU.B.8.3000" for line in moved) or document["considered"]
    for line in moved:
        assert line["saved_s"] == pytest.approx(line["base_s"] - line["run_s"])
    assert (folder / "p.png").read_bytes()[:4] == b"\x89PNG"
    assert {path.name for path in (folder / "runs").iterdir()} == {"FARM-EASY", "ARRIVE-F"}
    assert (folder / "runs/ARRIVE-F/summary.json").exists()


def test_a_seed_repeats_and_another_differs(folder, dfrs):
    outs = [dfrs("farm", "simulate", "few.csv", "--seed", seed, "--json")[1] for seed in (1, 1, 2)]
    assert outs[0] == outs[1] != outs[2]


def test_an_experiment_stands_beside_what_was_published(dfrs):
    status, out, _ = dfrs("farm", "simulate", "-e", "3")
    assert status == 0
    assert "194 jobs on 24 nodes" in out
    assert "Published: +13 %" in out
    assert "LU.B.8.2279" in out


HOSTILE = {
    "empty.csv": ("", "empty: must have the columns"),
    "head.csv": (HEAD, "there is no job in it"),
    "columns.csv": ("job,arrival\n1,2\n", "line 1"),
    "nine.csv": (HEAD + "1,0,ep.A.9.0,9,10\n", "processes = 9: must be at most 8"),
    "early.csv": (HEAD + "1,-3,ep.A.4.0,4,10\n", 'line 2: arrival_s = "-3"'),
    "twice.csv": (HEAD + "1,0,ep.A.4.0,4,10\n1,5,ep.A.4.0,4,10\n", "line 3: job = 1: must be unique"),
    "nan.csv": (HEAD + "1,0,ep.A.4.0,4,nan\n", "expected_s"),
    "name.csv": (HEAD + "1,0,cooking,4,10\n", "name ="),
    "other.csv": (HEAD + "1,0,bt.A.4.10,4,10\n", "benchmark = BT"),
    "class.csv": (HEAD + "1,0,ft.C.4.10,4,10\n", "class = C"),
    "differs.csv": (HEAD + "1,0,ep.A.4.0,3,10\n", "processes = 3: must be 4"),
    "fields.csv": (HEAD + "1,0,ep.A.4.0\n", "line 2: 3 fields"),
    "zero.csv": (HEAD + "1,0,ep.A.0.0,0,10\n", "processes"),
    "binary.csv": ("job\0", "byte 0"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_streams_that_are_wrong_are_refused_with_one_line(folder, dfrs, name):
    text, match = HOSTILE[name]
    (folder / name).write_text(text)
    status, out, err = dfrs("farm", "simulate", name, "--out", "runs", "--picture", "p.png")
    assert (status, out) == (2, "")
    assert match in err
    assert name in err
    assert err.count("\n") == 1
    assert not (folder / "runs").exists()
    assert not (folder / "p.png").exists()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((), "one of them must be given"),
        (("few.csv", "-e", "1"), "only one"),
        (("-e", "4"), "--experiment 4: must be 1, 2 or 3"),
        (("no.csv",), "no.csv: cannot read"),
        (("lu.json",), "lu.json"),
        ((".",), "is a directory"),
        (("few.csv", "-p", "ARIVE-F"), "did you mean"),
        (("few.csv", "-p", "ARRIVE-F/TAO=5"), "did you mean TAU"),
        (("few.csv", "-p", "FARM-EASY", "-p", "FARM-EASY"), "stands twice"),
        (("few.csv", "--picture", "p.gif"), "must be .png"),
        (("few.csv", "--picture", "no/p.png"), "there is no directory"),
        (("few.csv", "--out", "few.csv"), "there is a file of that name"),
        (("few.csv", "--order", "ABC"), "must name each sub-cluster once"),
        (("few.csv", "--until", "inf"), "until"),
        (("few.csv", "--runs", "0"), "runs"),
        (("few.csv", "--seed", "-1"), "seed"),
    ],
)
def test_arguments_that_are_wrong_are_refused_with_one_line(folder, dfrs, arguments, match):
    status, out, err = dfrs("farm", "simulate", *arguments)
    assert (status, out) == (2, "")
    assert match in err
    assert err.count("\n") == 1


def test_ctrl_c_says_so_and_leaves_nothing(folder):
    done = subprocess.Popen(
        [DFRS, "farm", "simulate", "-e", "1", "--runs", "1000", "--out", "runs", "--picture", "p.png"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=os.environ | {"COLUMNS": "200"},
    )  # fmt: skip
    time.sleep(8)
    done.send_signal(signal.SIGINT)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 130, err
    assert out == ""
    assert err.strip().splitlines()[-1] == "dfrs: interrupted"
    assert sorted(path.name for path in folder.iterdir()) == ["farm.json", "few.csv", "ft.json", "lu.json"]
