"""Simulated nodes that cannot do everything, and the checker that knows what they cannot."""

import json

import numpy as np
import pytest

from dfrs.experiments.simulations import measured
from dfrs.model.errors import InputError
from dfrs.model.run import Action
from dfrs.policies.names import find_policy
from dfrs.runs.directory import read_run, write_run
from dfrs.runs.validator.runs import validate_run
from dfrs.simulator.limits import node_limits
from dfrs.simulator.simulation import Simulation, SimulationSettings
from tests.online_cases import random_workload
from tests.read_once import pipe_of

DFRS = "GreedyPM*/per=60/OPT=MIN/MVT=60"
LIMITS = [("free", "none"), ("keep", "anywhere"), ("keep", "none"), ("free", "host:2"), ("keep", "host")]
HOSTS = ("a", "b", "a", "c")


def simulated(pauses, moves, *, name=DFRS, seed=1, jobs=60):
    work = random_workload(seed, jobs=jobs, spread_s=15.0)
    settings = SimulationSettings(pauses=pauses, moves=moves, hosts=HOSTS if moves == "host" else None)
    return Simulation(work, find_policy(name), name, settings)


@pytest.mark.parametrize(("pauses", "moves"), LIMITS)
@pytest.mark.parametrize("name", [DFRS, "MCB*/per=60/OPT=MIN", "Greedy*/OPT=AVG", "EASY", "GreedyP/stretch-per=60"])
def test_every_job_is_done_and_the_checker_finds_nothing(tmp_path, pauses, moves, name):
    for seed in range(3):
        run = simulated(pauses, moves, name=name, seed=seed).run()
        assert run.complete
        assert np.isfinite(run.finish_s).all()
        write_run(run, tmp_path / str(seed), measured(run, bound=False), "1")
        assert validate_run(tmp_path / str(seed)).problems == []
        assert read_run(tmp_path / str(seed)).configuration == run.configuration
        actions = set(run.events.action.tolist())
        assert pauses == "free" or Action.PAUSE not in actions
        assert moves != "none" or Action.MIGRATE not in actions


def test_the_limits_matter_in_these_runs(tmp_path):
    run = simulated("free", "anywhere").run()
    actions = set(run.events.action.tolist())
    assert {Action.PAUSE, Action.MIGRATE} <= actions
    assert "pauses" not in run.configuration
    write_run(run, tmp_path, measured(run, bound=False), "1")
    path = tmp_path / "summary.json"
    summary = json.loads(path.read_text())
    summary["configuration"] |= {"pauses": "keep", "moves": "none", "hosts": [0, 1, 2, 3]}
    path.write_text(json.dumps(summary))
    problems = " ".join(validate_run(tmp_path).problems)
    assert "the memory of paused jobs is not freed" in problems
    assert "migrate to another host" in problems
    assert "resume to another host" in problems


def test_a_run_that_was_stopped_goes_on_to_the_same_log():
    whole = simulated("free", "host:2").run()
    first = simulated("free", "host:2")
    first.run(lambda done: done < 20)
    second = simulated("free", "host:2")
    second.restore(first.state())
    again = second.run()
    for name in ("time_s", "action", "job", "yield_"):
        np.testing.assert_array_equal(getattr(again.events, name), getattr(whole.events, name))


@pytest.mark.parametrize("moves", ["", "hosts", "host:", "host:0", "host:x", "host:²", "everywhere"])
def test_what_moves_may_not_be_called(moves):
    with pytest.raises(InputError, match="must be anywhere, none, host, or host:K"):
        node_limits("free", moves, 4)


def test_hosts_are_consecutive_nodes_or_have_names():
    assert node_limits("free", "host:2", 5).island.tolist() == [0, 0, 1, 1, 2]
    assert node_limits("keep", "host", 4, HOSTS).island.tolist() == [0, 1, 0, 2]
    assert node_limits("free", "anywhere", 4) is None
    assert node_limits("keep", "anywhere", 2).keeps.tolist() == [True, True]
    with pytest.raises(InputError, match="which nodes does a host have"):
        node_limits("free", "host", 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pauses", "never"], '--pauses "never": must be free or keep'),
        (["--moves", "up"], '--moves "up": must be anywhere'),
        (["--moves", "host"], "--moves host: which nodes does a host have"),
    ],
)
def test_the_command_says_what_is_wrong(dfrs, arguments, words):
    status, _, said = dfrs("simulate", "examples/demo.swf.gz", *arguments)
    assert status == 2
    assert words in said


def test_a_node_file_names_hosts(tmp_path, dfrs):
    file, out = tmp_path / "nodes.csv", tmp_path / "runs"
    file.write_text("cpu,memory,host\n" + "1,1,a\n" * 64 + "1,1,b\n" * 64)
    arguments = ["examples/demo.swf.gz", "--node-file", file, "--pauses", "keep", "--moves", "host"]
    assert dfrs("simulate", *arguments, "-p", "Greedy*/OPT=MIN", "-o", out, "--no-bound")[0] == 0
    (run,) = out.iterdir()
    assert read_run(run).configuration["hosts"] == [0] * 64 + [1] * 64
    file.write_text("cpu,memory,host\n1,1,a\n1,1,\n")
    status, _, said = dfrs("simulate", *arguments)
    assert status == 2
    assert "nodes.csv:3: host is empty: must be a name" in said


def test_a_node_file_may_be_a_pipe(tmp_path, dfrs):
    out = tmp_path / "runs"
    with pipe_of(b"cpu,memory,host\n" + b"1,1,a\n" * 64 + b"1,1,b\n" * 64) as file:
        arguments = ["examples/demo.swf.gz", "--node-file", file, "--pauses", "keep", "--moves", "host"]
        assert dfrs("simulate", *arguments, "-p", "Greedy*/OPT=MIN", "-o", out, "--no-bound")[0] == 0
    (run,) = out.iterdir()
    assert read_run(run).configuration["hosts"] == [0] * 64 + [1] * 64
