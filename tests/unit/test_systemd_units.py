"""The units in examples/ are what systemd takes, and say what the verbs do."""

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from dfrs.cli.live.agent import agent
from dfrs.cli.live.serve import serve
from dfrs.model.errors import ReplacedError

UNITS = Path(__file__).parents[2] / "examples" / "systemd"
NAMES = ("dfrs-controller", "dfrs-agent")


def sections(name):
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str
    parser.read_string((UNITS / f"{name}.service").read_text())
    return parser


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_finds_nothing_wrong(tmp_path, name):
    # The program need not be installed where the tests run.
    program = tmp_path / "dfrs"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = (UNITS / f"{name}.service").read_text()
    unit = tmp_path / f"{name}.service"
    unit.write_text(text.replace("/usr/local/bin/dfrs", str(program)))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60)
    said = [line for line in (done.stdout + done.stderr).splitlines() if name in line]
    assert (done.returncode, said) == (0, [])


@pytest.mark.parametrize(("name", "verb"), [("dfrs-controller", serve), ("dfrs-agent", agent)])
def test_units_start_verbs_with_options_that_there_are(name, verb):
    app = typer.Typer()
    app.command()(verb)
    known = {option for parameter in get_command(app).params for option in parameter.opts}
    program, word, *options = shlex.split(sections(name)["Service"]["ExecStart"])
    assert (program, word) == ("/usr/local/bin/dfrs", verb.__name__)
    assert {option for option in options if option.startswith("--")} <= known


def test_units_keep_tasks_and_do_not_start_what_must_stay_away():
    controller, node = (sections(name)["Service"] for name in NAMES)
    assert controller["RestartPreventExitStatus"].split() == ["2", str(ReplacedError.status)]
    assert controller["StateDirectoryMode"] == "0700"
    # Tasks outlive the agent.
    assert node["KillMode"] == "process"
