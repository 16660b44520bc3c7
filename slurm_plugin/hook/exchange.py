"""One question, one answer on a Unix socket that speaks the wire format: the hook server's and the QOS helper's."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from slurm_plugin.hook.wire import HEADER_BYTES, WireError, parse_fields, parse_header

if TYPE_CHECKING:
    from pathlib import Path


class ClosedWithoutAnswerError(WireError):
    """The server closed the connection before a whole answer: this user is no peer, or it refused the request."""


def ask(path: Path, request: bytes, *, timeout_s: float) -> dict[str, str]:
    """Return the answer's fields.

    Parameters
    ----------
    request : bytes
        A whole frame.
    timeout_s : float
        For each wait on the socket.

    Raises
    ------
    ClosedWithoutAnswerError
        The connection ended before a whole answer.
    WireError
        What came is no answer.
    OSError
        There is no such socket, nobody listens, no permission, or no answer in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
        connection.sendall(request)
        header = parse_header(_receive(connection, HEADER_BYTES))
        return parse_fields(_receive(connection, header.body_bytes))


def _receive(connection: socket.socket, n_bytes: int) -> bytes:
    received = bytearray()
    while len(received) < n_bytes:
        chunk = connection.recv(n_bytes - len(received))
        if not chunk:
            raise ClosedWithoutAnswerError("closed without an answer: another user, or no request of its")
        received += chunk
    return bytes(received)
