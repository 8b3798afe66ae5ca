"""What users do with tasks that run: they send input, have terminals, and start programs beside them."""

import base64
import os
import signal
import time
from contextlib import suppress
from functools import partial

import pytest

from dfrs.live.drivers.base import DriverError, ExitKind, InputPart, ProgramSpec, Terminal
from dfrs.live.drivers.nice_levels.driver import NiceDriver
from dfrs.live.drivers.processes import beside, launching
from dfrs.testing.drivers import output_of
from tests.driver_hosts import MIB, ended, host, needs_groups, needs_root, task, until
from tests.processes import alive

__all__ = ["host"]
WRITER, OTHER = "0" * 16, "1" * 16
PROGRAM = "a" * 16


def typed(data=b"", writer=WRITER, **fields):
    return InputPart(writer=writer, data=base64.b64encode(data).decode(), **fields)


def shell(script, name=PROGRAM, **fields):
    return ProgramSpec(name=name, command=("/bin/sh", "-c", script), **fields)


def numbers(count):
    """What `seq` prints."""
    return b"".join(b"%d\n" % number for number in range(1, count + 1))


def read_along(node, read, program):
    """All that comes from a program, and how it ended: read piece by piece, as its user does."""
    data, end = b"", time.monotonic() + 60.0
    while time.monotonic() < end:
        node.note_read(task(), program, "out", len(data))
        piece, begin, all_of_it, code = read(len(data))
        assert begin == len(data)
        data += piece
        if code is not None and len(data) == all_of_it:
            return data, code
    raise AssertionError(f"after {len(data)} bytes nothing more came")


class _OfTasks:
    def begin(self, host, script, **fields):
        node = self.open(host)
        node.start(task(), host.shell(script, **fields), 0.5)
        assert until(lambda: output_of(node, task()), 30.0)
        return node

    def said(self, node, words):
        assert until(lambda: words in output_of(node, task()), 30.0), output_of(node, task())

    def beside(self, node, name=PROGRAM):
        """What a program beside has written and how it ended, once it has."""
        assert until(lambda: node.program_output(task(), name, "out", 0, 1)[3] is not None, 30.0)
        data, _, _, code = node.program_output(task(), name, "out", 0, 1 << 20)
        return data.decode(), code

    def test_input_comes_to_a_task_once_however_often_it_is_sent_and_ends(self, host):
        node = self.begin(host, "echo begun; cat; echo over", input=True)
        assert node.write(task(), typed(b"one\n")) == 4
        assert node.write(task(), typed(b"one\n")) == 4
        assert node.write(task(), typed(b"one\ntwo\n")) == 8
        assert node.write(task(), typed(b"other\n", OTHER)) == 6
        self.said(node, "begun\none\ntwo\nother\n")
        node.write(task(), typed(offset=8, end=True))
        assert ended(node, task()).code == 0
        assert output_of(node, task()) == "begun\none\ntwo\nother\nover\n"
        with pytest.raises(DriverError, match="has ended"):
            node.write(task(), typed(b"more", offset=8))

    def test_no_byte_of_much_input_is_lost_where_the_program_is_slow(self, host):
        node = self.begin(host, "echo begun; sleep 0.3; cksum", input=True)
        data, sent = os.urandom(1 << 20), 0
        while sent < len(data):
            sent += node.write(task(), typed(data[sent : sent + 40_000], offset=sent))
        node.write(task(), typed(offset=sent, end=True))
        assert ended(node, task()).code == 0
        assert output_of(node, task()).split()[2] == str(1 << 20)
        (host.root / "same").write_bytes(data)
        assert output_of(node, task()).split()[1] == os.popen(f"cksum < {host.root}/same").read().split()[0]

    def test_a_program_that_reads_no_more_lets_its_sender_go_on(self, host):
        node = self.begin(host, "exec 0</dev/null; echo begun; sleep 60", input=True)
        sent = 0
        while sent < 1 << 20:
            sent += node.write(task(), typed(b"x" * 40_000, offset=sent))

    def test_a_task_without_input_takes_none_and_finds_none(self, host):
        node = self.begin(host, "cat; echo end; sleep 60")
        with pytest.raises(DriverError, match="was started without input"):
            node.write(task(), typed(b"x"))

    def test_a_terminal_has_a_size_that_changes_and_keys_that_are_signals(self, host):
        script = "trap 'stty size' WINCH; trap 'echo caught' INT; tty; stty size; while :; do sleep 0.05; done"
        node = self.begin(host, script, terminal=Terminal(rows=7, columns=33))
        self.said(node, "/dev/pts/")
        self.said(node, "7 33\r\n")
        node.write(task(), typed(size=Terminal(rows=9, columns=44)))
        self.said(node, "9 44\r\n")
        node.write(task(), typed(b"\x03"))
        self.said(node, "caught")
        assert node.output(task(), "err", 0, 100)[0] == b""

    def test_a_signal_reaches_all_processes_of_a_task_without_a_terminal(self, host):
        node = self.begin(host, "trap 'echo caught; exit 3' INT; echo begun; while :; do sleep 0.05; done", input=True)
        node.write(task(), typed(signal="INT"))
        assert ended(node, task()).code == 3
        assert output_of(node, task()) == "begun\ncaught\n"

    def test_a_signal_comes_ahead_of_input_that_nobody_reads(self, host):
        node = self.begin(host, "trap 'echo caught; exit 3' INT; echo begun; while :; do sleep 0.05; done", input=True)
        sent = 0

        def is_full():
            nonlocal sent
            taken = node.write(task(), typed(b"x" * 40_000, offset=sent))
            sent += taken
            return taken == 0

        # Its supervisor passes on what the pipe to the program takes.
        assert until(is_full, 30.0)
        time.sleep(0.3)
        assert until(is_full, 30.0)
        node.write(task(), typed(signal="INT"))
        assert ended(node, task()).code == 3

    def test_a_program_beside_shares_directory_and_environment_and_tells_its_end(self, host):
        node = self.begin(host, "echo begun; sleep 60", environment={"MINE": "yes"}, directory="/tmp")
        node.execute(task(), shell("pwd; echo $MINE $MORE $DFRS_JOB_ID; exit 5", environment={"MORE": "too"}))
        assert self.beside(node) == (f"/tmp\nyes too {task().job}\n", 5)
        assert output_of(node, task()) == "begun\n"
        # Whoever asks again did not hear that it was done.
        node.execute(task(), shell("echo twice"))
        assert self.beside(node)[0].count("\n") == 2

    def test_a_program_beside_takes_input_a_terminal_and_signals(self, host):
        node = self.begin(host, "echo begun; sleep 60")
        node.execute(
            task(), shell("read line; echo got $line; tty; exec sleep 60", terminal=Terminal(rows=5, columns=50))
        )
        node.write(task(), typed(b"word\n", program=PROGRAM))
        assert until(lambda: b"/dev/pts" in node.program_output(task(), PROGRAM, "out", 0, 1000)[0], 30.0)
        # The shell may be between two programs, and deaf to it.
        for k in range(5, 100):
            if node.program_output(task(), PROGRAM, "out", 0, 1)[3] is not None:
                break
            with suppress(DriverError):
                node.write(task(), typed(b"\x03", offset=k, program=PROGRAM))
            time.sleep(0.1)
        data, code = self.beside(node)
        assert "got word" in data
        assert code in {-2, 130}
        node.execute(task(), shell("sleep 60", name="b" * 16, input=True))
        node.write(task(), typed(program="b" * 16, signal="TERM"))
        assert self.beside(node, "b" * 16) == ("", -15)

    def test_a_program_beside_waits_until_its_output_is_read_and_all_of_it_can_be(self, host):
        node = self.begin(host, "echo begun; sleep 60")
        node.execute(task(), shell("seq 600000; exit 3"))
        assert until(lambda: node.program_output(task(), PROGRAM, "out", 0, 1)[2] >= 2 * MIB, 30.0)
        time.sleep(0.5)
        assert node.program_output(task(), PROGRAM, "out", 0, 1)[1:] == (0, pytest.approx(2 * MIB, abs=128 << 10), None)
        read = partial(node.program_output, task(), PROGRAM, "out", limit=1 << 18)
        assert read_along(node, read, PROGRAM) == (numbers(600_000), 3)

    def test_a_task_with_input_waits_for_its_reader_and_one_without_for_nobody(self, host):
        node, script = self.open(host), "seq 100000"
        node.start(task(2), host.shell(script, output_bytes=1 << 16), 0.5)
        node.note_read(task(2), None, "out", 0)
        node.start(task(), host.shell(script, output_bytes=1 << 16, input=True), 0.5)
        assert ended(node, task(2)).code == 0
        time.sleep(0.5)
        assert node.output(task(), "out", 0, 1)[1:] == (0, pytest.approx(2 << 16, abs=1 << 16))

        def read(at):
            # Once it has ended, its output is whole.
            status = next(status for status in node.tasks() if status.task == task())
            return *node.output(task(), "out", at, 1 << 14), None if status.exit is None else status.exit.code

        assert read_along(node, read, None) == (numbers(100_000), 0)

    def test_a_reader_who_is_gone_is_waited_for_no_longer_than_for_a_while(self, host, monkeypatch):
        monkeypatch.setattr(launching, "WAITS_S", 0.5)
        node = self.begin(host, "echo begun; sleep 60")
        node.execute(task(), shell("seq 600000"))
        assert self.beside(node)[1] == 0
        _, begin, end, _ = node.program_output(task(), PROGRAM, "out", 0, 1)
        assert end == len(numbers(600_000))
        assert begin > 0

    def test_what_cannot_be_started_beside_a_task_says_why(self, host):
        node = self.begin(host, "echo begun; sleep 60")
        with pytest.raises(DriverError, match="no such program: nothing-like-it"):
            node.execute(task(), ProgramSpec(name=PROGRAM, command=("nothing-like-it",)))
        node.pause(task())
        with pytest.raises(DriverError, match="is paused"):
            node.execute(task(), shell("true", name="c" * 16))
        node.resume(task())
        for k in range(16):
            node.execute(task(), shell("sleep 60", name=f"{k:016x}"))
        with pytest.raises(DriverError, match="16 programs run beside it already"):
            node.execute(task(), shell("true", name="d" * 16))

    def test_programs_beside_end_with_the_task(self, host):
        node = self.begin(host, "echo begun; exec sleep 1")
        node.execute(task(), shell("echo $$; trap '' TERM HUP; sleep 60 & wait"))
        assert until(lambda: node.program_output(task(), PROGRAM, "out", 0, 100)[0], 30.0)
        pid = int(node.program_output(task(), PROGRAM, "out", 0, 100)[0])
        assert ended(node, task()).kind is ExitKind.CODE
        assert not alive(pid)
        with pytest.raises(DriverError, match="does not run"):
            node.execute(task(), shell("true", name="e" * 16))

    def test_what_a_program_beside_has_left_behind_ends_with_the_task(self, host):
        node = self.begin(host, "echo begun; (sleep 1; echo last) & read line", input=True)
        node.execute(task(), shell("sleep 600 >/dev/null 2>&1 & echo $!"))
        said, code = self.beside(node)
        assert code == 0
        assert alive(int(said))
        node.write(task(), typed(b"\n"))
        assert ended(node, task()).kind is ExitKind.CODE
        # Not before all of the task itself has ended, however.
        assert output_of(node, task()) == "begun\nlast\n"
        assert not alive(int(said))


@needs_root
@needs_groups
class TestInGroups(_OfTasks):
    def open(self, host):
        return host.node()

    def test_a_program_beside_is_in_the_groups_of_its_task(self, host):
        node = self.begin(host, "cat /proc/self/cgroup; echo begun; sleep 60")
        self.said(node, "begun")
        node.execute(task(), shell("cat /proc/self/cgroup"))
        assert self.beside(node)[0] + "begun\n" == output_of(node, task())

    @pytest.mark.parametrize("begins", [True, False])
    def test_a_program_that_did_not_start_in_time_does_not_start_later(self, host, monkeypatch, begins):
        node = self.begin(host, "echo begun; sleep 60")
        put, place = node._beside.put, node.files.place(task(), node.files.owner(task()))
        supervisor, mark = int(node.files.supervisor(task()).split()[0]), host.root / "ran"

        def put_and_wait(*arguments):
            # Either the supervisor starts it into the pause, or sees it only when it is over.
            place.freeze(2.0)
            os.kill(supervisor, signal.SIGCONT if begins else signal.SIGSTOP)
            put(*arguments)

        with monkeypatch.context() as waiting:
            waiting.setattr(node._beside, "put", put_and_wait)
            waiting.setattr(beside, "START_S", 0.5)
            with pytest.raises(DriverError, match="did not start the program"):
                node.execute(task(), shell(f"touch {mark}"))
        os.kill(supervisor, signal.SIGCONT)
        place.thaw()
        with pytest.raises(DriverError, match="could not be started: not in time"):
            node.execute(task(), shell(f"touch {mark}"))
        assert not mark.exists()
        assert not node._beside.runs(task())

    def test_programs_of_another_account_may_open_their_terminal(self, host):
        script = "id -un; echo word > $(tty); sleep 60"
        node = self.begin(host, script, account="nobody", terminal=Terminal())
        self.said(node, "nobody\r\nword\r\n")
        node.execute(task(), shell("id -un"))
        assert self.beside(node) == ("nobody\n", 0)


class TestNice(_OfTasks):
    open = staticmethod(partial(lambda host: host.node(driver=NiceDriver)))
