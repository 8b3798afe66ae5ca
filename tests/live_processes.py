"""A live cluster of real processes: `dfrs serve`, agents, jobs; killed, cut off and looked after by tests."""

import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import httpx

from dfrs.live.protocol.resources import ENDED
from tests.processes import descendants

DFRS = (sys.executable, "-m", "dfrs.cli.main")
PATIENCE_S = 90.0
GROUPS = Path("/sys/fs/cgroup")


def wait_until(condition, what, patience_s=PATIENCE_S):
    """The first true value of `condition()`; fails with `what` after `patience_s`."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"after {patience_s} s still not: {what}")


def processes_with(text):
    """Ids of processes whose command line or environment holds `text`, but for this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            told = (entry / "cmdline").read_bytes() + b"\0" + (entry / "environ").read_bytes()
        except OSError:
            continue
        if state != "Z" and text.encode() in told:
            found.append(int(entry.name))
    return found


class LiveCluster:
    """A controller and agents in `directory`, each a process of its own."""

    def __init__(
        self,
        directory,
        *,
        nodes=2,
        policy="GreedyPM*/per/OPT=MIN/MVT=600",
        serve=(),
        cores=None,
        run_as="root",
        agent=(),
    ):
        self.directory = Path(directory)
        self.state = self.directory / "state"
        self.names = [f"n{k}" for k in range(nodes)]
        self.name = f"t{os.getpid()}-{abs(hash(str(directory))) % 10**6}"
        self.agent_options = (*agent, *(() if cores is None else ("--cores", str(cores))))
        self.serve_options = ("--policy", policy, "--name", self.name, *serve)
        # Directories of tests are open to the account that runs them only.
        self.run_as = run_as if os.geteuid() == 0 else None
        self.controller = None
        self.agents = {}
        self.servers = {}
        self.variables = {}
        """What the environment of one process has more: the controller's, or that of the agent with this name."""
        self.port = 0
        self.server = self.token = None

    def __enter__(self):
        try:
            self.start_controller()
            for name in self.names:
                self.start_agent(name)
            wait_until(lambda: len(self.up()) == len(self.names), f"{len(self.names)} nodes up")
        except BaseException:
            self.__exit__(None)
            raise
        return self

    def __exit__(self, kind, *_):
        for process in (*self.agents.values(), self.controller):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        left = self.leftovers()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.leftovers(), "no process left")
        self.remove_groups()

    def start_controller(self):
        """Start or restart it on the port it had."""
        log = (self.directory / "serve.log").open("ab")
        self.controller = subprocess.Popen(
            [*DFRS, "serve", "--state", self.state, "--listen", f"127.0.0.1:{self.port}", *self.serve_options],
            stdout=log,
            stderr=log,
            env=os.environ | self.variables.get("controller", {}),
            start_new_session=True,
        )
        wait_until(self._find, f"the controller answers ({(self.directory / 'serve.log')})")

    def _find(self):
        assert self.controller.poll() is None, (self.directory / "serve.log").read_text()
        try:
            found = json.loads((self.state / "client.json").read_text())
            self.client = httpx.Client(
                base_url=found["url"], headers={"Authorization": f"Bearer {found['token']}"}, timeout=30
            )
            if self.client.get("/healthz").status_code != 200:
                return False
        except (OSError, ValueError, httpx.HTTPError):
            return False
        self.port = httpx.URL(found["url"]).port
        self.server, self.token = found["url"], found["token"]
        return True

    def start_agent(self, name, server=None, inside=()):
        """Start or restart the agent of node `name`, told that the controller is at `server`; `inside` a command."""
        self.servers[name] = server or self.servers.get(name) or f"http://127.0.0.1:{self.port}"
        number = self.names.index(name) % (os.cpu_count() or 1)
        log = (self.directory / f"{name}.log").open("ab")
        self.agents[name] = subprocess.Popen(
            [
                *inside,
                *DFRS,
                "agent",
                "--server",
                self.servers[name],
                "--token-file",
                self.state / "agent.token",
                "--name",
                name,
                "--cluster",
                self.name,
                "--root",
                self.directory / "host",
                "--cpus",
                str(number),
                "--memory",
                "1G",
                *([] if self.run_as is None else ["--run-as", self.run_as]),
                *self.agent_options,
            ],
            stdout=log,
            stderr=log,
            env=os.environ | self.variables.get(name, {}),
            start_new_session=True,
        )

    def kill(self, process):
        """kill -9, and wait until it is gone."""
        process.kill()
        process.wait()

    def kill_node(self, name):
        """The machine burns down: the agent and every process of its tasks at once."""
        self.kill(self.agents[name])
        for node in self.client.get("/api/v1/nodes").json():
            for task in node["tasks"] if node["name"] == name else ():
                for pid in self.leftovers(f"tasks/{task['job']}.{task['rank']}."):
                    os.kill(pid, signal.SIGKILL)

    def leftovers(self, text=""):
        """Processes that belong to tasks of this cluster: their supervisors, and what those run."""
        supervisors = processes_with(f"{self.directory}/host/{text}")
        agents = {agent.pid for agent in self.agents.values()}
        return [pid for pid in {*supervisors, *(p for s in supervisors for p in descendants(s))} if pid not in agents]

    def groups(self):
        """Control groups of tasks that this cluster has: some hierarchies have them below their node's."""
        # Searched by `glob.glob`, which passes over what goes meanwhile; `Path.glob` fails then.
        found = (glob.glob(f"{GROUPS}/*/dfrs/{self.name}/{below}*.*.*") for below in ("", "*/"))
        return [Path(path) for path in chain(*found) if os.path.isdir(path)]

    def remove_groups(self):
        """Remove what agents left of their node's own groups; what goes by itself meanwhile is gone."""
        for top in GROUPS.glob(f"*/dfrs/{self.name}"):
            for path, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(path)

    def submit(self, *command, **fields):
        """The job's id."""
        answer = self.client.post("/api/v1/jobs", json={"command": command, "directory": str(self.directory)} | fields)
        assert answer.status_code in {200, 201}, answer.text
        return answer.json()["jobs"][0]

    def job(self, job):
        """As the API gives it."""
        return self.client.get(f"/api/v1/jobs/{job}").raise_for_status().json()

    def wait_for(self, job, *states, patience_s=PATIENCE_S):
        """The job, once it is in one of these states."""
        return wait_until(
            lambda: (found := self.job(job)) and (found if found["state"] in states else None),
            f"job {job} in {states}: {self.job(job)}",
            patience_s,
        )

    def wait_ended(self, jobs, patience_s=PATIENCE_S):
        """All these jobs, once they have ended."""
        ends = [state.value for state in ENDED]
        return [self.wait_for(job, *ends, patience_s=patience_s) for job in jobs]

    def up(self):
        """Names of the nodes that are up."""
        return [node["name"] for node in self.client.get("/api/v1/nodes").json() if node["state"] == "up"]
