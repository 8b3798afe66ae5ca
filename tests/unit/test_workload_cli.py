"""`dfrs workload`, `dfrs generate lublin` and `cwf`: what they write reads back, and what is wrong is refused."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from dfrs.cli.simulate import workload
from dfrs.cli.simulate.generate_cwf import cwf
from dfrs.cli.simulate.generate_lublin import lublin
from dfrs.model.errors import InputError
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.cwf import read_cwf
from dfrs.workloads.elastic_model import ElasticModel
from dfrs.workloads.elastic_model import generate as generate_elastic
from dfrs.workloads.lublin import Lublin, generate
from dfrs.workloads.swf import read_swf
from tests.unit.test_swf import line, written

app = typer.Typer()
app.add_typer(workload.app, name="workload")
app.command("lublin")(lublin)
app.command("cwf")(cwf)


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


GIVEN = {
    "--jobs": 60,
    "--procs": 640,
    "--unit": 16,
    "--ps": 0.2,
    "--load": 0.7,
    "--pd": 0.5,
    "--pe": 0.3,
    "--pr": 0.4,
    "--pep": 0.25,
    "--prp": 0.35,
    "--start-mean": 70,
    "--amount-mean": 80,
    "--amount-mean-units": 2,
}
OPTIONS = tuple(word for option in GIVEN.items() for word in option)
MODEL = ElasticModel(
    jobs=60,
    procs=640,
    unit=16,
    ps=0.2,
    load=0.7,
    pd=0.5,
    pe=0.3,
    pr=0.4,
    pep=0.25,
    prp=0.35,
    start_mean_s=70,
    amount_mean_s=80,
    amount_mean_units=2,
)


@pytest.fixture
def elastic(tmp_path):
    path = tmp_path / "x.cwf.gz"
    run("cwf", *OPTIONS, "--seed", 3, "-o", path)
    return path


def same_but_notes(one, other):
    return one.jobs.with_columns(comments=()) == other.jobs.with_columns(comments=()) and np.array_equal(
        one.requested_start_s, other.requested_start_s, equal_nan=True
    )


def test_generate_cwf_writes_the_models_trace_and_tells_of_it(tmp_path, elastic):
    expected = generate_elastic(MODEL, seed=3)
    assert same_but_notes(read_cwf(elastic), expected)
    assert read_cwf(elastic).commands.amount.tolist() == expected.commands.amount.tolist()
    result = CliRunner().invoke(app, ["cwf", *map(str, OPTIONS), "--seed", "3"])
    path = tmp_path / "y.cwf"
    path.write_text(result.stdout)
    assert read_cwf(path) == read_cwf(elastic)
    beta_arr = float(expected.jobs.header["BetaArr"])
    told = f"standard output: 60 jobs, {expected.dedicated} of them dedicated, {len(expected.commands)} commands, "
    assert result.stderr == f"{told}load 0.7, beta_arr {beta_arr:.4g}, 640 processors\n"
    run("cwf", "--beta-arr", 0.5, "-o", path)
    assert same_but_notes(read_cwf(path), generate_elastic(ElasticModel(load=None, arrival_scale=0.5), seed=1))
    for options, words in (
        (("-o", tmp_path / "x.swf"), r"must be \.cwf or \.cwf\.gz"),
        (("--load", 1e-9), "load = 1e-09: must be from"),
        (("--procs", 100), "procs = 100: must be a multiple"),
    ):
        with pytest.raises(InputError, match=words):
            run("cwf", *options)


def test_info_tells_of_dedicated_jobs_and_commands(elastic, model):
    trace = read_cwf(elastic)
    document = json.loads(run("workload", "info", elastic, "--annotate", "unit:16", "--json"))
    assert (document["jobs"], document["lines"], document["nodes"]) == (60, 60, 40)
    assert document["dedicated_jobs"] == trace.dedicated > 0
    kinds = ("ET", "RT", "EP", "RP")
    assert document["commands"] == {kind: int((trace.commands.kind == k).sum()) for k, kind in enumerate(kinds)}
    assert document["load"] == pytest.approx(0.7, rel=1e-3)
    shown = " ".join(run("workload", "info", elastic).split())
    assert f"dedicated jobs {trace.dedicated}" in shown
    assert f"commands {document['commands']['ET']} ET, {document['commands']['RT']} RT, " in shown
    assert "commands" not in run("workload", "info", model)


def test_converting_keeps_all_that_the_format_has_and_tells_what_it_has_not(tmp_path, elastic, model):
    trace = read_cwf(elastic)
    result = CliRunner().invoke(app, ["workload", "convert", str(elastic), str(tmp_path / "y.swf")])
    assert result.exit_code == 0
    lost = f"left out: {trace.dedicated} requested starts, {len(trace.commands)} commands"
    assert f"60 jobs; {lost}" in result.stderr
    assert read_swf(tmp_path / "y.swf") == trace.jobs
    run("workload", "convert", elastic, tmp_path / "y.cwf")
    assert read_cwf(tmp_path / "y.cwf") == trace
    result = CliRunner().invoke(app, ["workload", "convert", str(model), str(tmp_path / "z.cwf.gz")])
    assert "300 jobs, 0 of them dedicated, 0 commands" in result.stderr
    assert read_cwf(tmp_path / "z.cwf.gz").jobs == read_swf(model)
    result = CliRunner().invoke(app, ["workload", "convert", str(model), str(tmp_path / "z.swf")])
    assert "left out" not in result.stderr
    assert read_swf(tmp_path / "z.swf") == read_swf(model)
    outputs, inputs = r"\.swf, \.swf\.gz, \.cwf or \.cwf\.gz", r"\.swf, \.swf\.gz, \.cwf, \.cwf\.gz or \.json"
    for source, target, endings in ((elastic, "x.txt", outputs), (tmp_path / "x.txt", "x.swf", inputs)):
        with pytest.raises(InputError, match=rf"x\.txt: the ending must be {endings}"):
            run("workload", "convert", source, tmp_path / target)
    odd = written(tmp_path, *["1 2"] * 2, line() + " -1 S 60", name="odd.cwf")
    result = CliRunner().invoke(app, ["workload", "convert", str(odd), str(tmp_path / "odd.swf")])
    assert "a line must have 21 fields: 2 (dropped" in result.stderr
    assert "a job's amount must be -1: 1 (ignored" in result.stderr
    with pytest.raises(InputError, match=r"odd\.cwf:1: number of fields = 2"):
        run("workload", "convert", odd, tmp_path / "odd.swf", "--strict")


def test_parts_and_mixtures_of_cwf_are_refused(elastic, model):
    for arguments in (("slice", elastic, "--week", 1), ("scale", elastic, "--load", 1), ("merge", model, elastic)):
        with pytest.raises(InputError, match=r"x\.cwf\.gz: CWF, .*first, with dfrs workload convert"):
            run("workload", *arguments)


@pytest.mark.parametrize("verb", ["info", "slice", "scale", "merge", "convert"])
def test_every_verb_has_help_with_an_example(verb):
    assert f"dfrs workload {verb}" in " ".join(run("workload", verb, "--help").split())
