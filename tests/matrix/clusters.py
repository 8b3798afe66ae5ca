"""The clusters that faults happen to: their connections can be disturbed, and they say when all is well."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import httpx
import sqlalchemy as sa

from tests.live_pair import ControllerPair
from tests.live_processes import LiveCluster, wait_until
from tests.live_proxy import Line

CLOCK = Path(__file__).parent / "clock"
PATIENCE_S = 60.0
STEADY_S = 2.0


class _Disturbed:
    """Of both kinds of cluster: what connections go through, and what must be closed."""

    lines: dict

    def __exit__(self, kind, *rest):
        for agent in self.agents.values():
            with suppress(ProcessLookupError):
                agent.send_signal(signal.SIGCONT)
        super().__exit__(kind, *rest)
        for line in self.lines.values():
            line.close()

    def nodes_well(self):
        """Whether all nodes are up and connected."""
        nodes = [node for node in self.client.get("/api/v1/nodes").json() if node["state"] != "lost"]
        return len(nodes) == len(self.names) and all(node["connected"] and node["state"] == "up" for node in nodes)

    def wait_well(self, patience_s=PATIENCE_S):
        """Wait until all is well and stays so for STEADY_S; seconds until it began to be.

        What was said before a connection broke may arrive late and look like an answer.
        """
        began = time.monotonic()
        since_s = None

        def steady():
            nonlocal since_s
            try:
                well = self.well()
            except (httpx.HTTPError, ValueError):
                well = False
            now_s = time.monotonic()
            since_s = (now_s if since_s is None else since_s) if well else None
            return well and now_s - since_s >= STEADY_S

        wait_until(steady, "all is well", patience_s)
        return since_s - began


class Single(_Disturbed, LiveCluster):
    """One controller on SQLite; each agent reaches it by a connection of `middle`, a class of `tests.live_proxy`."""

    def __init__(self, directory, middle=Line, **options):
        super().__init__(directory, **options)
        self.lines, self._middle = {}, middle
        self._ahead = {name: self.directory / f"{name}.clock" for name in ("controller", *self.names)}
        for name, path in self._ahead.items():
            self.set_clock(name, 0)
            paths = os.pathsep.join([str(CLOCK), *filter(None, [os.environ.get("PYTHONPATH")])])
            self.variables[name] = {"PYTHONPATH": paths, "DFRS_TESTS_CLOCK": str(path)}

    def set_clock(self, name, ahead_s):
        """Set the wall clock of the controller, or of an agent and its tasks, ahead of the real one."""
        new = self._ahead[name].with_suffix(".new")
        new.write_text(str(ahead_s))
        # It is read all the time: there is always all of it.
        new.replace(self._ahead[name])

    def start_agent(self, name, server=None, inside=()):
        """Start or restart it, behind its line."""
        if name not in self.lines:
            self.lines[name] = self._middle(self.port)
        super().start_agent(name, server or self.lines[name].url, inside)

    def well(self):
        """Whether the controller answers, and all nodes are up and connected."""
        return self.client.get("/healthz").status_code == 200 and self.nodes_well()


class Pair(_Disturbed, ControllerPair):
    """A leader and a standby; each reaches the PostgreSQL through a line of its own."""

    def __init__(self, directory, database):
        super().__init__(directory, database)
        url = sa.make_url(database)
        self.lines = {name: Line(url.port) for name in "ab"}
        for name, line in self.lines.items():
            self.variables[name] = {"DFRS_DATABASE": str(url.set(port=line.port))}

    def well(self):
        """Whether one leads, the other stands by, and all nodes are up and connected.

        One that was replaced has ended: it is started again, as service managers do.
        """
        for name, process in self.controllers.items():
            if process.poll() is not None:
                self.start_one(name)
        answers = {name: found.status_code for name in "ab" if (found := self.answer(name)) is not None}
        leaders = [name for name, status in answers.items() if status == 200]
        if len(leaders) != 1 or len(answers) != 2:
            return False
        if leaders != [self.leader]:
            self.wait_for_leader(leaders[0])
        return "dfrs_standbys 1.0" in self.client.get("/metrics").text and self.nodes_well()
