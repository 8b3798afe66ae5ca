"""Independent libvirt hosts on this machine, and guests of some kilobytes: for tests of what moves real domains.

A host is a libvirtd in mount, host name and control group namespaces of its own; its control group caps the CPU of all
its guests. Guests are software-emulated, compute or halt, and count their work on a serial line.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

from dfrs.workloads.clusters.libvirt import parse_stats
from dfrs.workloads.clusters.virsh import Virsh, VirshError

GROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "cpuset")
PROGRAMS = ("libvirtd", "virsh", "qemu-system-x86_64", "unshare", "gcc")
MEMORY_MIB = 8
SLOW_S = 120.0
"""So long the daemons, which start thirty guests at once on this machine, may take for an answer."""
PERIOD_US = 100_000

GUEST = r"""
__attribute__((section(".multiboot"), used)) static const unsigned header[3] = {0x1BADB002, 0, -0x1BADB002};
static unsigned char stack[4096] __attribute__((used));
static void put(char c) {
    unsigned char ready;
    do __asm__ volatile("inb %1, %0" : "=a"(ready) : "Nd"((unsigned short)0x3fd)); while (!(ready & 0x20));
    __asm__ volatile("outb %0, %1" : : "a"(c), "Nd"((unsigned short)0x3f8));
}
void work(unsigned *info) {
    int busy = 0;
    for (const char *line = (const char *)info[4]; *line; line++) busy |= line[0] == 'b' && line[1] == 'u';
    for (unsigned done = 1;; done++) {
        char digits[11]; int k = 0;
        for (unsigned rest = done; rest; rest /= 10) digits[k++] = '0' + rest % 10;
        while (k) put(digits[--k]);
        put('\n');
        if (!busy) for (;;) __asm__ volatile("cli; hlt");
        for (volatile unsigned spin = 0; spin < 200000; spin++);
    }
}
__attribute__((naked, section(".start"), used)) void _start(void) {
    __asm__ volatile("mov $stack+4096, %esp; push %ebx; call work");
}
"""
BUILD = ["-m32", "-Os", "-ffreestanding", "-nostdlib", "-static"]
BUILD += ["-fno-pic", "-fno-stack-protector", "-fno-asynchronous-unwind-tables"]
LINK = "-Wl,-Ttext=0x100000,--build-id=none,-z,noseparate-code,-e,_start"

DOMAIN = """<domain type='qemu'><name>{name}</name><memory unit='MiB'>{memory}</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type><kernel>{kernel}</kernel><cmdline>{kind}</cmdline></os>
<devices><emulator>{emulator}</emulator><memballoon model='none'/>
<serial type='file'><source path='{log}' append='on'/></serial></devices></domain>"""

LIBVIRTD = """unix_sock_dir = "{sockets}"
unix_sock_rw_perms = "0700"
auth_unix_rw = "none"
host_uuid = "00000000-0000-4000-8000-{number:012d}"
max_clients = 100
max_workers = 40
max_client_requests = 40
"""
QEMU = """security_driver = "none"
namespaces = []
stdio_handler = "file"
cgroup_controllers = [ "cpu", "cpuacct", "cpuset" ]
user = "root"
group = "root"
remember_owner = 0
migration_host = "127.0.0.2"
migration_port_min = {first}
migration_port_max = {last}
"""
# Each controller is mounted again in the namespace, whose root is the host's own group.
START = """set -e
mount --make-rprivate /
hostname {name}
for one in {controllers}; do umount -R {groups}/$one; mount -t cgroup -o $one cgroup {groups}/$one; done
for one in etc lib run cache log; do
  case $one in etc) to=/etc/libvirt ;; run) to=/run/libvirt ;; *) to=/var/$one/libvirt ;; esac
  mkdir -p $to; mount --bind {folder}/$one $to
done
exec libvirtd --pid-file {folder}/pid
"""


def why_not():
    """Why hosts cannot be started here; empty if they can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed"
    wrong = [one for one in CONTROLLERS if not (GROUPS / one / "tasks").exists()]
    return f"control group v1 has no {wrong[0]}" if wrong else ""


class LibvirtHosts:
    """Hosts by name with `cores` each, and guests on them; everything is gone when the context ends."""

    def __init__(self, folder: Path, cores: dict[str, float]) -> None:
        self.folder = folder
        self.cores = cores
        self.virsh: dict[str, Virsh] = {}
        self._daemons: list[subprocess.Popen] = []
        self._kernel = folder / "guest.elf"

    def __enter__(self):
        try:
            source = self.folder / "guest.c"
            source.write_text(GUEST)
            subprocess.run(["gcc", *BUILD, LINK, "-o", self._kernel, source], check=True, capture_output=True)
            for number, name in enumerate(self.cores):
                self._start(number, name)
            for name in self.cores:
                self._await(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        end = time.monotonic() + 20
        # Daemons that see their guests gone remove what they made for them.
        while any(_kill_all(self._group("cpu", name) / "machine") for name in self.cores) and time.monotonic() < end:
            time.sleep(0.2)
        for name in self.cores:
            while not self._quiet(name) and time.monotonic() < end:
                time.sleep(0.2)
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()
        for group in [self._group(one, name) for one in CONTROLLERS for name in self.cores]:
            while group.exists() and time.monotonic() < end:
                _kill_all(group)
                for inner in sorted((p for p in group.rglob("*") if p.is_dir()), reverse=True):
                    _remove(inner)
                _remove(group)

    @property
    def uris(self) -> str:
        """For --libvirt."""
        return ",".join(virsh.uri for virsh in self.virsh.values())

    def guest(self, name: str, host: str, kind: str) -> None:
        """Start a guest that is `busy` or `idle`."""
        text = DOMAIN.format(
            name=name,
            memory=MEMORY_MIB,
            kernel=self._kernel,
            kind=kind,
            emulator=shutil.which("qemu-system-x86_64"),
            log=self.folder / f"{name}.log",
        )
        path = self.folder / f"{name}.xml"
        path.write_text(text)
        self.virsh[host]("create", str(path))

    def work(self, name: str) -> list[int]:
        """What a guest has counted so far, from 1 on."""
        lines = (self.folder / f"{name}.log").read_text(errors="replace").split()
        return [int(line) for line in lines[:-1] if line.isdecimal()]

    def domains(self) -> dict[str, str]:
        """Host of each domain that runs."""
        return {name: host for host, virsh in self.virsh.items() for name in virsh("list", "--name").split()}

    def received(self, measured_s: float) -> dict[str, float]:
        """Cores that each domain gets, measured for so long."""
        before = self._cpu_s()
        time.sleep(measured_s)
        after = self._cpu_s()
        return {name: (after[name][1] - before[name][1]) / (after[name][0] - before[name][0]) for name in after}

    def _cpu_s(self) -> dict[str, tuple[float, float]]:
        """When each domain was asked, and its CPU time on the host where it is."""
        found: dict[str, tuple[float, float]] = {}
        for virsh in self.virsh.values():
            began = time.monotonic()
            text = virsh("domstats", "--cpu-total", "--list-active")
            at = (began + time.monotonic()) / 2
            for name, fields in parse_stats(text).items():
                found[name] = at, int(fields["cpu.time"]) / 1e9
        return found

    def _start(self, number: int, name: str) -> None:
        folder = self.folder / name
        for one in ("etc", "lib", "run", "cache", "log", "sockets"):
            (folder / one).mkdir(parents=True)
        (folder / "etc" / "libvirtd.conf").write_text(LIBVIRTD.format(sockets=folder / "sockets", number=number + 1))
        first = 49200 + 100 * number
        (folder / "etc" / "qemu.conf").write_text(QEMU.format(first=first, last=first + 99))
        for one in CONTROLLERS:
            group = self._group(one, name)
            group.mkdir()
            if one == "cpuset":
                # On one CPU, weights decide who runs; a cap over several would let guests use it up side by side.
                cpus = sorted(os.sched_getaffinity(0))
                (group / "cpuset.mems").write_text((group.parent / "cpuset.mems").read_text())
                (group / "cpuset.cpus").write_text(str(cpus[number % len(cpus)]))
        cpu = self._group("cpu", name)
        # What else runs on this machine is to leave the hosts what they are promised.
        (cpu / "cpu.shares").write_text("100000")
        # The group that libvirt makes for all its domains; the daemon beside it has what it needs.
        (cpu / "machine").mkdir()
        (cpu / "machine" / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (cpu / "machine" / "cpu.cfs_quota_us").write_text(str(round(PERIOD_US * self.cores[name])))
        script = START.format(name=name, controllers=" ".join(CONTROLLERS), groups=GROUPS, folder=folder)
        tasks = " ".join(str(self._group(one, name) / "tasks") for one in CONTROLLERS)
        enter = f'for t in {tasks}; do echo $$ > $t; done; exec unshare --mount --uts --cgroup sh -c "$0"'
        with (folder / "libvirtd.log").open("w") as log:
            self._daemons.append(subprocess.Popen(["sh", "-c", enter, script], stdout=log, stderr=log))
        self.virsh[name] = Virsh(f"qemu+unix:///system?socket={folder / 'sockets' / 'libvirt-sock'}", SLOW_S)

    def _await(self, name: str) -> None:
        end = time.monotonic() + 60
        while True:
            try:
                self.virsh[name]("list")
                return
            except VirshError as error:
                log = (self.folder / name / "libvirtd.log").read_text()
                if time.monotonic() > end or any(daemon.poll() is not None for daemon in self._daemons):
                    raise AssertionError(f"libvirtd of {name} does not answer: {error}\n{log}") from None
                time.sleep(0.2)

    def _quiet(self, name: str) -> bool:
        """Whether a host knows of no guest, or does not answer."""
        try:
            return not self.virsh[name]("list", "--name").strip()
        except (KeyError, VirshError):
            return True

    def _group(self, controller: str, name: str) -> Path:
        return GROUPS / controller / f"dfrs-{name}-{os.getpid()}"


def _kill_all(group: Path) -> bool:
    """Kill all processes of a group and those below it; whether there were any."""
    found = [int(pid) for tasks in group.rglob("cgroup.procs") for pid in tasks.read_text().split()]
    for pid in found:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue
    return bool(found)


def _remove(group: Path) -> None:
    try:
        group.rmdir()
    except OSError:
        # Its processes are not gone yet.
        return
