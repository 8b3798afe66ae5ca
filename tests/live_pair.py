"""Two controllers of real processes on one PostgreSQL, each `dfrs serve --standby`, with agents that know both."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import httpx

from dfrs.live.client import Client, Endpoint, UnreachableError
from dfrs.live.errors import UnavailableError
from dfrs.live.protocol.resources import JobRequest
from dfrs.model.errors import DfrsError
from tests.live_processes import DFRS, LiveCluster, wait_until

POLICY = "GreedyPM*/per/OPT=MIN/MVT=600"


class ControllerPair(LiveCluster):
    """Controllers "a" and "b"; "a" leads at first. `leader` is the name of the one that leads, as far as is known."""

    def __init__(self, directory, database, *, nodes=2, policy=POLICY, cores=None, serve=()):
        super().__init__(directory, nodes=nodes, policy=policy, cores=cores, serve=serve)
        self.ports = {name: _free_port() for name in "ab"}
        self.urls = {name: f"http://127.0.0.1:{port}" for name, port in self.ports.items()}
        self.server = ",".join(self.urls.values())
        self.variables = {name: {"DFRS_DATABASE": database} for name in "ab"}
        self.controllers = {}
        self.leader = "a"

    def start_controller(self):
        """Both, the one that leads first."""
        for name in "ab":
            self.start_one(name)
            if name == "a":
                self.wait_for_leader("a")
        wait_until(lambda: "dfrs_standbys 1.0" in self.client.get("/metrics").text, "the standby is seen")

    def start_one(self, name):
        """Start or restart one."""
        log = self.log_of(name).open("ab")
        state = self.directory / name
        self.controllers[name] = subprocess.Popen(
            [
                *DFRS,
                "serve",
                "--standby",
                "--state",
                state,
                "--listen",
                f"127.0.0.1:{self.ports[name]}",
                "--peer",
                self.urls["b" if name == "a" else "a"],
                *self.serve_options,
            ],
            stdout=log,
            stderr=log,
            env=os.environ | self.variables[name],
            start_new_session=True,
        )

    def log_of(self, name):
        """What a controller says."""
        return self.directory / f"serve-{name}.log"

    def start_agent(self, name, server=None, inside=()):
        """As for one controller; it knows both."""
        super().start_agent(name, server or self.servers.get(name) or self.server, inside)

    def answer(self, name):
        """What /healthz of a controller answers; None where nobody does."""
        try:
            return httpx.get(f"{self.urls[name]}/healthz", timeout=2)
        except httpx.HTTPError:
            return None

    def wait_for_leader(self, name, patience_s=90.0):
        """Wait until it leads; seconds that this took."""
        began = time.monotonic()

        def leads():
            # A finer step than `wait_until` has.
            time.sleep(0.01)
            found = self.answer(name)
            return found is not None and found.status_code == 200

        while not leads():
            assert time.monotonic() - began < patience_s, self.log_of(name).read_text()
            assert self.controllers[name].poll() is None, self.log_of(name).read_text()
        took_s = time.monotonic() - began
        self.leader, self.state = name, self.directory / name
        wait_until((self.state / "client.json").exists, "its client file")
        found = json.loads((self.state / "client.json").read_text())
        self.token = found["token"]
        self.client = httpx.Client(
            base_url=self.urls[name], headers={"Authorization": f"Bearer {self.token}"}, timeout=30
        )
        return took_s

    def wait_connected(self, patience_s=90.0):
        """Wait until all agents are connected to the leader; seconds that this took."""
        began = time.monotonic()
        wait_until(
            lambda: sum(node["connected"] for node in self.client.get("/api/v1/nodes").json()) == len(self.names),
            "all agents are connected",
            patience_s,
        )
        return time.monotonic() - began

    def signal(self, name, number):
        """Send it a signal; after SIGKILL wait until it is gone."""
        self.controllers[name].send_signal(number)
        if number == signal.SIGKILL:
            self.controllers[name].wait()

    def __exit__(self, kind, *rest):
        for process in self.controllers.values():
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        super().__exit__(kind, *rest)


class Submitter(threading.Thread):
    """Submits these jobs one after the other, as a user who knows all controllers, until it is stopped.

    One that was not taken for certain is submitted again.
    """

    def __init__(self, cluster, requests: Iterable[JobRequest], pause_s: float):
        super().__init__(daemon=True)
        self.taken: list[int] = []
        """Jobs of which it was told the number."""
        self.refused = 0
        """Submissions of which it was told that they were not taken."""
        self.unsure = 0
        """Submissions of which it cannot tell: the connection broke before there was an answer."""
        self.failed: DfrsError | None = None
        """Why it gave up: an answer that none should get."""
        self.longest_s = 0.0
        """The longest that one took."""
        self._endpoint = Endpoint(url=cluster.server, token=cluster.token)
        self._requests = requests
        self._pause_s = pause_s
        self._end = threading.Event()

    def run(self):
        try:
            self._run()
        except DfrsError as error:
            self.failed = error

    def _run(self):
        with Client(self._endpoint) as client:
            for request in self._requests:
                while not self._end.wait(self._pause_s) and not self._take(client, request):
                    pass
                if self._end.is_set():
                    return

    def _take(self, client, request):
        began = time.monotonic()
        try:
            self.taken += client.submit(request)
        except UnavailableError:
            self.refused += 1
            return False
        except UnreachableError:
            self.unsure += 1
            return False
        finally:
            self.longest_s = max(self.longest_s, time.monotonic() - began)
        return True

    def stop(self):
        """Stop after the one under way."""
        self._end.set()
        self.join()


def shell_job(directory: Path, seconds: float) -> JobRequest:
    """A job that notes when it begins and when it ends, and whether it runs already."""
    place = f"{directory}/$DFRS_JOB_ID.$DFRS_RANK"
    command = (
        f'exec 9>"{place}.lock" >>"{place}.notes"; flock -n 9 || echo twice $$; '
        f"echo begin $$; sleep {seconds}; echo end $$"
    )
    return JobRequest(
        command=("sh", "-c", command), directory=str(directory), cpu_cores=0.02, memory_bytes=8 << 20, name="shell"
    )


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
