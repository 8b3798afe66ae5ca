"""10,000 jobs submitted by 20 clients at once through the API of a real controller, and how it answers meanwhile."""

import json
import multiprocessing
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
from tests.live_processes import LiveCluster

from benchmarks.common import console
from benchmarks.online import table

CLIENTS, JOBS = 20, 10_000
GOAL_PER_S = 300


def client(url: str, token: str, count: int, told: "multiprocessing.Queue[list[int]]") -> None:
    """One user who submits job after job."""
    ids: list[int] = []
    body = {"command": ["sleep", "100000"], "memory_bytes": 512 << 20}
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as session:
        for _ in range(count):
            ids += session.post("/api/v1/jobs", json=body).raise_for_status().json()["jobs"]
    told.put(ids)


def watch(cluster: LiveCluster, stop: threading.Event, seconds: dict[str, list[float]]) -> None:
    """What someone at the dashboard waits for."""
    with httpx.Client(base_url=cluster.client.base_url, headers=cluster.client.headers, timeout=60) as session:
        while not stop.is_set():
            for path, spent in seconds.items():
                started = time.perf_counter()
                session.get(path).raise_for_status()
                spent.append(time.perf_counter() - started)
            time.sleep(0.2)


def main() -> None:
    """Submit, watch, count."""
    seconds: dict[str, list[float]] = {"/": [], "/api/v1/cluster": [], "/api/v1/jobs?limit=100": []}
    with tempfile.TemporaryDirectory() as name, LiveCluster(Path(name), nodes=1) as cluster:
        token = json.loads((cluster.state / "client.json").read_text())["token"]
        url = f"http://127.0.0.1:{cluster.port}"
        told: multiprocessing.Queue[list[int]] = multiprocessing.Queue()
        clients = [
            multiprocessing.Process(target=client, args=(url, token, JOBS // CLIENTS, told)) for _ in range(CLIENTS)
        ]
        stop = threading.Event()
        watcher = threading.Thread(target=watch, args=(cluster, stop, seconds))
        watcher.start()
        started = time.perf_counter()
        for process in clients:
            process.start()
        ids = [job for _ in clients for job in told.get()]
        took_s = time.perf_counter() - started
        stop.set()
        watcher.join()
        counts = cluster.client.get("/api/v1/cluster").json()["jobs"]
    lost = JOBS - min(len(set(ids)), sum(counts.values()))
    rate = JOBS / took_s
    made = table(f"{JOBS:,} jobs by {CLIENTS} clients, on the same CPUs", "what", "measured", "goal", "met")
    made.add_row("submissions", f"{rate:,.0f}/s", f"{GOAL_PER_S}/s", "yes" if rate >= GOAL_PER_S else "NO")
    made.add_row("lost", str(lost), "0", "yes" if not lost else "NO")
    for path, spent in seconds.items():
        half, most = np.quantile(spent, [0.5, 1.0]) * 1000
        made.add_row(f"GET {path}", f"median {half:.0f} ms, at most {most:.0f} ms", "", "")
    console.print()
    console.print(made)


if __name__ == "__main__":
    main()
