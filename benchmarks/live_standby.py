"""How long a cluster is without a leader: two controllers on a PostgreSQL, jobs, submissions, and a leader that goes.

Run as root, with PostgreSQL installed: python -m benchmarks.live_standby.

Each row is one take-over: how the leader went, then seconds until the other one answers, until all agents are connected
to it, and the longest that a user's submission took who submits all the time, ten a second. The leader that went comes
back as standby before the next.
"""

import signal
import tempfile
import time
from itertools import repeat
from pathlib import Path

from tests.live_pair import ControllerPair, Submitter, shell_job
from tests.live_postgres import postgres_server
from tests.live_processes import wait_until

from benchmarks.common import console

WAYS = ("kill -9", "SIGSTOP", "SIGTERM")
SIGNALS = {"kill -9": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP, "SIGTERM": signal.SIGTERM}
ROUNDS, JOBS = 3, 100


def main() -> None:
    """Print a row for each take-over."""
    with (
        postgres_server() as (url, _, _),
        tempfile.TemporaryDirectory(prefix="dfrs-standby-") as directory,
        ControllerPair(Path(directory), url) as pair,
    ):
        job = shell_job(Path(directory), 100_000).model_dump(mode="json", exclude_defaults=True)
        for _ in range(JOBS):
            pair.client.post("/api/v1/jobs", json=job).raise_for_status()
        wait_until(lambda: _running(pair) == JOBS, f"{JOBS} jobs run", 300)
        console.print(f"{JOBS} jobs on {len(pair.names)} nodes; seconds until")
        console.print(f"{'the leader':12} {'another leads':>14} {'has all agents':>15} {'longest submission':>19}")
        for way in WAYS * ROUNDS:
            _take_over(pair, way)


def _running(pair: ControllerPair) -> int:
    return pair.client.get("/api/v1/cluster").json()["jobs"].get("running", 0)


def _take_over(pair: ControllerPair, way: str) -> None:
    old, new = pair.leader, "b" if pair.leader == "a" else "a"
    user = Submitter(pair, repeat(shell_job(pair.directory, 1)), 0.1)
    user.start()
    wait_until(lambda: len(user.taken) > 10, "jobs are submitted")
    pair.signal(old, SIGNALS[way])
    took_s = pair.wait_for_leader(new)
    agents_s = took_s + pair.wait_connected()
    before = len(user.taken)
    wait_until(lambda: len(user.taken) > before + 10, "jobs are submitted to the other")
    user.stop()
    console.print(f"{way:12} {took_s:14.2f} {agents_s:15.2f} {user.longest_s:19.2f}")
    if way == "SIGSTOP":
        pair.signal(old, signal.SIGCONT)
    pair.controllers[old].wait()
    pair.start_one(old)
    wait_until(lambda: "dfrs_standbys 1.0" in pair.client.get("/metrics").text, "it stands by")
    time.sleep(3.0)


if __name__ == "__main__":
    main()
