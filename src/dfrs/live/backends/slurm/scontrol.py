"""Commands of scontrol, many of them by one process: starting one takes longer than most of what they do.

Without words scontrol reads commands from its input. It repeats each before it does it, and says below it what is wrong
with it; so it is known of each what became of it, also where scontrol does not come to its end.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from dfrs.live.errors import UnavailableError
from dfrs.model.errors import DfrsError

AT_ONCE = 4
"""Processes under way: slurmctld does one command after the other anyway."""
TOGETHER = 100
"""Commands for one of them."""
COMMAND_S = 30.0
"""So long may a command take: slurmctld makes them wait when it is busy."""
AWAY = (
    "Unable to contact slurm controller",
    "Zero Bytes were transmitted or received",
    "Slurm backup controller in standby mode",
    "Socket timed out",
    "Connection refused",
    "slurm_receive_msg",
    "Unexpected message received",
)
"""What commands say when no slurmctld answers."""
READLINE = {"INPUTRC": "/dev/null", "TERM": "dumb", "COLUMNS": "30000", "LC_ALL": "C.UTF-8"}
"""As it reads its input: a command is repeated as it is, however long it is, and nothing in it is an editor's."""
CHOICES = ("SQUEUE_", "SINFO_", "SCONTROL_", "SCANCEL_", "SLURM_CLUSTERS")
"""How the names of variables begin by which commands of Slurm leave out, ask or add something, as their user likes."""
PROMPT = "scontrol: "
LAST = "quit"


def plain(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, without what would have commands of Slurm do something else than they are asked to."""
    return {name: value for name, value in environ.items() if not name.startswith(CHOICES)}


class SlurmRefusedError(DfrsError):
    """Slurm answered, and does not do it: in its words."""


@dataclass(frozen=True, slots=True)
class _Request:
    commands: tuple[str, ...]
    answer: "asyncio.Future[str]"
    """What Slurm said to them; empty if nothing."""


class Scontrol:
    """Has commands done: those that come while others are under way wait for the next process."""

    def __init__(self, inside: Sequence[str], environ: Mapping[str, str]) -> None:
        self._words = (*inside, "scontrol")
        self._environ = {**plain(environ), **READLINE}
        self._waiting: deque[_Request] = deque()
        self._processes: set[asyncio.Task[None]] = set()

    async def do(self, *commands: str) -> None:
        """Have these done, one after the other; no word of them holds a space.

        Raises UnavailableError if it is not certain that they are done, SlurmRefusedError.
        """
        request = _Request(commands, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if len(self._processes) < AT_ONCE:
            self._processes.add(asyncio.create_task(self._serve()))
        said = await request.answer
        if said:
            raise SlurmRefusedError(f"Slurm: {commands[0][:60]}: {said[:300]}")

    async def _serve(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            while self._waiting:
                await self._serve_some()
        finally:
            # Now, and not by a callback: what is asked for before that would wait for one who serves no more.
            self._processes.discard(task)

    async def _serve_some(self) -> None:
        batch: list[_Request] = []
        while self._waiting and sum(len(each.commands) for each in batch) < TOGETHER:
            batch.append(self._waiting.popleft())
        try:
            printed = await self._run([command for request in batch for command in request.commands])
            _answer(batch, printed)
        finally:
            for request in batch:
                if not request.answer.done():
                    request.answer.set_exception(UnavailableError("Slurm: scontrol: ended before it had answered"))

    async def _run(self, commands: Sequence[str]) -> str:
        """What it printed until it ended, or until patience did."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environ,
            )
        except OSError as error:
            return f"Slurm: scontrol: {error.strerror}"
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(f"{command}\n" for command in (*commands, LAST)).encode())
        process.stdin.close()
        printed = bytearray()
        try:
            while part := await _read(process.stdout):
                printed += part
            await process.wait()
        except TimeoutError:
            _kill(process)
            await process.wait()
        finally:
            _kill(process)
        return printed.decode(errors="replace")


async def _read(stream: asyncio.StreamReader) -> bytes:
    """What comes next, within COMMAND_S; nothing at its end. Raises TimeoutError."""
    async with asyncio.timeout(COMMAND_S):
        return await stream.read(1 << 16)


def _kill(process: asyncio.subprocess.Process) -> None:
    """It may have ended, and nobody was told of it yet."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()


def _answer(batch: Sequence[_Request], printed: str) -> None:
    """Tell each request what was said to it, as far as scontrol came."""
    said = iter(answers([command for request in batch for command in request.commands], printed))
    for request in batch:
        found = [next(said) for _ in request.commands]
        if request.answer.done():
            continue
        away = next((each for each in found if each is None or any(words in each for words in AWAY)), "")
        if away == "":
            request.answer.set_result(" ".join(each for each in found if each))
        else:
            request.answer.set_exception(UnavailableError(f"Slurm: scontrol: {away or printed[-200:] or 'no answer'}"))


def answers(commands: Sequence[str], printed: str) -> list[str | None]:
    """What was said to each command, empty where all is well; None from the one on that was not finished."""
    found: list[str | None] = []
    at = printed.find(f"{PROMPT}{commands[0]}\n")
    for command, following in zip(commands, (*commands[1:], LAST), strict=True):
        if at >= 0:
            begin = at + len(f"{PROMPT}{command}\n")
            at = printed.find(f"{PROMPT}{following}\n", begin)
            found.append(_complaint(printed[begin:at]) if at >= 0 else None)
        else:
            found.append(None)
    return found


def _complaint(said: str) -> str:
    """What is more than a notice, such as a script of the site's may give."""
    lines = [line for line in said.splitlines() if not line.startswith(PROMPT) or line.startswith(f"{PROMPT}error:")]
    return " ".join(" ".join(lines).split())
