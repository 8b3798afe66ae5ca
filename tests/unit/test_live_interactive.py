"""A user at a program: what becomes of keys, signals and output, with a cluster that does as it is told."""

import base64
import os
import pty
import signal
import threading
import time
import tty

import pytest

from dfrs.cli.live import interactive
from dfrs.cli.live.interactive import Ending, LostOutputError, Session
from dfrs.cli.live.run import _ends_waiting
from dfrs.live.errors import UnreachableError
from dfrs.live.protocol.resources import OutputPart
from tests.processes import until


class Cluster:
    """One program, which writes `out` and ends when it is told to. It takes no input unless it `reads`."""

    def __init__(self, out=b"", *, reads=True):
        self.out, self.reads = out, reads
        self.asked, self.sent = [], []
        self.ended = threading.Event()

    def output(self, _job, *, rank, stream, offset, limit, program, wait_s, raw):
        assert (rank, program, raw) == (0, None, True)
        self.asked.append((stream, offset))
        written = self.out if stream == "out" else b""
        data = written[offset : offset + limit]
        over = self.ended.wait(min(wait_s, 0.05)) and offset + len(data) >= len(written)
        return OutputPart(
            text="",
            data=base64.b64encode(data).decode(),
            offset=offset,
            next_offset=offset + len(data),
            ended=over,
        )

    def send_input(self, _job, part):
        if not self.reads and part.signal is None:
            return 0
        self.sent.append(part)
        return len(base64.b64decode(part.data))

    @property
    def signals(self):
        return [part.signal for part in self.sent if part.signal is not None]


@pytest.fixture
def streams():
    """Puts files in place of standard input and output: to be called by the test itself, as pytest does it before."""
    kept = [os.dup(number) for number in (0, 1)]

    def put(source, sink):
        os.dup2(source, 0)
        os.dup2(sink, 1)

    yield put
    for number, file in enumerate(kept):
        os.dup2(file, number)
        os.close(file)


@pytest.fixture
def nothing():
    file = os.open(os.devnull, os.O_RDWR)
    yield file
    os.close(file)


@pytest.fixture
def terminal(streams):
    """Makes a terminal that is standard input and output; the user's side of it."""
    user, program = pty.openpty()

    def put():
        streams(program, program)
        return user

    yield put
    os.close(program)
    os.close(user)


def signal_to_session(number):
    """Once there is one, which has signals come to itself."""

    def send():
        if until(lambda: signal.getsignal(number) is interactive._noted):
            os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()


def test_two_interrupts_that_come_at_once_are_two(terminal):
    tty.setraw(user := terminal())
    os.write(user, b"\x03\x03")
    assert Session(Cluster(), 1, terminal=True, typing=True).run() is Ending.STOPPED


def test_one_interrupt_and_two_far_apart_go_to_the_program(terminal, monkeypatch):
    monkeypatch.setattr(interactive, "TWICE_S", 0.0)
    cluster, user = Cluster(), terminal()

    def type_keys():
        until(lambda: cluster.sent)
        for keys in (b"\x03", b"\x03", b"a\x03\x03b"):
            count = len(cluster.sent)
            os.write(user, keys)
            until(lambda before=count: len(cluster.sent) > before)
        os.write(user, b"\x1d")

    threading.Thread(target=type_keys, daemon=True).start()
    assert Session(cluster, 1, terminal=True, typing=True).run() is Ending.LEFT
    typed = b"".join(base64.b64decode(part.data) for part in cluster.sent)
    assert typed == b"\x03\x03a\x03\x03b"


@pytest.mark.parametrize(("typing", "ending"), [(False, Ending.LEFT), (True, Ending.STOPPED)])
def test_who_only_looks_on_ends_nothing_when_told_to_end(streams, nothing, typing, ending):
    streams(nothing, nothing)
    signal_to_session(signal.SIGTERM)
    assert Session(Cluster(), 1, terminal=False, typing=typing).run() is ending


def test_an_interrupt_comes_ahead_of_input_that_is_not_read(streams, nothing):
    with open("/dev/zero", "rb") as zeros:
        streams(zeros.fileno(), nothing)
        cluster = Cluster(reads=False)
        signal_to_session(signal.SIGINT)
        threading.Thread(target=lambda: until(lambda: cluster.signals) and cluster.ended.set(), daemon=True).start()
        session = Session(cluster, 1, terminal=False, typing=True)
        assert session.run() is Ending.ENDED
    assert cluster.signals == ["INT"]
    assert session.hang_up("TERM")
    assert cluster.signals == ["INT", "TERM"]


@pytest.mark.parametrize("sent", [True, False])
def test_an_interrupt_comes_once_also_if_the_answer_to_it_is_lost(streams, nothing, capsys, sent):
    """For many programs a second one means to end at once."""
    tries = []

    class Lossy(Cluster):
        def send_input(self, job, part):
            if part.signal is None:
                return super().send_input(job, part)
            tries.append(part)
            if sent or len(tries) > 1:
                super().send_input(job, part)
            if len(tries) == 1:
                raise UnreachableError("connection lost", sent=sent)
            return 0

    streams(nothing, nothing)
    cluster = Lossy()

    def end():
        if until(lambda: cluster.signals):
            # Long enough to send it again.
            time.sleep(10 * interactive.FIRST_PAUSE_S)
            cluster.ended.set()

    signal_to_session(signal.SIGINT)
    threading.Thread(target=end, daemon=True).start()
    assert Session(cluster, 1, terminal=False, typing=True).run() is Ending.ENDED
    assert cluster.signals == ["INT"]
    assert ("not known whether the interrupt came" in capsys.readouterr().err) is sent


def test_a_full_disk_here_is_no_lost_terminal(streams, nothing):
    full = os.open("/dev/full", os.O_WRONLY)
    streams(nothing, full)
    os.close(full)
    with pytest.raises(OSError, match="No space left on device"):
        Session(Cluster(b"words"), 1, terminal=False, typing=False).run()


def test_a_lost_terminal_is_one(streams, nothing):
    user, program = pty.openpty()
    streams(nothing, program)
    os.close(program)
    os.close(user)
    assert Session(Cluster(b"words"), 1, terminal=False, typing=False).run() is Ending.GONE


def test_output_that_others_have_set_not_to_wait_loses_nothing(streams, nothing):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    streams(nothing, writer)
    os.close(writer)
    words, seen = os.urandom(1 << 20), bytearray()
    cluster = Cluster(words)
    cluster.ended.set()

    def read():
        while len(seen) < len(words):
            seen.extend(os.read(reader, 1 << 16))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert Session(cluster, 1, terminal=False, typing=False).run() is Ending.ENDED
    thread.join(30.0)
    os.close(reader)
    assert seen == words


def test_each_output_is_read_from_where_it_was(streams, nothing):
    streams(nothing, nothing)
    cluster = Cluster(b"0123456789")
    cluster.ended.set()
    session = Session(cluster, 1, begin={"out": 7, "err": 0}, terminal=False, typing=False)
    assert session.run() is Ending.ENDED
    assert cluster.asked[:2] == [("out", 7), ("err", 0)]


def test_what_a_job_writes_that_begins_anew_is_read_from_its_beginning(streams, nothing, tmp_path):
    class Anew(Cluster):
        attempt = 0

        def output(self, job, **asked):
            part = super().output(job, **asked).model_copy(update={"attempt": self.attempt})
            if self.attempt == 0 and asked["stream"] == "out" and asked["offset"] == len(self.out):
                self.out, self.attempt = b"after\n", 1
                self.ended.set()
            return part

    file = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    streams(nothing, file)
    assert Session(Anew(b"before\n"), 1, terminal=False, typing=False).run() is Ending.ENDED
    os.close(file)
    assert (tmp_path / "out").read_text() == "before\nafter\n"


class Late(Cluster):
    """One whose output begins only here: what was before is there no more."""

    def output(self, job, **asked):
        late = asked | {"offset": max(asked["offset"], 4 if asked["stream"] == "out" else 0)}
        return super().output(job, **late)


def test_who_stores_output_that_is_not_whole_is_told_how_much_is_missing(streams, nothing):
    streams(nothing, nothing)
    with pytest.raises(LostOutputError, match=r"job 17: 4 bytes of output are lost: .* write .* to a file on its node"):
        Session(Late(b"0123456789"), 17, terminal=False, typing=False).run()


def test_who_sees_output_that_is_not_whole_sees_the_rest(terminal, capsys):
    tty.setraw(user := terminal())
    cluster = Late(b"0123456789")
    cluster.ended.set()
    assert Session(cluster, 17, terminal=True, typing=False).run() is Ending.ENDED
    assert os.read(user, 100) == b"456789"
    assert "4 bytes were rotated away" in capsys.readouterr().err


def test_while_nobody_takes_output_here_its_node_hears_that_it_is_still_wanted(streams, nothing, monkeypatch):
    monkeypatch.setattr(interactive, "STAY_S", 0.05)
    reader, writer = os.pipe()
    streams(nothing, writer)
    os.close(writer)
    words = bytes(1 << 20)
    cluster = Cluster(words)
    cluster.ended.set()

    def read():
        # Nothing else is asked for meanwhile.
        assert until(lambda: cluster.asked.count(("out", 0)) > 3)
        left = len(words)
        while left:
            left -= len(os.read(reader, left))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert Session(cluster, 1, terminal=False, typing=False).run() is Ending.ENDED
    thread.join(30.0)
    os.close(reader)


@pytest.fixture(params=[signal.SIGHUP, signal.SIGINT])
def ignored(request):
    """A signal that this program was started to ignore."""
    before = signal.signal(request.param, signal.SIG_IGN)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_that_was_ignored_before_stays_so(streams, nothing, ignored):
    streams(nothing, nothing)
    cluster = Cluster()

    def send():
        if until(lambda: signal.getsignal(signal.SIGTERM) is interactive._noted):
            os.kill(os.getpid(), ignored)
        cluster.ended.set()

    threading.Thread(target=send, daemon=True).start()
    assert Session(cluster, 1, terminal=False, typing=True).run() is Ending.ENDED
    assert cluster.signals == []
    with _ends_waiting():
        os.kill(os.getpid(), ignored)
