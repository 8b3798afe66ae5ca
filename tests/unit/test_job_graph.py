"""Jobs of a file that come after each other: how the file is read, and that all of them are submitted or none."""

import json
import random
from functools import partial

import pytest

from dfrs.live.errors import ConflictError, TooManyError, UnavailableError, UnreachableError
from dfrs.live.job_graph import CycleOfJobsError, GraphJob, in_order, submit_graph
from dfrs.live.protocol.resources import JobRequest
from tests.unit.test_cli_live import cluster, controller, last, transport

__all__ = ["cluster", "controller", "transport"]


def job(name, *after, kind="after", **fields):
    return GraphJob(id=name, request=JobRequest(command=("true",), **fields), after={kind: after} if after else {})


class Notes:
    """What is asked of a controller, which accepts so many jobs. `troubles`: what it answers to the next requests for a
    job, by its number, before it does what is asked.
    """

    def __init__(self, accepts=100, error=TooManyError, troubles=()):
        self.accepts, self.error = accepts, error
        self.troubles = {number: list(errors) for number, errors in dict(troubles).items()}
        self.jobs, self.freed, self.cancelled = {}, [], []

    def submit(self, request):
        if len(self.jobs) >= self.accepts:
            raise self.error("no more")
        numbers = [len(self.jobs) + k + 1 for k in range(request.array or 1)]
        self.jobs |= dict.fromkeys(numbers, request)
        return numbers

    def release(self, number):
        self._meet(number)
        self.freed.append(number)

    def cancel(self, number):
        self._meet(number)
        self.cancelled.append(number)

    def _meet(self, number):
        if self.troubles.get(number):
            raise self.troubles[number].pop(0)


def test_jobs_get_the_numbers_of_those_before_them():
    notes = Notes()
    numbers = submit_graph(notes, [job("c", "a", "b"), job("a", array=2), job("b", "a", kind="after_any")])
    assert list(numbers) == ["c", "a", "b"]
    by_id = {name: notes.jobs[found[0]] for name, found in numbers.items()}
    assert set(by_id["c"].after) == {*numbers["a"], *numbers["b"]}
    assert by_id["b"].after_any == tuple(numbers["a"])
    assert len(numbers["a"]) == 2


@pytest.mark.parametrize("seed", range(20))
def test_whenever_it_ends_early_nothing_runs_that_should_not(seed):
    """What can run at any moment is what is not held and comes after none: there is none before the end."""
    draw = random.Random(seed)
    jobs = [job(str(k), *(str(j) for j in range(k) if draw.random() < 0.3)) for k in range(12)]
    draw.shuffle(jobs)
    for accepts in range(12):
        notes = Notes(accepts)
        with pytest.raises(TooManyError, match=r'^job "\d+": no more; no job of the graph is left$'):
            submit_graph(notes, jobs)
        assert all(request.held or request.dependencies for request in notes.jobs.values())
        assert all(set(range(1, number)) >= request.dependencies for number, request in notes.jobs.items())
        assert (notes.freed, sorted(notes.cancelled)) == ([], sorted(notes.jobs))
        for done, number in enumerate(notes.cancelled):
            assert notes.jobs[number].dependencies.isdisjoint(notes.cancelled[:done])
    notes = Notes()
    submit_graph(notes, jobs)
    assert sorted(notes.freed) == [number for number, request in notes.jobs.items() if not request.dependencies]


def test_what_could_not_be_taken_back_is_named_and_what_it_comes_after_is_left():
    """The end of a job lets those start that come after its end: so none is cancelled before these."""
    notes = Notes(5, troubles={4: [UnreachableError("nobody there")] * 2})
    with pytest.raises(TooManyError, match=r'^job "d": no more; cancel these, which do not run: 2-4, 1$'):
        submit_graph(notes, [job("a"), job("b", "a", array=3), job("c", "b"), job("d", "c")], patience_s=0.0)
    assert (notes.cancelled, notes.freed) == ([5, 2, 3], [])


def test_who_is_away_for_a_moment_is_asked_again_and_what_has_ended_is_no_trouble():
    away = [UnreachableError("nobody there"), UnavailableError("stands by")]
    graph = [job("a"), job("b", array=2), job("c", "a", "b"), job("d", "c")]
    for accepts in (4, 100):
        notes = Notes(accepts, troubles={1: [*away, ConflictError("has ended")], 3: away})
        if accepts == 4:
            with pytest.raises(TooManyError, match="no job of the graph is left"):
                submit_graph(notes, graph)
            assert sorted(notes.cancelled) == [2, 3, 4]
        else:
            submit_graph(notes, graph)
            assert notes.freed == [2, 3]


def test_what_could_not_be_released_is_named():
    notes = Notes(troubles={3: [UnavailableError("stands by")] * 2})
    said = "^stands by; all jobs are accepted, but these are held until you release them: 2-3, 4$"
    with pytest.raises(UnavailableError, match=said):
        submit_graph(notes, [job("a"), job("b", array=2), job("c"), job("d", "c")], patience_s=0.0)
    assert notes.freed == [1, 2]


def test_where_nobody_knows_whether_a_job_was_accepted_none_is_cancelled_that_it_may_come_after():
    graph = [job("a"), job("b", "a", array=2), job("c", "b", kind="after_any")]
    notes = Notes(3, UnreachableError)
    said = "dfrs queue shows whether it was accepted all the same"
    left = "these do not run, cancel them or release those that are held: 1, 2-3"
    with pytest.raises(UnreachableError, match=f'^job "c": no more; {said}; {left}$'):
        submit_graph(notes, graph)
    assert (notes.cancelled, notes.freed) == ([], [])
    with pytest.raises(UnreachableError, match=f'^job "a": no more; {said}$'):
        submit_graph(Notes(0, UnreachableError), graph)


def test_where_nothing_was_sent_nothing_is_in_doubt():
    notes = Notes(1, partial(UnreachableError, sent=False))
    with pytest.raises(UnreachableError, match=r'^job "b": no more; no job of the graph is left$'):
        submit_graph(notes, [job("a"), job("b", "a")])
    assert notes.cancelled == [1]


def test_what_is_to_be_held_stays_so():
    notes = Notes()
    submit_graph(notes, [job("a", held=True), job("b")])
    assert notes.freed == [2]
    assert notes.jobs[1].held


def test_a_cycle_is_named():
    with pytest.raises(CycleOfJobsError) as error:
        in_order([job("d"), job("a", "b"), job("b", "c"), job("c", "a")])
    assert set(error.value.ids) == {"a", "b", "c"}
    assert len(error.value.ids) == 4


GRAPH = """
[[job]]
id = "both"
command = ["cat", 1, 2.5]
after = ["first", "many:any", 3]

[[job]]
id = "first"
command = ["true"]
cpu = 0.5
memory = "64M"
limit = "1h"
signal = "USR1@60"
at = 2126-01-20 12:34:00
env = { A = 1, B = "=x y" }
restart = "never"
profile = true
restartable = false
output = "%x.txt"
min-yield = 0.25

[[job]]
id = "many"
command = ["true"]
array = 3
name = "-odd"
env = ["HOME", "C=2"]

[[job]]
id = 3
command = ["true"]
tasks = 2
after = "first:failed"
"""


@pytest.fixture
def graph(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "graph.toml"


def test_a_file_is_submitted(dfrs, cluster, graph):
    graph.write_text(GRAPH)
    status, out, err = dfrs("submit", "--graph", "graph.toml", "--json")
    assert (status, err) == (0, "")
    numbers = json.loads(out)["jobs"]
    assert list(numbers) == ["both", "first", "many", "3"]
    sent = {request.name: request for request in cluster.requests}
    both, first, many, three = (sent[name] for name in ("both", "first", "-odd", "3"))
    assert (both.command, both.after_any) == (("cat", "1", "2.5"), tuple(numbers["many"]))
    assert both.after == (*numbers["first"], *numbers["3"])
    assert (first.cpu_cores, first.memory_bytes, first.time_limit_s, first.warning_s) == (0.5, 64 << 20, 3600, 60)
    assert first.start_at is not None
    assert (first.environment["A"], first.environment["B"]) == ("1", "=x y")
    assert (first.restart, first.profile, first.output_file, first.minimum_yield) == ("never", True, "%x.txt", 0.25)
    assert (many.array, many.environment["C"], three.tasks) == (3, "2", 2)
    assert three.after_failed == tuple(numbers["first"])
    assert (first.held, many.held, both.held) == (True, True, False)
    assert {number for number, job in cluster.by_id.items() if job.state == "held"} == set()


def test_what_is_printed_and_held(dfrs, cluster, graph):
    graph.write_text(GRAPH)
    status, out, _ = dfrs("submit", "--hold", "--graph", graph)
    assert (status, [line.split(maxsplit=1)[0] for line in out.splitlines()]) == (0, ["both", "first", "many", "3"])
    assert "many   jobs " in out
    assert all(request.held for request in cluster.requests)


def test_a_script_in_it_says_its_own_options(dfrs, cluster, graph):
    (graph.parent / "job.sh").write_text("#!/bin/sh\n#SBATCH -c 2\n#DFRS --tasks 3\ntrue\n")
    graph.write_text('[[job]]\nid = "a"\ncommand = ["job.sh", "x"]\ntasks = 4\n')
    assert dfrs("submit", "--graph", graph)[0] == 0
    got = last(cluster)
    assert (got.cpu_cores, got.tasks, got.command[-1], got.name) == (2.0, 4, "x", "a")


A = '[[job]]\nid = "a"\ncommand = ["true"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "graph.toml: must have tables [[job]]"),
        ("job = 3\n", "graph.toml: must have tables [[job]]"),
        ("[[jobs]]\n", 'graph.toml: "jobs": must be tables [[job]] and nothing else'),
        ("[[job]\n", "graph.toml: is no TOML: "),
        ('[[job]]\ncommand = ["x"]\n', 'graph.toml:1: job 1: id: is missing: must be 1 to 128 letters, digits, "_"'),
        (f'{A}[[job]]\nid = "a b"\n', 'graph.toml:4: job 2: id: "a b": must be 1 to 128 letters'),
        (A + A, 'graph.toml:4: job 2: id: "a": another job has it'),
        ('[[job]]\nid = "a"\n', 'graph.toml:1: job "a": command: is missing: must be a program and its arguments'),
        ('[[job]]\nid = "a"\ncommand = "x"\n', 'graph.toml:1: job "a": command: "x": must be a program and its'),
        (f"{A}cpus = 2\n", 'graph.toml:1: job "a": "cpus": must be one of account, after, array, at'),
        (f"{A}cpu = true\n", 'graph.toml:1: job "a": cpu: "True": must be no truth value'),
        (f"{A}hold = 1\n", 'graph.toml:1: job "a": hold: "1": must be true or false'),
        (f"{A}cpu = [1, 2]\n", 'graph.toml:1: job "a": cpu: "[1, 2]": must be one value'),
        (f"{A}cpu = -1\n", 'graph.toml:1: job "a": --cpu "-1.0": input should be greater than 0'),
        (f"{A}cpu = inf\n", 'graph.toml:1: job "a": --cpu "inf": input should be'),
        (f'{A}memory = "12"\n', 'graph.toml:1: job "a": --memory: "12": must be a number with a unit'),
        (f'{A}server = "x"\n', 'graph.toml:1: job "a": "server": must be one of '),
        (f'{A}after = ["b"]\n', 'graph.toml:1: job "a": after: "b": no job has this id'),
        (f'{A}after = ["a:soon"]\n', 'graph.toml:1: job "a": after: "a:soon": must be ids, alone or with :ok'),
        (f"{A}after = 1.5\n", 'graph.toml:1: job "a": after: "1.5": must be ids, alone or with'),
        (f'{A}after = "a"\n', 'graph.toml:1: job "a": after: these wait for each other: a, a'),
        (
            A + 'after = ["b"]\n[[job]]\nid = "b"\ncommand = ["true"]\nafter = ["a:start"]\narray = 2\n',
            'job "a": after: these wait for each other: a, b, a|job "b": after: these wait for each other: b, a, b',
        ),
        (
            f'{A}array = 1001\n[[job]]\nid = "b"\ncommand = ["true"]\nafter = "a"\n',
            'graph.toml:5: job "b": after: 1001 jobs: must be at most 1000',
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_nothing_is_submitted(dfrs, cluster, graph, text, said):
    graph.write_text(text)
    status, out, err = dfrs("submit", "--graph", "graph.toml")
    assert (status, out) == (2, "")
    assert any(each in err for each in said.split("|")), err
    assert err.count("\n") == 1
    assert cluster.requests == []


def test_a_number_of_a_line_is_only_said_where_it_is_known(dfrs, cluster, graph):
    graph.write_text('job = [{ id = "a", command = ["x"], cpus = 1 }]\n')
    assert dfrs("submit", "--graph", "graph.toml")[2].startswith('dfrs: graph.toml: job "a": "cpus": must be one of')
