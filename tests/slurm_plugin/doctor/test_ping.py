from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.doctor.ping import ping_hook
from slurm_plugin.hook.wire import HEADER_BYTES, OP_REPLY, encode_frame

if TYPE_CHECKING:
    from pathlib import Path

PONG = encode_frame(OP_REPLY, {"verdict": "unchanged", "state": "observe"})


class Server:
    """A hook server that sends fixed bytes to each of ``n`` connections."""

    def __init__(self, path: Path, answer: bytes, n: int) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen(8)
        self.thread = threading.Thread(target=self.serve, args=(answer, n))
        self.thread.start()

    def serve(self, answer: bytes, n: int) -> None:
        for _ in range(n):
            connection, _ = self.listener.accept()
            with connection:
                connection.recv(HEADER_BYTES)
                connection.sendall(answer)

    def close(self) -> None:
        self.thread.join()
        self.listener.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hook.sock"


def test_a_server_that_answers_is_timed(path: Path) -> None:
    server = Server(path, PONG, 3)
    ping = ping_hook(path, n_pings=3)
    server.close()
    assert (ping.state, ping.error) == ("observe", "")
    assert ping.latency_s is not None
    assert 0 < ping.latency_s < 1


def test_a_server_that_hangs_up_refuses_this_user(path: Path) -> None:
    server = Server(path, b"", 1)
    ping = ping_hook(path, n_pings=1)
    server.close()
    assert ping.is_refused


def test_garbage_is_no_answer(path: Path) -> None:
    server = Server(path, b"HTTP/1.1 200 OK\r\n\r\n", 1)
    ping = ping_hook(path, n_pings=1)
    server.close()
    assert ping.error.startswith("not an answer")


def test_a_missing_socket_and_a_left_over_one_are_told_apart(path: Path) -> None:
    assert ping_hook(path).error == "there is no such socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left_over:
        left_over.bind(str(path))
    assert ping_hook(path).error == "nobody listens"


def test_a_server_that_is_silent_is_not_waited_for(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as frozen:
        frozen.bind(str(path))
        frozen.listen(1)
        assert ping_hook(path, timeout_s=0.05).error == "no answer within 0.05 s"
