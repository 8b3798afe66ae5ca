"""`dfrs validate` and `dfrs compare` on run directories, as a user meets them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_validate_run import EVENTS, SUMMARY, changed, write

DFRS = Path(sys.executable).with_name("dfrs")


def dfrs(*arguments, cwd):
    return subprocess.run([DFRS, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=120)


def run_of(folder, policy, workload="tiny", complete=True, **metrics):
    """A valid run that states other metrics."""
    summary = {
        **SUMMARY,
        "policy": policy,
        "complete": complete,
        "workload": {**SUMMARY["workload"], "name": workload, "sha256": workload},
        "metrics": SUMMARY["metrics"] | metrics,
    }
    folder.mkdir(parents=True)
    return write(folder, summary=summary)


def test_a_valid_run_says_so(tmp_path):
    write(tmp_path / "EASY")
    done = dfrs("validate", "EASY", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("EASY: valid: 4 jobs, 11 events on 2 nodes")
    assert done.stdout.count("\n") == 1


def test_all_runs_below_a_directory_are_checked(tmp_path):
    good = run_of(tmp_path / "out" / "w1" / "EASY", "EASY")
    bad = run_of(tmp_path / "out" / "w2" / "EASY", "EASY")
    write(bad, events=changed(EVENTS, "155.0,1,finish", "154.0,1,finish"))
    done = dfrs("validate", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == ""
    first, second, *problems = done.stdout.splitlines()
    assert first.startswith("out/w1/EASY: valid: ")
    assert second == f"out/w2/EASY: {len(problems)} problems"
    assert "events.csv line 12: job 1: finish at virtual time 99.0, processing time 100.0" in problems
    done = dfrs("validate", "out", "--json", cwd=tmp_path)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["valid"] is False
    assert [(run["run"], run["valid"], run["problems"]) for run in document["runs"]] == [
        (str(good.relative_to(tmp_path)), True, []),
        (str(bad.relative_to(tmp_path)), False, problems),
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("events.csv", EVENTS.replace("50.0,1,", "fifty,1,"), "line 3: time_s = 'fifty': must be a number"),
        ("jobs.csv", None, "cannot read: No such file or directory"),
        ("summary.json", "{", "not JSON"),
    ],
)
def test_files_that_cannot_be_read_end_with_one_line_and_status_2(tmp_path, name, text, words):
    folder = write(tmp_path / "run")
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text)
    done = dfrs("validate", "run", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"dfrs: run/{name}: ")
    assert words in done.stderr


def test_a_run_that_cannot_be_read_keeps_no_other_from_being_checked(tmp_path):
    for name in ("a", "b", "c"):
        run_of(tmp_path / "out" / name, "EASY")
    (tmp_path / "out" / "b" / "summary.json").unlink()
    problem = "out/b/summary.json: cannot read: No such file or directory"
    done = dfrs("validate", "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    first, *told, last = done.stdout.splitlines()
    assert first.startswith("out/a: valid: ")
    assert told == ["out/b: 1 problem", problem]
    assert last.startswith("out/c: valid: ")
    done = dfrs("validate", "out", "--json", cwd=tmp_path)
    assert done.returncode == 1
    runs = json.loads(done.stdout)["runs"]
    assert [(run["valid"], run["problems"]) for run in runs] == [(True, []), (False, [problem]), (True, [])]


def test_a_directory_takes_no_options_of_allocations_and_must_hold_a_run(tmp_path):
    (tmp_path / "empty").mkdir()
    for arguments, words in ((["empty"], "no run directory"), (["empty", "--nodes", 3], "are for a file")):
        done = dfrs("validate", *arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert words in done.stderr


def test_a_long_list_of_problems_is_cut(tmp_path):
    rows = "".join(f"155.0,1,share,,0.{k},\n" for k in range(10, 90))
    write(tmp_path / "run", events=EVENTS + rows)
    done = dfrs("validate", "run", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "run: 80 problems"
    assert done.stdout.splitlines()[-1] == "and 30 more; --json shows all"


def test_compare_sorts_by_maximum_stretch_within_each_workload(tmp_path):
    run_of(tmp_path / "out" / "a" / "x", "FCFS", "a", stretch_max=900.0, degradation_from_bound=90.0)
    run_of(tmp_path / "out" / "a" / "y", "GreedyPM*/per", "a", stretch_max=30.0, degradation_from_bound=3.0)
    run_of(tmp_path / "out" / "b" / "x", "FCFS", "b", stretch_max=10.0, degradation_from_bound=1.5)
    run_of(tmp_path / "out" / "b" / "y", "EASY", "b", complete=False, stretch_max=1.0, degradation_from_bound=1.0)
    done = dfrs("compare", "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["run"] for row in rows] == ["out/a/y", "out/a/x", "out/b/x", "out/b/y"]
    assert rows[0]["policy"] == "GreedyPM*/per"
    assert rows[0]["metrics"]["stretch_max"] == 30.0
    done = dfrs("compare", "out/a/x", "out/a/y", "out/a", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    _, header, *lines = done.stdout.splitlines()
    assert header.split()[:4] == ["policy", "jobs", "stretch", "bound"]
    assert [line.split()[0] for line in lines] == ["GreedyPM*/per", "FCFS"]
    done = dfrs("compare", "out", cwd=tmp_path)
    assert "EASY (interrupted)" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == [
        "a",
        "GreedyPM*/per",
        "FCFS",
        "b",
        "FCFS",
        "EASY",
    ]


def test_the_best_of_each_column_is_bold(tmp_path, monkeypatch):
    run_of(tmp_path / "x", "FCFS", stretch_max=900.0, pauses_per_job=0.0)
    run_of(tmp_path / "y", "per", stretch_max=30.0, pauses_per_job=2.5)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    done = dfrs("compare", "x", "y", cwd=tmp_path)
    first, second = done.stdout.splitlines()[2:]
    assert "\x1b[1m30.00\x1b[0m" in first
    assert "\x1b[1m0.00\x1b[0m" in second
    assert "\x1b[1m900.00" not in second
    assert "\x1b[1m2.50" not in first


@pytest.mark.parametrize(
    ("change", "words"),
    [({"metrics": {"stretch_max": "high"}}, "metrics.stretch_max = 'high'"), ({"policy": None}, "policy = None")],
)
def test_compare_names_what_a_summary_lacks(tmp_path, change, words):
    write(tmp_path / "run", summary={**SUMMARY, **change})
    done = dfrs("compare", "run", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_compare_leaves_out_runs_that_cannot_be_read_unless_they_are_named(tmp_path):
    for name in ("a", "b", "c"):
        run_of(tmp_path / "out" / name, name.upper())
    (tmp_path / "out" / "b" / "summary.json").unlink()
    (tmp_path / "out" / "c" / "summary.json").write_text("{")
    done = dfrs("compare", "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [row["run"] for row in json.loads(done.stdout)] == ["out/a"]
    missing, broken = done.stderr.splitlines()
    assert missing.startswith("left out: out/b/summary.json: there is no such file")
    assert broken.startswith("left out: out/c/summary.json: cannot be read as JSON")
    for named in (["out", "out/b"], ["out/b", "out/c"]):
        done = dfrs("compare", *named, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("dfrs: out/b/summary.json: there is no such file")
    (tmp_path / "out" / "a" / "summary.json").unlink()
    done = dfrs("compare", "out", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dfrs: out/a/summary.json: there is no such file")
    assert done.stderr.count("\n") == 1
