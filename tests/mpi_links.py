"""Links between network namespaces made for a test: a delay, a rate, and Open MPI over them. Needs root.

Everything stays in namespaces made here, under names of their own, and is removed also after a failure.
"""

import os
import shutil
import subprocess
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "mpi"


@dataclass(frozen=True)
class Link:
    """Two namespaces; `first` and `second` are their names."""

    first: str
    second: str


def compiled(name, place, compiler="mpicc"):
    """A test program, compiled into `place`."""
    program = Path(place) / name
    subprocess.run([compiler, "-O2", "-o", str(program), str(SOURCES / f"{name}.c")], check=True, capture_output=True)
    return program


@contextmanager
def link(place, delay_s, rate, network="10.213.87"):
    """Two namespaces with a link of `delay_s` seconds one way, and a rate as tc writes it."""
    relay = compiled("relay", place, "cc")
    mark = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    found = Link(first=f"dfrs-{mark}-a", second=f"dfrs-{mark}-b")
    with ExitStack() as stack:
        for name in (found.first, found.second):
            _run("ip", "netns", "add", name)
            stack.callback(subprocess.run, ["ip", "netns", "del", name], check=False, capture_output=True)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        carrier = subprocess.Popen(
            [str(relay), found.first, found.second, "link0", str(round(1e6 * delay_s))],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        stack.callback(_end, carrier)
        assert carrier.stdout.readline() == "ready\n", "no TUN interfaces: is there a /dev/net/tun?"
        for k, name in enumerate((found.first, found.second), start=1):
            _run("ip", "-n", name, "addr", "add", f"{network}.{k}/24", "dev", "link0")
            _run("ip", "-n", name, "link", "set", "link0", "up")
            limit = ["rate", rate, "burst", "5kb", "latency", "400ms"]
            _run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "link0", "root", "tbf", *limit)
        yield found


def missing():
    """What these tests lack here, in words; empty if nothing."""
    if os.geteuid() != 0:
        return "needs root"
    for program in ("mpicc", "mpirun", "ip", "tc"):
        if shutil.which(program) is None:
            return f"no {program}"
    if not Path("/dev/net/tun").exists():
        return "no /dev/net/tun"
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
    return "" if "Open MPI" in version else "mpirun is not Open MPI's"


def _run(*command):
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, f"{' '.join(command)}: {answer.stderr.strip()}"


def _end(process):
    process.kill()
    process.wait()
    process.stdout.close()
