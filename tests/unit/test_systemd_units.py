"""The units in examples/ are what systemd takes, and say what the verbs do."""

import configparser
import re
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


def drop_in_of_two_controllers():
    """What the page about two controllers changes of the controller's unit."""
    page = (UNITS.parents[1] / "docs/how-to/two-controllers.md").read_text()
    (text,) = re.findall(r"^```ini\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return text


@pytest.mark.parametrize(
    ("name", "drop_in"), [*((name, "") for name in NAMES), ("dfrs-controller", drop_in_of_two_controllers())]
)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_finds_nothing_wrong(tmp_path, name, drop_in):
    # The program need not be installed where the tests run.
    program = tmp_path / "dfrs"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = (UNITS / f"{name}.service").read_text()
    unit = tmp_path / f"{name}.service"
    unit.write_text(text.replace("/usr/local/bin/dfrs", str(program)))
    (tmp_path / f"{name}.service.d").mkdir()
    (tmp_path / f"{name}.service.d" / "override.conf").write_text(drop_in.replace("/usr/local/bin/dfrs", str(program)))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60)
    said = [line for line in (done.stdout + done.stderr).splitlines() if name in line]
    assert (done.returncode, said) == (0, [])


@pytest.mark.parametrize(("name", "verb"), [("dfrs-controller", serve), ("dfrs-agent", agent)])
def test_units_start_verbs_with_options_that_there_are(name, verb):
    check_command(sections(name)["Service"]["ExecStart"], verb)


def check_command(line, verb):
    """The verb has all options of the line."""
    app = typer.Typer()
    app.command()(verb)
    known = {option for parameter in get_command(app).params for option in parameter.opts}
    program, word, *options = shlex.split(line)
    assert (program, word) == ("/usr/local/bin/dfrs", verb.__name__)
    assert {option for option in options if option.startswith("--")} <= known


def settings(*texts):
    """What systemd makes of a unit's [Service] and its drop-ins: values add up, an empty one takes all away."""
    found = {}
    for line in "\n".join(texts).splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.startswith("#"):
            found[name] = [*found.get(name, []), value] if value else []
    return found


def test_two_controllers_as_services_differ_from_one_by_what_two_need():
    unit = (UNITS / "dfrs-controller.service").read_text().partition("[Service]\n")[2].partition("\n[")[0]
    one, both = settings(unit), settings(unit, drop_in_of_two_controllers())
    (before,), (after,) = one.pop("ExecStart"), both.pop("ExecStart")
    check_command(after, serve)
    # All options that the unit has, and more.
    assert set(shlex.split(before)) < set(shlex.split(after))
    assert {"--standby", "--database-file"} <= set(shlex.split(after)) - set(shlex.split(before))
    # A controller that was replaced comes back, as one that stands by.
    assert (one.pop("RestartPreventExitStatus"), both.pop("RestartPreventExitStatus")) == (["2 4"], ["2"])
    assert one == both


def test_units_keep_tasks_and_do_not_start_what_must_stay_away():
    controller, node = (sections(name)["Service"] for name in NAMES)
    assert controller["RestartPreventExitStatus"].split() == ["2", str(ReplacedError.status)]
    assert controller["StateDirectoryMode"] == "0700"
    # Tasks outlive the agent.
    assert node["KillMode"] == "process"


def test_the_controllers_unit_deletes_nothing_and_can_write_the_archives_of_the_pages():
    service = sections("dfrs-controller")["Service"]
    for text in (service["ExecStart"], drop_in_of_two_controllers()):
        assert "--archive" in text or "--keep" not in text
    pages = (UNITS.parents[1] / "docs").rglob("*.md")
    archives = {path for page in pages for path in re.findall(r"--archive (/[\w/-]+)", page.read_text())}
    assert archives
    assert archives <= {f"/var/lib/{name}" for name in service["StateDirectory"].split()}


def test_tokens_of_nodes_that_are_services_last():
    page = (UNITS.parents[1] / "docs/how-to/run-with-systemd.md").read_text()
    made = re.findall(r"^.*dfrs token create .*--role agent.*$", page, re.MULTILINE)
    assert made
    assert all("--lasts 3650d" in line for line in made)
