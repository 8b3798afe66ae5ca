"""How a task has ended, as its supervisor writes it."""

import os
import signal
import time
from collections.abc import Mapping, Sequence

from .files import read_text


def happened(text: str, event: str) -> int:
    """How often it happened, by a file of lines `event count` such as memory.oom_control or pids.events."""
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{event} ")), 0)


def cpu_seconds(path: str) -> float | None:
    """CPU time in a cpuacct.usage or cpu.stat file; None without one."""
    text = read_text(path)
    if text.startswith("usage_usec"):
        return int(text.split(maxsplit=2)[1]) / 1e6
    return int(text) / 1e9 if text else None


def verdict(
    owner: Mapping[str, str],
    status: int,
    cause: str,
    why: str,
    dropped: Mapping[str, int],
    more: Sequence[str] = (),
) -> str:
    """What `exit.json` says of a task.

    `owner` has the files of its counters and what was counted on other nodes; `status` is that of its first process;
    `cause` is the kind of end that the supervisor knows, if any; `why` it was not started, or is lost; `dropped` the
    bytes of each output that were not stored; `more` is what else is to be told.
    """
    import json  # noqa: PLC0415 - only now, when the task no longer waits for it
    import resource  # noqa: PLC0415 - as json

    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    killed = happened(read_text(owner.get("oom", "")), "oom_kill") + int(float(owner.get("carried_oom_kills", "0")))
    kind = cause or ("signal" if code is None else "code")
    if kind == "not-started":
        code = None
    elif kind == "lost":
        code = number = None
    elif not cause and killed and (code or number == signal.SIGKILL):
        kind = "out-of-memory"
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    counted = cpu_seconds(owner.get("cpu", ""))
    cpu_s = used.ru_utime + used.ru_stime if counted is None else counted + float(owner.get("carried_cpu_s", "0"))
    peak = read_text(owner.get("peak", "")).strip()
    peak_bytes = max(int(peak), int(float(owner.get("carried_peak_bytes", "0")))) if peak else used.ru_maxrss << 10
    notes = [why] if why else []
    if killed and kind != "out-of-memory":
        notes.append(f"{killed} of its processes were killed for want of memory")
    if happened(read_text(owner.get("forks", "")), "max") or float(owner.get("carried_refused_forks", "0")):
        notes.append("it could not start more processes: there were as many as may be")
    notes += [f"{lost} bytes of {name} were dropped: the disk was full" for name, lost in dropped.items() if lost]
    notes += more
    return json.dumps(
        {"kind": kind, "code": code, "signal": number, "time_s": time.time(), "cpu_s": cpu_s}
        | {"peak_bytes": peak_bytes, "message": "; ".join(notes)}
    )
