from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.client import FakeSlurm
from slurm_plugin.errors import FairGpuError
from slurm_plugin.hook import daemon
from slurm_plugin.hook.background import FileWatcher
from slurm_plugin.hook.wire import HEADER_BYTES, encode_frame, parse_fields
from slurm_plugin.rebalancer.store import HistoryStore
from slurm_plugin.site.switch import turn_off

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from slurm_plugin.site.load import SiteFile

JOB = {"uid": "0", "account": "rec", "partition": "gpu"}


def ask(path: Path, fields: dict[str, str], op: str = "S") -> dict[str, str]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(os.fspath(path))
        client.sendall(encode_frame(op, fields))
        return parse_fields(client.recv(65_536)[HEADER_BYTES:])


def wait_until(is_true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 10
    while not is_true():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def command(site: SiteFile) -> list[str]:
    run = "from slurm_plugin.cli.main import main; main()"
    return [sys.executable, "-c", run, "hook-server", "--site", os.fspath(site.path)]


@contextmanager
def running(site: SiteFile) -> Iterator[subprocess.Popen[str]]:
    server = subprocess.Popen(command(site), stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        for line in server.stderr:
            if "event=ready" in line:
                break
        yield server
    finally:
        server.kill()
        server.communicate()


def test_the_command_answers_records_and_stops(site: SiteFile) -> None:
    with running(site) as server:
        assert ask(site.hook.socket, JOB)["agent"] == "rec"
        rejected = ask(site.hook.socket, JOB | {"comment": "agent=risk"})
        assert "User root with account rec may not use" in rejected["user_msg"]
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0
    assert not site.hook.socket.exists()
    stats = json.loads((site.paths.run_dir / "hook-stats.json").read_text())
    assert stats["counts"]["submissions"] == 2
    with HistoryStore(site.paths.state_dir / "history.db") as store:
        verdicts = [row["verdict"] for row in store.query("SELECT verdict FROM submissions ORDER BY at_s")]
    assert verdicts == ["accept", "reject"]


def test_a_request_to_reload_does_not_end_it(site: SiteFile) -> None:
    with running(site) as server:
        server.send_signal(signal.SIGHUP)
        assert ask(site.hook.socket, JOB)["agent"] == "rec"
        assert server.poll() is None


def test_standings_that_no_reader_survives_leave_the_kill_switch_working(site: SiteFile) -> None:
    with running(site):
        (site.paths.run_dir / "standings.json").write_text("[" * 200_000)
        time.sleep(0.5)
        turn_off(site, "test")
        wait_until(lambda: ask(site.hook.socket, JOB) == {"verdict": "unchanged"})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the thread is meant to die
def test_a_watching_thread_that_dies_ends_the_server(site: SiteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying(FileWatcher):
        n_looks = 0

        def look(self) -> None:
            self.n_looks += 1
            if self.n_looks > 1:
                raise SystemExit

    monkeypatch.setattr(daemon, "FileWatcher", Dying)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("gc.freeze", lambda: None)
    monkeypatch.setattr(daemon, "SWITCH_INTERVAL_S", sys.getswitchinterval())
    with pytest.raises(FairGpuError, match="a watching thread died"):
        daemon.run_hook_server(site, FakeSlurm())
    assert not site.hook.socket.exists()


def test_off_takes_effect_while_it_runs(site: SiteFile) -> None:
    with running(site):
        turn_off(site, "test")
        wait_until(lambda: ask(site.hook.socket, JOB) == {"verdict": "unchanged"})
        assert ask(site.hook.socket, {}, "P")["state"] == "off"


def test_a_second_command_exits_1(site: SiteFile) -> None:
    with running(site):
        second = subprocess.run(command(site), capture_output=True, text=True, check=False, timeout=30)
        assert second.returncode == 1
        assert "another server holds" in second.stderr


def test_a_killed_servers_socket_is_taken_over(site: SiteFile) -> None:
    with running(site) as server:
        server.kill()
        server.wait(10)
    assert site.hook.socket.exists()
    with running(site):
        assert ask(site.hook.socket, JOB)["verdict"] == "accept"
