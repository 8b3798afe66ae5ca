"""How notifications leave the controller: to a program of the operator, or to an address by HTTP."""

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import Process
from pathlib import Path

import httpx

from dfrs.live.controller.outbox import SEND_S, Document
from dfrs.live.job_request import own_environment


class CommandSender:
    """Starts a program for each, with the document on its standard input. Status 0 says that it was sent."""

    def __init__(self, program: Path) -> None:
        self._program = program

    async def __call__(self, document: Document) -> None:
        """As `outbox.Send`. Cancelled, it kills the program and what that has started."""
        starting = asyncio.ensure_future(self._start())
        try:
            # Cancelled in the middle of it, nobody would know what there is to kill.
            started = await asyncio.shield(starting)
            await started.communicate(json.dumps(document).encode())
        finally:
            await _end(await starting)
        if started.returncode:
            raise OSError(f"{self._program.name} ended with status {started.returncode}")

    async def _start(self) -> Process:
        return await asyncio.create_subprocess_exec(
            self._program,
            stdin=asyncio.subprocess.PIPE,
            # What it says on its error output is in the controller's log.
            stdout=asyncio.subprocess.DEVNULL,
            # The controller's own may hold the password of its database.
            env=own_environment(os.environ),
            start_new_session=True,
        )


async def _end(started: Process) -> None:
    """Kill what is left of a program that has not ended by itself."""
    if started.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        await started.wait()


class UrlSender:
    """Posts each as JSON. An answer from 200 to 299 says that it was taken."""

    def __init__(self, url: str) -> None:
        # It may hold a secret, and so may the words of what goes wrong with it: neither is told.
        self._url = url

    async def __call__(self, document: Document) -> None:
        """As `outbox.Send`."""
        try:
            async with httpx.AsyncClient(timeout=SEND_S) as client:
                answer = await client.post(self._url, json=document)
        except httpx.HTTPError as error:
            raise OSError(f"the address does not answer: {type(error).__name__}") from None
        if not answer.is_success:
            raise OSError(f"the address answers {answer.status_code}")
