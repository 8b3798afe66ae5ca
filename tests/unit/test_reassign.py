"""Machine reassignment: files, the search, the checker beside the definition, and the verb."""

import json
import os
import tarfile
from _thread import interrupt_main
from pathlib import Path
from threading import Timer

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dfrs.cli.simulate.reassign import reassign
from dfrs.model.errors import InputError
from dfrs.placement import reassign as placement
from dfrs.placement.reassign import search
from dfrs.placement.reassign_state import cost_parts, require_feasible
from dfrs.runs.validator.reassignment import validate_reassignment
from dfrs.workloads.reassignment import read_reassignment, write_assignment
from tests.naive import reassign as naive
from tests.reassign_cases import arrays, model_text, reassignments, write

ARCHIVE = Path(os.environ.get("DFRS_ROADEF2012", "roadef2012-A.tar.xz"))
"""Set A of the challenge: models, assignments and original costs."""

MODEL = """2
0 3
1 2
3
0 0 10 10 8 8 0 1 2
0 1 10 10 8 8 1 0 1
1 0 10 10 8 8 2 1 0
2
2 0
1 1 0
3
0 6 1 5
0 5 2 1
1 3 4 2
1
0 1 2
10
1 10 100
"""
"""Three machines; service 0 in two locations; service 1 depends on it."""
BYTES = (
    MODEL.replace("0 3", "0 1000000000", 1)
    .replace("10 10 8 8", "10000000000 10 0 8")
    .replace("0 6 1 5", "0 10000000000 1 5")
)
"""Its first resource in bytes: a load costs up to 1e19."""

app = typer.Typer()
app.command()(reassign)


@pytest.fixture(autouse=True, scope="module")
def short_rounds():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "ROUND_STEPS", 5_000)
        yield


def files(folder, model=MODEL, assignment="0 1 0\n"):
    paths = folder / "model_x.txt", folder / "assignment_x.txt"
    for path, text in zip(paths, (model, assignment), strict=True):
        path.write_text(text)
    return paths


def run(*arguments, status=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result.stdout


def test_a_model_is_read_as_the_challenge_defines_it(tmp_path):
    instance = read_reassignment(*files(tmp_path))
    assert instance.name == "x"
    assert instance.transient.tolist() == [False, True]
    assert instance.load_weight.tolist() == [3, 2]
    assert instance.neighbourhood.tolist() == [0, 0, 1]
    assert instance.location.tolist() == [0, 1, 0]
    assert instance.capacity.tolist() == [[10, 10]] * 3
    assert instance.safety.tolist() == [[8, 8]] * 3
    assert instance.machine_move.tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    assert instance.spread.tolist() == [2, 1]
    assert [part.tolist() for part in instance.dependencies] == [[0, 0, 1], [0]]
    assert instance.service.tolist() == [0, 0, 1]
    assert instance.need.tolist() == [[6, 1], [5, 2], [3, 4]]
    assert instance.process_move.tolist() == [5, 1, 2]
    assert instance.balance.tolist() == [[0, 1, 2, 10]]
    assert instance.weights == (1, 10, 100)
    # Machine 0 uses (9, 5), 1 (5, 2), 2 nothing: load 3; balance 0, 20, 100.
    assert cost_parts(instance, instance.first).total == 3 + 10 * (2 * 5 - 8) + 10 * (2 * 10 - 10)


@given(case=reassignments())
def test_files_read_back(case, tmp_path_factory):
    problem, _ = case
    instance = read_reassignment(*write(problem, tmp_path_factory.mktemp("files")))
    expected = arrays(problem)
    for name in ("capacity", "safety", "machine_move", "spread", "need", "balance", "first", "service"):
        np.testing.assert_array_equal(getattr(instance, name), getattr(expected, name))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("0 3", "2 3"), r"model_x.txt:2: transient of resource 0: 2: must be from 0 to 1"),
        (("1 1 0", "1 1 7"), r"model_x.txt:10: service 1: dependency 0: 7: must be from 0 to 1"),
        (("1 3 4 2", "4 3 4 2"), r"model_x.txt:14: service of process 2: 4: must be from 0 to 1"),
        (("0 1 2\n10", "0 9 2\n10"), r"model_x.txt:16: resource 2 of balance cost 0: 9: must be from 0 to 1"),
        (("0 5 2 1", "0 5 two 1"), r'model_x.txt:13: "two": must be a whole number'),
        (("0 5 2 1", "0 5 -2 1"), r"model_x.txt:13: processes: -2: must be a whole number"),
        (("1 10 100", "1 10"), r"model_x.txt: ends within weights of moves: 1 more numbers must follow"),
        (("1 10 100", "1 10 100 7"), r"model_x.txt:18: after the last number of the model: 7"),
        (("1 10 100\n", "1 10 9999999999999999\n"), r"model_x.txt:18: weights of moves: 9999999999999999: must be"),
        ((MODEL, ""), r"model_x.txt: has no numbers"),
        ((MODEL, BYTES), r"model_x.txt: amounts and costs may add up to 1.0e\+19: must be less than 4.6e\+18"),
        (("0 1 2\n10", "0 1 1000000000000000\n1000000"), r"costs may add up to 4.4e\+22: must"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(tmp_path, change, message):
    model, assignment = files(tmp_path, MODEL.replace(*change, 1))
    with pytest.raises(InputError, match=message) as error:
        read_reassignment(model, assignment)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("0 1", "ends within the machines of 3 processes: 1 more"),
        ("0 1 3", "machine of process 2: 3: must be from 0 to 2"),
        ("0 1 0 0", "must be the end of the file"),
    ],
)
def test_an_assignment_must_be_of_the_model(tmp_path, assignment, message):
    model, path = files(tmp_path, assignment=assignment)
    with pytest.raises(InputError, match=message):
        read_reassignment(model, path)
    with pytest.raises(InputError, match=r"assignment_x\.txt"):
        validate_reassignment(model, path, path)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("0 0 2", "machine 0: uses 11 of resource 0: must be at most its capacity 10"),
        ("0 2 0", "service 0: is in 1 locations: must be in at least 2"),
        ("0 1 2", "service 1: depends on service 0, which must be in neighbourhood 1 too"),
    ],
)
def test_a_first_assignment_that_breaks_a_constraint_is_refused(tmp_path, place, message):
    model, assignment = files(tmp_path, assignment=place)
    with pytest.raises(InputError, match=message):
        search(read_reassignment(model, assignment), rounds=1)
    assert validate_reassignment(model, assignment, assignment).problems


def test_two_processes_of_a_service_on_a_machine_are_refused(tmp_path):
    model, assignment = files(
        tmp_path, MODEL.replace("2 0\n1 1 0", "0 0\n1 1 0").replace("0 5 2 1", "0 4 2 1"), "0 0 1"
    )
    with pytest.raises(InputError, match="machine 0: has two processes of service 0"):
        search(read_reassignment(model, assignment), rounds=1)
    assert "machine 0: 2 processes of service 0" in validate_reassignment(model, assignment, assignment).problems


@settings(max_examples=200)
@given(case=reassignments(), targets=st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_the_checker_says_what_the_definition_says(case, targets, tmp_path_factory):
    problem, _ = case
    folder = tmp_path_factory.mktemp("check")
    model, before = write(problem, folder)
    place = tuple(m % len(problem.capacity) for m in targets[: len(problem.service)])
    write_assignment(folder / "after.txt", np.array(place))
    report = validate_reassignment(model, before, folder / "after.txt")
    assert report.cost == naive.cost(problem, place) == cost_parts(arrays(problem), np.array(place)).total
    assert (not report.problems) == naive.is_feasible(problem, place)
    try:
        require_feasible(arrays(problem), np.array(place), "place")
    except InputError:
        assert report.problems
    else:
        assert not report.problems


@settings(max_examples=20, deadline=None)
@given(case=reassignments())
def test_a_tiny_problem_is_never_made_worse_and_repeats_by_its_rounds(case):
    problem, _ = case
    instance = arrays(problem)
    results = [search(instance, rounds=3, threads=threads, seed=5) for threads in (1, 1, 2, 2)]
    for result in results:
        assert naive.is_feasible(problem, tuple(result.place))
        assert result.after.total == naive.cost(problem, tuple(result.place)) <= result.before.total
    for one, other in (results[:2], results[2:]):
        assert one.place.tolist() == other.place.tolist()
        assert one.made == other.made


def test_the_best_of_a_small_problem_is_found(tmp_path):
    instance = read_reassignment(*files(tmp_path))
    problem = _problem()
    best = min(naive.cost(problem, place) for place in np.ndindex(3, 3, 3) if naive.is_feasible(problem, place))
    assert search(instance, rounds=5).after.total == best


def _problem():
    return naive.Problem(
        transient=[False, True],
        load_weight=[3, 2],
        neighbourhood=[0, 0, 1],
        location=[0, 1, 0],
        capacity=[[10, 10]] * 3,
        safety=[[8, 8]] * 3,
        machine_move=[[0, 1, 2], [1, 0, 1], [2, 1, 0]],
        spread=[2, 1],
        depends=[[], [0]],
        service=[0, 0, 1],
        need=[[6, 1], [5, 2], [3, 4]],
        process_move=[5, 1, 2],
        balance=[(0, 1, 2, 10)],
        weights=(1, 10, 100),
        first=(0, 1, 0),
    )


def test_the_text_of_the_cases_is_the_challenges_format(tmp_path):
    assert read_reassignment(*files(tmp_path, model_text(_problem()))).need.tolist() == [[6, 1], [5, 2], [3, 4]]


def test_what_cannot_be_written_has_been_shown_and_the_other_way_round(tmp_path, monkeypatch):
    def fails(*_):
        raise OSError(28, "No space left on device")

    solution = tmp_path / "solution.txt"
    command = [*map(str, files(tmp_path)), "--rounds", "1", "--threads", "1", "-o", str(solution)]
    with monkeypatch.context() as patch:
        patch.setattr("dfrs.workloads.reassignment.write_assignment", fails)
        result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, OSError)
    assert "3 processes on 3 machines" in result.stdout
    monkeypatch.setattr("dfrs.cli.simulate.reassign._show", fails)
    assert isinstance(CliRunner().invoke(app, command).exception, OSError)
    assert not validate_reassignment(*files(tmp_path), solution).problems


def test_the_verb_writes_a_solution_that_the_checker_accepts(tmp_path):
    model, assignment = files(tmp_path)
    known = tmp_path / "known.csv"
    known.write_text("instance,best_known\nx,100\n")
    solution = tmp_path / "solution.txt"
    options = ("--rounds", 2, "--threads", 2, "--seed", 3, "--best-known", known, "-o", solution)
    document = json.loads(run(model, assignment, *options, "--json"))
    report = validate_reassignment(model, assignment, solution)
    assert report.problems == []
    assert document["after"]["total"] == report.cost
    assert document["before"]["total"] == 123
    assert document["gap"] == (report.cost - 100) / 100
    assert document["place"] == [int(word) for word in solution.read_text().split()]
    shown = run(model, assignment, *options)
    assert "best known" in shown
    assert f"{report.cost:,}" in shown


def test_wrong_options_are_refused(tmp_path):
    model, assignment = files(tmp_path)
    known = tmp_path / "known.csv"
    for text, message in (
        ("instance,best_known\ny,1\n", 'has no row for instance "x"'),
        ("a,b\n", "must name the columns"),
        ("instance,best_known\nx,1.5\n", "must be a whole number"),
    ):
        known.write_text(text)
        with pytest.raises(InputError, match=message):
            run(model, assignment, "--best-known", known)
    with pytest.raises(InputError, match="cannot read"):
        run(tmp_path / "none.txt", assignment)


def test_an_interrupt_ends_the_search_and_keeps_the_best(tmp_path):
    model, assignment = files(tmp_path)
    search(read_reassignment(model, assignment), rounds=1)
    timer = Timer(0.5, interrupt_main)
    timer.start()
    solution = tmp_path / "solution.txt"
    document = json.loads(run(model, assignment, "--threads", 2, "--json", "-o", solution, status=130))
    timer.join()
    assert document["interrupted"]
    assert document["runtime_s"] < 60
    assert validate_reassignment(model, assignment, solution).cost == document["after"]["total"]


@pytest.mark.skipif(not ARCHIVE.exists(), reason=f"{ARCHIVE}: set A of the challenge; DFRS_ROADEF2012 says where it is")
def test_original_costs_of_the_challenge_are_reproduced(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    models = sorted(tmp_path.rglob("model_*.txt"))
    assert models
    for model in models:
        name = model.stem.removeprefix("model_")
        assignment = model.parent / f"assignment_{name}.txt"
        original = int((model.parent / f"original_cost_{name}.txt").read_text())
        instance = read_reassignment(model, assignment)
        require_feasible(instance, instance.first, name)
        assert cost_parts(instance, instance.first).total == original
        report = validate_reassignment(model, assignment, assignment)
        assert (report.cost, report.problems) == (original, [])
