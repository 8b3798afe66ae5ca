"""What loading costs: the library and the verbs of a live cluster load nothing heavy that they do not use."""

import pkgutil
import subprocess
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import dfrs
from dfrs import api
from dfrs.cli.verbs import FILES
from dfrs.kernels.compiling import Compilation
from tests.live_processes import LiveCluster

HEAVY = {"highspy", "llvmlite", "matplotlib", "numba", "numpy", "polars", "scipy"}

CAMPAIGN = """
name = "small"
policies = ["EASY", "FCFS"]

[[workloads]]
model = "lublin"
seeds = "1-2"
jobs = 10
"""
VERB = """
import sys
from dfrs.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
finally:
    from dfrs.kernels.compiling import compilation
    sys.stderr.write(f"compiled: {compilation.compiled} loaded: " + " ".join(sys.modules))
"""


def python(code, *arguments):
    """Standard output and error of a Python process that must succeed."""
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def loaded_by(*arguments):
    """Modules that a verb loads."""
    return set(python(VERB, *arguments)[1].rpartition("loaded: ")[2].split())


def compiled_by(*arguments):
    """How many kernels a verb compiles."""
    return int(python(VERB, *arguments)[1].rpartition("compiled: ")[2].partition(" ")[0])


def test_the_library_loads_when_it_is_used():
    code = "import sys, dfrs; dfrs.__version__; dfrs.InputError; dir(dfrs); print(*sys.modules)"
    assert not HEAVY & set(python(code)[0].split())


def test_every_public_name_is_there():
    for name in dfrs.__all__:
        assert getattr(dfrs, name).__module__.startswith("dfrs."), name
    assert set(dfrs.__all__) < set(dir(dfrs))
    assert dfrs.__version__ == version("dfrs")
    assert python("from dfrs import *; print(simulate.__module__, Run.__name__)")[0].split() == ["dfrs.api", "Run"]
    with pytest.raises(AttributeError, match="module 'dfrs' has no attribute 'nothing'"):
        _ = dfrs.nothing
    with pytest.raises(ImportError):
        from dfrs import nothing  # noqa: F401, PLC0415 - must fail here


@pytest.mark.parametrize(
    "before",
    [
        "import dfrs",
        "import dfrs.placement.registry",
        "from dfrs.placement.registry import find",
        "import dfrs; dfrs.allocate; import dfrs.placement.registry",
        "import importlib; importlib.import_module('dfrs.placement.greedy')",
        "from dfrs import allocate, simulate",
        "import dfrs.api",
    ],
)
def test_allocate_is_the_function_whatever_was_imported_before(before):
    python(
        f"{before}\nimport dfrs, dfrs.api\nfrom dfrs import allocate\n"
        "assert dfrs.allocate is allocate is dfrs.api.allocate\n"
        "from dfrs.placement.registry import find\n"
        "assert find('GREEDY')\n"
    )


def test_a_public_name_can_be_replaced(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(dfrs, "allocate", len)
        assert dfrs.allocate is len
    assert dfrs.allocate is api.allocate


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        *([verb, "--help"] for verb in ("queue", "submit", "agent", "serve", "up", "simulate")),
    ],
    ids=" ".join,
)
def test_help_loads_nothing_that_computes(arguments):
    assert not HEAVY & loaded_by(*arguments)


def test_a_verb_does_not_load_the_others():
    files = {f"dfrs.cli.{file}" for file in FILES.values()}
    assert files & loaded_by("queue", "--help") == {"dfrs.cli.live.queue"}


def test_cycles_are_collected_again_once_a_verb_is_imported():
    code = "import gc\nfrom dfrs.cli.quick_imports import quick_imports\nfrom contextlib import suppress\n"
    code += "with suppress(ImportError), quick_imports():\n    print(gc.isenabled())\n    import not_there\n"
    code += "print(gc.isenabled(), gc.get_freeze_count() > 0)"
    assert python(code)[0].split() == ["False", "True", "True"]


def test_every_verb_is_in_the_file_that_the_table_names():
    found = {
        (verb.name or verb.run.__name__, f"{area}.{each.name}")
        for area in ("live", "simulate", "experiments", "heterogeneous")
        for each in pkgutil.iter_modules(import_module(f"dfrs.cli.{area}").__path__)
        for verb in getattr(import_module(f"dfrs.cli.{area}.{each.name}"), "VERBS", ())
    }
    assert found == set(FILES.items())


def test_the_nearest_verb_is_suggested(dfrs):
    code, _, told = dfrs("sumbit")
    assert (code, told) == (2, "dfrs: No such command 'sumbit'. Did you mean 'submit'?\n")


def test_what_is_compiled_once_is_only_loaded_the_next_time_and_the_compiler_is_not(tmp_path):
    trace, services = tmp_path / "t.swf", tmp_path / "s.json"
    python(VERB, "generate", "lublin", "--jobs", 10, "-o", trace)
    python(VERB, "generate", "services", "--nodes", 4, "--services", 7, "-o", services)
    # By seconds a slow first run would end before it has called all that the second one calls.
    for verb in (("simulate", trace, "-o", tmp_path / "runs"), ("allocate", services, "--rounds", 5)):
        python(VERB, *verb)
        assert compiled_by(*verb) == 0
        # numba imports this to compile, with some hundred others.
        assert "numba.np.linalg" not in loaded_by(*verb)
    assert not {"dfrs.policies.names", "dfrs.engine.core", "polars"} & loaded_by("allocate", services)


def test_what_calls_no_kernel_does_not_load_numba(tmp_path):
    (tmp_path / "c.toml").write_text(CAMPAIGN)
    python(VERB, "campaign", "run", tmp_path / "c.toml", "--workers", 1)
    for verb in (("policies",), ("algorithms",), ("campaign", "results", tmp_path / "c.toml")):
        assert not {"numba", "llvmlite", "highspy", "matplotlib"} & loaded_by(*verb), verb


def test_agents_and_users_verbs_load_nothing_that_computes(tmp_path, monkeypatch):
    monkeypatch.setenv("DFRS_STATE", str(tmp_path / "state"))
    for name in ("DFRS_SERVER", "DFRS_TOKEN_FILE", "DFRS_CA"):
        monkeypatch.delenv(name, raising=False)
    # The highlighter comes with httpx's own command line, and takes longer than all else of httpx.
    unused = HEAVY | {"pygments"}
    with LiveCluster(tmp_path, nodes=1) as cluster:
        assert not unused & loaded_by("submit", "--memory", "64M", "--wait", "true")
        for arguments in (
            ["queue"],
            ["nodes"],
            ["show", 1],
            ["explain", 1],
            ["logs", 1],
            ["top"],
            ["history"],
            ["drain", "n0"],
            ["token", "list"],
        ):
            assert not unused & loaded_by(*arguments), arguments
        agent = cluster.agents["n0"].pid
        assert mapped(agent) == set()
        assert mapped(cluster.controller.pid) >= {"llvmlite", "numpy"}


def mapped(pid):
    """Which of the heavy packages have compiled parts in a process."""
    libraries = {part for line in Path(f"/proc/{pid}/maps").read_text().split() for part in line.split("/")}
    return HEAVY & libraries


def test_compilation_is_announced_once_and_timed():
    told = []
    compilation = Compilation(announce=lambda: told.append("now"))
    for _ in range(2):
        compilation.start()
        compilation.start()
        compilation.end()
        before_s = compilation.spent_s
        compilation.end()
        assert compilation.spent_s > before_s
    assert told == ["now"]
    assert compilation.compiled == 4


def test_the_clock_stands_still_while_kernels_are_made_ready():
    told = []
    compilation = Compilation(announce=lambda: told.append("now"))
    with compilation.loading():
        begun_s = compilation.clock_s()
        time.sleep(0.01)
        assert compilation.clock_s() == begun_s
    assert compilation.spent_s >= 0.01
    time.sleep(0.01)
    assert compilation.clock_s() - begun_s > 0.009
    assert (told, compilation.compiled) == ([], 0)
