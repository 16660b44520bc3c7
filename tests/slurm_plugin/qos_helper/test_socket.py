"""Client and helper over a real socket: who may ask, what damaged bytes do, what silence means."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.client.command import Command, CommandResult
from slurm_plugin.errors import ConfigError
from slurm_plugin.hook.server import HookServer
from slurm_plugin.hook.socket_file import open_listener
from slurm_plugin.hook.stats import HookStats
from slurm_plugin.qos_helper.client import HelperSilentError, HelperUnavailableError, SocketQosHelper
from slurm_plugin.qos_helper.request import QosChange, Setting, Verdict, encode_change
from slurm_plugin.qos_helper.service import QosHelperService
from tests.slurm_plugin.qos_helper.test_rules import RULES, B

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHANGE = QosChange(names=(B,), setting=Setting.PRIORITY, value="3")
FINE = CommandResult(0, "", "")
HOSTILE = QosChange(names=("normal",), setting=Setting.PRIORITY, value="3")


@contextmanager
def helper(
    path: Path,
    ran: list[tuple[str, ...]],
    allowed: frozenset[int] | None = None,
    *,
    result: CommandResult = FINE,
) -> Iterator[SocketQosHelper]:
    def run(command: Command) -> CommandResult:
        ran.append(command.argv)
        return result

    peers = frozenset({os.geteuid()}) if allowed is None else allowed
    listener = open_listener(path, frozenset({os.geteuid()}), what="QOS helper")
    service = QosHelperService(rules=RULES, runner=run)
    server = HookServer(listener.socket, service, stats=HookStats(), allowed_uids=peers)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield SocketQosHelper(path=path, timeout_s=5.0)
    finally:
        server.stop()
        thread.join()
        listener.close()


def test_changes_are_answered_one_by_one(tmp_path: Path) -> None:
    ran: list[tuple[str, ...]] = []
    with helper(tmp_path / "h.sock", ran) as asked:
        asked.ping()
        outcomes = asked.apply([CHANGE, HOSTILE, CHANGE])
    assert [one.verdict for one in outcomes] == [Verdict.DONE, Verdict.REFUSED, Verdict.DONE]
    assert "'normal' is no" in outcomes[1].text
    assert len(ran) == 2


def test_another_user_gets_no_answer(tmp_path: Path) -> None:
    ran: list[tuple[str, ...]] = []
    nobody = frozenset({65534})
    with helper(tmp_path / "h.sock", ran, nobody) as asked, pytest.raises(HelperUnavailableError):
        asked.apply([CHANGE])
    assert not ran


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"FG1Q99999999",
        b"\x00" * 64,
        encode_change(CHANGE)[:-1],
        encode_change(CHANGE) + b"x",
        encode_change(CHANGE).replace(b"FG1Q", b"FG1S"),
        encode_change(CHANGE).replace(b"setting", b"sEtting"),
    ],
    ids=["nothing", "long", "zeros", "cut", "more", "another operation", "a name"],
)
def test_damaged_bytes_run_nothing_and_the_next_one_is_served(tmp_path: Path, raw: bytes) -> None:
    ran: list[tuple[str, ...]] = []
    with helper(tmp_path / "h.sock", ran) as asked:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(asked.path))
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(5.0)
            assert connection.recv(100) == b""
        assert not ran
        asked.apply([CHANGE])
    assert len(ran) == 1


def test_no_helper_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(HelperUnavailableError, match="No such file"):
        SocketQosHelper(path=tmp_path / "none.sock").apply([CHANGE])


def test_a_helper_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s.sock"))
        silent.listen()
        with pytest.raises(HelperSilentError, match="no answer within"):
            SocketQosHelper(path=tmp_path / "s.sock", timeout_s=0.05).apply([CHANGE])


def test_once_slurmdbd_is_away_the_rest_is_not_asked(tmp_path: Path) -> None:
    ran: list[tuple[str, ...]] = []
    away = CommandResult(1, "", "sacctmgr: error: Problem talking to the database: Connection refused")
    with helper(tmp_path / "h.sock", ran, result=away) as asked:
        outcomes = asked.apply([CHANGE, CHANGE, CHANGE])
    assert [one.verdict for one in outcomes] == [Verdict.AWAY] * 3
    assert len(ran) == 1


@pytest.mark.parametrize(
    ("is_there", "want"), [(True, "Run as root: chown -R "), (False, "run as root: install -d -o ")]
)
def test_a_directory_that_another_start_left_behind_is_named_with_the_way_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_there: bool,  # noqa: FBT001 - the table's column
    want: str,
) -> None:
    directory = tmp_path / "fairgpu-qos"
    if is_there:
        directory.mkdir()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("slurm_plugin.hook.socket_file.os.open", refuse)
    monkeypatch.setattr("slurm_plugin.hook.socket_file.Path.mkdir", refuse if not is_there else lambda *_, **__: None)
    with pytest.raises(ConfigError, match="Permission denied") as caught:
        open_listener(directory / "helper.sock", frozenset({0}), what="QOS helper")
    assert want in str(caught.value)
    assert str(caught.value).endswith(str(directory))
