"""Tasks go from agent to agent: over real sockets, to who was granted them and nobody else, whole or not at all."""

import asyncio
import hashlib
import io
import json
import secrets
import socket
import ssl
import struct
import threading
import time
from contextlib import contextmanager, suppress
from datetime import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from dfrs.live.agent import transfer_line, transfers
from dfrs.live.agent.agent import Agent
from dfrs.live.agent.transfer_line import (
    ALIVE,
    DATA,
    END,
    PROBLEM,
    ChunkReader,
    ChunkWriter,
    Identity,
    chunk,
    problem_chunk,
)
from dfrs.live.agent.transfers import Transfers, is_reachable
from dfrs.live.drivers.base import CheckpointRefusedError, DriverError, ImageFormat
from dfrs.live.protocol.wire import Grant, Source
from tests.live_fakes import PATIENCE_S, FakeDriver, fake_controller, task_id
from tests.unit.test_live_agent import agent_settings, running

ONE, TWO = task_id(1), task_id(2)
BLOCK = bytes(range(256)) * 256


class Node:
    """Transfers of one host on loopback; `give` may be set."""

    def __init__(self, port=0):
        self.give = lambda task, stream: stream.write(f"task {task}".encode())
        self.refused = []
        self.moves = Transfers(self._give, lambda *about: self.refused.append(about), port)
        self.port = self.moves.listen("127.0.0.1")

    def _give(self, task, stream):
        self.give(task, stream)

    def grant(self, other, task=ONE, token=None):
        """Let `other` fetch the task; where from."""
        token = token or secrets.token_hex(32)
        self.moves.allow(task, Grant(token=token, certificate=other.port.certificate))
        return self.source(token)

    def source(self, token=None, **changed):
        return Source(**{**self.port.model_dump(), "token": token or secrets.token_hex(32), **changed})

    def fetch(self, source, task=ONE, receive=None):
        """What comes."""
        got = []
        self.moves.fetch(task, source, receive or (lambda stream: got.append(stream.read())))
        return got[0] if got else None


@pytest.fixture
def nodes():
    made = []

    def make(count=2, **options):
        new = [Node(**options) for _ in range(count)]
        made.extend(new)
        return new if count > 1 else new[0]

    yield make
    for node in made:
        node.moves.close()
    left = [thread.name for thread in threading.enumerate() if thread.name == "dfrs-transfer-tick"]
    assert not left


@pytest.fixture
def short(monkeypatch):
    """No patience: 0.5 s without a byte."""
    monkeypatch.setattr(transfer_line, "IDLE_S", 0.5)
    monkeypatch.setattr(transfer_line, "ALIVE_S", 0.05)
    monkeypatch.setattr(transfer_line, "DRAIN_S", 0.1)
    monkeypatch.setattr(transfers, "ALIVE_S", 0.05)
    monkeypatch.setattr(transfers, "GREET_S", 0.5)


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def in_threads(*calls):
    """What each returned, or the DriverError that it raised."""
    results = [None] * len(calls)

    def run(i, call):
        try:
            results[i] = call()
        except DriverError as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i, call)) for i, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    return threads, results


def joined(threads):
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@contextmanager
def raw(node, identity=None):
    """A TLS connection to `node` that says what the test wants; nothing in common with the code of a taker."""
    with socket.create_connection(("127.0.0.1", node.port.port), timeout=PATIENCE_S) as connection:
        if identity is None:
            yield connection
            return
        context = identity.context([transfer_line.der(node.port.certificate)], server=False)
        with context.wrap_socket(connection) as tls:
            yield tls


def heard(connection):
    """All that comes until the other side closes."""
    data = b""
    with suppress(OSError):
        while part := connection.recv(1 << 16):
            data += part
    return data


def request(task, token):
    return json.dumps({"task": task.model_dump(), "token": token}).encode() + b"\n"


def test_fifty_megabytes_arrive_as_they_were_sent(nodes):
    giver, taker = nodes()
    sent, got = hashlib.sha256(), hashlib.sha256()
    total = 50_000_000

    def give(task, stream):
        left, size = total, 1
        while left:
            data = (BLOCK * 40)[: min(left, size)]
            sent.update(data)
            assert stream.write(data) == len(data)
            left, size = left - len(data), size * 7 % 2_500_009
        assert task == ONE

    def receive(stream):
        left, size = total, 1
        while left:
            data = stream.read(min(left, size))
            assert len(data) == min(left, size)
            got.update(data)
            left, size = left - len(data), size * 11 % 1_500_007

    giver.give = give
    with capture_logs() as logs:
        taker.fetch(giver.grant(taker), receive=receive)
        until(lambda: any(entry["event"] == "a task was given" for entry in logs))
    assert got.digest() == sent.digest()
    assert [entry["bytes"] for entry in logs] == [total]
    assert (giver.moves.refusals, giver.refused) == (0, [])


def test_an_empty_stream_arrives(nodes):
    giver, taker = nodes()
    giver.give = lambda task, stream: None
    assert taker.fetch(giver.grant(taker)) == b""


def test_a_grant_is_used_once(nodes):
    giver, taker = nodes()
    source = giver.grant(taker)
    assert taker.fetch(source) == b"task 1.0.0"
    with pytest.raises(DriverError, match=r"^task 1\.0\.0: cannot be fetched from 127\.0\.0\.1:\d+: .*refuses"):
        taker.fetch(source)
    # While its certificate counts for another task, the connection stands, and it is told in a line.
    giver.grant(taker, TWO)
    with pytest.raises(DriverError, match=r"127\.0\.0\.1:\d+: it has no grant for this task, token and certificate$"):
        taker.fetch(source)
    until(lambda: giver.moves.refusals == 2)


def test_a_grant_that_is_said_again_is_not_a_new_one(nodes):
    giver, taker = nodes()
    source = giver.grant(taker)
    assert giver.grant(taker, token=source.token) == source
    assert taker.fetch(source) == b"task 1.0.0"
    giver.grant(taker, token=source.token)
    giver.grant(taker, TWO)
    with capture_logs() as logs, pytest.raises(DriverError, match="no grant"):
        taker.fetch(source)
    assert [entry["why"] for entry in logs if "why" in entry] == ["task 1.0.0: the grant is used up"]
    assert taker.fetch(giver.grant(taker)) == b"task 1.0.0"


def test_a_wrong_token_uses_up_nothing(nodes):
    giver, taker = nodes()
    source = giver.grant(taker)
    called = []
    giver.give = lambda task, stream: called.append(task)
    with capture_logs() as logs, pytest.raises(DriverError, match="no grant"):
        taker.fetch(giver.source())
    assert (giver.moves.refusals, called) == (1, [])
    assert [entry["why"] for entry in logs] == ["task 1.0.0: the token is another one"]
    assert source.token not in str(logs)
    taker.fetch(source)
    assert called == [ONE]


def test_a_grant_is_for_one_task(nodes):
    giver, taker = nodes()
    source = giver.grant(taker)
    with pytest.raises(DriverError, match="no grant"):
        taker.fetch(source, TWO)
    assert taker.fetch(source) == b"task 1.0.0"


def test_a_token_counts_with_its_certificate_only(nodes):
    giver, taker, other = nodes(3)
    source = giver.grant(taker)
    with pytest.raises(DriverError, match="refuses the certificate"):
        other.fetch(source)
    # Also where the other node has a grant, for another task.
    giver.grant(other, TWO)
    with pytest.raises(DriverError, match="no grant"):
        other.fetch(source)
    until(lambda: giver.moves.refusals == 2)
    assert taker.fetch(source) == b"task 1.0.0"


def test_a_taker_without_a_certificate_is_refused(nodes):
    giver, taker = nodes()
    source = giver.grant(taker)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with raw(giver) as connection, context.wrap_socket(connection) as tls, suppress(OSError):
        tls.sendall(request(ONE, source.token))
        assert heard(tls) == b""
    until(lambda: giver.moves.refusals == 1)
    assert taker.fetch(source) == b"task 1.0.0"


def test_older_tls_is_refused(nodes):
    giver, taker = nodes()
    giver.grant(taker)
    context = taker.moves._identity.context([transfer_line.der(giver.port.certificate)], server=False)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    with raw(giver) as connection, pytest.raises(ssl.SSLError):
        context.wrap_socket(connection)


class _Authority(Identity):
    """A node that has itself granted a task, and hands on what its key has signed."""

    def __init__(self):
        super().__init__()
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        leaf_key = ec.generate_private_key(ec.SECP256R1())
        leaf_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "leaf")])
        authority, leaf = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(name)
            .public_key(own.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime(2020, 1, 1))
            .not_valid_after(datetime(2100, 1, 1))
            .add_extension(x509.BasicConstraints(ca=own is key, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
            for subject, own in ((name, key), (leaf_name, leaf_key))
        )
        self.certificate = authority.decode()
        self._pem = leaf + leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def test_a_certificate_signed_by_a_granted_one_is_refused(nodes):
    giver = nodes(1)
    authority = _Authority()
    token = secrets.token_hex(32)
    giver.moves.allow(ONE, Grant(token=token, certificate=authority.certificate))
    with capture_logs() as logs, raw(giver, authority) as tls:
        tls.sendall(request(ONE, token))
        assert heard(tls) == problem_chunk("it has no grant for this task, token and certificate")
    assert [entry["why"] for entry in logs] == ["task 1.0.0: the certificate is another one"]


def test_a_giver_with_a_certificate_signed_by_the_named_one_is_refused(nodes):
    giver, taker = nodes()
    giver.moves._identity = authority = _Authority()
    source = giver.grant(taker).model_copy(update={"certificate": authority.certificate})
    with pytest.raises(DriverError, match="its certificate is not the one that was named"):
        taker.fetch(source)


def test_a_grant_can_be_taken_back_and_replaced(nodes):
    giver, taker, other = nodes(3)
    first = giver.grant(taker)
    second = giver.grant(taker)
    with pytest.raises(DriverError, match="no grant"):
        taker.fetch(first)
    giver.moves.revoke(ONE)
    with pytest.raises(DriverError, match="refuses"):
        taker.fetch(second)
    third, fourth = giver.grant(taker), giver.grant(other)
    with pytest.raises(DriverError, match="refuses"):
        taker.fetch(third)
    assert other.fetch(fourth) == b"task 1.0.0"
    giver.moves.revoke(ONE)
    giver.moves.allow(ONE, None)


def test_a_grant_with_no_certificate_is_none(nodes):
    giver, taker = nodes()
    source = giver.grant(taker)
    with capture_logs() as logs:
        giver.moves.allow(ONE, Grant(token=source.token, certificate="-----BEGIN CERTIFICATE-----"))
    assert [entry["log_level"] for entry in logs] == ["warning"]
    with pytest.raises(DriverError, match="refuses"):
        taker.fetch(source)


def test_a_giver_must_be_the_one_that_was_named(nodes):
    giver, taker, other = nodes(3)
    source = giver.grant(taker)
    called = []
    giver.give = lambda task, stream: called.append(task)
    wrong = source.model_copy(update={"certificate": other.port.certificate})
    with pytest.raises(DriverError, match="the certificate is not the one that was named"):
        taker.fetch(wrong)
    with pytest.raises(DriverError, match="its certificate: "):
        taker.fetch(source.model_copy(update={"certificate": "none"}))
    assert called == []


def test_a_giver_that_is_not_there_is_an_error_in_one_line(nodes):
    giver, taker = nodes()
    source = giver.grant(taker)
    giver.moves.close()
    with pytest.raises(
        DriverError, match=r"^task 1\.0\.0: cannot be fetched from 127\.0\.0\.1:\d+: Connection refused$"
    ):
        taker.fetch(source)


def test_strangers_who_say_nothing_block_nobody(nodes, monkeypatch):
    monkeypatch.setattr(transfers, "MOST_GREETING", 12)
    # Enough for a handshake among those of 40 strangers on a busy machine.
    monkeypatch.setattr(transfers, "GREET_S", 3.0)
    giver, taker = nodes()
    source = giver.grant(taker)
    strangers = [socket.create_connection(("127.0.0.1", giver.port.port)) for _ in range(40)]
    try:
        assert taker.fetch(source) == b"task 1.0.0"
        until(lambda: giver.moves.refusals == len(strangers))
        until(lambda: not giver.moves._greeting)
    finally:
        for stranger in strangers:
            stranger.close()


def test_the_oldest_stranger_makes_room(nodes, monkeypatch):
    monkeypatch.setattr(transfers, "MOST_GREETING", 3)
    giver = nodes(1)
    began_s = time.monotonic()
    strangers = [socket.create_connection(("127.0.0.1", giver.port.port)) for _ in range(5)]
    assert [heard(stranger) for stranger in strangers[:2]] == [b""] * 2
    assert time.monotonic() - began_s < transfers.GREET_S / 2
    until(lambda: len(giver.moves._greeting) == 3)
    for stranger in strangers:
        stranger.close()


def test_a_first_line_that_does_not_end_is_refused(nodes, short):
    giver, taker = nodes()
    source = giver.grant(taker)
    with raw(giver, taker.moves._identity) as tls:
        tls.sendall(request(ONE, source.token)[:-1])
        assert heard(tls) == b""
    with raw(giver, taker.moves._identity) as tls, suppress(OSError):
        began_s = time.monotonic()
        while time.monotonic() - began_s < PATIENCE_S:
            tls.sendall(b"x")
            time.sleep(0.05)
    assert time.monotonic() - began_s < PATIENCE_S
    with raw(giver, taker.moves._identity) as tls, suppress(OSError):
        tls.sendall(b"x" * 5000)
        assert heard(tls) == b""
    until(lambda: giver.moves.refusals == 3)
    assert taker.fetch(source) == b"task 1.0.0"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\n",
        b"hello, who is there?\r\n",
        b"GET / HTTP/1.1\r\nHost: node\r\n\r\n",
        b"\x16\x03\x01\x00\xff" + bytes(255),
        bytes(range(256)) * 100,
    ],
)
def test_plain_text_gets_nothing(nodes, short, said):
    giver, taker = nodes()
    source = giver.grant(taker)
    with capture_logs() as logs:
        with raw(giver) as connection:
            with suppress(OSError):
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
            assert b"task" not in heard(connection)
        until(lambda: giver.moves.refusals == 1)
    assert [entry["event"] for entry in logs] == ["a connection for tasks was refused"]
    assert taker.fetch(source) == b"task 1.0.0"


@pytest.mark.parametrize(
    "said", [b"\n", b"GET / HTTP/1.1\r\n", b"{}\n", b'{"task": 1}\n', b"\xff\xfe\n", b"[" * 900 + b"\n"]
)
def test_a_request_that_is_none_uses_up_nothing(nodes, short, said):
    giver, taker = nodes()
    source = giver.grant(taker)
    with raw(giver, taker.moves._identity) as tls:
        tls.sendall(said)
        assert b"task" not in heard(tls)
    until(lambda: giver.moves.refusals == 1)
    assert taker.fetch(source) == b"task 1.0.0"


def test_a_taker_that_breaks_off_is_an_error_of_the_stream(nodes):
    giver, taker = nodes()
    source = giver.grant(taker)
    errors = []

    def give(task, stream):
        try:
            while True:
                stream.write(BLOCK)
        except OSError as error:
            errors.append(error)
            raise

    giver.give = give
    with capture_logs() as logs:
        with raw(giver, taker.moves._identity) as tls:
            tls.sendall(request(ONE, source.token))
            assert len(tls.recv(5)) == 5
        until(lambda: any(entry["event"] == "a transfer broke off" for entry in logs))
    assert len(errors) == 1
    assert (giver.refused, giver.moves._giving) == ([], 0)


def test_what_the_receiver_raises_is_raised(nodes):
    giver, taker = nodes()
    giver.give = lambda task, stream: stream.write(BLOCK * 100)

    def full(stream):
        stream.read(10)
        raise OSError(28, "No space left on device")

    with pytest.raises(DriverError, match=r"127\.0\.0\.1:\d+: No space left on device$"):
        taker.fetch(giver.grant(taker), receive=full)

    def unfit(stream):
        raise DriverError("it does not fit")

    with pytest.raises(DriverError, match=r"^it does not fit$"):
        taker.fetch(giver.grant(taker), receive=unfit)


def test_more_than_belongs_to_the_task_is_an_error(nodes):
    giver, taker = nodes()
    giver.give = lambda task, stream: stream.write(BLOCK)
    with pytest.raises(DriverError, match="more came than belongs to the task"):
        taker.fetch(giver.grant(taker), receive=lambda stream: stream.read(100))


def test_a_task_that_cannot_be_checkpointed_is_told_to_both(nodes):
    giver, taker = nodes()

    def give(task, stream):
        stream.write(b"begun")
        raise CheckpointRefusedError("it holds a device:\n /dev/x")

    giver.give = give
    source = giver.grant(taker)
    with pytest.raises(DriverError, match=r"^task 1\.0\.0: .*: it holds a device: /dev/x$"):
        taker.fetch(source)
    assert giver.refused == [(ONE, source.token, "it holds a device: /dev/x")]
    giver.moves.refused = lambda *about: 1 / 0
    with capture_logs(), pytest.raises(DriverError, match="it holds a device"):
        taker.fetch(giver.grant(taker))
    giver.moves.refused = None
    with pytest.raises(DriverError, match="it holds a device"):
        taker.fetch(giver.grant(taker))


@pytest.mark.parametrize(
    "error", [DriverError("it is not here"), OSError("it is not here"), KeyError("it is not here")]
)
def test_why_a_giver_fails_is_told(nodes, error):
    giver, taker = nodes()

    def give(task, stream):
        stream.write(BLOCK)
        raise error

    giver.give = give
    with capture_logs(), pytest.raises(DriverError, match="it is not here"):
        taker.fetch(giver.grant(taker))
    assert giver.refused == []


def test_a_giver_that_is_killed_is_an_error(nodes):
    giver, taker = nodes()
    begun = threading.Event()

    def give(task, stream):
        stream.write(BLOCK * 100)
        stream.flush()
        begun.set()
        time.sleep(0.2)

    giver.give = give
    source = giver.grant(taker)
    threads, results = in_threads(lambda: taker.fetch(source))
    assert begun.wait(PATIENCE_S)
    with giver.moves._changed:
        for line in giver.moves._moving:
            line.break_off()
    joined(threads)
    assert isinstance(results[0], DriverError)
    assert "breaks off" in str(results[0])


def test_a_cut_at_any_byte_of_the_connection_is_an_error(nodes, short):
    """The bytes of a whole transfer, cut after each number of them by who carries them."""
    giver, taker = nodes()
    giver.give = lambda task, stream: stream.write(b"all of it")
    whole = []

    def through(limit):
        """Where a carrier listens that passes `limit` bytes on to the taker."""
        listener = socket.create_server(("127.0.0.1", 0))

        def carry():
            with (
                listener,
                listener.accept()[0] as near,
                socket.create_connection(("127.0.0.1", giver.port.port)) as far,
            ):
                back = threading.Thread(target=pump, args=(near, far, 1 << 60))
                back.start()
                whole.append(pump(far, near, limit))
                for end in (near, far):
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                back.join()

        thread = threading.Thread(target=carry)
        thread.start()
        return listener.getsockname()[1], thread

    def pump(source, target, limit):
        passed = 0
        with suppress(OSError):
            while passed < limit and (data := source.recv(min(4096, limit - passed))):
                target.sendall(data)
                passed += len(data)
        return passed

    def fetch(limit):
        port, thread = through(limit)
        source = giver.grant(taker).model_copy(update={"port": port})
        got = []
        try:
            taker.fetch(source, receive=lambda stream: got.append(stream.read()))
        except DriverError as error:
            return error
        finally:
            thread.join()
        assert got == [b"all of it"]
        return got[0]

    assert fetch(1 << 60) == b"all of it"
    length = whole[0]
    # The records of the stream are the last; those of the handshake are some hundred bytes each.
    cuts = sorted({*range(0, length, 97), *range(length - 90, length)})
    with capture_logs():
        results = [fetch(cut) for cut in cuts]
    # What TLS itself says at the end is no part of the stream.
    complete = [cut for cut, result in zip(cuts, results, strict=True) if isinstance(result, bytes)]
    assert all(cut >= length - 30 for cut in complete)
    assert sum(isinstance(result, DriverError) for result in results) > len(cuts) - 30


def test_a_slow_first_byte_is_waited_for(nodes, short):
    giver, taker = nodes()

    def give(task, stream):
        time.sleep(1.2)
        stream.write(b"late")

    giver.give = give
    assert taker.fetch(giver.grant(taker)) == b"late"


def test_a_slow_receiver_is_waited_for(nodes, short):
    giver, taker = nodes()
    giver.give = lambda task, stream: stream.write(BLOCK * 300)

    def receive(stream):
        first = stream.read(1)
        time.sleep(1.2)
        assert len(first + stream.read()) == len(BLOCK) * 300
        time.sleep(1.2)

    taker.fetch(giver.grant(taker), receive=receive)


def test_a_giver_of_which_nothing_is_heard_is_given_up(nodes, short):
    giver, taker = nodes()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = giver.source(port=silent.getsockname()[1])
        with pytest.raises(DriverError, match="silent for too long"):
            taker.fetch(source)

    # One that stops in the middle: its host hangs.
    def give(task, stream):
        stream.write(BLOCK)
        stream.flush()
        with giver.moves._changed:
            line = next(iter(giver.moves._moving))
        with line._lock:
            time.sleep(1.5)

    giver.give = give
    began_s = time.monotonic()
    with pytest.raises(DriverError, match="silent for too long"):
        taker.fetch(giver.grant(taker))
    assert time.monotonic() - began_s < 1.4


def test_a_taker_that_hangs_is_given_up(nodes, short):
    giver, taker = nodes()
    source = giver.grant(taker)
    giver.give = lambda task, stream: stream.write(BLOCK * 1000)
    with capture_logs() as logs, raw(giver, taker.moves._identity) as tls:
        tls.sendall(request(ONE, source.token))
        until(lambda: any(entry["event"] == "a transfer broke off" for entry in logs))
    assert "silent for too long" in str(logs)


def test_eight_are_given_at_once_and_others_wait(nodes, short):
    giver, *takers = nodes(12)
    gate = threading.Event()
    inside, most = [], []

    def give(task, stream):
        inside.append(task)
        most.append(len(inside))
        assert gate.wait(PATIENCE_S)
        inside.remove(task)
        stream.write(b"done")

    giver.give = give
    sources = [giver.grant(taker, task_id(i + 1)) for i, taker in enumerate(takers)]
    calls = [
        lambda taker=taker, source=source, i=i: taker.fetch(source, task_id(i + 1))
        for i, (taker, source) in enumerate(zip(takers, sources, strict=True))
    ]
    threads, results = in_threads(*calls)
    until(lambda: len(giver.moves._moving) == 11 and len(inside) == 8)
    # Longer than anyone waits in silence; and those who wait have used up nothing.
    time.sleep(1.0)
    waiting = [task for task, granted in giver.moves._grants.items() if not granted.used]
    assert (len(inside), len(waiting)) == (8, 3)
    revoked = waiting[0]
    giver.moves.revoke(revoked)
    gate.set()
    joined(threads)
    assert max(most) == 8
    assert [str(result) for result in results if result != b"done"] == [str(results[revoked.job - 1])]
    assert "no grant" in str(results[revoked.job - 1])


def test_of_two_with_one_grant_one_gets_the_task(nodes):
    giver, taker = nodes()
    called = []

    def give(task, stream):
        called.append(task)
        time.sleep(0.1)
        stream.write(b"done")

    giver.give = give
    source = giver.grant(taker)
    threads, results = in_threads(*[lambda: taker.fetch(source)] * 6)
    joined(threads)
    assert (results.count(b"done"), called) == (1, [ONE])


def test_closing_ends_what_has_not_begun_and_waits_for_what_has(nodes, monkeypatch):
    giver, taker = nodes()
    begun = threading.Event()

    def give(task, stream):
        begun.set()
        time.sleep(0.5)
        stream.write(b"done")

    giver.give = give
    source = giver.grant(taker)
    threads, results = in_threads(lambda: taker.fetch(source))
    assert begun.wait(PATIENCE_S)
    with raw(giver) as stranger:
        until(lambda: len(giver.moves._greeting) == 1)
        began_s = time.monotonic()
        giver.moves.close()
        assert heard(stranger) == b""
        assert time.monotonic() - began_s < transfers.GREET_S / 2
    joined(threads)
    assert results == [b"done"]
    giver.moves.close()
    with pytest.raises(OSError, match="the agent ends"):
        giver.moves.listen("127.0.0.1")


def test_closing_cuts_what_takes_too_long(nodes, monkeypatch):
    monkeypatch.setattr(transfers, "CLOSE_S", 0.2)
    giver, taker = nodes()
    begun, gate = threading.Event(), threading.Event()

    def give(task, stream):
        begun.set()
        assert gate.wait(PATIENCE_S)

    giver.give = give
    source = giver.grant(taker)
    threads, results = in_threads(lambda: taker.fetch(source))
    assert begun.wait(PATIENCE_S)
    # The taker's agent ends; the giver's goes on.
    began_s = time.monotonic()
    taker.moves.close()
    joined(threads)
    assert time.monotonic() - began_s < 5
    assert isinstance(results[0], DriverError)
    with pytest.raises(DriverError, match="the agent ends"):
        taker.fetch(giver.grant(taker))
    giver.moves.close()
    gate.set()


def test_it_listens_where_it_is_told(nodes):
    node = nodes(1)
    assert node.moves.listen("127.0.0.1") == node.port
    moved = node.moves.listen("127.0.0.2")
    assert moved.address == "127.0.0.2"
    assert moved.certificate == node.port.certificate
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", node.port.port))
    socket.create_connection(("127.0.0.2", moved.port)).close()
    # Not this host's own, as behind address translation; and a name.
    for address in ("192.0.2.7", "localhost"):
        anywhere = node.moves.listen(address)
        assert anywhere.address == address
        socket.create_connection(("127.0.0.1", anywhere.port)).close()
    with pytest.raises(OSError, match="in use"):
        Transfers(node.give, port=anywhere.port).listen("127.0.0.1")
    fixed = Transfers(node.give, port=moved.port)
    try:
        assert fixed.listen("127.0.0.1").port == fixed.listen("127.0.0.2").port == moved.port
    finally:
        fixed.close()


def test_over_ipv6(nodes):
    giver, taker = nodes()
    try:
        port = giver.moves.listen("::1")
    except OSError:
        pytest.skip("this host has no IPv6")
    source = giver.grant(taker).model_copy(update={"address": "::1", "port": port.port})
    assert taker.fetch(source) == b"task 1.0.0"
    with pytest.raises(DriverError, match=r"from \[::1\]:\d+: "):
        taker.fetch(source)


def test_which_addresses_others_reach():
    far = "head.example"
    assert is_reachable("10.0.0.7", far)
    assert is_reachable("node7", far)
    assert is_reachable("127.0.0.1", "localhost")
    assert is_reachable("10.0.0.7", "127.0.0.1")
    assert [is_reachable(address, far) for address in ("", "127.0.0.1", "::1", "localhost", "0.0.0.0", "::")] == [
        False
    ] * 6


def test_no_key_is_shown(nodes):
    giver, taker = nodes()
    identity = giver.moves._identity
    key = identity._pem.partition(b"-----END CERTIFICATE-----\n")[2].decode()
    assert key.startswith("-----BEGIN PRIVATE KEY-----")
    shown = f"{giver.port!r}{giver.port.model_dump_json()}{identity!r}{vars(giver.port)}{giver.moves!r}"
    with capture_logs() as logs:
        source = giver.grant(taker)
        taker.fetch(source)
        with pytest.raises(DriverError):
            taker.fetch(source)
        until(lambda: giver.moves.refusals == 1)
    shown += str(logs)
    for secret in ("PRIVATE", source.token, *key.splitlines()[1:-1]):
        assert secret not in shown


class _Imaging(FakeDriver):
    """A fake driver with images."""

    @property
    def abilities(self):
        images = ImageFormat(machine="m", cpu=(), kernel="k", criu="4")
        return super().abilities.model_copy(update={"images": images})

    def send(self, task, stream):
        stream.write(b"what the driver has")


def test_an_agent_says_where_its_tasks_can_be_fetched(nodes):
    async def live():
        async with fake_controller() as controller:
            async with running(_Imaging(), agent_settings(controller)) as agent:
                talk = await controller.accept()
                port = talk.hello.transfers
                assert port.address == talk.hello.address == "127.0.0.1"
                assert "PRIVATE" not in talk.hello.model_dump_json()
                await talk.welcome()
                taker = nodes(1)
                token = secrets.token_hex(32)
                agent._transfers.allow(ONE, Grant(token=token, certificate=taker.port.certificate))
                source = Source(**port.model_dump(), token=token)
                assert await asyncio.to_thread(taker.fetch, source) == b"what the driver has"
                # Another connection to the controller, the same port.
                await controller.stop()
                await controller.start()
                assert (await controller.accept()).hello.transfers == port
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((port.address, port.port))

    asyncio.run(live())


def test_an_agent_that_cannot_be_reached_works_all_the_same():
    async def live(settings, driver):
        async with fake_controller() as controller, running(driver, agent_settings(controller, **settings)):
            talk = await controller.accept()
            assert talk.hello.transfers is None
            await talk.welcome()
            await talk.report()

    asyncio.run(live({}, FakeDriver()))
    asyncio.run(live({"address": "0.0.0.0"}, _Imaging()))
    with socket.create_server(("127.0.0.1", 0)) as taken, capture_logs() as logs:
        asyncio.run(live({"transfer_port": taken.getsockname()[1]}, _Imaging()))
    assert any("tasks cannot go to other hosts" in entry["event"] for entry in logs)


def test_an_agent_that_ends_does_not_wait_for_a_fetch():
    """The task reconciler waits for the steps that it has begun."""

    async def live():
        async with fake_controller() as controller:
            agent = Agent(_Imaging(), agent_settings(controller))
            serving = asyncio.create_task(agent.run())
            await (await controller.accept()).welcome()
            with socket.create_server(("127.0.0.1", 0)) as silent:
                source = Source(
                    address="127.0.0.1",
                    port=silent.getsockname()[1],
                    certificate=Identity().certificate,
                    token=secrets.token_hex(32),
                )
                fetching = asyncio.create_task(asyncio.to_thread(agent._transfers.fetch, ONE, source, io.BytesIO))
                await asyncio.sleep(0.2)
                agent.stop()
                began_s = time.monotonic()
                await serving
                with pytest.raises(DriverError):
                    await fetching
                assert time.monotonic() - began_s < 8

    asyncio.run(live())


def reader(data, splits=()):
    """Reads `data` as it comes in pieces, which end at `splits`."""
    ends = sorted({end for end in splits if 0 < end < len(data)} | {len(data)})
    at = 0

    def receive_into(view):
        nonlocal at
        end = next((end for end in ends if end > at), len(data))
        part = data[at : min(end, at + len(view))]
        view[: len(part)] = part
        at += len(part)
        return len(part)

    return ChunkReader(receive_into)


pieces = st.lists(st.binary(max_size=300), max_size=8)


@given(pieces, st.data())
def test_any_split_gives_what_was_written(written, data):
    said = bytearray()
    chunks = ChunkWriter(said.extend)
    for piece in written:
        if data.draw(st.booleans()):
            said += chunk(ALIVE)
        assert chunks.write(piece) == len(piece)
    said += chunk(END)
    splits = data.draw(st.lists(st.integers(0, len(said)), max_size=20))
    stream = io.BufferedReader(reader(bytes(said), splits), data.draw(st.integers(1, 400)))
    expected = b"".join(written)
    got = b""
    while len(got) < len(expected):
        size = data.draw(st.integers(1, 500))
        part = stream.read(size)
        assert len(part) == min(size, len(expected) - len(got))
        got += part
    assert got == expected
    assert stream.read(1) == stream.read() == b""
    assert chunks.count == len(expected)


@given(pieces, st.data())
def test_any_cut_is_an_error(written, data):
    said = bytearray()
    chunks = ChunkWriter(said.extend)
    for piece in written:
        chunks.write(piece)
    said += chunk(END)
    cut = data.draw(st.integers(0, len(said) - 1))
    splits = data.draw(st.lists(st.integers(0, len(said)), max_size=20))
    stream = io.BufferedReader(reader(bytes(said[:cut]), splits), data.draw(st.integers(1, 400)))
    with pytest.raises(EOFError):
        stream.read()
    with pytest.raises(EOFError):
        stream.read(1)


@given(pieces, st.binary(max_size=60))
def test_what_is_no_chunk_is_never_a_whole_stream(written, noise):
    said = bytearray()
    chunks = ChunkWriter(said.extend)
    for piece in written:
        chunks.write(piece)
    kind, length = struct.unpack(">BI", noise[:5]) if len(noise) >= 5 else (DATA, 1)
    if (kind, length) in {(END, 0), (ALIVE, 0)} or (kind == DATA and noise[5 + length :]):
        return
    with pytest.raises((EOFError, OSError)):
        io.BufferedReader(reader(bytes(said) + noise), 16).read()


@pytest.mark.parametrize(
    "said",
    [chunk(END, b"x"), chunk(ALIVE, b"x"), chunk(DATA), chunk(PROBLEM), chunk(9), struct.pack(">BI", DATA, 1 << 31)],
)
def test_chunks_that_cannot_be(said):
    with pytest.raises(OSError, match="not a chunk"):
        io.BufferedReader(reader(said)).read()


def test_a_problem_is_one_printable_line():
    said = chunk(DATA, b"abc") + problem_chunk("first\nsecond\x1b[31m third " + "ä" * 2000)
    with pytest.raises(OSError, match=r"^first second\?\[31m third ä"):
        io.BufferedReader(reader(said)).read()


def test_long_writes_are_cut_into_chunks():
    said = []
    chunks = ChunkWriter(said.append)
    data = BLOCK * 40
    assert chunks.write(data) == transfer_line.CHUNK_BYTES
    with io.BufferedWriter(chunks, 1000) as stream:
        stream.write(data)
    assert all(len(part) <= transfer_line.CHUNK_BYTES + 5 for part in said)
    with pytest.raises(ValueError, match="ended"):
        chunks.write(b"more")
