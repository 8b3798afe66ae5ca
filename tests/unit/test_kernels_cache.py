"""Compiled kernels are found again, and never those of other sources: of the kernel, of one it calls, of a constant."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dfrs.kernels

CALLER = """
from dfrs.kernels.callee import FACTOR, twice
from dfrs.kernels.jit import kernel


@kernel
def caller(x: float) -> float:
    return FACTOR * twice(x)
"""
CALLEE = """
from dfrs.kernels.jit import kernel

FACTOR = 10.0


@kernel
def twice(x: float) -> float:
    return x + x
"""
RUN = """
from dfrs.kernels.caller import caller
from dfrs.kernels.compiling import compilation
print(caller(1.0), compilation.compiled > 0)
"""

TOGETHER = """
import sys
from dfrs.kernels.caller import caller
from dfrs.kernels.compiling import compilation
caller.dispatcher
print("ready", flush=True)
sys.stdin.readline()
print(caller(1.0), compilation.compiled)
"""
APART = """
from dfrs.kernels.caller import caller
from dfrs.kernels.compiling import compilation
compilation.apart = True
print(caller(1.0), compilation.compiled > 0)
"""
HOLD = """
from dfrs.kernels.callee import twice
with twice.dispatcher._cache.alone():
    print("mine", flush=True)
    input()
"""

SORTING = """
import numpy as np
from dfrs.kernels.jit import kernel


@kernel
def checked(x: np.ndarray) -> float:
    if x.sum() > 5.0:
        raise ValueError("above five", x.size)
    return x[np.argsort(x)][-1]


@kernel
def largest(x: np.ndarray) -> float:
    return checked(x * x)
"""
USE_NUMPY = """
import sys
import numpy as np
from dfrs.kernels.compiling import compilation
from dfrs.kernels.sorting import largest
value = largest(np.array([1.0, 2.0]))
try:
    largest(np.array([3.0]))
except ValueError as error:
    assert error.args == ("above five", 1)
else:
    sys.exit("no error")
print(value, compilation.compiled > 0 or "numba.np.arraymath" in sys.modules)
"""

FACTORY = """
import math
from dfrs.kernels.jit import kernel


def times(factor):
    @kernel
    def product(x: float) -> float:
        # So much that it is called, not copied into its caller.
        total = 0.0
        for k in range(int(x)):
            total += math.sin(k) * math.cos(k) + math.sinh(k) * math.cosh(k) + math.tan(k) * math.tanh(k)
            total += math.asin(k / x) * math.acos(k / x) + math.exp(k) * math.log(k + 1) + math.atan(k) * math.expm1(k)
            total += math.gamma(k + 1) * math.lgamma(k + 1) + math.erf(k) * math.erfc(k) + math.log1p(k) * math.asinh(k)
        return factor * x if total < math.inf else total

    return product
"""
USE_FACTORY = """
from dfrs.kernels.factory import times
from dfrs.kernels.jit import kernel

product = times({0})


@kernel
def used(x: float) -> float:
    return product(3.0 * x) - product(2.0 * x)
"""
USE_ALL = """
from importlib import import_module
from dfrs.kernels.compiling import compilation
print(sum(import_module("dfrs.kernels." + name).used(1.0) for name in {0}), compilation.compiled > 0)
"""


class Package:
    """A package of two kernels, compiled as ours are; one calls the other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kernels = root / "dfrs" / "kernels"
        self.kernels.mkdir(parents=True)
        (root / "dfrs" / "__init__.py").touch()
        for name in ("__init__", "apart", "cache", "compiling", "dispatcher", "jit", "sources"):
            shutil.copy(Path(dfrs.kernels.__path__[0]) / f"{name}.py", self.kernels)
        self.write("caller", CALLER)
        self.write("callee", CALLEE)

    def write(self, name: str, text: str) -> None:
        (self.kernels / f"{name}.py").write_text(text)

    def run(self, code: str = RUN, **environment: str) -> tuple[float, bool]:
        """What the caller returns for 1 in a new process, and whether something was compiled."""
        done = subprocess.run(
            [sys.executable, "-B", "-c", code],
            env=os.environ | {"PYTHONPATH": str(self.root)} | environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        value, compiled = done.stdout.split()
        return float(value), compiled == "True"

    def start(self, code: str) -> subprocess.Popen[str]:
        """A process that has said its first line."""
        process = subprocess.Popen(
            [sys.executable, "-B", "-c", code],
            env=os.environ | {"PYTHONPATH": str(self.root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline()
        return process

    def directories(self) -> set[str]:
        return {path.name for path in self.kernels.glob("__pycache__/kernels-*")}


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    return Package(tmp_path)


def test_what_is_compiled_once_is_found_by_the_next_process(package):
    assert package.run() == (20.0, True)
    assert package.run() == (20.0, False)


def test_what_is_found_runs_and_fails_as_it_was_compiled_without_what_compiled_it(package):
    package.write("sorting", SORTING)
    assert package.run(USE_NUMPY) == (4.0, True)
    assert package.run(USE_NUMPY) == (4.0, False)


def test_functions_of_one_name_that_different_processes_compiled_are_told_apart(package):
    """What is made by a factory has a name that the process which compiles it completes."""
    package.write("factory", FACTORY)
    package.write("two", USE_FACTORY.format(2.0))
    package.write("thirty", USE_FACTORY.format(30.0))
    assert package.run(USE_ALL.format(["two"])) == (2.0, True)
    assert package.run(USE_ALL.format(["thirty"])) == (30.0, True)
    assert package.run(USE_ALL.format(["two", "thirty"])) == (32.0, False)


@pytest.mark.parametrize(
    ("old", "new", "value"), [("x + x", "x + x + x", 30.0), ("10.0", "70.0", 140.0)], ids=["callee", "constant"]
)
def test_a_change_of_what_a_kernel_uses_is_seen_by_the_kernel_and_so_is_its_return(package, old, new, value):
    assert package.run() == (20.0, True)
    package.write("callee", CALLEE.replace(old, new))
    assert package.run() == (value, True)
    package.write("callee", CALLEE)
    assert package.run() == (20.0, False)


def test_a_program_that_runs_for_long_has_another_process_compile(package):
    assert package.run(APART) == (20.0, False)
    assert package.run() == (20.0, False), "it is kept"


def test_a_change_while_a_process_runs_leaves_nothing_behind(package):
    """The process knows the digest of before, and loads the kernels of after."""
    changed = CALLEE.replace("10.0", "70.0")
    package.write("late", f"text = {changed!r}")
    early = "import dfrs.kernels.jit, dfrs.kernels.late as late\n"
    edit = f"open({str(package.kernels / 'callee.py')!r}, 'w').write(late.text)\n"
    assert package.run(early + edit + RUN) == (140.0, True)
    assert not package.directories()
    package.write("callee", CALLEE)
    assert package.run() == (20.0, True)


def test_of_processes_that_need_a_kernel_at_the_same_time_one_compiles_it(package):
    processes = [package.start(TOGETHER) for _ in range(4)]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0].split() for process in processes]
    assert [value for value, _ in said] == ["20.0"] * 4
    assert sorted(int(compiled) for _, compiled in said) in ([0, 0, 0, 2], [0, 0, 1, 1])


def test_a_process_that_stands_still_while_it_compiles_does_not_stop_others(package):
    package.write(
        "cache", (package.kernels / "cache.py").read_text().replace("_PATIENCE_S = 60.0", "_PATIENCE_S = 0.1")
    )
    holder = package.start(HOLD)
    assert package.run() == (20.0, True)
    assert holder.poll() is None
    holder.communicate("go\n")
    assert package.run() == (20.0, False)


def test_directories_of_other_sources_do_not_pile_up(package):
    for day in range(8):
        other = package.kernels / "__pycache__" / f"kernels-{day}"
        other.mkdir(parents=True)
        (other / "twice.nbi").touch()
        os.utime(other, (day * 86400.0, day * 86400.0))
    assert package.run() == (20.0, True)
    assert package.directories() > {f"kernels-{day}" for day in (4, 5, 6, 7)}
    assert len(package.directories()) == 5
    assert package.run() == (20.0, False)


def test_beside_sources_that_cannot_be_written_the_users_cache_is_used(package):
    (package.kernels / "__pycache__").touch()
    user = {"XDG_CACHE_HOME": str(package.root / "user")}
    assert package.run(**user) == (20.0, True)
    assert package.run(**user) == (20.0, False)
    assert list((package.root / "user").glob("numba/kernels_*/kernels-*/*.nbi"))


def test_a_directory_that_is_asked_for_is_used(package):
    asked = {"NUMBA_CACHE_DIR": str(package.root / "asked")}
    assert package.run(**asked) == (20.0, True)
    assert package.run(**asked) == (20.0, False)
    assert not package.directories()


@pytest.mark.parametrize(
    ("pattern", "left", "code"), [("*.nbi", 0, RUN), ("*.nbc", 40, RUN), ("*.nbi", 40, APART)], ids=range(3)
)
def test_what_a_power_cut_has_left_is_compiled_anew(package, pattern, left, code):
    assert package.run() == (20.0, True)
    for path in package.kernels.glob(f"__pycache__/kernels-*/{pattern}"):
        os.truncate(path, left)
    assert package.run(code)[0] == 20.0
    assert package.run() == (20.0, False)


def test_where_the_disk_is_full_kernels_run_all_the_same(package):
    full = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))\n"
    assert package.run(full + RUN) == (20.0, True)
    assert package.run() == (20.0, True)
