"""The cloud_traces part: CPU seconds and peak memory to read a synthetic cloud trace of a million rows, by format.

Peak memory is of a process of its own, beside that of one that only loads the reader.
"""

import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.common import console, peak_memory_mib

ROWS = 1_000_000
BEGIN_US = 600_000_000


def google(path: Path, rows: int, rng: np.random.Generator) -> Path:
    """JSON lines of instance_events: instances with three events each, as BigQuery exports them."""
    count = rows // 3
    submit = np.sort(rng.integers(0, 86_400_000_000, count)) + BEGIN_US
    start = submit + rng.integers(1, 60_000_000, count)
    end = start + rng.integers(1, 7_200_000_000, count)
    cpus, memory = rng.random((2, count)) / 20 + 1e-3

    def lines() -> Iterator[str]:
        for k in range(count):
            request = {"cpus": float(cpus[k]), "memory": float(memory[k])}
            for time, kind in ((submit[k], 0), (start[k], 3), (end[k], 6)):
                event = {"time": str(time), "type": str(kind), "collection_id": str(400_000_000_000 + k // 5)}
                event |= {
                    "scheduling_class": "1",
                    "collection_type": "0",
                    "priority": "103",
                    "alloc_collection_id": "0",
                }
                row = event | {"instance_index": str(k % 5), "machine_id": "0", "resource_request": request}
                yield json.dumps(row, separators=(",", ":")) + "\n"

    with path.open("w") as file:
        file.writelines(lines())
    return path


def alibaba(path: Path, rows: int, rng: np.random.Generator) -> Path:
    """A batch_task.csv."""
    start = np.sort(rng.integers(1, 691_200, rows))
    end = start + rng.integers(0, 3_600, rows)
    instances = rng.integers(1, 50, rows)
    with path.open("w") as file:
        file.writelines(
            f"M1,{instances[k]},j_{k},1,Terminated,{start[k]},{end[k]},{50 + k % 4 * 50},{0.1 + k % 8 / 10:.2f}\n"
            for k in range(rows)
        )
    return path


def azure(path: Path, rows: int, rng: np.random.Generator) -> Path:
    """An SQLite file with that many VMs of ten types on two machines."""
    start = np.sort(rng.random(rows) * 14)
    end = start + rng.random(rows)
    with closing(sqlite3.connect(path)) as database, database:
        vm = "vmId INTEGER, tenantId INTEGER, vmTypeId INTEGER, priority INTEGER, starttime REAL, endtime REAL"
        kind = "id INTEGER, vmTypeId INTEGER, machineId INTEGER, core REAL, memory REAL, hdd REAL, ssd REAL, nic REAL"
        database.execute(f"CREATE TABLE vm ({vm})")
        database.execute(f"CREATE TABLE vmType ({kind})")
        types = [(k, k % 10, k // 10, 0.05 * (k % 10 + 1), 0.04, None, 0.1, 0.1) for k in range(20)]
        database.executemany("INSERT INTO vmType VALUES (?, ?, ?, ?, ?, ?, ?, ?)", types)
        database.executemany(
            "INSERT INTO vm VALUES (?, ?, ?, ?, ?, ?)",
            (
                (k, k % 1_000, k % 10, k % 2, float(start[k]), None if k % 20 == 0 else float(end[k]))
                for k in range(rows)
            ),
        )
    return path


def main() -> None:
    """One row for each format."""
    made = Table(title=f"Cloud traces of {ROWS:,} rows", title_justify="left", box=None, header_style="bold")
    for name in ("format", "file", "CPU time", "jobs", "peak", "above the reader alone"):
        made.add_column(name, justify="left" if name == "format" else "right")
    load = "import time\nfrom dfrs.workloads.clouds.load import read_cloud_trace\n"
    alone = peak_memory_mib(load)
    with tempfile.TemporaryDirectory() as folder:
        for write, name in ((google, "Google 2019, JSON"), (alibaba, "Alibaba 2018"), (azure, "Azure 2020")):
            path = write(Path(folder) / write.__name__, ROWS, np.random.default_rng(1))
            told = Path(folder) / "told.json"
            code = f"{load}import json, pathlib\nbegan = time.process_time()\n"
            code += f"w = read_cloud_trace({str(path)!r}, nodes=4)\n"
            code += f"pathlib.Path({str(told)!r}).write_text(json.dumps([time.process_time() - began, len(w)]))\n"
            peak = peak_memory_mib(code)
            seconds, jobs = json.loads(told.read_text())
            size = f"{path.stat().st_size / 2**20:,.0f} MiB"
            made.add_row(name, size, f"{seconds:.1f} s", f"{jobs:,}", f"{peak:,.0f} MiB", f"{peak - alone:,.0f} MiB")
            path.unlink()
    console.print(made)
    console.print(f"The reader alone: {alone:,.0f} MiB")


if __name__ == "__main__":
    main()
