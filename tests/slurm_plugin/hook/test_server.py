from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_plugin.errors import AlreadyRunningError, ConfigError
from slurm_plugin.hook.server import MAX_CONNECTIONS
from slurm_plugin.hook.socket_file import open_listener, resolve_peers
from slurm_plugin.hook.wire import MAX_BODY_BYTES, encode_frame

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slurm_plugin.hook.conftest import RunningServer, Start

JOB = {"uid": "1000", "account": "rec", "partition": "gpu"}
PING = encode_frame("P", {})


def wait_for(stats: dict[str, int], name: str, at_least: int = 1) -> None:
    end_s = time.monotonic() + 5
    while stats[name] < at_least:
        assert time.monotonic() < end_s, stats
        time.sleep(0.005)


def is_closed_by_server(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_submission_is_answered(start: Start) -> None:
    assert start().ask("S", JOB) == {"verdict": "accept", "agent": "rec", "site_factor": "40000"}


def test_a_request_may_come_byte_by_byte(start: Start) -> None:
    with start().connect() as client:
        for byte in encode_frame("S", JOB):
            client.send(bytes([byte]))
        assert client.recv(100).startswith(b"FG1R")


def test_a_request_of_a_mebibyte_is_answered(start: Start) -> None:
    fields = JOB | {"comment": "x" * (MAX_BODY_BYTES - 200)}
    assert start().ask("S", fields)["verdict"] == "accept"


HOSTILE = {
    "garbage": b"GET / HTTP/1.0\r\n\r\n",
    "a huge length": b"FG1S99999999",
    "over the limit": b"FG1S%08d" % (MAX_BODY_BYTES + 1),
    "an unknown operation": encode_frame("X", JOB),
    "a reply": encode_frame("R", JOB),
    "no uid": encode_frame("S", {"account": "rec"}),
    "bytes behind the request": PING + b"x",
    "two requests": PING + PING,
    "a damaged body": b"FG1S00000004abcd",
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_malformed_requests_are_closed_and_counted(start: Start, raw: bytes) -> None:
    running = start()
    with running.connect() as client:
        client.sendall(raw)
        assert is_closed_by_server(client)
    wait_for(running.stats.counts, "malformed")
    assert running.ask("S", JOB)["verdict"] == "accept"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(min_size=1, max_size=200))
def test_no_bytes_stop_the_server(fuzzed: RunningServer, raw: bytes) -> None:
    with fuzzed.connect() as client:
        client.sendall(raw)
        client.shutdown(socket.SHUT_WR)
        is_closed_by_server(client)
    assert fuzzed.ask("S", JOB)["verdict"] == "accept"


@pytest.fixture
def fuzzed(start: Start) -> RunningServer:
    return start()


def test_a_silent_client_is_closed_after_its_deadline(start: Start) -> None:
    running = start(client_deadline_s=0.05)
    with running.connect() as client:
        client.send(b"FG1S")
        assert is_closed_by_server(client)
    assert running.stats.counts["timeouts"] == 1


def test_a_client_that_leaves_is_forgotten(start: Start) -> None:
    running = start()
    running.connect().close()
    wait_for(running.stats.counts, "malformed")
    assert running.ask("P", {})["pings"] == "1"


def test_the_oldest_waiting_client_makes_room(start: Start) -> None:
    running = start(client_deadline_s=30.0)
    with ExitStack() as stack:
        clients = [stack.enter_context(running.connect()) for _ in range(MAX_CONNECTIONS + 1)]
        assert is_closed_by_server(clients[0])
        assert running.ask("S", JOB)["verdict"] == "accept"
        clients[-1].sendall(PING)
        assert clients[-1].recv(10).startswith(b"FG1R")


def test_another_users_process_is_refused(start: Start, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    running = start()
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    running.path.chmod(0o666)  # even if the file let it through, the credentials do not
    talk = (
        "import os, socket, sys\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "client = socket.socket(socket.AF_UNIX); client.settimeout(5); client.connect(sys.argv[1])\n"
        "try:\n"
        "    client.sendall(b'FG1P00000000')\n"
        "    print(client.recv(100))\n"
        "except OSError as err: print('refused', err)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", talk, os.fspath(running.path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "FG1R" not in done.stdout, done
    assert running.stats.counts["refused_peers"] == 1
    assert running.stats.counts["pings"] == 0


def test_a_client_that_does_not_wait_for_the_answer_is_recorded_all_the_same(start: Start) -> None:
    running = start()
    with running.connect() as client:
        client.sendall(encode_frame("S", JOB))
    assert len(running.records()) == 1


def test_a_fault_after_the_answer_is_counted(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    running = start()

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(running.book, "advance", broken)
    assert running.ask("S", JOB)["verdict"] == "accept"
    assert running.ask("P", {})["errors"] == "1"


def test_a_fault_of_ours_passes_the_job_unchanged(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running = start()

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(running.book, "site_factor", broken)
    with caplog.at_level(logging.WARNING):
        assert running.ask("S", JOB) == {"verdict": "unchanged"}
    assert running.stats.counts["errors"] == 1
    assert "decision_failed" in caplog.text


def test_the_socket_is_for_its_owner_only(start: Start) -> None:
    assert start().path.stat().st_mode & 0o777 == 0o600


def test_root_gives_the_socket_to_slurmuser(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    listener = open_listener(tmp_path / "s.sock", frozenset({0, 65534}))
    status = listener.path.stat()
    listener.close()
    assert (status.st_uid, status.st_mode & 0o777) == (65534, 0o600)


def test_several_peers_are_let_in_and_nobody_else(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    listener = open_listener(tmp_path / "s.sock", frozenset({0, 65533, 65534}))
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    connect = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(60000); os.setuid(int(sys.argv[2]))\n"
        "try: socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('in')\n"
        "except PermissionError: print('out')\n"
    )
    said = {
        uid: subprocess.run(
            [sys.executable, "-I", "-c", connect, os.fspath(listener.path), str(uid)], capture_output=True, check=True
        ).stdout
        for uid in (65533, 65534, 65532)
    }
    listener.close()
    assert said == {65533: b"in\n", 65534: b"in\n", 65532: b"out\n"}


def test_a_second_server_is_refused(start: Start) -> None:
    running = start()
    with pytest.raises(AlreadyRunningError):
        open_listener(running.path, frozenset({os.geteuid()}))
    assert running.ask("S", JOB)["verdict"] == "accept"


def test_a_frozen_servers_socket_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(os.fspath(path))
        other.listen(1)
        with pytest.raises(AlreadyRunningError):
            open_listener(path, frozenset({os.geteuid()}))
    assert path.exists()


def test_a_dead_servers_socket_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.fspath(path))
    listener = open_listener(path, frozenset({os.geteuid()}))
    listener.close()
    assert not path.exists()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="no socket"):
        open_listener(path, frozenset({os.geteuid()}))
    assert path.read_text() == "precious"


def test_a_directory_that_everybody_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="chmod o-w"):
        open_listener(tmp_path / "s.sock", frozenset({os.geteuid()}))


def test_unknown_peers_are_left_out_unless_none_is_known() -> None:
    assert resolve_peers(["root", "no-such-user-here"]) == frozenset({0})
    with pytest.raises(ConfigError):
        resolve_peers(["no-such-user-here"])


def test_close_leaves_another_servers_socket(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    listener = open_listener(path, frozenset({os.geteuid()}))
    path.unlink()
    path.write_text("not ours")
    listener.close()
    assert path.exists()
