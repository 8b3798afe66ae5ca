"""How tasks go from host to host: straight between agents, over mutual TLS, each by a grant that is used up.

The agent that takes a task connects to the one that has it, and both prove who they are by certificates that the
controller has told each of the other. The taker says which task it wants and shows the token of its grant; the giver
then sends what its driver writes. Calls block, in threads: no byte of a task passes the event loop.
"""

import errno
import io
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hmac import compare_digest
from typing import BinaryIO

import structlog

from dfrs.live.agent.transfer_line import (
    ALIVE,
    ALIVE_S,
    DONE,
    END,
    TICK,
    ChunkReader,
    ChunkWriter,
    Identity,
    Line,
    chunk,
    der,
    one_line,
    problem_chunk,
)
from dfrs.live.drivers.base import CheckpointRefusedError, DriverError, TaskId, Wire
from dfrs.live.protocol.addresses import is_loopback
from dfrs.live.protocol.wire import Grant, Source, Token, TransferPort

GREET_S = 10.0
"""So long may connecting take, and who has connected to say what it wants."""
CLOSE_S = 3.0
"""So long may transfers go on when the agent ends."""
LINGER_S = 600.0
"""So long may a taker take to store what it has been sent."""
MOST_GIVING = 8
"""Tasks that are given at once; others wait."""
MOST_GREETING = 64
"""Connections that have not shown a grant; the oldest makes room for the next."""
BUFFER_BYTES = 1 << 18

log = structlog.get_logger(__name__)


class _Request(Wire):
    """The first line of who wants a task."""

    task: TaskId
    token: Token


@dataclass(slots=True, kw_only=True)
class _Granted:
    token: str
    certificate: bytes
    """DER."""
    used: bool = False


class _NotGrantedError(OSError):
    """What the other side asks for is not granted to it: the message is for the log, the other side learns less."""


class Transfers:
    """Gives tasks of this node to nodes that were granted them, and fetches tasks that this node was granted.

    `give` writes a task to a stream, as `Driver.send`. `refused` is called, in a thread of its own, with the task, the
    token of the grant and the reason when `give` raises CheckpointRefusedError; whoever wants to know puts a callable
    there. All methods may be called from any thread.
    """

    def __init__(
        self,
        give: Callable[[TaskId, BinaryIO], None],
        refused: Callable[[TaskId, str, str], None] | None = None,
        port: int = 0,
    ) -> None:
        self.refused = refused
        self.refusals = 0
        """Connections that were turned away."""
        self._give = give
        self._port = port
        self._identity = Identity()
        self._changed = threading.Condition()
        """Guards all that follows."""
        self._grants: dict[TaskId, _Granted] = {}
        self._greeting: dict[Line, None] = {}
        """The oldest first."""
        self._moving: set[Line] = set()
        self._giving = 0
        self._listener: tuple[str, socket.socket] | None = None
        self._closed = False

    def listen(self, address: str) -> TransferPort:
        """Where others fetch tasks that know this node by `address`. Raises OSError.

        It listens on this address; on all of its family if it is a name, or not this host's own (behind address
        translation).
        """
        with self._changed:
            if self._closed:
                raise OSError("the agent ends")
            if self._listener is None or self._listener[0] != address:
                self._stop_listening()
                listener = _listener(address, self._port)
                self._listener = address, listener
                threading.Thread(
                    target=self._accept, args=(listener,), name="dfrs-transfer-accept", daemon=True
                ).start()
            port = self._listener[1].getsockname()[1]
        return TransferPort(address=address, port=port, certificate=self._identity.certificate)

    def allow(self, task: TaskId, grant: Grant | None) -> None:
        """Let the holder of `grant` fetch the task, once, and nobody else; None: nobody.

        The grant that it was called with last changes nothing, and is not good for a second time.
        """
        granted = None
        if grant is not None:
            try:
                granted = _Granted(token=grant.token, certificate=der(grant.certificate))
            except ValueError as error:
                log.warning("a grant that is none", task=str(task), why=f"its certificate: {one_line(error)}")
        with self._changed:
            last = self._grants.get(task)
            if granted is not None and last is not None and last.token == granted.token:
                return
            if granted is None:
                self._grants.pop(task, None)
            else:
                self._grants[task] = granted
            self._changed.notify_all()

    def revoke(self, task: TaskId) -> None:
        """Let nobody fetch the task any more; a transfer that has begun goes on."""
        self.allow(task, None)

    def fetch(self, task: TaskId, source: Source, receive: Callable[[BinaryIO], None]) -> None:
        """Have `receive` read a task from `source`; it must read all of it, and the stream raises if it is cut.

        Raises DriverError, also where the task is complete and the giver's last word is missing.
        """
        where = f"[{source.address}]" if ":" in source.address else source.address
        failed = f"task {task}: cannot be fetched from {where}:{source.port}"
        try:
            certificate = der(source.certificate)
            context = self._identity.context([certificate], server=False)
        except (OSError, ValueError) as error:
            raise DriverError(f"{failed}: its certificate: {one_line(error)}") from None
        try:
            with self._line_to(source, context) as line:
                until_s = time.monotonic() + GREET_S
                if line.handshake(until_s) != certificate:
                    raise OSError("its certificate is not the one that was named")
                line.send(_Request(task=task, token=source.token).model_dump_json().encode() + b"\n")
                _receive(line, receive)
        except (OSError, EOFError) as error:
            raise DriverError(f"{failed}: {_why(error)}") from error

    def close(self) -> None:
        """Stop listening, end what has not begun, and give transfers under way a few seconds."""
        with self._changed:
            self._closed = True
            self._grants.clear()
            self._stop_listening()
            for line in self._greeting:
                line.break_off()
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._moving, CLOSE_S)
            for line in self._moving:
                line.break_off()
            self._changed.wait_for(lambda: not self._moving and not self._greeting, 1.0)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            _, listener = self._listener
            self._listener = None
            with suppress(OSError):
                # To close it alone would leave the thread in accept().
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, peer = listener.accept()
            except OSError as error:
                if listener.fileno() < 0 or error.errno == errno.EINVAL:
                    return
                time.sleep(0.1)
                continue
            try:
                self._greet(connection, str(peer[0]))
            except (OSError, RuntimeError) as error:
                connection.close()
                self._count(str(peer[0]), error)

    def _greet(self, connection: socket.socket, peer: str) -> None:
        with self._changed:
            if self._closed:
                connection.close()
                return
            if len(self._greeting) >= MOST_GREETING:
                oldest = next(iter(self._greeting))
                del self._greeting[oldest]
                oldest.break_off()
            trusted = {granted.certificate for granted in self._grants.values() if not granted.used}
            line = Line(connection, self._identity.context(trusted, server=True), server=True)
            self._greeting[line] = None
        try:
            threading.Thread(target=self._serve, args=(line, peer), name="dfrs-transfer", daemon=True).start()
        except RuntimeError:
            self._leave(line)
            raise

    def _serve(self, line: Line, peer: str) -> None:
        try:
            request = self._admit(line)
        except (OSError, ValueError) as error:
            self._count(peer, error)
            if isinstance(error, _NotGrantedError):
                with suppress(OSError):
                    line.send(problem_chunk("it has no grant for this task, token and certificate"))
            line.drain()
        else:
            try:
                self._send(line, peer, request)
            except OSError as error:
                log.warning("a transfer broke off", task=str(request.task), to=peer, why=_why(error))
        finally:
            self._leave(line)

    def _admit(self, line: Line) -> _Request:
        """Use up the grant that the other side shows, as soon as there is room.

        Raises _NotGrantedError, OSError of the line, ValueError for what is no request.
        """
        until_s = time.monotonic() + GREET_S
        certificate = line.handshake(until_s)
        request = _Request.model_validate_json(line.read_line(until_s))
        while True:
            # Who has gone uses up nothing.
            line.check()
            with self._changed:
                granted = self._grants.get(request.task)
                why = _mismatch(granted, request, certificate)
                if granted is not None and not why:
                    self._greeting.pop(line, None)
                    self._moving.add(line)
                    if self._giving < MOST_GIVING:
                        granted.used = True
                        self._giving += 1
                        return request
                    self._changed.wait(ALIVE_S)
            if why:
                raise _NotGrantedError(f"task {request.task}: {why}")
            line.send(chunk(ALIVE))

    def _send(self, line: Line, peer: str, request: _Request) -> None:
        began_s = time.monotonic()
        chunks = ChunkWriter(line.send)
        try:
            problem = self._write(line, chunks, request)
        finally:
            chunks.close()
            with self._changed:
                self._giving -= 1
                self._changed.notify_all()
        line.send(problem_chunk(problem) if problem else chunk(END))
        has_all = line.linger(LINGER_S)
        if problem:
            log.warning("a task was not given", task=str(request.task), to=peer, why=problem)
            return
        took_s = round(time.monotonic() - began_s, 3)
        about = {"task": str(request.task), "to": peer, "bytes": chunks.count, "took_s": took_s}
        if has_all:
            log.info("a task was given", **about)
        else:
            log.warning("a task was given, and the other side did not say that it has it", **about)

    def _write(self, line: Line, chunks: ChunkWriter, request: _Request) -> str:
        """Have the task written; why it is not complete, or nothing. Raises OSError of the line."""
        stream = io.BufferedWriter(chunks, BUFFER_BYTES)
        try:
            with line.ticking(chunk(ALIVE)):
                self._give(request.task, stream)
                if not stream.closed:
                    stream.flush()
        except CheckpointRefusedError as error:
            self._tell(request, one_line(error))
            return one_line(error)
        except (DriverError, OSError) as error:
            return one_line(error)
        except Exception as error:
            log.exception("the driver failed", task=str(request.task), step="send")
            return one_line(error)
        return ""

    def _tell(self, request: _Request, why: str) -> None:
        try:
            if self.refused is not None:
                self.refused(request.task, request.token, why)
        except Exception:
            log.exception("nobody heard that a task cannot be check-pointed", task=str(request.task))

    @contextmanager
    def _line_to(self, source: Source, context: ssl.SSLContext) -> Generator[Line]:
        connection = socket.create_connection((source.address, source.port), timeout=GREET_S)
        try:
            line = Line(connection, context, server=False)
        except BaseException:
            connection.close()
            raise
        with self._changed:
            ends = self._closed
            self._moving.add(line)
        try:
            if ends:
                raise OSError("the agent ends")
            yield line
        finally:
            self._leave(line)

    def _leave(self, line: Line) -> None:
        with self._changed:
            self._greeting.pop(line, None)
            self._moving.discard(line)
            line.close()
            self._changed.notify_all()

    def _count(self, peer: str, error: Exception) -> None:
        with self._changed:
            self.refusals += 1
        why = "its first line is not a request" if isinstance(error, ValueError) else _why(error)
        log.warning("a connection for tasks was refused", peer=peer, why=why)


def is_reachable(address: str, server: str) -> bool:
    """Whether other hosts may reach this node at `address`, where the controller is at the host `server`."""
    try:
        if ipaddress.ip_address(address).is_unspecified:
            return False
    except ValueError:
        pass
    return bool(address) and (is_loopback(server) or not is_loopback(address))


def _listener(address: str, port: int) -> socket.socket:
    family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    try:
        ipaddress.ip_address(address.partition("%")[0])
        return socket.create_server(where, family=family)
    except ValueError:
        pass
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
    return socket.create_server(("", port), family=family)


def _mismatch(granted: _Granted | None, request: _Request, certificate: bytes) -> str:
    """Why this is not who was granted the task; nothing if it is."""
    if granted is None:
        return "nobody is granted it"
    if not compare_digest(granted.token, request.token):
        return "the token is another one"
    if not compare_digest(granted.certificate, certificate):
        return "the certificate is another one"
    return "the grant is used up" if granted.used else ""


def _receive(line: Line, receive: Callable[[BinaryIO], None]) -> None:
    """Have `receive` read what comes, up to the giver's last word. Raises OSError, EOFError, and what it raises."""
    chunks = ChunkReader(line.receive_into)
    stream = io.BufferedReader(chunks, BUFFER_BYTES)
    try:
        with line.ticking(TICK):
            receive(stream)
            if stream.read(1):
                raise OSError("more came than belongs to the task")
    except (DriverError, OSError, EOFError) as error:
        # Whatever it was made of where the stream was read: what happened is that it broke off.
        if chunks.problem is None:
            raise
        if not chunks.begun and isinstance(chunks.problem, EOFError | ConnectionError):
            raise OSError("it broke off without a word: it may not know this node's certificate") from error
        raise chunks.problem from error
    with suppress(OSError):
        line.send(DONE)


def _why(error: BaseException) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return "the certificate is not the one that was named"
        case ssl.SSLError() if "ALERT" in (error.reason or ""):
            return f"the other side refuses the certificate ({error.reason})"
        case ssl.SSLError():
            return f"no TLS as expected ({error.reason or one_line(error)})"
        case OSError(strerror=str(text)):
            return text
        case _:
            return one_line(error)
