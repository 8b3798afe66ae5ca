"""`dfrs slurm shadow` beside commands that print what `sacct` and `sinfo` would."""

import json
import os
import signal
import threading

import pytest
import typer

from dfrs.cli.live import slurm_shadow
from dfrs.cli.main import main
from dfrs.workloads.slurm.text_output import COLUMNS
from tests.processes import until
from tests.slurm_cases import at, job, printed, step

POLICY = "GreedyPM*/per/OPT=MIN/MVT=600"
SINCE = at(0)
NODES = "NODELIST|CPUS|MEMORY\nn1|8|16384\nn2|8|16384\n"
RUNS = ("jobs.csv", "events.csv", "summary.json")
# The k-th call prints the k-th answer, the last one again and again; an answer that begins with ! is an error.
COMMAND = """#!/bin/sh
cd {folder}
echo "{name} TZ=$TZ $*" >> calls
k=$(grep -c "^{name} " calls)
while [ ! -f {name}.$k ]; do k=$((k-1)); done
if [ "$(head -c 1 {name}.$k)" = ! ]; then cut -c 2- {name}.$k >&2; exit 1; fi
cat {name}.$k
"""


def rows():
    """Two nodes' jobs: some wait for each other, and one still runs."""
    found = []
    for k in range(1, 13):
        submit, start = 100 * k, 100 * k + 700 * (k % 3)
        found += [job(str(k), submit, start, 300 * k, AllocCPUS=1 + k % 8), step(f"{k}.batch", start, 300 * k)]
    return [*found, job("99", 900, 2000, None)]


DAY = printed(*rows())
EMPTY = printed(columns=COLUMNS)


class Slurm:
    def __init__(self, folder):
        self.folder = folder
        self.says("sacct", DAY)
        self.says("sinfo", NODES)

    def says(self, name, *answers):
        path = self.folder / name
        path.write_text(COMMAND.format(folder=self.folder, name=name))
        path.chmod(0o755)
        for k, answer in enumerate(answers, 1):
            (self.folder / f"{name}.{k}").write_text(answer)

    def calls(self, of=""):
        path = self.folder / "calls"
        return [line for line in path.read_text().splitlines() if line.startswith(of)] if path.exists() else []


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Slurm(folder)


@pytest.fixture
def dfrs(capsys, monkeypatch, tmp_path):
    def run(*words):
        monkeypatch.setattr("sys.argv", ["dfrs", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    monkeypatch.chdir(tmp_path)
    return run


def test_it_gives_what_the_same_accounting_gives_and_only_asks(slurm, dfrs, tmp_path):
    period = ("--since", SINCE, "--for", "0.2s")
    status, out, err = dfrs("slurm", "shadow", "-p", POLICY, "-p", "EASY", *period, "--partition", "main", "-o", "seen")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["as", POLICY, "EASY"]
    assert "has not ended: 1" in err
    (tmp_path / "sacct.txt").write_text(DAY)
    (tmp_path / "nodes.txt").write_text(NODES)
    words = ("simulate", "--from-sacct", "sacct.txt", "--from-sinfo", "nodes.txt", "--since", SINCE)
    assert dfrs(*words, "--pauses", "keep", "--moves", "none", "-p", POLICY, "-p", "EASY", "-o", "made")[0] == 0
    for policy in ("GreedyPM+_per_OPT=MIN_MVT=600", "EASY"):
        for name in RUNS:
            assert (tmp_path / "seen" / policy / name).read_bytes() == (tmp_path / "made" / policy / name).read_bytes()
    assert (tmp_path / "seen/as-it-was.csv").read_bytes() == (tmp_path / "made/as-it-was.csv").read_bytes()

    sacct, sinfo = slurm.calls("sacct")[0], slurm.calls("sinfo")[0]
    assert f"--starttime {SINCE} --endtime 20" in sacct
    assert {call.split()[0] for call in slurm.calls()} == {"sacct", "sinfo"}
    for call in (sacct, sinfo):
        assert call.split()[1] == "TZ=UTC"
        assert "--partition main" in call


def test_what_was_made_of_each_job_stands_beside_the_runs(slurm, dfrs, tmp_path):
    assert dfrs("slurm", "shadow", "-p", "EASY", "--since", SINCE, "--for", "0.2s", "-o", "seen")[0] == 0
    lines = (tmp_path / "seen/as-it-was.csv").read_text().splitlines()
    header, first = (line.split(",") for line in lines[:2])
    found = dict(zip(header, first, strict=True))
    assert (found["job_id"], float(found["submission_time"]), float(found["starting_time"])) == ("1", 100, 800)
    assert (float(found["finish_time"]), float(found["stretch"])) == (1100, 1000 / 300)
    assert len(lines) == 13


def test_it_looks_now_and_then_whatever_happens_and_a_last_time_when_it_is_told_to_end(slurm, dfrs):
    slurm.says("sacct", EMPTY, EMPTY, "!sacct: error: Connection refused\n", DAY)

    def stop():
        until(lambda: len(slurm.calls("sacct")) >= 5, 120)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    status, out, err = dfrs("slurm", "shadow", "-p", "EASY", "--since", SINCE, "--every", "0.2s")
    thread.join()
    assert status == 0
    assert "sacct.txt: no job remains of 0 records" in err
    assert "Slurm: sacct: Connection refused" in err
    assert out.count("as it was") >= 2
    assert "with other options: dfrs simulate --from-sacct out/shadow/sacct.txt" in err


def test_told_to_end_while_it_replays_it_looks_a_last_time(slurm, dfrs, monkeypatch):
    slurm.says("sacct", DAY)
    replay, begun = slurm_shadow.simulate, []

    def interrupted(**options):
        begun.append(options)
        if len(begun) == 1:
            raise typer.Exit(130)
        return replay(**options)

    monkeypatch.setattr(slurm_shadow, "simulate", interrupted)
    status, out, err = dfrs("slurm", "shadow", "-p", "EASY", "--since", SINCE, "--every", "0.1s")
    assert (status, len(begun)) == (0, 2)
    assert "as it was" in out
    assert "with other options: dfrs simulate" in err


def test_json_is_one_document(slurm, dfrs):
    words = ("--since", SINCE, "--every", "0.2s", "--for", "0.7s", "--json")
    status, out, _ = dfrs("slurm", "shadow", "-p", "EASY", *words)
    (run,) = json.loads(out)["runs"]
    assert (status, run["metrics"]["jobs_finished"]) == (0, 12)
    assert run["configuration"]["as_it_was"]["jobs"] == 12


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--for", "1s", "-p", "EASI"), "EASI"),
        (("--for", "1s", "--every", "0"), '--every: "0": must be a time with units'),
        (("--for", "90"), '--for: "90": must be a time with units'),
        (("--for", "1s", "--since", "monday"), '--since "monday": must be YYYY-MM-DDTHH:MM:SS'),
        (
            ("--for", "1s", "--since", "2999-01-01T00:00:00"),
            '--since "2999-01-01T00:00:00": must be an instant that was, in UTC',
        ),
        (("--for", "1s", "--since", SINCE, "-o", "file"), "file: cannot make the directory"),
    ],
)
def test_wrong_options_are_one_line(slurm, dfrs, tmp_path, words, told):
    (tmp_path / "file").touch()
    status, out, err = dfrs("slurm", "shadow", *words)
    assert (status, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_policies_that_would_have_the_same_directory_are_refused_before_slurm_is_asked(slurm, dfrs):
    status, out, err = dfrs("slurm", "shadow", "-p", "EASY", "-p", "EASY", "--since", SINCE, "--for", "0.2s")
    assert (status, out, slurm.calls()) == (2, "", [])
    assert err == "dfrs: out/shadow: two runs would have the same directory: give each trace and policy once\n"


def test_a_partition_that_is_not_there_and_a_period_without_jobs(slurm, dfrs):
    slurm.says("sinfo", "NODELIST|CPUS|MEMORY\n")
    status, _, err = dfrs("slurm", "shadow", "--partition", "nope", "--for", "0.2s")
    assert (status, err) == (2, "dfrs: --partition nope: Slurm has no node in it\n")
    slurm.says("sinfo", NODES)
    slurm.says("sacct", EMPTY)
    status, _, err = dfrs("slurm", "shadow", "--for", "0.2s")
    assert status == 2
    assert "sacct.txt: no job remains of 0 records" in err


def test_a_slurm_that_does_not_answer_at_the_beginning_is_one_line(slurm, dfrs, monkeypatch):
    slurm.says("sacct", "!sacct: error: Slurm accounting storage is disabled\n")
    status, out, err = dfrs("slurm", "shadow")
    assert (status, out) == (1, "")
    assert err == "dfrs: Slurm: sacct: Slurm accounting storage is disabled\n"
    monkeypatch.setenv("PATH", "/nowhere")
    status, _, err = dfrs("slurm", "shadow")
    assert (status, err) == (1, "dfrs: Slurm: sinfo: No such file or directory: run this where Slurm's commands are\n")
