"""What can be known of a job before it is submitted, where all nodes are on this machine: that its program is missing.

Only what is surely missing counts. A job may run under another account, so rights are none of it, and one that waits
for something may find its program by then.
"""

import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dfrs.cli.quantities import quoted
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import JobRequest


def refuse_missing(client: "Client", request: "JobRequest") -> None:
    """Raise InputError where its directory or program is not there, on the machine where it would run at once."""
    if request.dependencies or request.held or request.start_at is not None:
        return
    why = missing(request.command[0], request.directory, request.environment)
    # Asked only now: of nearly all jobs nothing is missing.
    if why and _all_here(client):
        raise InputError(why)


def missing(program: str, directory: str, environment: Mapping[str, str]) -> str:
    """What of them is surely not there, in one line; empty if nothing is."""
    mode = _mode(directory)
    if mode is not None and not stat.S_ISDIR(mode):
        what = "is no directory" if mode else "there is no such directory"
        return f"--directory {quoted(directory)}: {what}"
    venv = environment.get("VIRTUAL_ENV")
    if venv is not None and _mode(os.path.join(venv, "bin", "python")) == 0:
        return f"virtual environment {quoted(venv)}: there is none, as it has no bin/python"
    if "/" in program:
        mode = _mode(os.path.join(directory, program))
        if mode == 0:
            return f"command {quoted(program)}: there is no such program, seen from {directory}"
        if mode is not None and stat.S_ISREG(mode) and not mode & 0o111:
            return f"command {quoted(program)}: is not executable: chmod +x, or name its interpreter: sh {program}"
        return ""
    folders = environment.get("PATH", os.defpath).split(":")
    if all(_mode(os.path.join(directory, folder, program)) == 0 for folder in folders):
        return f"command {quoted(program)}: there is no such program in the PATH of the job"
    return ""


def _mode(path: str) -> int | None:
    """Of a file; 0: there is none; None: that cannot be told from here."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except (OSError, ValueError):
        return None


def _all_here(client: "Client") -> bool:
    """Whether all nodes belong to the cluster that was started on this machine, and are on no other one."""
    from dfrs.live.agent.agent import host_name
    from dfrs.live.client import state_directory

    try:
        drawn = (state_directory() / "host" / "host-id").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return False
    hosts = {node.host for node in client.nodes()}
    return hosts == {f"{host_name()[:54]}-{drawn}"}
