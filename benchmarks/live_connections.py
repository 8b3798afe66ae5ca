"""What 1,000 connections that say nothing cost the controller, in memory and for somebody who has a token."""

import asyncio
import multiprocessing
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path

import httpx

from benchmarks.common import console
from benchmarks.online import table
from dfrs.live.api.certificates import own_certificates
from dfrs.live.client import Endpoint, read_client_file

CONNECTIONS = 1_000
SETTLED_S = 2.0
"""After the last has been opened, or refused."""


def _resident_mib(process: int) -> float:
    """Memory of a process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def _silent(port: int, context: ssl.SSLContext | None, told: "multiprocessing.Queue[int]", end: Event) -> None:
    """Open connections, with their handshakes, and say how many of them the controller keeps."""

    async def run() -> None:
        opening = (asyncio.open_connection("127.0.0.1", port, ssl=context) for _ in range(CONNECTIONS))
        made = await asyncio.gather(*opening, return_exceptions=True)
        await asyncio.sleep(SETTLED_S)
        readers = [pair[0] for pair in made if not isinstance(pair, BaseException)]
        told.put(sum(not reader.at_eof() and reader.exception() is None for reader in readers))
        await asyncio.to_thread(end.wait)

    asyncio.run(run())


@contextmanager
def _serving(path: Path, *options: object) -> Generator[tuple[int, Endpoint]]:
    """A controller: its process id, and where it is."""
    state = path / "state"
    command = [sys.executable, "-m", "dfrs.cli.main", "serve", "--state", state, "--listen", "127.0.0.1:0", *options]
    with (path / "log").open("wb") as log:
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)
    try:
        while b"is served" not in (path / "log").read_bytes():
            if process.poll() is not None:
                raise SystemExit((path / "log").read_text())
            time.sleep(0.1)
        found = read_client_file(state)
        assert found is not None
        yield process.pid, found
    finally:
        process.terminate()
        process.wait()


def _measured(path: Path, *, secure: bool) -> tuple[float, int, float]:
    """MiB more, connections open, and seconds that a request with a token took meanwhile."""
    made = own_certificates(path / "tls", ["127.0.0.1"])
    options = ("--certificate", made.certificate, "--key", made.key, "--host", "127.0.0.1") if secure else ()
    trust = ssl.create_default_context(cafile=str(made.authority)) if secure else None
    with _serving(path, *options) as (process, endpoint):
        port = httpx.URL(endpoint.url).port
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        ask = partial(httpx.get, f"{endpoint.url}/api/v1/me", headers=headers, verify=trust or False, timeout=60)
        ask().raise_for_status()
        before = _resident_mib(process)
        told: multiprocessing.Queue[int] = multiprocessing.Queue()
        end = multiprocessing.Event()
        crowd = multiprocessing.Process(target=_silent, args=(port, trust, told, end))
        crowd.start()
        time.sleep(0.5)
        started = time.perf_counter()
        ask().raise_for_status()
        took_s = time.perf_counter() - started
        kept = told.get()
        more = _resident_mib(process) - before
        end.set()
        crowd.join()
    return more, kept, took_s


def main() -> None:
    """Plain and with TLS."""
    made = table(f"{CONNECTIONS:,} connections that say nothing", "connections", "kept open", "memory", "a request")
    for name, secure in (("plain", False), ("TLS", True)):
        with tempfile.TemporaryDirectory() as path:
            more, kept, took_s = _measured(Path(path), secure=secure)
        made.add_row(name, str(kept), f"{more:.1f} MiB", f"{took_s:.2f} s")
    console.print()
    console.print(made)


if __name__ == "__main__":
    main()
