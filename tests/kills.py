"""Kills: jobs that are paused and moved between hosts all the time, while whoever does that is killed or cut off.

`python -m tests.kills 200` kills an agent or the controller of a cluster of three hosts, or cuts a host off, at 200
random instants, as root; with `--seed` the choices repeat, the instants do not. Each job counts aloud; in the end each
must have said every number once, no job may be lost, and no image may be left. Needs a CRIU, as `make criu` unpacks.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dfrs.live.client import Client, read_client_file
from dfrs.live.protocol.resources import ENDED, JobRequest, JobState
from tests.images import CRIU, WHY
from tests.installed_policy import installed
from tests.live_processes import processes_with
from tests.small_policies import Mover

DFRS = (sys.executable, "-m", "dfrs.cli.main")
HOSTS, JOBS = 3, 8
PERIOD_S = 1.5
"""Between two decisions that move and pause jobs."""
CUT_S = 4.0
PROGRAM = """
import sys, time
data = bytearray(bytes(range(256)) * 4096 * 24)
said = sum(data[::4097])
for number in range(int(sys.argv[1])):
    assert number % 16 or sum(data[::4097]) == said
    print(number, flush=True)
    time.sleep(0.05)
"""


def erratic():
    """Moves and pauses jobs all the time."""
    return Mover(PERIOD_S)


class Kills:
    """A cluster in `folder`, jobs that count for `seconds`, and what is done to it."""

    def __init__(self, folder, seconds, seed):
        self.folder, self.state, self.seconds = Path(folder), Path(folder) / "state", seconds
        self.random = random.Random(seed)
        self.done = dict.fromkeys(("agent", "controller", "cut"), 0)
        found = installed(self.folder / "policy", "Erratic", "tests.kills:erratic")
        self.environment = os.environ | found | {"DFRS_STATE": str(self.state), "DFRS_PORT": "0"}

    def command(self, *arguments):
        return subprocess.run(
            [*DFRS, *map(str, arguments)], env=self.environment, capture_output=True, text=True, check=True, timeout=120
        ).stdout

    def __enter__(self):
        self.up = subprocess.Popen(
            [*DFRS, "up", "--hosts", str(HOSTS), "--memory-per-node", "256M", "--policy", "Erratic", "--json"],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for line in self.up.stdout:
            if line == "}\n":
                break
        self.client = Client(read_client_file(self.state))
        return self

    def __exit__(self, *_):
        with open(os.devnull, "w") as nowhere:
            subprocess.run([*DFRS, "down"], env=self.environment, stdout=nowhere, timeout=120, check=False)
        self.up.terminate()
        self.up.wait(60)

    def submit(self):
        """Jobs that count; their ids."""
        command = (sys.executable, "-c", PROGRAM, str(int(self.seconds / 0.05)))
        request = JobRequest(command=command, cpu_cores=0.3, memory_bytes=100 << 20, restart="never")
        return [self.client.submit(request)[0] for _ in range(JOBS)]

    def strike(self):
        """At a random instant, one of them."""
        time.sleep(self.random.random() * 2.0)
        kind = self.random.choice(("agent", "agent", "agent", "controller", "cut"))
        host = f"host{self.random.randint(1, HOSTS)}"
        if kind == "cut":
            self.cut(host)
        else:
            words = (f"--name={host}-1",) if kind == "agent" else ("serve",)
            pids = [pid for pid in processes_with(str(self.state)) if _is(pid, kind, words[0])]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            if not pids:
                return
        self.done[kind] += 1

    def cut(self, host):
        """A host reaches no other, and nobody reaches it, for some seconds."""
        first = (self.state / "hosts" / f"{host}.process").read_text().split()[0]
        enter = ("nsenter", "-t", first, "-n", "ip", "link", "set", "eth0")
        subprocess.run([*enter, "down"], check=True)
        time.sleep(self.random.random() * CUT_S)
        subprocess.run([*enter, "up"], check=True)

    def ended(self, jobs, patience_s):
        """How the jobs ended."""
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            try:
                found = [self.client.job(job) for job in jobs]
            except Exception:
                # Its controller may just have been killed.
                time.sleep(0.5)
                continue
            if all(job.state in ENDED for job in found):
                return found
            time.sleep(0.5)
        raise AssertionError(f"after {patience_s} s: {[(job.id, job.state.value, job.why) for job in found]}")

    def problems(self, jobs):
        """What is wrong with them, a line each."""
        found = []
        for job in self.ended(jobs, 600.0):
            said = self.command("logs", job.id).split()
            whole = [str(number) for number in range(int(self.seconds / 0.05))]
            if job.state is not JobState.DONE:
                found.append(f"job {job.id}: {job.state.value}: {job.exit}; said {len(said)} numbers")
                found += [f"  {line}" for line in self.command("explain", job.id).splitlines()[-12:]]
            elif said != whole:
                missing = sorted(set(map(int, whole)) - set(map(int, said)))
                found.append(f"job {job.id}: said {len(said)} numbers; missing: {missing[:1]} to {missing[-1:]}")
        images = [str(path) for path in self.state.glob("hosts/*/images/*")]
        until = time.monotonic() + 30.0
        while images and time.monotonic() < until:
            time.sleep(0.5)
            images = [str(path) for path in self.state.glob("hosts/*/images/*")]
        return found + [f"left behind: {path}" for path in images]


def _is(pid, kind, word):
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return False
    return word in words and ("agent" in words) == (kind == "agent") and "up" not in words and "nsenter" not in words


def moved(client, jobs):
    """(moves between nodes, pauses) of the jobs."""
    found = [client.job(job) for job in jobs]
    return sum(job.migrations for job in found), sum(job.pauses for job in found)


def main():
    """Strike so often, and say what went wrong; exit status 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if CRIU is None or os.geteuid() != 0:
        parser.error(WHY or "needs root")
    with tempfile.TemporaryDirectory(prefix="dfrs-kills-") as folder, Kills(folder, 40.0, options.seed) as kills:
        wrong, struck, total = [], 0, [0, 0]
        while struck < options.kills:
            jobs = kills.submit()
            begin = struck
            while struck < options.kills and struck - begin < 12:
                kills.strike()
                struck += 1
            wrong += kills.problems(jobs)
            total = [a + b for a, b in zip(total, moved(kills.client, jobs), strict=True)]
            print(f"{struck} strikes {kills.done}, {total[0]} moves, {total[1]} pauses; {len(wrong)} problems")
            print(*wrong, sep="\n", flush=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
