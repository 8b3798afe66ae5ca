"""A line between the agents of two hosts: TLS with pinned certificates, and chunks that tell a whole stream from a cut.

What one agent gives goes in chunks: a kind, a length, and so many bytes. The last one is END, or PROBLEM with the
reason in one line; a stream without either is cut, however much of it came. Who has nothing to send for a while says
that it lives: the giver by ALIVE chunks, the taker by single bytes. A line on which nothing moves is broken.
"""

import io
import os
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

IDLE_S = 10.0
"""A line on which no byte moves for so long is broken."""
ALIVE_S = 2.5
"""Seconds between two signs of life of a side that has nothing to send."""
DRAIN_S = 1.0
"""So long may the other side take to read why it was refused."""
LINE_BYTES = 1024
"""The longest line that either side says."""
CHUNK_BYTES = 1 << 20
"""The longest chunk."""

TICK, DONE = b".", b"+"
"""What a taker says while it is busy, and when it has all."""

DATA, ALIVE, PROBLEM, END = range(4)
_HEAD = struct.Struct(">BI")
_T = TypeVar("_T")


class Identity:
    """A key and its self-signed certificate, made anew for each agent; the key is on no disk.

    The certificate has no end: others compare it byte by byte, so the clocks of the hosts need not agree.
    """

    def __init__(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        serial = x509.random_serial_number()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"dfrs node {serial:x}"[:32])])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(serial)
            .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
            .not_valid_after(datetime(9999, 12, 31, tzinfo=UTC))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        self.certificate = pem.decode()
        """PEM."""
        self._pem = pem + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def context(self, trusted: Iterable[bytes], *, server: bool) -> ssl.SSLContext:
        """For a connection with a holder of one of the certificates `trusted`, DER. Raises OSError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if server:
            context.num_tickets = 0
        for certificate in trusted:
            context.load_verify_locations(cadata=certificate)
        # Only files can be read there: this one has no name, and is gone when it is closed.
        with open(os.memfd_create("dfrs", os.MFD_CLOEXEC), "w+b") as file:
            file.write(self._pem)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return context


def der(certificate: str) -> bytes:
    """The bytes of a certificate in PEM, by which it is compared and trusted. Raises ValueError."""
    found = x509.load_pem_x509_certificate(certificate.encode()).public_bytes(serialization.Encoding.DER)
    try:
        # What cannot be trusted must not come among those that are: no connection would be possible.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=found)
    except ssl.SSLError as error:
        raise ValueError(str(error)) from None
    return found


class Line:
    """One TLS connection. `send` and `ticking` are safe for threads; `break_off` ends what any of them waits for.

    All methods raise OSError; after one in `send`, nothing can be sent any more.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, *, server: bool) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = context.wrap_socket(connection, server_side=server, do_handshake_on_connect=False)
        # OpenSSL's connections are not safe for threads, not even one that reads and one that writes.
        self._lock = threading.Lock()
        self._broken: OSError | None = None

    def handshake(self, until_s: float) -> bytes:
        """Agree on keys; the certificate of the other side, DER. `until_s` is of the monotonic clock."""
        with self._lock:
            self._retry(self._tls.do_handshake, until_s)
            return self._tls.getpeercert(binary_form=True) or b""

    def read_line(self, until_s: float) -> bytes:
        """The first line that the other side says, without its end; what follows must be ticks."""
        found = b""
        with self._lock:
            while b"\n" not in found:
                if len(found) >= LINE_BYTES:
                    raise OSError(f"the first line: must be at most {LINE_BYTES} bytes")
                rest = LINE_BYTES - len(found)
                part = self._retry(lambda rest=rest: self._tls.recv(rest), until_s)
                if not part:
                    raise ConnectionAbortedError("broke off before its first line ended")
                found += part
        return found.partition(b"\n")[0]

    def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes and put them there; how many, 0 at the end."""
        with self._lock:
            return self._retry(lambda: self._tls.recv_into(buffer), time.monotonic() + IDLE_S)

    def send(self, data: bytes) -> None:
        """Send all of it, as one piece."""
        with self._lock:
            self._send(data)

    def check(self) -> None:
        """Raise OSError if the other side has gone."""
        with self._lock:
            self._hear()

    @contextmanager
    def ticking(self, tick: bytes) -> Generator[None]:
        """Send `tick` now and then while nothing else is sent or awaited."""
        over = threading.Event()

        def run() -> None:
            """Until it is over, or the other side has gone; what is being sent needs no tick."""
            while not over.wait(ALIVE_S):
                if self._lock.acquire(blocking=False):
                    try:
                        self._send(tick)
                    except OSError:
                        return
                    finally:
                        self._lock.release()

        ticker = threading.Thread(target=run, name="dfrs-transfer-tick", daemon=True)
        ticker.start()
        try:
            yield
        finally:
            over.set()
            ticker.join()

    def linger(self, limit_s: float) -> bool:
        """Wait until the other side closes, as long as it ticks; whether it said that it has all.

        To close while there are bytes to read would make the kernel drop what the other side has not read yet.
        """
        has_all = False
        until_s = time.monotonic() + limit_s
        with suppress(OSError), self._lock:
            while data := self._retry(lambda: self._tls.recv(4096), min(until_s, time.monotonic() + IDLE_S)):
                has_all |= DONE in data
        return has_all

    def drain(self) -> None:
        """Let the other side read what it was told last, for a moment; what it says meanwhile is dropped."""
        until_s = time.monotonic() + DRAIN_S
        with suppress(OSError), self._lock:
            socket.socket.shutdown(self._tls, socket.SHUT_WR)
            while time.monotonic() < until_s:
                self._await(select.POLLIN, until_s)
                if not socket.socket.recv(self._tls, 1 << 16):
                    return

    def break_off(self) -> None:
        """End the connection; its threads get an error soon."""
        with suppress(OSError):
            # The method of SSLSocket would leave the others with a socket that takes plain bytes.
            socket.socket.shutdown(self._tls, socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the connection; no thread may use it any more."""
        self._tls.close()

    def _send(self, data: bytes) -> None:
        if self._broken is not None:
            raise self._broken
        try:
            left = memoryview(data)
            until_s = time.monotonic() + IDLE_S
            while left:
                try:
                    left = left[self._tls.send(left) :]
                    until_s = time.monotonic() + IDLE_S
                except ssl.SSLWantReadError:
                    self._await(select.POLLIN, until_s)
                except ssl.SSLWantWriteError:
                    if self._await(select.POLLIN | select.POLLOUT, until_s) & select.POLLIN and self._hear():
                        until_s = time.monotonic() + IDLE_S
        except OSError as error:
            self._broken = error
            raise

    def _hear(self) -> bool:
        """Take what ticks have come, without waiting; whether there were any."""
        try:
            if not self._tls.recv(4096):
                raise ConnectionAbortedError("the other side broke off")
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        return True

    def _retry(self, call: Callable[[], _T], until_s: float) -> _T:
        while True:
            try:
                return call()
            except ssl.SSLWantReadError:
                self._await(select.POLLIN, until_s)
            except ssl.SSLWantWriteError:
                self._await(select.POLLOUT, until_s)

    def _await(self, events: int, until_s: float) -> int:
        poll = select.poll()
        poll.register(self._tls.fileno(), events)
        found = poll.poll(max(0.0, until_s - time.monotonic()) * 1000)
        if not found:
            raise TimeoutError("the other side was silent for too long")
        return found[0][1]


def chunk(kind: int, data: "ReadableBuffer" = b"") -> bytes:
    """A chunk as it is sent."""
    view = memoryview(data)
    return _HEAD.pack(kind, view.nbytes) + view


def problem_chunk(line: str) -> bytes:
    """The chunk that says why a stream is not complete."""
    return chunk(PROBLEM, one_line(line).encode(errors="replace")[:LINE_BYTES])


def one_line(error: object) -> str:
    """What an error says, printable, in one line."""
    text = " ".join(str(error).split())
    return "".join(c if c.isprintable() else "?" for c in text) or type(error).__name__


class ChunkWriter(io.RawIOBase):
    """Sends what is written in chunks by `send`; not the end."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self.count = 0
        """Bytes written."""

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: "ReadableBuffer", /) -> int:
        """Send the first CHUNK_BYTES; how many there were. Raises what `send` raises."""
        if self.closed:
            raise ValueError("write to a stream that has ended")
        part = memoryview(data).cast("B")[:CHUNK_BYTES]
        if part:
            self._send(chunk(DATA, part))
            self.count += len(part)
        return len(part)


class ChunkReader(io.RawIOBase):
    """What was written on the other side; ends only at END.

    Raises EOFError if it is cut, OSError with its reason for PROBLEM, or for what is not a chunk; again at each read.
    `receive_into` fills a part of a buffer and returns how much, 0 if nothing comes any more.
    """

    def __init__(self, receive_into: Callable[[memoryview], int]) -> None:
        self._receive_into = receive_into
        self._left = 0
        self._over = False
        self.problem: OSError | EOFError | None = None
        """Why it is not complete."""
        self.begun = False
        """Whether the other side has said anything."""

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Wait for bytes and put them there; how many, 0 after END."""
        if self.problem is not None:
            raise self.problem
        try:
            while not self._left and not self._over:
                self._next()
            if self._over:
                return 0
            count = self._take(memoryview(buffer).cast("B")[: self._left])
        except (OSError, EOFError) as error:
            self.problem = error
            raise
        self._left -= count
        return count

    def _next(self) -> None:
        kind, length = _HEAD.unpack(self._exactly(_HEAD.size))
        if kind == DATA and 0 < length <= CHUNK_BYTES:
            self._left = length
        elif kind == PROBLEM and 0 < length <= LINE_BYTES:
            raise OSError(one_line(self._exactly(length).decode(errors="replace")))
        elif kind == END and length == 0:
            self._over = True
        elif kind != ALIVE or length != 0:
            raise OSError("what came is not a chunk of a task")

    def _exactly(self, length: int) -> bytes:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            view = view[self._take(view) :]
        return bytes(data)

    def _take(self, view: memoryview) -> int:
        count = self._receive_into(view)
        if not count:
            raise EOFError("the stream breaks off")
        self.begun = True
        return count
