"""What others install: a wheel, made from what the source distribution holds, in an environment of its own."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.live_processes import LiveCluster

REPOSITORY = Path(__file__).parents[2]
CAMPAIGN = """
name = "c"
policies = ["FCFS"]
[[workloads]]
model = "lublin"
nodes = 8
jobs = 10
seeds = "1"
"""


def run(*words, cwd, **environment):
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=900,
    )


def built(kind, source, target):
    """The one distribution that is built of a source tree."""
    target.mkdir()
    done = run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target, cwd=source)
    assert done.returncode == 0, done.stderr
    [path] = target.iterdir()
    return path


def installed_names(wheel):
    """Names of the files that a wheel installs, but for its metadata, which may name the place it was built in."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The tree of the source distribution."""
    directory = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built("sdist", REPOSITORY, directory / "dist")) as archive:
        archive.extractall(directory, filter="data")
    return next(path for path in directory.iterdir() if path.name != "dist")


@pytest.fixture(scope="module")
def wheel(sources, tmp_path_factory):
    return built("wheel", sources, tmp_path_factory.mktemp("wheel") / "dist")


def install(wheel, directory):
    """`dfrs` of a wheel in an environment of its own, with the locked versions of what it needs."""
    versions = re.findall(r"^[\w.-]+==\S+", (REPOSITORY / "requirements.lock").read_text(), re.MULTILINE)
    (directory / "versions").write_text("\n".join(versions))
    venv.create(directory / "venv", with_pip=True)
    python = directory / "venv" / "bin" / "python"
    done = run(
        python, "-m", "pip", "install", "--quiet", "--no-compile", "-c", directory / "versions", wheel, cwd=directory
    )
    if done.returncode and re.search("No matching distribution|Connection|Max retries", done.stderr):
        pytest.skip("pip reaches no package index")
    assert done.returncode == 0, done.stderr
    return python.parent / "dfrs"


@pytest.fixture(scope="module")
def plain(wheel, tmp_path_factory):
    """Without extras."""
    return install(wheel, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """What nodes install."""
    directory = tmp_path_factory.mktemp("light")
    return install(built("wheel", REPOSITORY / "packaging" / "agent", directory / "dist"), directory)


def test_the_source_distribution_holds_what_the_wheel_needs(wheel, tmp_path):
    names = installed_names(wheel)
    assert names == installed_names(built("wheel", REPOSITORY, tmp_path / "dist"))
    tracked = run("git", "ls-files", "src", cwd=REPOSITORY)
    if tracked.returncode == 0:
        assert names >= {name.removeprefix("src/") for name in tracked.stdout.split()}


def test_an_installation_without_extras_simulates_and_allocates(plain, tmp_path):
    code = "import importlib.metadata as m; print(sum('extra ==' not in line for line in m.requires('dfrs')))"
    assert int(run(plain.parent / "python", "-c", code, cwd=tmp_path).stdout) <= 8
    for words in (
        "--version",
        "--help",
        "generate lublin --jobs 20 --nodes 8 --seed 7 -o t.swf",
        "simulate t.swf -p FCFS -p EASY -o runs",
        "validate runs",
        "generate services --nodes 4 --services 9 --slack 0.4 --seed 1 -o s.json",
        "allocate s.json -a GREEDY_S1_P7 -o a.json",
        "validate a.json",
    ):
        done = run(plain, *words.split(), cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("up", "live"),
        ("plot runs", "plot"),
        ("reproduce --list", "experiments"),
        ("campaign run c.toml --dask-local 1", "dask"),
    ],
)
def test_a_verb_of_an_extra_says_what_to_install(plain, tmp_path, words, extra):
    (tmp_path / "c.toml").write_text(CAMPAIGN)
    done = run(plain, *words.split(), cwd=tmp_path, DFRS_STATE=str(tmp_path / "state"))
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(rf"dfrs: this needs \w+, which is not installed: pip install 'dfrs\[{extra}\]'\n", done.stderr)
    assert done.stdout == ""
    assert not (tmp_path / "state").exists()


def test_what_nodes_install_is_small_and_enough_for_agents_and_users(light, tmp_path):
    tools = ("pip", "setuptools", "pkg_resources", "_distutils")
    parts = [path for path in light.parents[1].glob("lib/*/site-packages/*") if not path.name.startswith(tools)]
    files = [file for part in parts for file in ([part] if part.is_file() else part.rglob("*")) if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 100e6
    assert run(light, "--version", cwd=tmp_path).stdout == f"dfrs {version('dfrs')}\n"
    with LiveCluster(tmp_path, nodes=0) as cluster:
        own = {"DFRS_STATE": str(cluster.state), "DFRS_SERVER": "", "DFRS_TOKEN_FILE": "", "DFRS_CA": ""}
        words = ["agent", "--server", cluster.server, "--token-file", cluster.state / "agent.token", "--name", "n1"]
        words += ["--cluster", cluster.name, "--root", tmp_path / "tasks"]
        words += ["--run-as", cluster.run_as] if cluster.run_as else []
        agent = subprocess.Popen([light, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            done = run(light, "run", "--memory", "64M", "--", "echo", "hello", cwd=tmp_path, **own)
            assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
            for verb in ("queue", "nodes", "history", "show 1", "explain 1", "logs 1"):
                assert run(light, *verb.split(), cwd=tmp_path, **own).returncode == 0, verb
        finally:
            agent.terminate()
            agent.wait(60)
    done = run(light, "policies", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"dfrs: this needs \w+; dfrs-agent has what nodes .* install 'dfrs\[live\]'\n", done.stderr)
