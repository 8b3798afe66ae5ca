"""What a program finds around it on its node: a virtual environment, modules, the files of an image.

Modules and the image's tool are stood in for by scripts that a node could have: here it counts what jobs ask them for.
"""

import os
import subprocess
import venv
from pathlib import Path

import pytest

from tests.live_processes import DFRS, LiveCluster
from tests.live_terminal import environment

SMALL = ("--cpu", "0.1", "--memory", "64M")
MODULE = """
module() {
    [ "$1" = load ] || return 2
    shift
    for name; do
        [ "$name" != broken ] || { echo "no module $name" >&2; return 1; }
        export LOADED="$LOADED $name"
    done
}
"""
APPTAINER = """#!/bin/sh
[ "$1" = exec ] || exit 9
shift
echo "in $1"
shift
exec "$@"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LiveCluster(tmp_path_factory.mktemp("environments"), nodes=1) as live:
        yield live


@pytest.fixture
def run(cluster, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tmp_path / ".bash_profile").write_text(MODULE)

    def call(*words):
        own = {"HOME": str(tmp_path), "PATH": f"{tools}:{os.environ['PATH']}"}
        done = subprocess.run(
            [*DFRS, "run", *SMALL, *map(str, words)],
            env=environment(cluster) | own,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout, done.stderr

    return call


def test_a_virtual_environment_has_its_own_python(run, tmp_path):
    venv.create(tmp_path / "mine", symlinks=True, with_pip=False)
    told = run("--venv", "mine", "--", "python", "-c", "import os, sys; print(sys.prefix, os.environ['VIRTUAL_ENV'])")
    assert told == (0, f"{tmp_path}/mine {tmp_path}/mine\n", "")


def test_modules_are_loaded_in_order_before_the_program_which_keeps_its_words(run):
    words = ("--module", "gcc/12", "--module", "mpi", "--", "sh", "-c", 'echo "$LOADED/$1/$0"', "a b", "c  'd'")
    assert run(*words) == (0, " gcc/12 mpi/c  'd'/a b\n", "")
    status, out, err = run("--module", "broken", "--", "echo", "never")
    assert (status, out) == (1, "")
    assert "no module broken" in err


def test_modules_do_not_hide_a_virtual_environment(run, tmp_path):
    venv.create(tmp_path / "mine", symlinks=True, with_pip=False)
    told = run("--venv", "mine", "--module", "m", "--", "python", "-c", "import sys; print(sys.prefix)")
    assert told == (0, f"{tmp_path}/mine\n", "")


def test_an_image_is_entered_by_what_the_node_has(run, tmp_path):
    tool = tmp_path / "tools" / "apptainer"
    tool.write_text(APPTAINER)
    tool.chmod(0o755)
    (tmp_path / "own.sif").touch()
    words = ("--image", "own.sif", "--", "sh", "-c", 'echo "$DFRS_RANK $1"; exit 3', "x", "y z")
    assert run(*words)[:2] == (3, f"in {tmp_path}/own.sif\n0 y z\n")
    assert run("--image", "docker://debian:12", "--module", "m", "--", "true")[1] == "in docker://debian:12\n"


def test_a_node_without_such_a_tool_says_so(run, tmp_path):
    for name in ("sh", "uname"):
        (tmp_path / "tools" / name).symlink_to(Path("/bin", name))
    status, out, err = run("--env", f"PATH={tmp_path}/tools", "--image", "own.sif", "--", "true")
    assert (status, out) == (127, "")
    assert "--image: no apptainer and no singularity on" in err
