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

from slurm_plugin.hook.service import UNCHANGED
from slurm_plugin.hook.wire import OP_REPLY, WireError, encode_fields, frame_body, parse_fields, split_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_plugin.hook.stats import HookStats

MAX_CONNECTIONS: Final = 256
"""When one more comes, the oldest is closed: it is the slowest."""

CLIENT_DEADLINE_S: Final = 1.0
_FIRST_RECV_BYTES: Final = 4_096
"""A typical request comes whole in one call of this size; a larger buffer costs more to allocate."""

_NEXT_RECV_BYTES: Final = 65_536
_ACCEPTS_PER_TURN: Final = 32
_LOG_EVERY_S: Final = 10.0
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid

_log = logging.getLogger(__name__)


class Service(Protocol):
    """What answers: the submit hook's service, or the QOS helper's."""

    def answer(self, op: str, fields: Mapping[str, str], now_s: float, /) -> Mapping[str, str] | bytes:
        """Fields of the reply or its whole frame; ``WireError`` closes the connection without one."""
        ...

    def settle(self) -> None:
        """Do what may wait until the answer is out."""
        ...


class _Connection:
    """A client whose request is not complete yet; ``spent_ns`` is the time spent on it so far."""

    __slots__ = ("buffer", "deadline_s", "socket", "spent_ns")

    def __init__(self, accepted: socket.socket, chunk: bytes, deadline_s: float) -> None:
        self.socket = accepted
        self.deadline_s = deadline_s
        self.buffer = bytearray(chunk)
        self.spent_ns = 0


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
                self._close(connection.socket)
            self._selector.close()
            self._wake_read.close()
            self._wake_write.close()

    def _turn(self) -> None:
        timeout_s = self._client_deadline_s / 4 if self._waiting else None
        for key, _ in self._selector.select(timeout_s):
            connection: _Connection | None = key.data
            if connection is not None:
                self._continue(connection)
            elif key.fileobj is self._listener:
                self._accept()
        if self._waiting:
            self._close_expired(time.monotonic())

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            began_ns = time.perf_counter_ns()
            try:
                # accept() itself spends half of its 8 us on turning the listener's numbers into enums.
                fd, _ = self._listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - see above
                accepted = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fd)
            except BlockingIOError:
                return
            except OSError as err:  # out of file descriptors, or the client is gone already
                self._log_limited("event=accept_failed error=%s", err)
                self._close_oldest()
                return
            if self._is_allowed(accepted):
                self._begin(accepted, began_ns)
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

    def _begin(self, accepted: socket.socket, began_ns: int) -> None:
        # Most requests lie there whole already; they need no selector and no buffer.
        try:
            chunk = accepted.recv(_FIRST_RECV_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._wait_for(accepted, b"", began_ns)
        except OSError:
            accepted.close()
        else:
            if not self._answer(accepted, chunk, chunk, began_ns):
                self._wait_for(accepted, chunk, began_ns)

    def _continue(self, connection: _Connection) -> None:
        began_ns = time.perf_counter_ns() - connection.spent_ns
        try:
            chunk = connection.socket.recv(_NEXT_RECV_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            self._close(connection.socket)
            return
        connection.buffer += chunk
        if not self._answer(connection.socket, chunk, connection.buffer, began_ns):
            connection.spent_ns = time.perf_counter_ns() - began_ns

    def _answer(self, client: socket.socket, chunk: bytes, raw: bytes | bytearray, began_ns: int) -> bool:
        """Answer and close if ``raw`` is a complete request; return whether the connection is done with."""
        try:
            frame = _request_in(chunk, raw)
            if frame is None:
                return False
            reply = self._reply(*frame)
        except WireError as err:
            self._stats.count("malformed")
            self._log_limited("event=malformed_request error=%s", err)
            self._close(client)
            return True
        self._send(client, reply, began_ns)
        self._settle()
        return True

    def _reply(self, op: str, body: bytes) -> bytes:
        fields = parse_fields(body)
        try:
            reply = self._service.answer(op, fields, time.time())
        except WireError:
            raise
        except Exception:  # noqa: BLE001 - whatever is wrong with us, the job passes unchanged
            self._stats.count("errors")
            self._log_limited("event=decision_failed error=%s", "see the traceback", with_traceback=True)
            return UNCHANGED
        return reply if isinstance(reply, bytes) else frame_body(OP_REPLY, encode_fields(reply))

    def _send(self, client: socket.socket, reply: bytes, began_ns: int) -> None:
        # A fresh socket's buffer takes a reply of a few KiB at once. Sending wakes the client: on a busy machine
        # the client runs before the call returns, so both times are kept.
        answered_ns = time.perf_counter_ns()
        try:
            client.send(reply, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            pass  # gone before its answer; the decision stands and is recorded
        else:
            self._stats.observe(answered_ns - began_ns, time.perf_counter_ns() - began_ns)
        self._close(client)

    def _settle(self) -> None:
        try:
            self._service.settle()
        except Exception:  # noqa: BLE001 - the answer is out; a fault of ours here costs only an estimate
            self._stats.count("errors")
            self._log_limited("event=settle_failed error=%s", "see the traceback", with_traceback=True)

    def _wait_for(self, accepted: socket.socket, chunk: bytes, began_ns: int) -> None:
        if len(self._waiting) >= MAX_CONNECTIONS:
            self._close_oldest()
        connection = _Connection(accepted, chunk, time.monotonic() + self._client_deadline_s)
        self._waiting[accepted.fileno()] = connection
        self._selector.register(accepted, selectors.EVENT_READ, connection)
        connection.spent_ns = time.perf_counter_ns() - began_ns

    def _close(self, client: socket.socket) -> None:
        if self._waiting and self._waiting.pop(client.fileno(), None) is not None:
            self._selector.unregister(client)
        client.close()

    def _close_oldest(self) -> None:
        for connection in self._waiting.values():
            self._stats.count("crowded_out")
            self._close(connection.socket)
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
            self._close(connection.socket)

    def _log_limited(self, text: str, detail: object, *, with_traceback: bool = False) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_log_s:
            self._next_log_s = now_s + _LOG_EVERY_S
            _log.warning(text, detail, exc_info=with_traceback)


def _request_in(chunk: bytes, raw: bytes | bytearray) -> tuple[str, bytes] | None:
    if not chunk:
        raise WireError("the client left before its request was complete")
    return split_frame(raw)
