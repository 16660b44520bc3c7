"""The answering loop: one thread, one request per connection, nothing that waits.

slurmctld holds read locks while its shim waits for us, so the loop does only what an answer needs. Who may
connect is checked on accept, a body's length before it is read, and a slow client is closed after a while.
"""

from __future__ import annotations

import logging
import selectors
import socket
import struct
import time
from typing import TYPE_CHECKING, Final, Protocol

from slurm_plugin.hook.wire import (
    HEADER_BYTES,
    OP_REPLY,
    Header,
    WireError,
    encode_frame,
    parse_fields,
    parse_header,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_plugin.hook.stats import HookStats

MAX_CONNECTIONS: Final = 256
"""When one more comes, the oldest is closed: it is the slowest."""

CLIENT_DEADLINE_S: Final = 1.0
_RECV_BYTES: Final = 65_536
_ACCEPTS_PER_TURN: Final = 32
_LOG_EVERY_S: Final = 10.0
_CREDENTIALS: Final = struct.Struct("3i")
_UNCHANGED: Final = encode_frame(OP_REPLY, {"verdict": "unchanged"})

_log = logging.getLogger(__name__)


class Service(Protocol):
    """What answers: the submit hook's service, or the QOS helper's."""

    def answer(self, op: str, fields: Mapping[str, str], now_s: float, /) -> Mapping[str, str]:
        """Fields of the reply; ``WireError`` closes the connection without one."""
        ...

    def settle(self) -> None:
        """Do what may wait until the answer is out."""
        ...


class _Connection:
    __slots__ = ("buffer", "deadline_s", "header", "socket")

    def __init__(self, accepted: socket.socket, deadline_s: float) -> None:
        self.socket = accepted
        self.deadline_s = deadline_s
        self.buffer = bytearray()
        self.header: Header | None = None


class HookServer:
    """Answers frames on a listening socket until :meth:`stop`.

    Parameters
    ----------
    listener : socket
        Non-blocking; stays the caller's.
    service : Service
    stats : HookStats
    allowed_uids : frozenset of int
        Peers with another uid are closed at once.
    client_deadline_s : float
        A connection without a complete request is closed after this time, seconds.
    """

    def __init__(
        self,
        listener: socket.socket,
        service: Service,
        *,
        stats: HookStats,
        allowed_uids: frozenset[int],
        client_deadline_s: float = CLIENT_DEADLINE_S,
    ) -> None:
        self._listener = listener
        self._service = service
        self._stats = stats
        self._allowed_uids = allowed_uids
        self._client_deadline_s = client_deadline_s
        self._selector = selectors.DefaultSelector()
        self._waiting: dict[int, _Connection] = {}
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.settimeout(0)
        self._wake_write.settimeout(0)
        self._is_stopping = False
        self._next_log_s = 0.0

    def stop(self) -> None:
        """End :meth:`run` soon; safe in a signal handler and from any thread."""
        self._is_stopping = True
        try:
            self._wake_write.send(b"x")
        except OSError:
            return

    def run(self) -> None:
        """Answer until stopped, then close every connection."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        try:
            while not self._is_stopping:
                self._turn()
        finally:
            for connection in list(self._waiting.values()):
                self._close(connection)
            self._selector.close()
            self._wake_read.close()
            self._wake_write.close()

    def _turn(self) -> None:
        timeout_s = self._client_deadline_s / 4 if self._waiting else None
        for key, _ in self._selector.select(timeout_s):
            connection: _Connection | None = key.data
            if connection is not None:
                self._read(connection)
            elif key.fileobj is self._listener:
                self._accept()
        if self._waiting:
            self._close_expired(time.monotonic())

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as err:  # out of file descriptors, or the client is gone already
                self._log_limited("event=accept_failed error=%s", err)
                self._close_oldest()
                return
            if self._is_allowed(accepted):
                self._read(_Connection(accepted, time.monotonic() + self._client_deadline_s))
            else:
                self._stats.count("refused_peers")
                accepted.close()

    def _is_allowed(self, accepted: socket.socket) -> bool:
        raw = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        uid = _CREDENTIALS.unpack(raw)[1]
        if uid in self._allowed_uids:
            return True
        self._log_limited("event=peer_refused uid=%s", uid)
        return False

    def _read(self, connection: _Connection) -> None:
        began_ns = time.perf_counter_ns()
        try:
            chunk = connection.socket.recv(_RECV_BYTES, socket.MSG_DONTWAIT)
            if self._is_complete(connection, chunk):
                self._answer(connection, began_ns)
            else:
                self._wait_for(connection)
        except BlockingIOError:
            self._wait_for(connection)
        except WireError as err:
            self._stats.count("malformed")
            self._log_limited("event=malformed_request error=%s", err)
            self._close(connection)
        except OSError:
            self._close(connection)

    def _is_complete(self, connection: _Connection, chunk: bytes) -> bool:
        if not chunk:
            raise WireError("the client left before its request was complete")
        buffer = connection.buffer
        buffer += chunk
        if connection.header is None:
            if len(buffer) < HEADER_BYTES:
                return False
            connection.header = parse_header(buffer)
        missing = HEADER_BYTES + connection.header.body_bytes - len(buffer)
        if missing < 0:
            raise WireError(f"{-missing} bytes after the request")
        return missing == 0

    def _answer(self, connection: _Connection, began_ns: int) -> None:
        assert connection.header is not None  # noqa: S101 - _is_complete set it
        fields = parse_fields(bytes(memoryview(connection.buffer)[HEADER_BYTES:]))
        try:
            reply = encode_frame(OP_REPLY, self._service.answer(connection.header.op, fields, time.time()))
        except WireError:
            raise
        except Exception:  # noqa: BLE001 - whatever is wrong with us, the job passes unchanged
            self._stats.count("errors")
            self._log_limited("event=decision_failed error=%s", "see the traceback", with_traceback=True)
            reply = _UNCHANGED
        # A fresh socket's buffer takes a reply of a few KiB at once.
        # Timed before the send, which wakes the client: on a busy machine the client then runs first.
        self._stats.observe(time.perf_counter_ns() - began_ns)
        try:
            connection.socket.send(reply, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        finally:
            self._close(connection)
            self._settle()

    def _settle(self) -> None:
        try:
            self._service.settle()
        except Exception:  # noqa: BLE001 - the answer is out; a fault of ours here costs only an estimate
            self._stats.count("errors")
            self._log_limited("event=settle_failed error=%s", "see the traceback", with_traceback=True)

    def _wait_for(self, connection: _Connection) -> None:
        fd = connection.socket.fileno()
        if fd in self._waiting:
            return
        if len(self._waiting) >= MAX_CONNECTIONS:
            self._close_oldest()
        self._waiting[fd] = connection
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def _close(self, connection: _Connection) -> None:
        if self._waiting.pop(connection.socket.fileno(), None) is not None:
            self._selector.unregister(connection.socket)
        connection.socket.close()

    def _close_oldest(self) -> None:
        for connection in self._waiting.values():
            self._stats.count("crowded_out")
            self._close(connection)
            return

    def _close_expired(self, now_s: float) -> None:
        # The same deadline for all: insertion order is expiry order.
        expired = []
        for connection in self._waiting.values():
            if connection.deadline_s > now_s:
                break
            expired.append(connection)
        for connection in expired:
            self._stats.count("timeouts")
            self._close(connection)

    def _log_limited(self, text: str, detail: object, *, with_traceback: bool = False) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_log_s:
            self._next_log_s = now_s + _LOG_EVERY_S
            _log.warning(text, detail, exc_info=with_traceback)
