"""A live cluster of two nodes on this machine, a mix of real programs, and what other schedulers would have made of it.

It ends with a table of four rows: the live run; its replay, which is the same policy simulated on the work that was
measured; and two batch schedulers on the same work.

    make demo            or            .venv/bin/python examples/live_demo.py

Every step is a command of `dfrs` that you can give yourself; they are printed as they are run. All is ended at the end,
also by Ctrl-C.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from dfrs.cli.live.serve import DISCOVERY, POLICY, decide_once
from dfrs.cli.views.live import frame, yields_words
from dfrs.live.client import Client, find_endpoint
from dfrs.live.drivers.cpu_times import cpu_times
from dfrs.live.protocol.resources import ENDED, TimePoint

ROOT = Path(__file__).resolve().parents[1]
JOBS = ROOT / "examples" / "jobs"
OUT = ROOT / "out" / "live-demo"
DFRS = [sys.executable, "-m", "dfrs.cli.main"]
PYTHON = sys.executable
LONGEST_S = 240.0
"""The jobs need about 60 s of CPU; on a busy machine they take longer, but not for ever."""

# Seconds to wait before it, options, program: CPU-bound, half idle, much memory, parallel, many short ones.
PLAN = [
    (0, "--name long --cpu 1 --memory 128M --time 1m", "crunch.py 28"),
    (0, "--name unknown --memory 128M --time 30s", "crunch.py 14"),
    (1, "--name half-idle --memory 128M --time 20s", "half_idle.py 3"),
    (1, "--name memory --memory 768M --time 20s", "hold_memory.py 512 12"),
    (1, "--name pi --tasks 2 --cpu 1 --memory 128M --time 20s", "pi.py 35000000"),
    (2, "--array 6 --time 5s", "short.sh"),
    (3, "--name late --cpu 1 --min-yield 0.2 --memory 128M --time 10s", "crunch.py 2"),
]


def dfrs(*arguments: str) -> str:
    """Run `dfrs` and show the command; what it printed. Stops the demo where it fails."""
    told = shlex.join(arguments).replace(PYTHON, "python").replace(f"{ROOT}/", "")
    print(f"$ dfrs {told}", flush=True)
    done = subprocess.run([*DFRS, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"dfrs {arguments[0]} ended with status {done.returncode}")
    return done.stdout


@contextmanager
def cluster(state: Path) -> Generator[None]:
    """Two nodes on this machine as long as the block lasts; nothing is left afterwards."""
    os.environ["DFRS_STATE"] = str(state)
    try:
        # The demo's programs and directories may be closed to any other account than the one that runs it.
        options = ["--nodes", "2", "--port", "0", "--detach", *(["--run-as", "root"] if os.geteuid() == 0 else [])]
        print(f"$ export DFRS_STATE={state}\n$ dfrs up {' '.join(options)}", flush=True)
        # Not through a pipe: on a terminal it prints the address of the dashboard with its token.
        subprocess.run([*DFRS, "up", *options], check=True)
        yield
    finally:
        # A second Ctrl-C must not keep it from ending what runs.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print(dfrs("down"), end="", flush=True)


def compile_once() -> None:
    """What decides is compiled when it is used for the first time: here, so that no job waits for it."""
    print("Compiling what decides, if it is not (once; a minute or two).", flush=True)
    decide_once([POLICY], DISCOVERY)


def submit_all() -> None:
    """Submit the jobs of the plan, spread over some seconds."""
    for wait_s, options, program in PLAN:
        time.sleep(wait_s)
        file, *arguments = program.split()
        # A script says by which interpreter it is run.
        command = [*([PYTHON] if file.endswith(".py") else []), str(JOBS / file), *arguments]
        print(dfrs("submit", *options.split(), "--", *command), end="", flush=True)


def watch(client: Client, console: Console, until: float) -> None:
    """Show the cluster until all jobs have ended: each second a picture, or a line now and then without a terminal."""

    def look(height: int):  # noqa: ANN202
        return frame(client.snapshot(), client.activity(limit=20), console.width, height)

    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as screen:
            while client.jobs(limit=1) and time.time() < until:
                screen.update(look(console.height - 1), refresh=True)
                time.sleep(1)
        return
    while (seen := client.snapshot()).jobs and time.time() < until:
        print(f"{len(seen.jobs)} jobs, {yields_words(seen.cluster)}", flush=True)
        time.sleep(5)


def busy_s() -> float:
    """CPU time that all programs on this machine have used since it started."""
    times = cpu_times(range(os.cpu_count() or 1))
    return 0.0 if times is None else times.busy_s


def average(points: Sequence[TimePoint], field: str) -> float:
    """The mean over time of a column of the cluster's history, where there were jobs."""
    spans = ((here, there.time - here.time) for here, there in pairwise(points))
    known = [(here, span_s) for here, span_s in spans if here.minimum_yield is not None]
    total_s = sum(span_s for _, span_s in known)
    return sum((getattr(here, field) or 0.0) * span_s for here, span_s in known) / total_s if total_s else 1.0


def compare_schedules(directory: Path, policy: str, console: Console) -> float:
    """Print four schedules of the same work; mean stretch of the live run over that of its replay."""
    runs = json.loads(dfrs("compare", "--json", str(directory / "live"), str(directory / "replayed")))
    found = {(run["policy"], bool(run["configuration"].get("live"))): run["metrics"] for run in runs}
    rows = {"live": (policy, True), "its replay": (policy, False), "EASY": ("EASY", False), "FCFS": ("FCFS", False)}
    columns = (
        ("mean\nstretch", "bounded_stretch_mean", ".2f"),
        ("worst\nstretch", "bounded_stretch_max", ".2f"),
        ("mean\nwait s", "wait_mean_s", ".1f"),
        ("longest\nwait s", "wait_max_s", ".1f"),
        ("all done\nafter s", "makespan_s", ".1f"),
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("schedule", vertical="bottom")
    for title, *_ in columns:
        table.add_column(title, justify="right")
    for name, key in rows.items():
        table.add_row(name, *(format(found[key][metric], form) for _, metric, form in columns))
    console.print(table)
    live, replay = (found[rows[name]]["bounded_stretch_mean"] for name in ("live", "its replay"))
    print("stretch: time in the system over the time alone, each at least 10 s")
    print(f"mean stretch of the live run over that of its replay: {live / replay:.2f}")
    return live / replay


def main() -> None:
    """The demo."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    compile_once()
    with tempfile.TemporaryDirectory(prefix="dfrs-demo-") as folder, cluster(Path(folder) / "state"):
        os.chdir(folder)
        try:
            begin, before_s = time.time(), busy_s()
            submit_all()
            with Client(find_endpoint()) as client:
                watch(client, Console(), begin + LONGEST_S)
                points = client.timeseries(begin)
                jobs_s = sum(job.cpu_s for job in client.all_jobs(states=ENDED))
                others_cores = max(0.0, busy_s() - before_s - jobs_s) / (time.time() - begin)
            print(dfrs("explain", "1"), end="")
            print(dfrs("history", "--since", "1h"), end="")
            least, bound = average(points, "minimum_yield"), average(points, "bound")
            print(f"minimum yield, mean over the time with jobs: {least:.2f}; no schedule gives more than {bound:.2f}")
        finally:
            os.chdir(ROOT)
        shutil.rmtree(OUT, ignore_errors=True)
        print(dfrs("export", "-o", str(OUT / "live")), end="")
    policy = json.loads((OUT / "live" / "summary.json").read_text())["policy"]
    print("\nThe same work, as it was measured, under the same policy and under batch schedulers:")
    named = ("-p", policy, "-p", "EASY", "-p", "FCFS")
    dfrs("simulate", "--from-log", f"{OUT}/live", *named, "-o", f"{OUT}/replayed")
    ratio = compare_schedules(OUT, policy, Console())
    (OUT / "agreement.json").write_text(json.dumps({"ratio": ratio, "others_cores": others_cores}))
    print(f"other programs, this one among them, used {others_cores:.2f} of {os.cpu_count()} CPUs while the jobs ran")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; everything has been ended")
