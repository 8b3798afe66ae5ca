"""Somebody at the command line who starts and ends clusters of real processes on this machine."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from dfrs.live.drivers.opening import cluster_name
from dfrs.live.local.cluster import agent_root
from tests.live_processes import processes_with
from tests.processes import until

DFRS = (sys.executable, "-m", "dfrs.cli.main")
GROUPS = Path("/sys/fs/cgroup")


def patiently(condition, patience_s=90.0):
    """Whether it comes to be so, however busy the machine is."""
    return until(condition, patience_s)


class User:
    """Somebody at the command line, with a state directory. All but `dfrs up` runs in this process, to be quick."""

    def __init__(self, folder, call, monkeypatch):
        self.folder, self.state, self.call = folder, folder / "state", call
        for name in ("DFRS_SERVER", "DFRS_TOKEN_FILE", "DFRS_CA"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("DFRS_STATE", str(self.state))
        monkeypatch.setenv("DFRS_PORT", "0")
        monkeypatch.chdir(folder)
        self.foreground = []

    def __call__(self, *arguments, status=0):
        ended, out, err = self.call(*arguments)
        assert ended == status, f"{arguments}: {ended}\n{out}{err}{self.logs()}"
        return out + (err if status else "")

    def json(self, *arguments):
        return json.loads(self(*arguments, "--json"))

    def up(self, *options):
        """In the foreground, as on a terminal of its own; what it says once all is up."""
        process = subprocess.Popen(
            [*DFRS, "up", *map(str, options or ("--nodes", 2)), "--json"],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.foreground.append(process)
        text = ""
        for line in process.stdout:
            text += line
            if line == "}\n":
                return process, json.loads(text)
        raise AssertionError(f"{process.communicate()}{self.logs()}")

    def up_in_background(self, *options):
        done = subprocess.run(
            [*DFRS, "up", "--detach", *map(str, options)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr + self.logs()
        return done.stdout

    def logs(self):
        return "".join(f"\n== {path.name}\n{path.read_text()[-2000:]}" for path in self.state.glob("log/*"))

    def state_of(self, job):
        return self.json("show", job)["state"]

    def groups(self):
        """Control groups of this cluster."""
        return list(GROUPS.glob(f"*/dfrs/{cluster_name(agent_root(self.state))}*"))


@contextmanager
def at_the_command_line(folder, dfrs, monkeypatch):
    """Such a user, whose clusters are ended at the end."""
    someone = User(folder, dfrs, monkeypatch)
    yield someone
    try:
        someone("down")
    finally:
        for process in someone.foreground:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for pid in processes_with(str(someone.state)):
            os.kill(pid, signal.SIGKILL)
