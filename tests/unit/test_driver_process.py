"""Tasks as processes: how they start, what they see, what they write, how they end."""

import io
import os
import pwd
import sys
import time
from pathlib import Path

import pytest

from dfrs.live.drivers.base import DriverError, ExitKind, TaskState
from dfrs.live.drivers.control_groups import v1 as cgroup_v1
from dfrs.live.drivers.control_groups import v2 as cgroup_v2
from dfrs.live.drivers.control_groups.groups import most_processes
from dfrs.live.drivers.processes.criu import Criu
from dfrs.live.drivers.processes.image_files import Frames, History, ImageError, Manifest
from dfrs.live.drivers.processes.images import Images
from dfrs.live.drivers.processes.launching import VARIABLE_BYTES
from tests.driver_hosts import (
    BUSY,
    CPUS,
    MIB,
    PYTHON,
    alone,
    ended,
    host,
    needs_groups,
    needs_root,
    processes,
    running,
    settles,
    share,
    state,
    task,
    until,
    used,
)

pytestmark = [needs_root, needs_groups]
__all__ = ["alone", "host"]


def text(driver, which, stream="out"):
    return driver.output(which, stream, 0, 1 << 20)[0].decode()


def test_each_way_to_end_in_words(host):
    node = host.node()
    asked = {
        3: host.spec("./prog"),
        4: host.spec("/bin/true", directory="/no/such/place"),
        5: host.spec("/bin/true", account="no-such-user"),
        6: host.spec(*BUSY, time_limit_s=0.3),
        8: host.spec(PYTHON, "-c", "x = bytearray(200 << 20)", memory_bytes=32 * MIB),
        9: host.spec("/etc/passwd"),
    }
    began = time.time()
    for job, spec in asked.items():
        node.start(task(job), spec, 0.1)
    exits = {job: ended(node, task(job)) for job in asked}
    assert exits[3].kind is exits[4].kind is exits[5].kind is exits[9].kind is ExitKind.NOT_STARTED
    assert exits[3].message == "no such program: ./prog"
    assert exits[4].message == "no such directory: /no/such/place"
    assert exits[5].message == "no account 'no-such-user' on this node"
    assert exits[9].message == "not executable: /etc/passwd"
    assert exits[6].kind is ExitKind.TIME_LIMIT
    # It computes all the time, as far as the machine lets it.
    assert 0.0 < exits[6].cpu_s <= exits[6].time_s - began
    assert exits[8].kind is ExitKind.OUT_OF_MEMORY
    assert 24 * MIB < exits[8].peak_bytes <= 32 * MIB
    assert all(abs(one.time_s - time.time()) < 30 for one in exits.values())


def test_why_a_program_cannot_run_is_said_in_words(host, tmp_path):
    for name, text in (("lost", "#!/no/interpreter -x\n"), ("bare", "echo x\n"), ("plain", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644 if name == "plain" else 0o755)
    on_path = {"PATH": f"/no/such/folder:{tmp_path}:/usr/bin:/bin"}
    node = host.node()
    asked = {
        1: (host.spec("nosuchprogram"), "no such program: nosuchprogram"),
        2: (host.spec("plain", environment=on_path), f"not executable: {tmp_path}/plain"),
        3: (
            host.spec("lost", environment=on_path),
            f"its interpreter is missing: {tmp_path}/lost needs /no/interpreter -x",
        ),
        4: (
            host.spec(f"{tmp_path}/bare"),
            f"not a program: {tmp_path}/bare: a script's first line must be #! and its interpreter",
        ),
        5: (host.spec("true", directory="/etc/passwd"), "not a directory: /etc/passwd"),
        6: (host.spec("true", environment=on_path), ""),
    }
    for job, (spec, _) in asked.items():
        node.start(task(job), spec, 0.2)
    for job, (_, says) in asked.items():
        gone = ended(node, task(job))
        assert (gone.message, gone.kind is ExitKind.NOT_STARTED) == (says, bool(says))


def test_a_task_that_forks_without_end_leaves_room_for_others(host, monkeypatch):
    for module in (cgroup_v1, cgroup_v2):
        monkeypatch.setattr(module, "most_processes", lambda tree: 8)
    node = host.node()
    if any(note.startswith("no pids") for note in node.abilities.notes):
        pytest.skip("no pids controller is mounted here")
    forks = "import os, signal\nchildren = []\n"
    forks += "try:\n    while len(children) < 50:\n        if not (pid := os.fork()): signal.pause()\n"
    forks += "        children.append(pid)\nexcept BlockingIOError as error: print(len(children), error)\n"
    forks += "for pid in children: os.kill(pid, signal.SIGKILL)\n"
    node.start(task(1), host.spec(PYTHON, "-ISc", forks), 0.5)
    node.start(task(2), host.shell("for i in 1 2 3 4 5; do /bin/true & done; wait"), 0.5)
    bomb, other = ended(node, task(1)), ended(node, task(2))
    assert text(node, task(1)) == "7 [Errno 11] Resource temporarily unavailable\n"
    assert bomb.message == "it could not start more processes: there were as many as may be"
    assert (other.code, other.message) == (0, "")
    monkeypatch.undo()
    most = most_processes(str(host.root))
    assert 500 < most < int(Path("/proc/sys/kernel/pid_max").read_text())
    (host.root / "pids.max").write_text("max\n")
    assert most_processes(str(host.root)) == most
    (host.root / "pids.max").write_text("1000\n")
    assert most_processes(str(host.root)) == 150
    (host.root / "pids.max").unlink()


def test_it_ends_when_all_of_it_has(host):
    node = host.node()
    node.start(task(), host.shell("(sleep 0.3; echo late) & exit 4"), 0.5)
    node.start(task(2), host.spec("/usr/bin/setsid", "-f", "sh", "-c", "sleep 0.3; echo late"), 0.5)
    assert ended(node, task()).code == 4
    assert ended(node, task(2)).code == 0
    assert text(node, task()) == text(node, task(2)) == "late\n"


def test_environment_and_files_do_not_leak(host, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_AGENT", "s3cret")
    leaked = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    node = host.node()
    script = "import os; print(sorted(os.environ.items())); print(sorted(os.listdir('/proc/self/fd')));"
    script += "print(os.getcwd(), os.getsid(0) == os.getpid(), os.read(0, 1), os.getpid())"
    spec = host.spec(PYTHON, "-ISc", script, tasks=2, peers=("a", "b"), directory="/tmp")
    node.start(task(7, 1, 2), spec, 0.5)
    assert ended(node, task(7, 1, 2)).code == 0
    os.close(leaked)
    environment, files, rest = text(node, task(7, 1, 2)).splitlines()
    added = {"DFRS_JOB_ID": "7", "DFRS_RANK": "1", "DFRS_TASKS": "2", "DFRS_PEERS": "a,b", "DFRS_NODE": "n0"}
    seen = dict(eval(environment))
    # What a C locale makes Python add by itself.
    seen.pop("LC_CTYPE", None)
    assert seen == spec.environment | added
    assert files == "['0', '1', '2', '3']"
    assert rest.startswith("/tmp True b''")
    directory = host.root / "tasks" / "7.1.2"
    assert (directory / "spec").stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700


def test_a_job_of_very_many_tasks_starts_without_what_is_too_long_for_a_variable(host):
    node = host.node()
    # With the name, and the zero byte at the end, all that the kernel takes, and one byte more.
    for job, most in ((1, True), (2, False)):
        last = "b" * (VARIABLE_BYTES - len("DFRS_PEERS=") - 15 * 8000 + (not most))
        peers = ("10.123.123.123",) * 8000 + (last,)
        node.start(task(job), host.shell("echo ${#DFRS_PEERS}", tasks=len(peers), peers=peers), 0.5)
        gone = ended(node, task(job))
        assert (gone.code, gone.message) == (0, "")
        assert text(node, task(job)) == f"{len(','.join(peers)) if most else 0}\n"


def test_command_is_not_shown_to_others(host):
    node = host.node()
    node.start(task(), host.spec("/bin/sleep", "60", environment={"TOKEN": "hidden-from-all"}), 0.5)
    running(node, task())
    with_root = processes(str(host.root))
    assert len(with_root) == 1
    with open(f"/proc/{with_root[0]}/cmdline") as file:
        assert "hidden" not in file.read()
    with open(f"/proc/{with_root[0]}/environ") as file:
        assert file.read() == ""


def test_account(host):
    node = host.node()
    nobody = pwd.getpwnam("nobody")
    node.start(task(), host.shell("id -u; id -g; id -G; cat /proc/self/cgroup", account="nobody"), 0.5)
    assert ended(node, task()).code == 0
    user, group, all_groups, *rest = text(node, task()).splitlines()
    assert (int(user), int(group)) == (nobody.pw_uid, nobody.pw_gid)
    assert all_groups == str(nobody.pw_gid)
    assert any(f"cpu:/dfrs/{host.cluster}/n0/1.0.0" in line for line in rest) or any(
        "0::/dfrs" in line for line in rest
    )


def test_account_gives_its_own_environment_whatever_was_submitted(host):
    node = host.node()
    nobody = pwd.getpwnam("nobody")
    submitted = dict.fromkeys(("HOME", "USER", "LOGNAME", "SHELL"), "the-submitter's")
    script = 'echo "$HOME $USER $LOGNAME $SHELL"'
    node.start(task(1), host.shell(script, environment=submitted, account="nobody"), 0.5)
    node.start(task(2), host.shell(script, environment=submitted), 0.5)
    assert ended(node, task(1)).code == ended(node, task(2)).code == 0
    assert text(node, task(1)) == f"{nobody.pw_dir} nobody nobody {nobody.pw_shell or '/bin/sh'}\n"
    assert text(node, task(2)) == " ".join(submitted.values()) + "\n"


def sent(node, account):
    """What comes from another host of a task whose account has these numbers there."""
    history = History(transfers=1, carried={}, account=account)
    manifest = Manifest(
        codec="none", format=node.images.format, main=1, numbers=(1,), plain_bytes=0, stored_bytes=0
    ).model_dump_json()
    frames = Frames(stream := io.BytesIO())
    for name, words in (("manifest.json", manifest), ("history.json", history.model_dump_json()), ("parked", "0 1 2")):
        frames.write(name, words.encode())
        frames.close(name)
    frames.finish()
    stream.seek(0)
    return stream


def test_a_task_comes_only_to_a_host_where_its_account_has_the_same_numbers(host):
    node, nobody = host.node(), host.shell("sleep 60", account="nobody")
    node.images = Images(host.root, 1 << 30, Criu("/no/such/criu", "3.17"))
    for account in ((1001, 1001), (os.geteuid(), os.getegid())):
        with pytest.raises(ImageError, match="its account has other numbers here"):
            node.receive(task(), nobody, sent(node, account))
        assert node.tasks() == []
    node.start(task(1), nobody, 0.5)
    here = node._promise(task(1)).account
    # One of an earlier version does not say.
    for job, account in enumerate((here, None), 2):
        node.receive(task(job), nobody, sent(node, account))
        assert state(node, task(job)) is TaskState.PAUSED


UNREADABLE = """
import os, sys
class Unreadable:
    def find_spec(name, path=None, target=None):
        if os.geteuid():
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Unreadable)
del sys.argv[:3]
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"), {"__name__": "__main__", "__file__": sys.argv[0]})
"""


def test_account_need_not_be_able_to_read_the_interpreters_library(host, tmp_path, monkeypatch):
    interpreter = tmp_path / "python"
    interpreter.write_text(f"#!{PYTHON} -IS\n{UNREADABLE}")
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    node = host.node()
    node.start(task(1), host.spec("id", "-un", account="nobody"), 0.5)
    node.start(task(2), host.spec("nosuchprogram", account="nobody"), 0.5)
    assert (ended(node, task(1)).message, text(node, task(1))) == ("", "nobody\n")
    assert ended(node, task(2)).message == "no such program: nosuchprogram"


def test_a_node_is_removed_with_empty_groups_but_not_with_processes(host):
    node = host.node()
    node.groups.group("7.0.0").create(MIB)
    node.start(task(), host.spec("/bin/sleep", "60"), 0.5)
    pid = running(node, task())
    with pytest.raises(DriverError, match=rf"still has task 1\.0\.0: its processes are .*\b{pid}\b"):
        node.remove_node()
    node.stop(task(), 1.0)
    ended(node, task())
    node.groups.group("7.0.0").create(MIB)
    node.remove_node()
    assert node.groups.names() == []
    assert not os.path.exists(node.groups.group("7.0.0").freezer)
    node.forget(task())


def test_the_agents_own_affinity_is_not_the_tasks(host):
    os.sched_setaffinity(0, {CPUS[0]})
    try:
        node = host.node(cpus=None)
        node.start(task(), host.spec("/bin/sleep", "60"), 0.5)
        assert os.sched_getaffinity(running(node, task())) == set(CPUS)
    finally:
        os.sched_setaffinity(0, CPUS)


def test_what_is_not_here_is_refused_in_words(host):
    node = host.node()
    for refused in (node.pause, node.resume):
        with pytest.raises(DriverError, match="not on node n0"):
            refused(task())
    with pytest.raises(DriverError, match="not on this host"):
        node.take(task(), 0.5)


def test_what_cannot_be_started_is_refused(host):
    node = host.node()
    with pytest.raises(DriverError, match="node n0 has"):
        node.start(task(), host.spec("/bin/true", memory_bytes=2 << 30), 0.5)
    with pytest.raises(DriverError, match="zero byte"):
        node.start(task(), host.spec("/bin/echo", "a\0b"), 0.5)
    assert node.tasks() == []
    with pytest.raises(DriverError, match="this host has"):
        host.node("n1", cpus="4000")
    with pytest.raises(DriverError, match="list of CPUs"):
        host.node("n1", cpus="a-b")
    host.node("n1").remove_node()


def test_shares_on_one_cpu(host, alone):
    node = host.node()
    both = [task(1), task(2)]
    for one, cores in zip(both, (0.75, 0.25), strict=True):
        node.start(one, host.spec(*BUSY), cores)
    for one in both:
        running(node, one)
    settles(node, both, 1.5, share(0.75))
    node.set_share(task(1), 0.25)
    node.set_share(task(2), 0.75)
    settles(node, both, 1.0, share(0.25))
    assert used(node, task(1)).waiting_s > 0.5
    node.pause(task(2))
    settles(node, both, 0.5, lambda first, second: second < 0.01 and first > 0.1)


def test_caps(host, alone):
    node = host.node(shares="caps")
    both = [task(1), task(2)]
    for one, cores in zip(both, (0.1, 0.2), strict=True):
        node.start(one, host.spec(*BUSY), cores)
    for one in both:
        running(node, one)
    settles(node, both, 1.5, lambda first, second: abs(first - 0.1) < 0.03 and abs(second - 0.2) < 0.03)
    assert used(node, task(1)).throttled_s > 0
    node.set_share(task(1), 0.004)
    settles(node, [task(1)], 1.2, lambda first: first < 0.03)


def test_half_a_cpu_as_a_node(host, alone):
    node = host.node(cores=0.4)
    both = [task(1), task(2)]
    for one, cores in zip(both, (0.3, 0.1), strict=True):
        node.start(one, host.spec(*BUSY), cores)
    for one in both:
        running(node, one)
    settles(
        node, both, 1.5, lambda first, second: abs(first + second - 0.4) < 0.04 and share(0.75, 0.06)(first, second)
    )
    # An agent that starts anew may be given less.
    smaller = host.node(cores=0.2)
    settles(smaller, both, 1.0, lambda first, second: first + second < 0.25)


def test_time_limit_does_not_count_pauses(host):
    node = host.node()
    node.start(task(), host.spec("/bin/sleep", "60", time_limit_s=0.8), 0.5)
    running(node, task())
    time.sleep(0.2)
    node.pause(task())
    time.sleep(1.5)
    assert state(node, task()) is TaskState.PAUSED
    node.resume(task())
    assert state(node, task()) is TaskState.RUNNING
    assert ended(node, task(), 2.0).kind is ExitKind.TIME_LIMIT


def test_a_task_is_told_once_that_its_time_is_nearly_up(host):
    node = host.node()
    script = 'trap "echo told" USR1; echo begun; while :; do sleep 0.1; done'
    spec = host.spec("/bin/sh", "-c", script, time_limit_s=3.0, warning_signal="USR1", warning_s=1.5)
    node.start(task(), spec, 0.5)
    until(lambda: text(node, task()))
    assert text(node, task()) == "begun\n"
    assert ended(node, task(), 10.0).kind is ExitKind.TIME_LIMIT
    assert text(node, task()) == "begun\ntold\n"


def test_a_task_is_not_told_as_it_begins(host):
    node = host.node()
    spec = host.spec("/bin/sleep", "60", time_limit_s=0.5, warning_signal="USR1", warning_s=60.0)
    node.start(task(), spec, 0.5)
    assert ended(node, task(), 10.0).kind is ExitKind.TIME_LIMIT


def test_a_pause_holds_all_of_it_and_what_is_still_starting(host):
    node = host.node(cpus=",".join(map(str, CPUS)), cores=len(CPUS))
    node.start(task(), host.spec(PYTHON, "-c", "import os\nfor _ in range(3): os.fork()\nwhile True: pass"), 0.5)
    node.pause(task())
    assert state(node, task()) is TaskState.PAUSED
    time.sleep(0.2)
    assert used(node, task()).cpu_s < 0.05
    node.resume(task())
    until(lambda: len(processes(host.cluster)) == 8)
    node.pause(task())
    before = used(node, task()).cpu_s
    time.sleep(0.2)
    # What copies its output looks around now and then.
    assert used(node, task()).cpu_s == pytest.approx(before, abs=0.01)


def test_usage_is_cheap_and_grows(host):
    node = host.node()
    for job in range(1, 6):
        node.start(task(job), host.spec("/bin/sleep", "60"), 0.1)
    for job in range(1, 6):
        running(node, task(job))
    assert len(node.usage()) == 5
    # Each takes no longer than reading so many files of the kernel's, on a busy machine too.
    reading_s = min(_timed(lambda: [Path("/proc/self/stat").read_text() for _ in range(40)]) for _ in range(20))
    assert min(_timed(node.usage) for _ in range(20)) / 5 < reading_s
    row = used(node, task(1))
    assert row.memory_bytes > 0
    assert row.swap_bytes in (None, 0)


def _timed(call):
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
