"""Runs a program unchanged under the profiler: starts it, passes signals on, looks at its ranks every tau seconds.

The program stays in our process group, as if it had been started by hand: what the terminal sends to the group reaches
it by itself, and only signals sent to this process alone are passed on. What the ranks count in is a directory of their
own in /dev/shm, removed when the program has ended; one that an earlier run could not remove, because it was killed, is
removed at the next start.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dfrs.model.errors import InputError
from dfrs.model.hardware import SECOND, Partition, Profile
from dfrs.profiling.build import LAUNCHERS, Toolchain, profiler, toolchain
from dfrs.profiling.counters import CpuCounters, open_counters
from dfrs.profiling.preload import environment, shared_memory
from dfrs.profiling.reader import SUBSTITUTE, Moment, ProfileReader, profile_of

PREFIX = "dfrs-profile-"
_PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_LOOK_S = 0.5
"""Memory is looked at so often, and a rank that is killed is known up to then."""
_STUB = 'kill -STOP $$; exec "$@"'
"""Waits to be continued, so that counters are open before the program begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledRun:
    """What came of a program that ran under the profiler."""

    status: int
    """Its exit status; 128 and the signal's number where a signal ended it."""
    wall_s: float
    moment: Moment
    """All ranks at their end."""
    profile: Profile | None
    """Of the whole run, tau being its time between MPI_Init and MPI_Finalize; None where no rank was seen."""
    blocks: tuple[Profile, ...]
    """Of every whole block of tau seconds in which there was one MPI program."""
    counted: str
    """What stands for the CPU's work, in words."""


def run(
    command: Sequence[str],
    *,
    tau_s: float,
    job: str,
    cluster: Partition | None = None,
    on_block: Callable[[int, Profile], None] | None = None,
) -> ProfiledRun:
    """Run `command` to its end. `on_block` gets the number, from 1, and the profile of every whole block.

    Raises InputError where there is no such program, NoMpiError without a compiler.
    """
    program = shutil.which(command[0])
    if program is None:
        raise InputError(f"{command[0]}: no such program")
    launcher = launcher_at(command)
    tools = toolchain(program if launcher is None else shutil.which(command[launcher]) or "")
    library = profiler(tools)
    with _directory() as directory, _blocked() as former:
        begun = time.monotonic()
        child = subprocess.Popen(
            ["/bin/sh", "-c", _STUB, "sh", program, *_arguments(command, tools, launcher)],
            env=environment(os.environ, library, directory),
            # What is blocked here must not be blocked there.
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, former),  # noqa: PLW1509
        )
        os.waitpid(child.pid, os.WUNTRACED)
        counters, missing = open_counters(child.pid)
        reader = ProfileReader(directory, counters)
        try:
            os.kill(child.pid, signal.SIGCONT)
            blocks = _follow(child, reader, tau_s, lambda now, old: profile_of(now, old, job, cluster), on_block)
            moment = reader.look()
        finally:
            # Also where its ranks could not be looked at: it is not left alone.
            while child.poll() is None:
                _pass_on(child, _LOOK_S)
            if counters:
                counters.close()
    found = profile_of(moment, None, job, cluster)
    return ProfiledRun(
        status=child.returncode if child.returncode >= 0 else 128 - child.returncode,
        wall_s=time.monotonic() - begun,
        moment=moment,
        profile=found,
        blocks=tuple(blocks),
        counted=_counted(counters, missing, found),
    )


def launcher_at(command: Sequence[str]) -> int | None:
    """Where the launcher of MPI stands in the command, also behind `nice` or `ip netns exec`; None without one."""
    return next((k for k, word in enumerate(command) if Path(word).name in LAUNCHERS), None)


def _arguments(command: Sequence[str], tools: Toolchain, launcher: int | None) -> list[str]:
    """The launcher of Open MPI gives the environment only to ranks that it starts itself, unless told to."""
    if launcher is None or not tools.open_mpi or "OMPI_MCA_mca_base_env_list" in os.environ:
        return list(command[1:])
    return [*command[1 : launcher + 1], "-x", "LD_PRELOAD", "-x", "DFRS_PROFILE_DIR", *command[launcher + 1 :]]


def _follow(
    child: "subprocess.Popen[bytes]",
    reader: ProfileReader,
    tau_s: float,
    profiled: Callable[[Moment, Moment | None], Profile | None],
    on_block: Callable[[int, Profile], None] | None,
) -> list[Profile]:
    """Look at it until it has ended; blocks begin when all ranks are there, and end with a second MPI program."""
    blocks: list[Profile] = []
    start: Moment | None = None
    while child.poll() is None:
        due_s = _LOOK_S if start is None else min(_LOOK_S, start.at_s + tau_s - time.monotonic())
        _pass_on(child, max(0.001, due_s))
        if child.poll() is not None:
            break
        now = reader.look()
        if now.worlds > 1:
            # No block is of several programs.
            start = None
        elif start is None:
            start = now if now.ranks and now.processes == now.expected else None
        elif now.at_s - start.at_s >= tau_s:
            found = profiled(now, start)
            if found is not None:
                blocks.append(found)
                if on_block:
                    on_block(len(blocks), found)
            start = now
    return blocks


def _pass_on(child: "subprocess.Popen[bytes]", wait_s: float) -> None:
    """Wait so long, or until a signal comes, and pass it on unless the terminal gave it to the program as well."""
    found = signal.sigtimedwait((*_PASSED, signal.SIGCHLD), wait_s)
    if found is not None and found.si_signo != signal.SIGCHLD and found.si_code <= 0 and child.poll() is None:
        child.send_signal(found.si_signo)
    while _caught:
        number = _caught.pop()
        if not _of_terminal(number) and child.poll() is None:
            child.send_signal(number)


_caught: list[int] = []
"""Signals that came to another thread of this process, which does not block them."""


def _of_terminal(number: int) -> bool:
    """Whether the terminal may have sent it, and then to the program as well."""
    try:
        return number in {signal.SIGINT, signal.SIGQUIT} and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


@contextmanager
def _blocked() -> Generator[set[int]]:
    """Signals are waited for, not handled; yields the mask that there was. What is ignored remains so."""
    _caught.clear()
    handlers = {number: signal.getsignal(number) for number in _PASSED}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: _caught.append(number))
    former = signal.pthread_sigmask(signal.SIG_BLOCK, (*_PASSED, signal.SIGCHLD))
    try:
        yield {int(number) for number in former}
    finally:
        # One that came when the program had ended already must not end what remains to be done.
        while signal.sigtimedwait((*_PASSED, signal.SIGCHLD), 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
        for number, handler in handlers.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, handler)


@contextmanager
def _directory() -> Generator[Path]:
    base = shared_memory()
    _forget_old(base)
    place = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=base))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _forget_old(base: Path) -> None:
    for place in base.glob(f"{PREFIX}*-*"):
        number = place.name.removeprefix(PREFIX).partition("-")[0]
        if number.isdecimal() and not Path(f"/proc/{number}").exists() and place.stat().st_uid == os.getuid():
            shutil.rmtree(place, ignore_errors=True)


def _counted(counters: CpuCounters | None, missing: str, found: Profile | None) -> str:
    if counters is None:
        return f"{SUBSTITUTE} (no hardware counters: {missing})"
    if found is not None and SECOND in found.counters:
        return f"{SUBSTITUTE} (no floating-point operations counted{f': {missing}' if missing else ''})"
    return f"hardware counters: {', '.join(counters.names)}" + (f" (not: {missing})" if missing else "")
