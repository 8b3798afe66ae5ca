"""How a task's supervisor is started, and what it is told."""

import os
import subprocess
import sys
from pathlib import Path

from dfrs.live.drivers.base import DriverError, ProgramSpec, TaskId, TaskSpec
from dfrs.live.drivers.file_names import complete
from dfrs.live.drivers.processes import supervisor

PROGRAM = str(Path(supervisor.__file__).with_name("__main__.py"))
"""Of the supervisor."""
VARIABLE_BYTES = 32 * os.sysconf("SC_PAGE_SIZE") - 1
"""With a longer variable, its name included, the kernel starts no program at all."""
WAITS_S = 120.0
"""So long a program waits for the reader of its output, if nothing is heard of them: longer than a client waits for a
controller that is away, and then an agent for its connection."""


def launch(path: str, lock: int) -> subprocess.Popen[bytes]:
    """Start the supervisor. It holds the lock, together with the caller, until it is on record."""
    try:
        with open(f"{path}/supervisor.log", "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", PROGRAM, path, str(lock)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={},
                pass_fds=(lock,),
                start_new_session=True,
            )
    except OSError as error:
        raise DriverError(f"{path}: cannot start the task's supervisor: {error}") from error


def entries_of(task: TaskId, spec: TaskSpec, node: str) -> list[tuple[str, str]]:
    """What a supervisor is told of a task."""
    added = {"DFRS_JOB_ID": str(task.job), "DFRS_RANK": str(task.rank), "DFRS_TASKS": str(spec.tasks)}
    added["DFRS_NODE"] = node
    peers = ",".join(spec.peers)
    if len(f"DFRS_PEERS={peers}".encode()) <= VARIABLE_BYTES:
        added["DFRS_PEERS"] = peers
    entries = [("directory", spec.directory), ("output_bytes", str(spec.output_bytes))]
    entries.append(("memory_bytes", str(spec.memory_bytes)))
    entries += [("command", word) for word in spec.command]
    entries += [("environment", f"{name}={value}") for name, value in (spec.environment | added).items()]
    if spec.account is not None:
        entries.append(("account", spec.account))
    if task.rank == 0:
        entries += input_entries(spec)
    if spec.input or spec.terminal is not None:
        entries.append(waits_entry())
    entries += _file_entries(task, spec, node)
    if spec.time_limit_s is not None:
        entries.append(("time_limit_s", repr(spec.time_limit_s)))
        if spec.warning_signal is not None:
            entries += [("warning_signal", spec.warning_signal), ("warning_s", repr(spec.warning_s))]
    return entries


def _file_entries(task: TaskId, spec: TaskSpec, node: str) -> list[tuple[str, str]]:
    """What a supervisor is told of files that output goes to as well."""
    named = [(spec.output_file, "out" if spec.error_file else "out+err"), (spec.error_file, "err")]
    return [
        ("file", f"{streams} {file.mode} {complete(file.name, {'t': task.rank, 'N': node})}")
        for file, streams in named
        if file is not None
    ]


def waits_entry() -> tuple[str, str]:
    """What a supervisor is told of a program that waits for who reads along what it writes."""
    return supervisor.WAITS, repr(WAITS_S)


def input_entries(spec: TaskSpec | ProgramSpec) -> list[tuple[str, str]]:
    """What a supervisor is told of a program's input."""
    if spec.terminal is not None:
        return [("input", "1"), ("terminal", f"{spec.terminal.rows} {spec.terminal.columns}")]
    return [("input", "1")] if spec.input else []
