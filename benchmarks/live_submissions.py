"""20,000 jobs submitted by 32 clients at once through the API of a real controller, and how it answers meanwhile."""

import json
import multiprocessing
import socket
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
from tests.live_processes import LiveCluster

from benchmarks.common import console
from benchmarks.online import table

CLIENTS, JOBS = 32, 20_000
GOAL_PER_S = 1000


def client(port: int, token: str, count: int, told: "multiprocessing.Queue[list[int]]") -> None:
    """One user who submits job after job over one connection, and leaves the CPUs to the controller."""
    ids: list[int] = []
    body = json.dumps({"command": ["sleep", "100000"], "memory_bytes": 512 << 20}).encode()
    head = (
        f"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        for _ in range(count):
            connection.sendall(request)
            ids += json.loads(answer(connection))["jobs"]
    told.put(ids)


def answer(connection: socket.socket) -> bytes:
    """The body of one answer, which says that something was made."""
    told = b""
    while True:
        head, whole, body = told.partition(b"\r\n\r\n")
        if whole:
            if not head.startswith(b"HTTP/1.1 201 "):
                raise RuntimeError(told.decode())
            if len(body) == int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0]):
                return body
        told += connection.recv(1 << 16)


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
        told: multiprocessing.Queue[list[int]] = multiprocessing.Queue()
        clients = [
            multiprocessing.Process(target=client, args=(cluster.port, token, JOBS // CLIENTS, told))
            for _ in range(CLIENTS)
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
