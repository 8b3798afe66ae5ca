"""A real Slurm of Debian's packages on this machine, for tests: munged, MariaDB, slurmdbd, slurmctld and some slurmd.

The daemons share a network namespace. The host `ctl` has the first four; each node is a host of its own, with a name,
mounts and control groups of its own, whose root is the node's group: so jobs of different clusters on one machine
do not meet, and a cap on that group is the node's size. On each host, Slurm's usual directories are those of the
cluster: commands need no option to find it. Daemons end with the test that started them, and keep their state when
they are killed before.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "devices", "freezer", "memory")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "unshare", "nsenter", "setpriv", "ip")
ACCOUNTING = ("mariadbd", "mariadb-install-db", "slurmdbd")
PERIOD_US = 100_000
HEAD = "ctl"
READY_S = 60.0

SITE = """ClusterName=tests
SlurmctldHost={head}({address})
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd.%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.%n.pid
ReturnToService=1
MpiDefault=none
{more}{nodes}"""
ACCOUNTS = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={head}
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=5
"""
# What a site that shares nothing has.
PLAIN = """ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
CGROUP = """CgroupPlugin=cgroup/v1
CgroupAutomount=no
ConstrainRAMSpace=yes
"""
DATABASE = """AuthType=auth/munge
DbdHost={head}
SlurmUser=root
PidFile=/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
"""
MARIADB = [
    "--no-defaults",
    "--user=root",
    "--datadir={data}",
    "--socket=/run/mysqld/mysqld.sock",
    "--skip-networking",
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=16M",
    "--innodb-flush-log-at-trx-commit=2",
    "--pid-file=/run/mariadbd.pid",
]
SHARED = {"etc": "/etc/slurm", "munge": "/run/munge", "mysqld": "/run/mysqld", "hosts": "/etc/hosts"}
"""What all hosts of a cluster have in common, and where."""
OWN = {"run": "/run", "lib": "/var/lib/slurm", "log": "/var/log/slurm"}
"""What each host has for itself."""
# A host exists as long as the process that this becomes.
HOST = """set -e
mount --make-rprivate /
hostname {name}
{groups}
{mounts}
echo ready
exec sleep infinity
"""
GROUP_ROOT = "umount -R {groups}/{one}; mount -t cgroup -o {one} cgroup {groups}/{one}"


def why_not(accounting: bool = True) -> str:
    """Why no Slurm can be started here; empty if one can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in (*PROGRAMS, *(ACCOUNTING if accounting else ())) if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed"
    wrong = [one for one in CONTROLLERS if not (GROUPS / one / "tasks").exists()]
    return f"control group v1 has no {wrong[0]}" if wrong else ""


@dataclass(frozen=True, kw_only=True)
class Node:
    """What a node says it has, and what it gets."""

    cpus: int = 1
    memory_mb: int = 1000
    cores: float | None = None
    """A cap on the CPU of all that runs on it; None: as much as there is. A node of one CPU is on one of the machine's,
    which it may share with others."""


class SlurmError(AssertionError):
    """A command failed, or a daemon did not come: what it said."""


class SlurmCluster:
    """A cluster with these nodes, one at a time in a process; everything is gone when the context ends.

    `conf`: what slurm.conf has besides names, places and nodes. `files`: others beside it. Without `apart` nodes are no
    hosts of their own: each is a slurmd on the head host, so that there can be as many as memory has room for.
    """

    def __init__(
        self,
        nodes: dict[str, Node] | int = 4,
        *,
        conf: str = PLAIN,
        files: Mapping[str, str] | None = None,
        accounting: bool = True,
        apart: bool = True,
    ) -> None:
        self.nodes = {f"n{k + 1}": Node() for k in range(nodes)} if isinstance(nodes, int) else nodes
        self.accounting = accounting
        self._apart = list(self.nodes) if apart else []
        """Nodes that are hosts."""
        self._conf, self._files = conf, files or {}
        # Users of the cluster have to get to what is in it, and names of sockets are short.
        self.folder = Path(tempfile.mkdtemp(prefix="dfrs-slurm-"))
        self.folder.chmod(0o755)
        self._link = f"slurm{os.getpid() % 1_000_000}"
        net = f"198.18.{os.getpid() % 256}"
        self.outside, self.address = f"{net}.1", f"{net}.2"
        """Of this machine, as the cluster sees it; of the cluster, as this machine does."""
        self._hosts: dict[str, subprocess.Popen] = {}
        self._daemons: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> "SlurmCluster":
        try:
            self._prepare()
            for name in (HEAD, *self._apart):
                self._open_host(name)
            self._write_files()
            for daemon in self.daemons:
                if daemon in self.nodes and daemon not in self._apart:
                    # Thousands start one after the other fast enough if nobody waits for each.
                    self._launch(daemon)
                else:
                    self.start(daemon)
            self.await_nodes(READY_S + len(self.nodes) / 10)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._apart:
            self.kill_host(name)
        for process in [*self._daemons.values(), *self._hosts.values()]:
            process.kill()
            process.wait()
        end_s = time.monotonic() + 20
        for group in [self.group(one, name) for one in CONTROLLERS for name in self._apart]:
            while group.exists() and time.monotonic() < end_s:
                _kill_all(group)
                for inner in sorted((each for each in group.rglob("*") if each.is_dir()), reverse=True):
                    _remove(inner)
                _remove(group)
        subprocess.run(["ip", "link", "delete", self._link], capture_output=True)
        shutil.rmtree(self.folder)

    # What to ask of it.

    @property
    def daemons(self) -> list[str]:
        """Names for `start`, `kill` and `stop`, in the order in which they start: a slurmd has its node's."""
        return ["munged", *(["mariadbd", "slurmdbd"] if self.accounting else []), "slurmctld", *self.nodes]

    @property
    def conf(self) -> Path:
        """Its slurm.conf, as seen from outside."""
        return self.folder / "etc" / "slurm.conf"

    def inside(self, host: str = HEAD) -> list[str]:
        """Words before a command that is to run on a host: the process is the command's own."""
        pid = str(self._hosts[host].pid)
        return ["nsenter", "-t", pid, "--net", "--uts", "--mount", *(["--cgroup"] if host != HEAD else []), "--"]

    def run(self, *command: object, host: str = HEAD, check: bool = True, **options) -> subprocess.CompletedProcess:
        """A command on a host, by root. Raises SlurmError if it fails and `check`."""
        words = [str(word) for word in command]
        options = {"capture_output": True, "text": True, "timeout": 120} | options
        done = subprocess.run([*self.inside(host), *words], **options)
        if check and done.returncode != 0:
            raise SlurmError(f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def sbatch(self, *options: object, wrap: str) -> int:
        """Submit a shell command; the number of the job."""
        done = self.run("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", wrap)
        return int(done.stdout.partition(";")[0])

    def scontrol(self, *words: object) -> str:
        """What it printed."""
        return self.run("scontrol", *words).stdout

    def squeue(self, fields: str, *options: object) -> list[list[str]]:
        """Columns of all jobs, as of `--Format`, such as `JobID,State,Reason`."""
        wide = ",".join(f"{field}:200" for field in fields.split(","))
        lines = self.run("squeue", "--noheader", "--Format", wide, *options).stdout.splitlines()
        return [[line[k : k + 200].strip() for k in range(0, 200 * (fields.count(",") + 1), 200)] for line in lines]

    def job(self, number: object) -> dict[str, str]:
        """What `scontrol show job` says of a job. Values that hold a space end there."""
        words = self.scontrol("-o", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def state(self, number: object) -> str:
        """A job's, such as PENDING."""
        return self.job(number)["JobState"]

    def await_job(self, number: object, *states: str, seconds: float = 30.0) -> str:
        """Wait until a job is in one of these states; in which. Raises SlurmError if it takes too long."""
        end_s = time.monotonic() + seconds
        while (found := self.state(number)) not in states:
            if time.monotonic() > end_s:
                raise SlurmError(f"job {number} is {found} after {seconds:g} s, not {' or '.join(states)}")
            time.sleep(0.1)
        return found

    def node_states(self) -> dict[str, str]:
        """By name, such as idle, mixed, down*."""
        lines = self.run("sinfo", "--noheader", "--Node", "--format=%N %T").stdout.splitlines()
        return dict(line.split() for line in lines)

    def await_nodes(self, seconds: float = READY_S) -> None:
        """Wait until all nodes answer. Raises SlurmError if it takes too long."""
        end_s = time.monotonic() + seconds
        while bad := {name: state for name, state in self.node_states().items() if not _answers(state)}:
            if time.monotonic() > end_s:
                raise SlurmError(f"{bad}\n{self.log('slurmctld')}\n{self.log(next(iter(bad)))}")
            time.sleep(0.1)

    def group(self, controller: str, node: str) -> Path:
        """The control group that has all that runs on a node, seen from outside."""
        return GROUPS / controller / f"dfrs-slurm-{node}-{os.getpid()}-{self.folder.name.rpartition('-')[2]}"

    def log(self, daemon: str, lines: int = 20) -> str:
        """The last lines that a daemon wrote."""
        path = self.folder / f"{daemon}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else "no log"

    # What to do to it.

    def start(self, daemon: str) -> None:
        """Start a daemon and wait until it answers. Raises SlurmError if it does not."""
        self._await_daemon(daemon, self._launch(daemon))

    def _launch(self, daemon: str) -> int:
        """Start it; where its log begins to be of this start."""
        host = daemon if daemon in self._apart else HEAD
        words = ["setpriv", "--pdeathsig", "KILL", "--", *self._command(daemon)]
        enter = [*self.inside(host), *words]
        if daemon in self._apart:
            tasks = " ".join(str(self.group(one, daemon) / "tasks") for one in CONTROLLERS)
            enter = ["sh", "-c", f'for t in {tasks}; do echo $$ > $t; done; exec "$@"', "sh", *enter]
        with (self.folder / f"{daemon}.log").open("a") as log:
            began = log.tell()
            self._daemons[daemon] = subprocess.Popen(
                enter, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        return began

    def pid(self, daemon: str) -> int:
        """Of a daemon that was started."""
        return self._daemons[daemon].pid

    def kill(self, daemon: str) -> None:
        """End a daemon by SIGKILL; jobs of a slurmd run on."""
        self._daemons[daemon].kill()
        self._daemons[daemon].wait()

    def stop(self, daemon: str) -> None:
        """End a daemon in order."""
        self._daemons[daemon].terminate()
        self._daemons[daemon].wait(60)

    def restart(self, daemon: str) -> None:
        """Kill a daemon and start it again."""
        self.kill(daemon)
        self.start(daemon)

    def reconfigure(self) -> None:
        """Have what slurm.conf says now count: all daemons of Slurm start again, in order."""
        for daemon in ("slurmctld", *self.nodes):
            self.stop(daemon)
        for daemon in ("slurmctld", *self.nodes):
            self.start(daemon)
        self.await_nodes()

    def kill_host(self, node: str) -> None:
        """The power of a node fails: all that runs there is killed, at once."""
        end_s = time.monotonic() + 20
        while any(_kill_all(self.group(one, node)) for one in CONTROLLERS) and time.monotonic() < end_s:
            time.sleep(0.02)
        if node in self._daemons:
            self._daemons[node].kill()
            self._daemons[node].wait()

    def node_down(self, node: str) -> None:
        """An administrator takes a node out."""
        self.scontrol("update", f"nodename={node}", "state=down", "reason=test")

    def node_up(self, node: str) -> None:
        """And back."""
        self.scontrol("update", f"nodename={node}", "state=resume")

    # How it is made.

    def _prepare(self) -> None:
        for name in ("etc", "munge", "mysqld", "data"):
            (self.folder / name).mkdir()
        for host in (HEAD, *self._apart):
            for name in (*OWN, "run/munge", "run/mysqld", "lib/slurmctld"):
                (self.folder / host / name).mkdir(parents=True)
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o400)
        names = "".join(f"{self.address} {name}\n" for name in (HEAD, *self._apart))
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")

    def _open_host(self, name: str) -> None:
        script = HOST.format(
            name=name,
            groups="" if name == HEAD else "\n".join(GROUP_ROOT.format(groups=GROUPS, one=one) for one in CONTROLLERS),
            mounts="\n".join(
                [f"mount --bind {self.folder / name / own} {place}" for own, place in OWN.items()]
                + [f"mount --bind {self.folder / source} {place}" for source, place in SHARED.items()]
                # A database is made of a thousand small writes, each of which it waits for.
                + ([f"mount -t tmpfs tmpfs {self.folder / 'data'}"] if name == HEAD else [])
            ),
        )
        unshare = ["setpriv", "--pdeathsig", "KILL", "--", "unshare", "--uts", "--mount"]
        if name == HEAD:
            words = [*unshare, "--net", "sh", "-c", script]
        else:
            self._make_groups(name)
            tasks = " ".join(str(self.group(one, name) / "tasks") for one in CONTROLLERS)
            move = f'for t in {tasks}; do echo $$ > $t; done; exec "$@"'
            net = ["nsenter", "-t", str(self._hosts[HEAD].pid), "--net", "--"]
            words = ["sh", "-c", move, "sh", *net, *unshare, "--cgroup", "sh", "-c", script]
        with (self.folder / name / "host.log").open("w") as log:
            host = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        self._hosts[name] = host
        assert host.stdout is not None
        if host.stdout.readline() != "ready\n":
            raise SlurmError(f"host {name}: {(self.folder / name / 'host.log').read_text()}")
        if name == HEAD:
            self._link_network(host.pid)
        else:
            # What keeps a node's namespaces is no part of the node: it stays when all of that is killed.
            for one in CONTROLLERS:
                (GROUPS / one / "tasks").write_text(str(host.pid))

    def _link_network(self, pid: int) -> None:
        """Slurm finds no names where there is nothing but the loopback interface."""
        inside = ["nsenter", "-t", str(pid), "--net", "--"]
        for words in (
            ["ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", str(pid)],
            ["ip", "address", "add", f"{self.outside}/24", "dev", self._link],
            ["ip", "link", "set", self._link, "up"],
            [*inside, "ip", "link", "set", "lo", "up"],
            [*inside, "ip", "address", "add", f"{self.address}/24", "dev", "eth0"],
            [*inside, "ip", "link", "set", "eth0", "up"],
        ):
            subprocess.run(words, check=True, capture_output=True)

    def _make_groups(self, name: str) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        number = list(self.nodes).index(name)
        for one in CONTROLLERS:
            self.group(one, name).mkdir()
        cpuset = self.group("cpuset", name)
        for file in ("cpuset.mems", "cpuset.cpus"):
            (cpuset / file).write_text((cpuset.parent / file).read_text())
        if self.nodes[name].cpus == 1:
            (cpuset / "cpuset.cpus").write_text(str(cpus[number % len(cpus)]))
        if (cores := self.nodes[name].cores) is not None:
            (self.group("cpu", name) / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.group("cpu", name) / "cpu.cfs_quota_us").write_text(str(round(PERIOD_US * cores)))

    def _write_files(self) -> None:
        etc = self.folder / "etc"
        lines = "".join(
            f"NodeName={name} NodeHostname={name if name in self._apart else HEAD} NodeAddr={self.address} "
            f"Port={17001 + k} CPUs={node.cpus} RealMemory={node.memory_mb}\n"
            for k, (name, node) in enumerate(self.nodes.items())
        )
        more = "SlurmdParameters=config_overrides\n" + (ACCOUNTS.format(head=HEAD) if self.accounting else "")
        text = SITE.format(head=HEAD, address=self.address, more=more, nodes=lines)
        self.conf.write_text(text + self._conf)
        (etc / "cgroup.conf").write_text(CGROUP)
        (etc / "slurmdbd.conf").write_text(DATABASE.format(head=HEAD))
        (etc / "slurmdbd.conf").chmod(0o600)
        for name, text in self._files.items():
            (etc / name).write_text(text)

    def _command(self, daemon: str) -> list[str]:
        if daemon == "munged":
            # Its directories are not where it would have them.
            key, seed = self.folder / "munge.key", self.folder / "munge.seed"
            return ["munged", "--foreground", "--force", f"--key-file={key}", f"--seed-file={seed}"]
        if daemon == "mariadbd":
            words = [word.format(data=self.folder / "data") for word in MARIADB]
            if daemon not in self._daemons:
                made = ["mariadb-install-db", *words[:3], "--auth-root-authentication-method=normal", "--skip-test-db"]
                self.run(*made)
            return ["mariadbd", *words]
        if daemon == "slurmd" or daemon in self.nodes:
            return ["slurmd", "-D", "-N", daemon]
        return [daemon, "-D"]

    def _await_daemon(self, daemon: str, began: int) -> None:
        """`began`: where in its log."""
        end_s = time.monotonic() + READY_S
        while not self._ready(daemon, began):
            if self._daemons[daemon].poll() is not None or time.monotonic() > end_s:
                raise SlurmError(f"{daemon} does not answer\n{self.log(daemon)}")
            time.sleep(0.05)

    def _ready(self, daemon: str, began: int) -> bool:
        if daemon in self.nodes:
            return b"slurmd started on" in (self.folder / f"{daemon}.log").read_bytes()[began:]
        asked = {
            "munged": ["munge", "--no-input"],
            "mariadbd": ["test", "-S", "/run/mysqld/mysqld.sock"],
            "slurmdbd": ["sacctmgr", "--immediate", "--quiet", "add", "cluster", "tests"],
            "slurmctld": ["scontrol", "ping"],
        }[daemon]
        done = self.run(*asked, check=False)
        if daemon == "slurmdbd":
            return done.returncode == 0 or "already exists" in done.stdout + done.stderr
        return done.returncode == 0 and "is DOWN" not in done.stdout


def _answers(state: str) -> bool:
    return state.rstrip("*") == state and state.partition("+")[0] in {"idle", "mixed", "allocated", "drained"}


def _kill_all(group: Path) -> bool:
    """Kill all processes of a group and those below it; whether there were any."""
    found = [int(pid) for tasks in group.rglob("cgroup.procs") for pid in tasks.read_text().split()]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def _remove(group: Path) -> None:
    # Its processes may not be gone yet.
    with suppress(OSError):
        group.rmdir()
