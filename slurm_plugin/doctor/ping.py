"""Ask the hook server whether it is there, and how long an answer takes."""

from __future__ import annotations

import socket
import statistics
import time
from typing import TYPE_CHECKING, Final

from slurm_plugin.doctor.facts import PingFact
from slurm_plugin.hook.wire import HEADER_BYTES, OP_PING, WireError, encode_frame, parse_fields, parse_header

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_S: Final = 1.0
_N_PINGS: Final = 5
_MEANINGS: Final[dict[type[OSError], str]] = {
    FileNotFoundError: "there is no such socket",
    ConnectionRefusedError: "nobody listens",
}


class _RefusedError(Exception):
    """The server closed the connection without an answer: this user is no peer."""


def ping_hook(path: Path, *, timeout_s: float = _TIMEOUT_S, n_pings: int = _N_PINGS) -> PingFact:
    """Return the median time of a few pings (connect, ask, read), or why there is no answer."""
    try:
        answers = [_ping(path, timeout_s) for _ in range(n_pings)]
    except (PermissionError, _RefusedError):
        return PingFact(is_refused=True, error="refused")
    except TimeoutError:
        return PingFact(error=f"no answer within {timeout_s:g} s")
    except OSError as err:
        return PingFact(error=_MEANINGS.get(type(err), err.strerror or str(err)))
    except WireError as err:
        return PingFact(error=f"not an answer: {err}")
    return PingFact(latency_s=statistics.median(took for took, _ in answers), state=answers[-1][1])


def _ping(path: Path, timeout_s: float) -> tuple[float, str]:
    began = time.perf_counter()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
        try:
            connection.sendall(encode_frame(OP_PING, {}))
            header = parse_header(_receive(connection, HEADER_BYTES))
            fields = parse_fields(_receive(connection, header.body_bytes))
        except (BrokenPipeError, ConnectionResetError) as err:
            raise _RefusedError from err
    return time.perf_counter() - began, fields.get("state", "")


def _receive(connection: socket.socket, n_bytes: int) -> bytes:
    received = b""
    while len(received) < n_bytes:
        chunk = connection.recv(n_bytes - len(received))
        if not chunk:
            raise _RefusedError
        received += chunk
    return received
