"""`dfrs farm predict` and `dfrs farm simulate` as a user meets them, also with input that is wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dfrs.model.errors import InputError
from dfrs.model.hardware_files import write_hardware, write_profile
from dfrs.report import partition_gantt
from dfrs.runs import directory as runs
from dfrs_reproduction.atif2011.predictions import cpu_profiles, message_profiles
from dfrs_reproduction.atif2011.programs import arrive_f

DFRS = Path(sys.executable).with_name("dfrs")
HEAD = "job,arrival_s,name,processes,expected_s\n"
FEW = HEAD + "1,0,ft.B.8.400,8,1700\n2,1,lu.B.8.3000,8,2600\n3,5,ft.B.4.20,4,92\n4,9,cg.A.2.100,2,22\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.csv").write_text(FEW)
    write_profile(cpu_profiles()["LU.B.8"], tmp_path / "lu.json")
    write_profile(message_profiles()["FT.B.8"], tmp_path / "ft.json")
    write_hardware(arrive_f(), tmp_path / "farm.json")
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
        (("--profile", "lu.json", "--estimate", "1e308"), "--estimate 1e+308: must be at most 1e+09"),
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


def test_a_stream_that_begins_late_takes_as_long_as_one_that_begins_at_once(folder, dfrs, monkeypatch):
    """Lines that are cut from a longer list keep its times."""
    drawn = []
    monkeypatch.setattr(partition_gantt, "draw_partitions", lambda *_, from_s, to_s, **__: drawn.append((from_s, to_s)))
    lines = [line.split(",") for line in FEW.splitlines()[1:]]
    later = "".join(f"{job},{int(at) + 80_000},{','.join(rest)}\n" for job, at, *rest in lines)
    (folder / "late.csv").write_text(HEAD + later)
    found = {}
    for name in ("few", "late"):
        status, out, _ = dfrs("farm", "simulate", f"{name}.csv", "--json", "--out", name, "--picture", f"{name}.png")
        assert status == 0
        document = json.loads(out)
        totals = {run["policy"]: run["total_s"]["mean"] for run in document["runs"]}
        (pair,) = document["comparisons"]
        found[name] = (
            *totals.values(),
            pair["total_s_saved_percent_of_base"]["mean"],
            pair["jobs_done_by_base"]["mean"],
        )
        summaries = [json.loads((folder / name / each / "summary.json").read_text()) for each in totals]
        assert list(totals.values()) == pytest.approx([each["metrics"]["makespan_s"] for each in summaries])
    assert found["late"] == pytest.approx(found["few"])
    assert drawn == [(0.0, 2_000.0), (80_000.0, 82_000.0)]


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
    "underscore.csv": (HEAD + "1,1_0,ep.A.4.0,4,10\n", 'line 2: arrival_s = "1_0"'),
    "late.csv": (HEAD + "1,1e9,ep.A.4.0,4,10\n", "must be seconds from 0 to 1e+08"),
    "separator.csv": (HEAD + "1,0,ep.A.4\u2028.0,4,10\n", "line 2: name ="),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_streams_that_are_wrong_are_refused_with_one_line(folder, dfrs, name):
    text, match = HOSTILE[name]
    (folder / name).write_text(text, encoding="utf-8")
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


def test_tables_lose_no_digit_in_80_columns(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in (
        ("predict", "--profile", "lu.json", "--estimate", "199.7"),
        ("simulate", "few.csv", "-p", "FARM-EASY", "-p", "ARRIVE-F", "-p", "ARRIVE-F/HEAD"),
        ("simulate", "-e", "3"),
    ):
        done = subprocess.run([DFRS, "farm", *arguments], capture_output=True, text=True, cwd=folder, check=True)
        assert "…" not in done.stdout
        told = done.stdout.splitlines()
        assert max(len(line) for line in told if "holds" not in line and "does not hold" not in line) <= 80
        if arguments[0] == "predict":
            assert "199.70" in done.stdout
            assert "106.89" in done.stdout


def test_a_stream_of_a_spreadsheet_is_read(folder, dfrs):
    (folder / "sheet.csv").write_bytes(b"\xef\xbb\xbf" + FEW.replace("\n", "\r\n").encode())
    first, second = (json.loads(dfrs("farm", "simulate", name, "--json")[1]) for name in ("sheet.csv", "few.csv"))
    assert first["jobs"] == second["jobs"] == 4


def test_a_file_in_the_place_of_a_run_directory_is_told_before_anything_is_written(folder, dfrs):
    (folder / "runs").mkdir()
    (folder / "runs/ARRIVE-F").write_text("mine")
    status, out, err = dfrs("farm", "simulate", "few.csv", "--out", "runs")
    assert (status, out) == (2, "")
    assert "ARRIVE-F: cannot make the directory" in err
    assert [path.name for path in (folder / "runs").iterdir()] == ["ARRIVE-F"]


def test_run_directories_are_replaced_all_or_none(folder, dfrs, monkeypatch):
    assert dfrs("farm", "simulate", "few.csv", "--out", "runs")[0] == 0
    (folder / "runs/ARRIVE-F/own.txt").write_text("mine")
    before = (folder / "runs/ARRIVE-F/jobs.csv").read_text()
    assert dfrs("farm", "simulate", "few.csv", "--seed", "1", "--out", "runs")[0] == 0
    after = (folder / "runs/ARRIVE-F/jobs.csv").read_text()
    assert after != before
    assert (folder / "runs/ARRIVE-F/own.txt").read_text() == "mine"
    assert (folder / "runs/ARRIVE-F/summary.json").exists()
    write = runs.write_run

    def full(run, directory, *more):
        if directory.name == "ARRIVE-F":
            raise InputError(f"{directory}/jobs.csv: cannot write: No space left on device")
        write(run, directory, *more)

    monkeypatch.setattr(runs, "write_run", full)
    for place in ("runs", "other"):
        status, out, err = dfrs("farm", "simulate", "few.csv", "--seed", "2", "--out", place)
        assert (status, out) == (2, "")
        assert err == f"dfrs: {place}: cannot write: No space left on device\n"
    assert (folder / "runs/ARRIVE-F/jobs.csv").read_text() == after
    assert not (folder / "other").exists()
    assert not [path for path in folder.iterdir() if path.name.startswith(".dfrs-")]


def test_calibrate_refuses_a_name_that_could_not_be_read_back(folder, dfrs):
    for name in ("", "A\nB"):
        status, out, err = dfrs("farm", "calibrate", "--no-cpu", "--cluster", name, "-o", "new.json")
        assert (status, out, err) == (2, "", "dfrs: --cluster: must be a name of printable text on one line\n")
    assert not (folder / "new.json").exists()


def test_ctrl_c_says_so_and_leaves_nothing(folder):
    done = subprocess.Popen(
        [DFRS, "farm", "simulate", "-e", "1", "--runs", "1000", "--out", "runs", "--picture", "p.png"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | {"COLUMNS": "200"},
    )
    time.sleep(8)
    done.send_signal(signal.SIGINT)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 130, err
    assert out == ""
    assert err.strip().splitlines()[-1] == "dfrs: interrupted"
    assert sorted(path.name for path in folder.iterdir()) == ["farm.json", "few.csv", "ft.json", "lu.json"]
