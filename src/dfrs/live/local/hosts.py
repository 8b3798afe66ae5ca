"""Several hosts on this machine, for tests and for trying; needs root, and iproute2.

A host has namespaces of its own for processes, network, mounts, names and inter-process communication, and so its own
state root, host name, address and process numbers. Hosts are joined by a bridge in the namespace of a *switch*, which
is held like a host and is where agents reach the controller. Nothing of this is seen from the machine's own network,
and nothing has a name there: it all vanishes with the first processes of the hosts, which only `kill` ends.
"""

import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from dfrs.live.drivers.base import DriverError
from dfrs.live.drivers.processes.directory import TaskDirectory
from dfrs.live.drivers.processes.supervisor import identity, living, read_text
from dfrs.live.home import make_private, write_private
from dfrs.live.local import namespaces
from dfrs.model.errors import DfrsError, InputError

NETWORK = ipaddress.ip_network("10.77.0.0/16")
CONTROLLER = str(NETWORK[1])
"""Where agents reach the controller."""
END_S = 20.0
_FIRST_HOST = 256
_SWITCH = "switch"
_RECORD = ".process"
_NAMESPACES = (sys.executable, "-m", namespaces.__name__)
_SHARED_MEMORY, _NAMES = Path("/dev/shm"), Path("/etc/hosts")  # noqa: S108 - each host mounts its own here
_PROGRAMS = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def host_name(number: int) -> str:
    """Of the host of that number, from 0."""
    return f"host{number + 1}"


def address(number: int) -> str:
    """Of the host of that number, from 0."""
    return str(NETWORK[_FIRST_HOST + number + 1])


def must_be_possible() -> None:
    """Refuse before anything is started. Raises InputError."""
    if os.geteuid() != 0:
        raise InputError("--hosts: only root can make hosts; leave it out, or run as root")
    if _ip() is None:
        raise InputError('--hosts: the program "ip" is missing; install the package iproute2')


def _ip() -> str | None:
    return shutil.which("ip", path=_PROGRAMS)


def host_root(state: Path, host: str) -> Path:
    """The state root of a host, as it is seen from outside."""
    return _folder(state) / host


def host_roots(state: Path) -> list[Path]:
    """Those of all hosts that there ever were."""
    return sorted(path for path in _folder(state).glob("host*") if path.is_dir())


def _folder(state: Path) -> Path:
    return (state / "hosts").resolve()


def hosts_left(state: Path) -> int:
    """How many hosts are on record: made, and not ended by `LocalHosts`."""
    return sum(1 for _ in _folder(state).glob(f"host*{_RECORD}"))


class LocalHosts:
    """The hosts of a state directory, which the caller has locked. In each, its state root is at `root`."""

    def __init__(self, state: Path, root: Path, count: int = 0) -> None:
        self._state, self._folder, self._root = state, _folder(state), root
        self.names = [host_name(number) for number in range(count)]

    def make(self) -> None:
        """Make the hosts that are missing, and their switch; if that was missing, all or none. Raises DfrsError."""
        for folder in (self._folder, self._root):
            if not folder.is_dir():
                make_private(folder)
        if self._living(_SWITCH) is not None:
            self.make_missing()
            return
        # Hosts that had another switch reach nobody.
        self._end()
        self._write_names()
        try:
            self._make(_SWITCH)
            self.make_missing()
        except BaseException:
            self._end()
            raise

    def make_missing(self) -> list[str]:
        """Make hosts that have ended; their names. Raises DfrsError, also if the switch has ended."""
        for name in self.names:
            pid = self._living(name)
            if pid is not None and not os.path.exists(f"/proc/{pid}/ns/net"):
                self._let_end(name)
        missing = [name for name in self.names if self._living(name) is None]
        for name in missing:
            self._make(name)
        return missing

    def _end(self) -> None:
        self.kill()
        if problems := self.wait_ended():
            raise DfrsError(problems[0])

    def _record(self, name: str) -> Path:
        return self._folder / f"{name}{_RECORD}"

    def _living(self, name: str) -> int | None:
        """The first process of a host or the switch, as it is seen from outside; None without it."""
        return living(read_text(str(self._record(name))))

    def _write_names(self) -> None:
        rows = [(CONTROLLER, _SWITCH), *((address(number), name) for number, name in enumerate(self.names))]
        known = read_text(str(_NAMES))
        write_private(self._folder / "names", "".join(f"{where} {name}\n" for where, name in rows) + known, 0o644)

    def _make(self, name: str) -> None:
        with subprocess.Popen(
            [*_NAMESPACES, "hold", name, str(self._first_number(name)), *self._mounts(name)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            first = process.stdout.readline().strip()
            if not first:
                raise DfrsError(f"--hosts: cannot make {name}: {process.stderr.read().strip()}")
            # Before it is on record: a host that is, is complete. One that is not ends with the process that makes it.
            self._connect(name, int(first))
            write_private(self._record(name), identity(int(first)))
            _, words = process.communicate("go\n")
        if process.returncode != 0:
            raise DfrsError(f"--hosts: cannot make {name}: {words.strip()}")

    def _first_number(self, name: str) -> int:
        """Where its processes' numbers begin: far from those of others, so that one that moves can keep its number."""
        most = int(read_text("/proc/sys/kernel/pid_max"))
        return 1 if name == _SWITCH else most // (len(self.names) + 1) * (self.names.index(name) + 1)

    def _mounts(self, name: str) -> list[str]:
        """What is to be seen where; see `namespaces.hold`."""
        found: list[tuple[str, Path]] = []
        if name != _SWITCH:
            own = host_root(self._state, name)
            own.mkdir(mode=0o700, exist_ok=True)
            found += [(str(own), self._root), (str(self._folder / "names"), _NAMES)]
            if not self._folder.is_relative_to(_SHARED_MEMORY):
                found.append(("", _SHARED_MEMORY))
            # Last, since it hides the others' roots.
            found.append(("", self._folder))
        return [text for source, target in found if target.exists() for text in (source, str(target))]

    def _connect(self, name: str, pid: int) -> None:
        """Give the switch its bridge, a host its link to that. Raises DfrsError."""
        if name == _SWITCH:
            lines = ["link set lo up", f"link add {_SWITCH} type bridge", f"link set {_SWITCH} up"]
            _configure(pid, [*lines, f"address add {CONTROLLER}/{NETWORK.prefixlen} dev {_SWITCH}"])
            return
        switch = self._living(_SWITCH)
        if switch is None:
            raise DfrsError("--hosts: the switch between the hosts has ended; end the rest with: dfrs down")
        port = f"port{pid}"
        _configure(
            switch,
            [f"link add {port} type veth peer name eth0 netns {pid}", f"link set {port} master {_SWITCH} up"],
        )
        own = address(self.names.index(name))
        _configure(pid, ["link set lo up", f"address add {own}/{NETWORK.prefixlen} dev eth0", "link set eth0 up"])

    def entering(self, name: str, command: Sequence[str]) -> list[str]:
        """The command that runs `command` in a host: in its namespaces of that moment."""
        return [*_NAMESPACES, "enter", str(self._record(name)), *command]

    def listen(self, port: int) -> socket.socket:
        """A socket at `CONTROLLER`, which any process may have and only the hosts reach. Raises DfrsError."""
        switch = self._living(_SWITCH)
        if switch is None:
            raise DfrsError("--hosts: the switch between the hosts has ended: try again")

        def bound() -> socket.socket:
            namespaces.join(switch, ["net"])
            made = socket.socket()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((CONTROLLER, port))
            made.listen(1024)
            return made

        # A thread of its own, since it stays in that namespace until it ends.
        with ThreadPoolExecutor(1) as thread:
            try:
                return thread.submit(bound).result()
            except OSError as error:
                raise DfrsError(f"--hosts: cannot listen on {CONTROLLER}:{port}: {error.strerror}") from None

    def running(self) -> int:
        """How many tasks have not ended in hosts that have not, also in those of former starts."""
        count = 0
        for root in host_roots(self._state):
            if self._living(root.name) is not None:
                files = TaskDirectory(root)
                count += sum(bool(files.supervisor(task)) and files.exit(task) is None for task in files.ids())
        return count

    def kill(self) -> None:
        """Kill all hosts, also of former starts, and the switch."""
        for record in self._folder.glob(f"*{_RECORD}"):
            if (pid := living(read_text(str(record)))) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                self._let_end(record.stem)

    def _let_end(self, name: str) -> None:
        """Let paused tasks of a host that was killed go on: before they can, they do not end, and nor does the host."""
        if name == _SWITCH:
            return
        files = TaskDirectory(host_root(self._state, name))
        for task in files.ids():
            with suppress(OSError, DriverError):
                if owner := files.owner(task):
                    files.place(task, owner).thaw()

    def wait_ended(self) -> list[str]:
        """Wait until nothing is left of what `kill` ended; the problems, a line each."""
        end_s = time.monotonic() + END_S
        problems = list[str]()
        for record in sorted(self._folder.glob(f"*{_RECORD}")):
            while (pid := living(read_text(str(record)))) is not None and time.monotonic() < end_s:
                time.sleep(0.01)
            if pid is None:
                record.unlink(missing_ok=True)
            else:
                problems.append(f"{record.stem}: process {pid} does not end")
        return problems


def _configure(pid: int, lines: Sequence[str]) -> None:
    """Have `ip` do these things in the network of a process. Raises DfrsError."""
    program = _ip()
    assert program is not None
    done = subprocess.run(
        [program, "-batch", "-"],
        input="\n".join(lines) + "\n",
        text=True,
        capture_output=True,
        check=False,
        preexec_fn=lambda: namespaces.join(pid, ["net"]),
    )
    if done.returncode != 0:
        raise DfrsError(f"--hosts: cannot set up the network: {' '.join(done.stderr.split())}")
