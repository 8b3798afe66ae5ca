"""`dfrs workload` and `dfrs generate lublin`: what they write reads back, and what is wrong is refused."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from dfrs.cli import workload
from dfrs.cli.generate_lublin import lublin
from dfrs.model.errors import InputError
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.lublin import Lublin, generate
from dfrs.workloads.swf import read_swf
from tests.unit.test_swf import line, written

app = typer.Typer()
app.add_typer(workload.app, name="workload")
app.command("lublin")(lublin)


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "x.swf.gz"
    run("lublin", "--jobs", 300, "--seed", 4, "-o", path)
    return path


def test_lublin_writes_the_models_trace_to_a_file_or_standard_output(tmp_path, model):
    assert read_swf(model) == generate(Lublin(jobs=300), seed=4)
    path = tmp_path / "y.swf"
    path.write_text(run("lublin", "--jobs", 20, "--nodes", 16, "--typeless", "--rng", "numpy", "--seed", 9))
    assert read_swf(path) == generate(Lublin.of(jobs=20, nodes=16, typed=False), seed=9, rng="numpy")
    with pytest.raises(InputError, match=r"must be \.swf or .swf.gz"):
        run("lublin", "-o", tmp_path / "y.txt")


def test_info_tells_what_a_trace_holds_and_what_is_odd(tmp_path):
    path = written(
        tmp_path,
        "; MaxProcs: 8",
        line(),
        line(job_id=2, submit_s=100, run_s="[/red]"),
        line(job_id=3, submit_s=50, processors=9),
    )
    document = json.loads(run("workload", "info", path, "--json"))
    assert (document["jobs"], document["lines"], document["nodes"]) == (2, 3, 8)
    assert document["load"] == pytest.approx(100 * (4 + 9) / (8 * 50))
    assert document["memory_kb_per_processor"]["given_fraction"] == 1
    assert document["header"] == {"MaxProcs": "8"}
    assert [o["count"] for o in document["odd"]] == [1, 1]
    assert document["odd"][0]["examples"] == [{"line": 3, "field": "field 4 (run_s)", "value": "[/red]"}]
    shown = run("workload", "info", path, "--annotate", "hpc2n")
    assert "fields must be finite numbers: dropped" in shown
    assert "line 3: field 4 (run_s) = [/red]" in shown
    assert "2 of 3 lines" in shown
    with pytest.raises(InputError, match=r"x.swf:3: field 4 \(run_s\) = \[/red\]"):
        run("workload", "info", path, "--strict")
    assert "nothing odd" in run("workload", "info", written(tmp_path, "; MaxProcs: 8", line()))


def test_slices(tmp_path, model):
    whole = read_swf(model)
    out = tmp_path / "part.swf"
    run("workload", "slice", model, "--jobs", "10:20", "-o", out)
    assert read_swf(out).job_id.tolist() == list(range(11, 21))
    run("workload", "slice", model, "--jobs", ":5", "-o", out)
    assert len(read_swf(out)) == 5
    run("workload", "slice", model, "--from", 5_000, "--to", 50_000, "-o", out)
    inside = (whole.submit_s >= 5_000) & (whole.submit_s < 50_000)
    assert read_swf(out).submit_s.tolist() == (whole.submit_s[inside] - 5_000).tolist()
    run("workload", "slice", model, "--week", 1, "-o", out)
    assert len(read_swf(out)) == (whole.submit_s < 604_800).sum()
    for options, words in (
        ((), "needs either --week, or --from and --to, or --jobs"),
        (("--week", 1, "--jobs", "1:2"), "needs either"),
        (("--week", 99), "week 99: must be from 1 to"),
        (("--jobs", "5"), "must be a:b, two whole numbers"),
        (("--jobs", "a:b"), "must be a:b, two whole numbers"),
        (("--week", 1, "-o", tmp_path / "part.csv"), "ending must be"),
    ):
        with pytest.raises(InputError, match=words):
            run("workload", "slice", model, *options)


def test_scaling_writes_a_trace_of_that_load(tmp_path, model):
    out = tmp_path / "half.swf.gz"
    run("workload", "scale", model, "--load", 0.5, "-o", out)
    scaled = to_workload(read_swf(out))[0]
    assert scaled.load == pytest.approx(0.5, rel=1e-12)
    assert np.array_equal(scaled.run_s, read_swf(model).run_s)
    assert run("workload", "scale", model, "--load", 0.5) == run("workload", "scale", model, "--load", 0.5)


def test_merging_keeps_all_jobs(tmp_path, model):
    out = tmp_path / "both.swf"
    run("workload", "merge", model, model, "-o", out)
    both = read_swf(out)
    assert len(both) == 600
    assert both.run_s.sum() == 2 * read_swf(model).run_s.sum()
    with pytest.raises(InputError, match="at least two"):
        run("workload", "merge", model)


def test_dropped_lines_are_told_when_a_part_is_written(tmp_path):
    path = written(tmp_path, "; MaxProcs: 8", line(), "junk")
    result = CliRunner().invoke(app, ["workload", "slice", str(path), "--jobs", ":", "-o", str(tmp_path / "y.swf")])
    assert result.exit_code == 0
    assert "a line must have 18 fields: 1 (dropped; first: line 3: number of fields = 1)" in result.stderr.replace(
        "\n", " "
    )


@pytest.mark.parametrize("verb", ["info", "slice", "scale", "merge"])
def test_every_verb_has_help_with_an_example(verb):
    assert f"dfrs workload {verb}" in " ".join(run("workload", verb, "--help").split())
