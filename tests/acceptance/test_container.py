"""The container files: what they start exists, and where there is a builder, the image is built and is the program."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from dfrs.cli.main import app
from dfrs.version import __version__

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "container"


def started():
    """The words after `dfrs` that containers are started with."""
    (default,) = re.findall(r"^CMD (.*)$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    yield json.loads(default)
    for service in yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"].values():
        yield shlex.split(service["command"])
        if "healthcheck" in service:
            kind, program, *words = service["healthcheck"]["test"]
            assert (kind, program) == ("CMD", "dfrs")
            yield words


def test_what_containers_start_is_what_the_program_takes():
    root = get_command(app)
    for verb, *words in started():
        command = root.get_command(None, verb)
        with command.make_context(verb, list(words), resilient_parsing=True) as context:
            given, rest, _ = command.make_parser(context).parse_args(args=list(words))
        assert not rest
        assert len(given) == sum(word.startswith("--") for word in words)


def test_what_the_image_is_made_of_is_there():
    text = (FOLDER / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (.*) /", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in line.split())
    (extras,) = re.findall(r"'/build\[(.*)\]'", text)
    declared = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert set(extras.split(",")) <= set(declared)


def builder():
    """One that can build now, or a skip."""
    for name in ("docker", "podman"):
        words = ["timeout", "20", name, "info"]
        if shutil.which(name) and subprocess.run(words, capture_output=True).returncode == 0:
            return name
    return pytest.skip("neither docker nor podman works here")


def test_the_image_is_the_program():
    program = builder()
    words = [program, "build", "--quiet", "--file", FOLDER / "Dockerfile", ROOT]
    built = subprocess.run(words, capture_output=True, text=True, timeout=900)
    if built.returncode and re.search("pull|registr|resolve|No matching distribution|Connection", built.stderr):
        pytest.skip("what the image is made of cannot be fetched here")
    assert built.returncode == 0, built.stderr
    image = built.stdout.split()[-1]
    done = subprocess.run([program, "run", "--rm", image, "--version"], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"dfrs {__version__}\n", done.stderr
