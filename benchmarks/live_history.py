"""A controller with a long past: 1,000,000 events, 500,000 ended jobs, and 10,000 jobs in its queue.

How long it takes to start, what it needs, how fast it answers, and the same while it prunes all of the past.
"""

import json
import signal
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
from tests.live_processes import LiveCluster, wait_until

from benchmarks.common import console
from benchmarks.online import table

EVENTS, QUEUED = 1_000_000, 10_000
ENDED = EVENTS // 2
FIRST, YEAR_S = 1_000_000, 365 * 86400.0
"""Number of the first job of the past, and how long ago that was."""
ASKED = 40
"""So often each route is asked."""
START_GOAL_S, KILLED_GOAL_S, ANSWER_GOAL_MS, MEMORY_GOAL_MIB = 10.0, 3.0, 200.0, 500.0
PRUNE_S = 40.0
"""So long it is watched while it prunes."""
ROUTES = (
    "/api/v1/cluster",
    "/api/v1/jobs?limit=100",
    "/api/v1/jobs?limit=100&state=done",
    "/api/v1/jobs/{job}",
    "/api/v1/jobs/{job}/explain",
    "/api/v1/jobs/{job}/start",
    "/api/v1/nodes",
    "/api/v1/reservations",
    "/api/v1/snapshot?limit=200&queue=200&job={job}",
    "/api/v1/activity",
    "/api/v1/timeseries",
    "/api/v1/gantt",
    "/api/v1/shadow",
    "/api/v1/tokens",
    "/api/v1/me",
    "/healthz",
    "/metrics",
)


def queue(cluster: LiveCluster) -> None:
    """Jobs that wait: the node has memory for some of them."""
    body = {"command": ["sleep", "100000"], "memory_bytes": 512 << 20, "array": 1000}
    for _ in range(QUEUED // 1000):
        cluster.client.post("/api/v1/jobs", json=body, timeout=60).raise_for_status()


def stop(cluster: LiveCluster) -> None:
    """As an operator stops it: it stores its state."""
    cluster.controller.send_signal(signal.SIGTERM)
    cluster.controller.wait()


def lengthen(database: Path, final: str) -> None:
    """Put a past before what it has: jobs that came and went a year ago. `final` has a place for a job's number."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        for name in ("events", "checkpoints", "activity"):
            # In two steps, since numbers that are there already would be in the way.
            connection.execute(f"UPDATE {name} SET sequence = -sequence")
            connection.execute(f"UPDATE {name} SET sequence = {EVENTS} - sequence")
        past = float(connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()[0]) - YEAR_S
        connection.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (repr(past),))
        request = json.dumps({"command": ["sleep", "1"], "memory_bytes": 1 << 20})
        outcome = json.dumps({"state": "done", "exit": "done", "by": ""})
        names = range(FIRST, FIRST + ENDED)
        connection.executemany("INSERT INTO events VALUES (?, 0.0, ?, ?)", _events())
        connection.executemany("INSERT INTO activity VALUES (?, ?, ?)", _activity(past))
        connection.executemany("INSERT INTO requests VALUES (?, ?)", ((name, request) for name in names))
        connection.executemany(
            "INSERT INTO jobs (id, request, owner, submitted_at, registered, held, started_at, outcome, ended_at,"
            " state, final) VALUES (?, ?, 'ann', ?, 1, 0, ?, ?, ?, 'done', ?)",
            ((name, name, past, past, outcome, past, final % name) for name in names),
        )
        connection.execute("COMMIT")


def _events() -> Iterator[tuple[int, str, str]]:
    for k in range(EVENTS):
        event: dict[str, object] = {"event": "complete", "job_id": FIRST + k // 2, "last": True}
        if k % 2 == 0:
            event = {"event": "submit", "job_id": FIRST + k // 2, "tasks": 1, "need": 0.5, "memory": 0.1, "user": 7}
        yield k + 1, json.dumps(event), "d" * 32


def _activity(past: float) -> Iterator[tuple[int, int, str]]:
    for k in range(EVENTS):
        what = {"action": ("submit", "finish")[k % 2], "why": "", "by": "ann"}
        yield k + 1, FIRST + k // 2, json.dumps({"time": past, "job": FIRST + k // 2, "node": None} | what)


def ended_job(cluster: LiveCluster) -> str:
    """The text of a job that has ended, with a place for its number."""
    name = cluster.submit("true", memory_bytes=1 << 20)
    job = cluster.wait_for(name, "done", "failed")
    return json.dumps(job | {"id": 0}).replace("%", "%%").replace('"id": 0', '"id": %d')


def start(cluster: LiveCluster) -> float:
    """Seconds until it has answered."""
    begun = time.perf_counter()
    cluster.start_controller()
    cluster.client.get("/api/v1/cluster").raise_for_status()
    return time.perf_counter() - begun


def peak_mib(process: int) -> float:
    """The most memory that it ever had."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def ask(cluster: LiveCluster, job: int, seconds: dict[str, list[float]]) -> None:
    """Every route once, as the page and programs ask; and a job that is submitted, changed, released and cancelled.

    Not in it are those whose answers are as long as their reader likes: whole lists, output, logs and exports.
    """
    with httpx.Client(base_url=cluster.client.base_url, headers=cluster.client.headers, timeout=60) as session:

        def timed(method: str, path: str, number: int, body: Mapping[str, object] | None = None) -> httpx.Response:
            begun = time.perf_counter()
            answer = session.request(method, path.format(job=number), json=body).raise_for_status()
            seconds.setdefault(f"{method} {path}", []).append(time.perf_counter() - begun)
            return answer

        for path in ROUTES:
            timed("GET", path, job)
        made = timed("POST", "/api/v1/jobs", 0, {"command": ["sleep", "60"], "held": True}).json()["jobs"][0]
        timed("PATCH", "/api/v1/jobs/{job}", made, {"name": "other"})
        for verb in ("release", "hold", "cancel"):
            timed("POST", f"/api/v1/jobs/{{job}}/{verb}", made)


def left(database: Path) -> int:
    """Events, ended jobs and lines of activity that are there."""
    with closing(sqlite3.connect(database)) as connection:
        counts = (connection.execute(f"SELECT count(*) FROM {name}") for name in ("events", "jobs", "activity"))
        return sum(found.fetchone()[0] for found in counts)


def main() -> None:
    """Make the past, start, ask, prune."""
    with tempfile.TemporaryDirectory() as name, LiveCluster(Path(name), nodes=1) as cluster:
        database = cluster.state / "dfrs.db"
        final = ended_job(cluster)
        queue(cluster)
        wait_until(lambda: cluster.client.get("/api/v1/cluster").json()["jobs"]["waiting"] > QUEUED - 10, "queued")
        cluster.kill(cluster.controller)
        killed_s = start(cluster)
        stop(cluster)
        lengthen(database, final)
        size_mib = database.stat().st_size / (1 << 20)
        start_s = start(cluster)
        seconds: dict[str, list[float]] = {}
        for _ in range(ASKED):
            ask(cluster, QUEUED // 2, seconds)
        memory_mib = peak_mib(cluster.controller.pid)
        stop(cluster)
        before = left(database)
        cluster.serve_options = (*cluster.serve_options, "--keep", "60s")
        again_s = start(cluster)
        pruning: dict[str, list[float]] = {}
        begun = time.perf_counter()
        while time.perf_counter() - begun < PRUNE_S:
            ask(cluster, QUEUED // 2, pruning)
        rate = (before - left(database)) / (time.perf_counter() - begun)
    title = f"{EVENTS:,} past events, {ENDED:,} ended and {QUEUED:,} queued jobs: {size_mib:,.0f} MiB"
    made = table(title, "what", "measured", "while it prunes", "goal", "met")
    goal = f"{KILLED_GOAL_S:g} s"
    made.add_row("start after SIGKILL, no past", f"{killed_s:.1f} s", "", goal, _met(killed_s <= KILLED_GOAL_S))
    made.add_row("start", f"{start_s:.1f} s", f"{again_s:.1f} s", f"{START_GOAL_S:g} s", _met(start_s <= START_GOAL_S))
    goal = f"{MEMORY_GOAL_MIB:g} MiB"
    made.add_row("memory, at most", f"{memory_mib:,.0f} MiB", "", goal, _met(memory_mib <= MEMORY_GOAL_MIB))
    made.add_row("rows pruned", "", f"{rate:,.0f}/s", "", "")
    for path, spent in seconds.items():
        most, other = np.quantile(spent, 0.99) * 1000, np.quantile(pruning[path], 0.99) * 1000
        met = _met(most <= ANSWER_GOAL_MS)
        made.add_row(f"{path}, 99 %", f"{most:.0f} ms", f"{other:.0f} ms", f"{ANSWER_GOAL_MS:g} ms", met)
    console.print()
    console.print(made)


def _met(good: bool) -> str:
    return "yes" if good else "NO"


if __name__ == "__main__":
    main()
