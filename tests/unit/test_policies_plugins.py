"""Policies of other packages are found by name, and one that is broken is in nobody's way."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from dfrs.cli.live.serve import make_controller
from dfrs.experiments.kinds.discovery import DiscoveryConfiguration
from dfrs.experiments.kinds.farm import FarmConfiguration
from dfrs.experiments.kinds.farm_random import FarmRandomConfiguration
from dfrs.experiments.kinds.online import ONLINE, OnlineConfiguration
from dfrs.experiments.planned_runs import PlannedRun, Work, perform, policy_code, source_digest
from dfrs.experiments.simulations import SimulationTask
from dfrs.experiments.sources.traces import LublinTrace
from dfrs.live.backends.agents.backend import AgentsBackend
from dfrs.live.controller.settings import ControllerSettings
from dfrs.model.decisions import Traits, traits_of
from dfrs.model.errors import InputError
from dfrs.policies.names import complete_policy, find_policy, find_recorded, listed_policies
from dfrs.policies.plugins import code_digest
from dfrs.simulator.simulation import SimulationSettings
from tests.online_cases import random_workload

MODULE = '''
"""Policies of somebody else."""

from dataclasses import dataclass, replace

from dfrs import Snapshot, Target, Traits
from dfrs.policies.declaration import Family, Name, Option, Whole
from dfrs.policies.names import find_policy


class Mine:
    """Whole nodes, as they come.

    More of it.
    """

    traits = Traits(exclusive=True)

    def decide(self, snapshot: Snapshot) -> Target:
        return find_policy("FCFS").decide(snapshot)


@dataclass(frozen=True)
class Ours:
    name: str = "OURS"
    depth: int = 3

    def decide(self, snapshot: Snapshot) -> Target:
        return find_policy("Greedy*").decide(snapshot)


OURS = Family(
    group="ours",
    names=(Name(name="OURS", start=Ours(), meaning="greedy", source="us"),),
    options=(Option(key="DEPTH", values=Whole(field="depth"), default="3", meaning="how deep", source="us"),),
    build=lambda name, policy: replace(policy, name=name),
)


def raises():
    raise RuntimeError("no\\nluck")


class Dictionary(Mine):
    traits = {"exclusive": True}


NUMBER = 7
'''
POINTS = """[dfrs.policies]
MINE = others:Mine
OURS = others:OURS
GONE = others:Gone
RAISES = others:raises
NUMBER = others:NUMBER
NOTHING = builtins:dict
DICTIONARY = others:Dictionary
MISSING = nowhere_at_all:Policy
THEIRS = others:OURS
"""


def install(folder: Path, name: str = "others", points: str = POINTS) -> None:
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(points)
    (folder / "others.py").write_text(MODULE)


@pytest.fixture
def site(tmp_path, monkeypatch):
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "others", raising=False)
    return tmp_path / "site"


@pytest.mark.usefixtures("site")
def test_a_class_is_a_policy_with_traits_of_its_own():
    assert traits_of(find_policy("MINE")) == Traits(exclusive=True)
    with pytest.raises(InputError, match='policy "MINE/DEPTH=3": MINE has no parts'):
        find_policy("MINE/DEPTH=3")


@pytest.mark.usefixtures("site")
def test_a_family_has_options_and_is_listed_and_completed():
    assert (find_policy("OURS").depth, find_policy("OURS/DEPTH=5").depth) == (3, 5)
    assert find_policy("OURS/DEPTH=5").name == "OURS/DEPTH=5"
    with pytest.raises(InputError, match="did you mean DEPTH=…"):
        find_policy("OURS/DEPHT=5")
    with pytest.raises(InputError, match="did you mean MINE"):
        find_policy("MINNE")
    assert complete_policy("OU") == ["OURS"]
    assert complete_policy("OURS/") == ["OURS/DEPTH="]
    entries, problems = listed_policies()
    rows = [
        (entry.name, entry.meaning, entry.source) for entry in entries if entry.name in {"MINE", "OURS", "/DEPTH=N"}
    ]
    assert rows == [
        ("MINE", "Whole nodes, as they come", "package others 1.2"),
        ("OURS", "greedy", "us"),
        ("/DEPTH=N", "how deep", "us"),
    ]
    assert {problem.split('"')[1] for problem in problems} == {"GONE", "MISSING", "NUMBER", "THEIRS"}


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("GONE", "others:Gone cannot be loaded: AttributeError"),
        ("MISSING", "nowhere_at_all:Policy cannot be loaded: ModuleNotFoundError"),
        ("RAISES", "others:raises: RuntimeError: no luck"),
        ("NUMBER", "must be a Family, or give the policy"),
        ("NOTHING", "must have decide(snapshot)"),
        ("DICTIONARY", "traits must be dfrs.Traits"),
        ("THEIRS", "has no policy of that name"),
    ],
)
def test_a_broken_one_is_refused_in_one_line_that_names_its_package(name, words):
    with pytest.raises(InputError) as caught:
        find_policy(name)
    assert words in str(caught.value)
    assert f'policy "{name}": package others 1.2: ' in str(caught.value)
    assert "\n" not in str(caught.value)
    assert find_policy("MINE") is not None


def test_of_two_packages_with_one_name_neither_wins(site, monkeypatch):
    install(site.parent / "more", "others_again", "[dfrs.policies]\nMINE = others:Mine\nEASY = others:Mine\n")
    monkeypatch.syspath_prepend(site.parent / "more")
    with pytest.raises(InputError, match=r"package others_again 1\.2 and package others 1\.2 all have one"):
        find_policy("MINE")
    assert type(find_policy("EASY")).__name__ == "Easy"
    assert any("EASY" in problem and "dfrs has its own" in problem for problem in listed_policies()[1])


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A module of one's own in the present directory, where nothing is installed."""
    (tmp_path / "others.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "others", raising=False)
    policy_code.cache_clear()
    return tmp_path


def test_a_digest_of_the_code_tells_one_state_of_a_policy_from_the_next(here):
    found = code_digest("others:Mine")
    assert code_digest("others:Mine") == found
    (here / "others.py").write_text(MODULE + "\n")
    assert code_digest("others:Mine") != found
    assert code_digest("dfrs.policies.batch.backfilling:Fcfs") != found
    with pytest.raises(InputError, match="cannot be loaded"):
        code_digest("others:Gone")


def test_a_run_is_not_gone_on_with_by_other_code_than_it_was_begun_with(here):
    workload = random_workload(1, jobs=5)

    def key(policy):
        settings = SimulationSettings()
        return SimulationTask(workload=workload, policy=policy, settings=settings, directory=here / "run").key

    before = key("others:Mine"), key("others:OURS/DEPTH=5"), key("EASY")
    (here / "others.py").write_text(MODULE + "\n")
    after = key("others:Mine"), key("others:OURS/DEPTH=5"), key("EASY")
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, False, True]


def changed_and_read_again(folder):
    """As if another process had loaded the module after it was changed."""
    (folder / "others.py").write_text(MODULE + "\n")
    policy_code.cache_clear()


def campaign_names(policy):
    """Of what campaigns run with a policy, by kind."""
    return [
        OnlineConfiguration(label="a", policy=policy).name,
        FarmConfiguration(label="a", policy=policy).name,
        FarmRandomConfiguration(label="a", policy=policy).name,
        DiscoveryConfiguration(label="a", method="NONE", policy=policy).name,
    ]


def test_results_of_campaigns_are_of_the_code_of_their_policies(here):
    before = [*campaign_names("others:Mine"), *campaign_names("others:OURS/DEPTH=5")]
    assert campaign_names("others:Mine") == before[:4]
    changed_and_read_again(here)
    after = [*campaign_names("others:Mine"), *campaign_names("others:OURS/DEPTH=5")]
    for one, other in zip(before, after, strict=True):
        assert one != other
        assert one.partition(" code=")[0] == other.partition(" code=")[0]


def test_names_with_a_policy_that_is_built_in_stay_what_they_are():
    assert campaign_names("EASY") == [
        "EASY | penalty_s=300 node_memory_gb=8 completions-first",
        "EASY",
        "EASY | resume_s=40",
        "NONE | policy=EASY migration_s=10 stop_s=1",
    ]


def test_a_worker_with_other_code_of_a_policy_is_refused_in_one_line(here):
    run = PlannedRun(
        kind=ONLINE,
        scenario=LublinTrace(seed=1, jobs=5, nodes=8),
        configuration=OnlineConfiguration(label="a", policy="others:Mine"),
    )
    work = Work(runs=(run,), source=source_digest(ONLINE.code))
    assert [row["status"] for row in perform(work)] == ["complete"]
    changed_and_read_again(here)
    there = pickle.loads(pickle.dumps(work))
    assert there.runs[0].name == run.name
    with pytest.raises(InputError, match=r'^policy "others:Mine": a worker has other code of it[^\n]*$'):
        perform(there)


@pytest.mark.usefixtures("here")
def test_a_module_and_its_class_are_a_name():
    assert traits_of(find_policy("others:Mine")) == Traits(exclusive=True)
    assert (find_policy("others:OURS").depth, find_policy("others:OURS/DEPTH=5").depth) == (3, 5)
    assert find_policy("others:OURS/DEPTH=5").name == "others:OURS/DEPTH=5"
    assert type(find_policy("dfrs.policies.batch.backfilling:Fcfs")).__name__ == "Fcfs"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("others:Gone", "others:Gone cannot be loaded: AttributeError"),
        ("nowhere_at_all:Policy", "cannot be loaded: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("others:raises", "others:raises: RuntimeError: no luck"),
        ("others:NUMBER", "must be a Family, or give the policy"),
        ("builtins:dict", "must have decide(snapshot)"),
        ("others:Dictionary", "traits must be dfrs.Traits"),
        ("others:", "must be MODULE:CLASS"),
        (":Mine", "must be MODULE:CLASS"),
        ("others:Mine()", "must be MODULE:CLASS"),
        ("others:Mine/DEPTH=3", "others:Mine has no parts"),
        ("others:OURS/DEPHT=3", "did you mean DEPTH=…"),
        ("dfrs.policies.batch.backfilling:WHOLE_NODES", "is a Family of FCFS and EASY and "),
    ],
)
def test_a_module_that_is_no_policy_is_refused_in_one_line(name, words):
    with pytest.raises(InputError) as caught:
        find_policy(name)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f'policy "{name}": ')
    assert "\n" not in str(caught.value)


def test_what_is_installed_comes_before_the_present_directory(here):
    (here / "json.py").write_text("raise RuntimeError")
    with pytest.raises(InputError, match="json:Mine cannot be loaded: AttributeError"):
        find_policy("json:Mine")


@pytest.mark.usefixtures("here")
def test_a_file_makes_nobody_import_a_module():
    with pytest.raises(InputError, match="if you trust it, say so: -p others:Mine"):
        find_recorded(())("others:Mine")
    assert "others" not in sys.modules
    assert find_recorded(["others:Mine"])("others:Mine") is not None
    assert find_recorded(())("EASY") is not None


def test_the_live_controller_finds_modules(here):
    settings = ControllerSettings(database=f"sqlite:///{here / 'live.db'}", policy="others:Mine", shadow="others:OURS")
    assert make_controller(settings, AgentsBackend()).state.policy.traits == Traits(exclusive=True)


def test_the_live_controller_finds_them(site):
    settings = ControllerSettings(database=f"sqlite:///{site / 'live.db'}", policy="OURS/DEPTH=5", shadow="MINE")
    assert make_controller(settings, AgentsBackend()).state.policy.traits == Traits()
    settings = ControllerSettings(database=f"sqlite:///{site / 'live.db'}", policy="GONE")
    with pytest.raises(InputError, match="GONE"):
        make_controller(settings, AgentsBackend())


def dfrs(folder, *words):
    places = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    return subprocess.run(
        [sys.executable, "-m", "dfrs.cli.main", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_command_line_simulates_them(site):
    folder = site.parent
    assert (
        dfrs(folder, "generate", "lublin", "--jobs", "20", "--nodes", "8", "--seed", "1", "-o", "t.swf").returncode == 0
    )
    done = dfrs(folder, "simulate", "t.swf", "-p", "MINE", "-p", "FCFS", "-o", "runs")
    assert done.returncode == 0, done.stderr
    mine, fcfs = (json.loads((folder / "runs" / name / "summary.json").read_text()) for name in ("MINE", "FCFS"))
    assert mine["configuration"]["exclusive"]
    assert mine["metrics"] == fcfs["metrics"]
    (folder / "own.py").write_text(MODULE)
    named = dfrs(folder, "simulate", "t.swf", "-p", "own:Mine", "-o", "named")
    assert named.returncode == 0, named.stderr
    own = json.loads((folder / "named" / "own_Mine" / "summary.json").read_text())
    assert (own["policy"], own["metrics"]) == ("own:Mine", mine["metrics"])
    workload = 'model = "lublin"\nnodes = 8\njobs = 20\nseeds = "1"\n'
    (folder / "c.toml").write_text(f'name = "c"\npolicies = ["own:Mine"]\n[[workloads]]\n{workload}')
    ran = dfrs(folder, "campaign", "run", "c.toml", "--workers", "2")
    assert ran.returncode == 0, ran.stderr
    broken = dfrs(folder, "simulate", "t.swf", "-p", "GONE", "-o", "more")
    assert (broken.returncode, len(broken.stderr.splitlines())) == (2, 1), broken.stderr
    listing = dfrs(folder, "policies", "--json")
    assert listing.returncode == 0
    assert "MINE" in {entry["name"] for entry in json.loads(listing.stdout)}
    assert "others:Gone cannot be loaded" in listing.stderr


def test_a_campaign_runs_again_what_other_code_of_a_policy_ran(site):
    folder = site.parent
    workload = 'model = "lublin"\nnodes = 8\njobs = 20\nseeds = "1"\n'
    (folder / "c.toml").write_text(f'name = "c"\npolicies = ["own:Mine", "EASY"]\n[[workloads]]\n{workload}')
    (folder / "own.py").write_text(MODULE)

    def executed():
        done = dfrs(folder, "campaign", "run", "c.toml", "--workers", "1", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["run"]

    assert (executed(), executed()) == (2, 0)
    (folder / "own.py").write_text(MODULE + "\n")
    assert (executed(), executed()) == (1, 0)
