"""A plain `pip install dfrs` simulates and allocates; what needs an extra says which one in one line."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest

import dfrs
from dfrs.cli import extras
from dfrs.cli.extras import MissingExtraError, missing, require
from dfrs.version import LIGHT
from dfrs.workloads.files import instance_document

SOURCES = Path(dfrs.__path__[0])
REQUIREMENT = re.compile(r"""([\w.-]+)(?:\[.*?\])?[^;]*(?:;.*\bextra == ['"](\w+)['"])?""")

WITHOUT = """
import json, sys
libraries, commands = json.load(sys.stdin)
sys.modules.update(dict.fromkeys(libraries))
from dfrs.cli.main import main
for words in commands:
    sys.argv = ["dfrs", *words]
    try:
        main()
    except SystemExit as end:
        sys.stderr.write(f"\\nstatus {end.code or 0}\\n")
"""


def required():
    """By extra, the modules that its packages bring; those of the plain installation under None."""
    found = {}
    for requirement in requires("dfrs"):
        name, extra = REQUIREMENT.match(requirement).groups()
        found.setdefault(extra, set()).add(name.replace("-", "_"))
    return found


LIBRARIES = required()


def without(extra, directory, *commands):
    """(exit status, standard error) of each command where the libraries of an extra cannot be imported."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        input=json.dumps([sorted(LIBRARIES[extra] - LIBRARIES[None]), [list(map(str, words)) for words in commands]]),
        cwd=directory,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = re.findall(r"(.*?)\nstatus (\d+)\n", done.stderr, re.DOTALL)
    assert len(found) == len(commands), done.stderr
    return [(int(status), text) for text, status in found]


def test_what_nodes_install_is_the_same_version_with_fewer_packages():
    light, whole = (
        tomllib.loads((SOURCES.parents[1] / folder / "pyproject.toml").read_text())["project"]
        for folder in ("packaging/agent", ".")
    )
    assert (light["name"], light["version"]) == (LIGHT, whole["version"])
    known = {*whole["dependencies"], *whole["optional-dependencies"]["live"]}
    assert set(light["dependencies"]) < known
    assert not {"highspy", "numba", "numpy", "polars", "scipy"} & {
        re.match(r"[\w-]+", each)[0] for each in light["dependencies"]
    }


def test_where_only_that_is_installed_what_computes_says_what_to_install(monkeypatch):
    monkeypatch.setattr(extras, "installed", lambda: LIGHT)
    said = "dfrs-agent has what nodes and users of a cluster need: pip uninstall dfrs-agent, then pip install "
    with pytest.raises(MissingExtraError, match=re.escape(f"{said}'dfrs[plot]'")):
        require("plot")
    assert str(missing(ModuleNotFoundError(name="numba.core"))) == f"this needs numba; {said}'dfrs[live]'"
    assert missing(ModuleNotFoundError(name="dfrs.nothing")) is None


def test_a_plain_installation_brings_at_most_eight_packages():
    assert len(LIBRARIES[None]) <= 8


def test_all_is_every_extra_that_users_choose():
    chosen = {extra: names for extra, names in LIBRARIES.items() if extra not in {None, "all", "docs", "lint", "test"}}
    assert set(chosen) == {"dask", "experiments", "live", "plot", "postgres"}
    assert LIBRARIES["all"] == set().union(*chosen.values())
    assert LIBRARIES["postgres"] > LIBRARIES["live"]
    assert LIBRARIES["dask"] > LIBRARIES["experiments"] > LIBRARIES["plot"]


def test_everything_that_is_imported_is_declared():
    imported = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    # What numba pins itself, what runs the tests that dfrs.testing is for, and what is there for type checkers only.
    others = {"dfrs", "llvmlite", "pytest", "_typeshed"}
    assert imported - sys.stdlib_module_names - others <= LIBRARIES[None] | LIBRARIES["all"]


def test_simulation_and_allocation_need_no_extra(tmp_path):
    commands = [
        ["--help"],
        ["--version"],
        ["generate", "lublin", "--jobs", 20, "--nodes", 8, "--seed", 7, "-o", "t.swf"],
        ["workload", "info", "t.swf"],
        ["simulate", "t.swf", "-p", "FCFS", "-p", "GreedyPM*/per/OPT=MIN/MVT=600", "-o", "runs"],
        ["validate", "runs"],
        ["compare", "runs/FCFS", "runs/GreedyPM+_per_OPT=MIN_MVT=600"],
        ["explain", "runs/FCFS", 3],
        ["bound", "t.swf"],
        ["policies"],
        ["generate", "services", "--nodes", 8, "--services", 20, "--slack", 0.3, "--seed", 1, "-o", "s.json"],
        ["allocate", "s.json", "-a", "VP_CPSUM,GREEDY", "-o", "a.json"],
        ["validate", "a.json"],
        ["algorithms"],
        ["farm", "simulate", "--experiment", 3, "-p", "FARM-EASY"],
    ]
    for words, (status, text) in zip(commands, without("all", tmp_path, *commands), strict=True):
        assert status == 0, (words, text)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("live", "up"),
        ("live", "down"),
        ("live", "queue"),
        ("live", "submit true"),
        ("live", "serve"),
        ("live", "agent --server http://127.0.0.1:1 --token-file token"),
        ("live", "explain 1"),
        ("plot", "plot runs/FCFS"),
        ("plot", "allocate s.json --picture s.png"),
        ("plot", "farm simulate --experiment 3 --picture f.png"),
        ("plot", "farm profile --picture f.png true"),
        ("plot", "campaign run c.toml"),
        ("experiments", "reproduce --list"),
        ("dask", "campaign run c.toml --dask-local 1"),
        ("postgres", "serve --database postgresql://127.0.0.1:1/dfrs"),
    ],
)
def test_a_missing_extra_is_named_in_one_line_before_anything_is_done(tmp_path, monkeypatch, extra, words):
    monkeypatch.setenv("DFRS_STATE", str(tmp_path / "state"))
    keep = "true" if extra == "plot" else "false"
    (tmp_path / "c.toml").write_text(
        f'name = "c"\nkeep_runs = {keep}\npolicies = ["FCFS"]\n'
        '[[workloads]]\nmodel = "lublin"\nnodes = 8\njobs = 10\nseeds = "1"\n'
    )
    services = dfrs.generate_services(nodes=2, services=3, seed=1)
    (tmp_path / "s.json").write_text(json.dumps(instance_document(services)))
    # As with one extra less, but not without what that extra stands on.
    larger = {"experiments": "plot", "dask": "experiments", "postgres": "live"}
    below = LIBRARIES.get(larger.get(extra, ""), set())
    monkeypatch.setitem(LIBRARIES, extra, LIBRARIES[extra] - below)
    [(status, text)] = without(extra, tmp_path, words.split())
    assert status == 2, text
    assert re.fullmatch(rf"dfrs: this needs \w+, which is not installed: pip install 'dfrs\[{extra}\]'\n?", text)
    assert not (tmp_path / "s.png").exists()
    assert not (tmp_path / "c.results").exists()


def test_a_module_of_no_extra_is_not_explained_away():
    assert missing(ModuleNotFoundError(name="nothing.at.all")) is None
    assert missing(ModuleNotFoundError()) is None


def test_the_smallest_extra_with_a_library_is_named(monkeypatch):
    found = {name: str(missing(ModuleNotFoundError(name=name))) for name in ("matplotlib.pyplot", "httpx", "psycopg")}
    assert [text.rpartition("dfrs")[2] for text in found.values()] == ["[plot]'", "[live]'", "[postgres]'"]
    require("plot")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"needs matplotlib.*dfrs\[experiments\]"):
        require("experiments")
