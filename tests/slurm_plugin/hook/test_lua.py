from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

import slurm_plugin.hook
from slurm_plugin.hook.wire import HEADER_BYTES, encode_frame, parse_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.slurm_plugin.hook.conftest import Start

SHIM = Path(slurm_plugin.hook.__file__).parent / "lua"
HARNESS = Path(__file__).parent / "harness.lua"
DEADLINE_MS = 20.0
SLACK_MS = 60.0
"""A busy machine may wake the shim late; its own waits end at the deadline."""

pytestmark = pytest.mark.skipif(shutil.which("lua5.1") is None, reason="needs lua5.1 and lua-socket")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    rc: str
    ms: float
    changed: str
    told: str
    logged: str


def run_lua(path: Path, script: str) -> list[Call]:
    done = subprocess.run(
        ["lua5.1", os.fspath(HARNESS), os.fspath(SHIM), os.fspath(path)],
        input=script.encode("utf-8", "surrogateescape"),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [row.split("\t") for row in done.stdout.decode("utf-8", "replace").splitlines()]
    return [Call(rc=r[0], ms=float(r[1]), changed=r[2], told=r[3], logged=r[4]) for r in rows]


class Hostile:
    """A server that greets each client with ``treat`` in a thread of its own."""

    def __init__(self, path: Path, treat: Callable[[socket.socket], None]) -> None:
        self.n_clients = 0
        self._treat = treat
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listener.bind(os.fspath(self._path))
        self._listener.listen(16)
        self._listener.settimeout(0.05)
        self._is_open = True
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        self._acceptor.join()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while self._is_open:
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            self.n_clients += 1
            self._threads.append(threading.Thread(target=self._serve, args=(client,)))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            client.settimeout(1)
            try:
                self._treat(client)
            except OSError:
                return


def replies(raw: bytes) -> Callable[[socket.socket], None]:
    def treat(client: socket.socket) -> None:
        client.recv(65_536)
        client.sendall(raw)

    return treat


def silent(client: socket.socket) -> None:
    while client.recv(65_536):
        pass


def drips(client: socket.socket) -> None:
    client.recv(65_536)
    for byte in encode_frame("R", {"verdict": "reject", "user_msg": "x" * 200}):
        client.sendall(bytes([byte]))
        time.sleep(0.005)


REPLY = {"verdict": "accept", "site_factor": "5"}
HOSTILE = {
    "silent": silent,
    "byte by byte": drips,
    "closes at once": lambda client: client.close(),
    "closes after the request": replies(b""),
    "garbage": replies(b"\xff" * 500),
    "an HTTP server": replies(b"HTTP/1.0 200 OK\r\n\r\n"),
    "a huge length": replies(b"FG1R99999999"),
    "a length without a body": replies(b"FG1R00000040"),
    "a cut body": replies(encode_frame("R", REPLY)[:-3]),
    "the wrong operation": replies(encode_frame("S", {"verdict": "reject"})),
    "the wrong version": replies(encode_frame("R", {"verdict": "reject"}).replace(b"FG1", b"FG2")),
    "no verdict": replies(encode_frame("R", {"site_factor": "5"})),
    "a verdict of another kind": replies(encode_frame("R", {"verdict": "maybe"})),
    "a factor that is no number": replies(encode_frame("R", REPLY | {"site_factor": "1e3"})),
    "a negative factor": replies(encode_frame("R", REPLY | {"site_factor": "-5"})),
    "factor 0": replies(encode_frame("R", REPLY | {"site_factor": "0"})),
    "a factor that Slurm cannot hold": replies(encode_frame("R", REPLY | {"site_factor": "2147483646"})),
    "a factor beside a rejection": replies(encode_frame("R", REPLY | {"verdict": "reject"})),
    "a field twice": replies(b"FG1R00000042" + b"7:verdict,6:accept," * 2 + b"0:,0"),
    "an empty body": replies(b"FG1R00000000"),
}


@pytest.mark.parametrize("treat", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_server_changes_nothing_and_delays_little(
    tmp_path: Path, treat: Callable[[socket.socket], None]
) -> None:
    with Hostile(tmp_path / "s", treat):
        (call,) = run_lua(tmp_path / "s", "wrap() submit(job{comment='agent=risk'})")
    assert (call.rc, call.changed, call.told) == ("0", "", "")
    assert call.ms < DEADLINE_MS + SLACK_MS
    assert "passes unchanged" in call.logged


def test_without_a_server_the_job_passes(tmp_path: Path) -> None:
    (call,) = run_lua(tmp_path / "none", "wrap() submit(job{})")
    assert (call.rc, call.changed) == ("0", "")


def test_a_full_backlog_passes_the_job(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(tmp_path / "s"))
        listener.listen(0)
        script = "wrap{failures=100} for _ = 1, 4 do submit(job{}) end"
        calls = run_lua(tmp_path / "s", script)
    assert {call.rc for call in calls} == {"0"}
    assert max(call.ms for call in calls) < DEADLINE_MS + SLACK_MS


def test_the_breaker_opens_and_closes_again(tmp_path: Path) -> None:
    answers = iter([b"", b"", b"", encode_frame("R", REPLY), encode_frame("R", REPLY)])

    def treat(client: socket.socket) -> None:
        client.recv(65_536)
        client.sendall(next(answers))

    script = """
        wrap{failures=3, pause_s=0.3}
        for _ = 1, 6 do submit(job{}) end   -- three asked, three skipped
        sleep(0.4)
        submit(job{}) submit(job{})         -- asked again
    """
    with Hostile(tmp_path / "s", treat) as hostile:
        calls = run_lua(tmp_path / "s", script)
    assert hostile.n_clients == 5
    assert [call.changed for call in calls] == [""] * 6 + ["site_factor=5"] * 2
    assert max(call.ms for call in calls[3:6]) < 5.0
    assert "answers again" in calls[6].logged


def test_one_failure_reopens_the_breaker(tmp_path: Path) -> None:
    with Hostile(tmp_path / "s", replies(b"")) as hostile:
        run_lua(
            tmp_path / "s",
            "wrap{failures=2, pause_s=0.2} for _ = 1, 3 do submit(job{}) end sleep(0.3) "
            "for _ = 1, 3 do submit(job{}) end",
        )
    assert hostile.n_clients == 3


def test_the_real_server_sets_the_factor_only(start: Start) -> None:
    (call,) = run_lua(start().path, "wrap() submit(job{comment='agent=rec'})")
    assert (call.rc, call.changed, call.told, call.logged) == ("0", "site_factor=40000", "", "")


def test_the_real_server_rejects_with_its_message(start: Start) -> None:
    (call,) = run_lua(start().path, "wrap() submit(job{comment='agent=risk'})")
    assert (call.rc, call.changed) == ("2002", "")
    assert "may not use tag agent=risk" in call.told


def test_percent_signs_and_control_characters_in_a_message_are_harmless(tmp_path: Path) -> None:
    reply = encode_frame("R", {"verdict": "reject", "user_msg": "100% \x1b[31m %s %d\n"})
    with Hostile(tmp_path / "s", replies(reply)):
        (call,) = run_lua(tmp_path / "s", "wrap() submit(job{})")
    assert (call.rc, call.told) == ("2002", "100% ?[31m %s %d?")


COMMENTS = {
    "quotes": r"""'it\'s "quoted" agent=rec'""",
    "newlines": r"'line\nagent=rec\n\nend'",
    "fake fields": r"'7:account,4:risk,3:uid,1:0, agent=rec'",
    "invalid UTF-8": r"'\255\254 agent=rec'",
    "64 KiB": r"'agent=rec ' .. string.rep('x', 65536)",
    "10 MiB": r"'agent=rec ' .. string.rep('agent=rec ', 1024 * 1024)",
    "a NUL": r"'agent=rec \0'",
}


@pytest.mark.parametrize("comment", COMMENTS.values(), ids=COMMENTS.keys())
def test_hostile_comments_change_no_other_field(start: Start, comment: str) -> None:
    running = start()
    (call,) = run_lua(running.path, f"wrap() submit(job{{comment={comment}}})")
    assert (call.rc, call.changed) == ("0", "site_factor=40000")
    request = running.records()[0].request
    assert (running.records()[0].uid, request.account, request.partitions) == (1000, "rec", ("gpu",))
    assert running.records()[0].decision.agent == "rec"


def test_the_default_partition_comes_from_the_list(start: Start) -> None:
    running = start()
    script = "local j = job{} j.partition = nil wrap() submit(j, {cpu={flag_default=0}, gpu={flag_default=1}})"
    run_lua(running.path, script)
    assert running.records()[0].request.partitions == ("gpu",)


def test_the_default_account_stands_in(start: Start) -> None:
    running = start()
    run_lua(running.path, "local j = job{default_account='risk'} j.account = nil wrap() submit(j)")
    assert running.records()[0].request.account == "risk"


def test_the_sites_refusal_stands_and_ours_is_not_asked(start: Start) -> None:
    running = start()
    (call,) = run_lua(running.path, "function slurm_job_submit() return 2015 end wrap() submit(job{})")
    assert call.rc == "2015"
    assert running.records() == []


def test_ours_runs_after_the_sites_function(start: Start) -> None:
    script = "function slurm_job_submit(j) j.qos = 'x' return slurm.SUCCESS end wrap() submit(job{})"
    (call,) = run_lua(start().path, script)
    assert (call.rc, call.changed) == ("0", "qos=x site_factor=40000")


def test_an_error_in_ours_passes_the_job(start: Start) -> None:
    script = "wrap() submit(setmetatable({}, {__index = function() error('boom') end}))"
    (call,) = run_lua(start().path, script)
    assert (call.rc, call.changed) == ("0", "")
    assert "boom" in call.logged


RECORD = "{user_id=1000, account='rec', partition='gpu', comment='agent=rec'}"
UPDATES = {
    "root's own": (f"modify({{comment='agent=risk'}}, {RECORD}, 0)", "0", 0),
    "our rebalancer's": (f"modify({{comment='agent=risk'}}, {RECORD}, 990)", "0", 0),
    "a user's other change": (f"modify({{time_limit=5}}, {RECORD}, 1000)", "0", 0),
    "the same comment again": (f"modify({{comment='agent=rec'}}, {RECORD}, 1000)", "0", 0),
    "a user's new tag": (f"modify({{comment='agent=risk'}}, {RECORD}, 1000)", "2002", 1),
    "a user's allowed tag": (f"modify({{comment='agent=rec stage=a'}}, {RECORD}, 1000)", "0", 1),
    "a comment taken away": (f"modify({{comment=''}}, {RECORD}, 1000)", "0", 1),
    "somebody else's uid does not help": (f"modify({{comment='agent=risk', user_id=0}}, {RECORD}, 1001)", "2002", 1),
}


@pytest.mark.parametrize(("call", "rc", "asked"), UPDATES.values(), ids=UPDATES.keys())
def test_updates(start: Start, call: str, rc: str, asked: int) -> None:
    running = start()
    (got,) = run_lua(running.path, f"wrap{{uids={{990}}}} {call}")
    assert (got.rc, got.changed, len(running.records())) == (rc, "", asked)


BAND_ASKS = {
    "sbatch": ("submit(job{qos='x', requeue=65534, script='#!/bin/sh'})", "x 65534 1"),
    "srun": ("submit(job{qos='x', requeue=0})", "x 0 0"),
    "no QOS, so the script is not looked at": ("submit(job{script=error})", "- - -"),
    "a user's new QOS": ("modify({qos='b', requeue=65534}, {user_id=1, qos='a', script='#!'}, 1)", "b - 1"),
    "a user's new QOS with requeue": (
        "modify({qos='b', requeue=1}, {user_id=1, qos='a', requeue=0, script='#!'}, 1)",
        "b 1 1",
    ),
    "no requeue while it is in a QOS": ("modify({requeue=0}, {user_id=1, qos='a', script='#!'}, 1)", "a 0 1"),
    "another comment, the QOS stays": ("modify({comment='x', qos='a'}, {user_id=1, qos='a'}, 1)", "- - -"),
}


@pytest.mark.parametrize(("call", "want"), BAND_ASKS.values(), ids=BAND_ASKS.keys())
def test_what_the_server_hears_of_the_qos(tmp_path: Path, call: str, want: str) -> None:
    heard: list[dict[str, str]] = []

    def treat(client: socket.socket) -> None:
        heard.append(parse_fields(client.recv(65_536)[HEADER_BYTES:]))
        client.sendall(encode_frame("R", {"verdict": "accept"}))

    with Hostile(tmp_path / "s", treat):
        (got,) = run_lua(tmp_path / "s", f"wrap() {call}")
    assert got.rc == "0"
    assert " ".join(heard[0].get(name, "-") for name in ("qos", "requeue", "batch")) == want


def test_setting_requeue_or_the_same_qos_asks_nobody(start: Start) -> None:
    running = start()
    run_lua(running.path, "wrap() modify({requeue=1, qos='a'}, {user_id=1, qos='a'}, 1)")
    assert running.records() == []


def test_our_minimal_script_loads_and_accepts(tmp_path: Path) -> None:
    script = f"dofile('{SHIM}/job_submit.lua') submit(job{{}}) modify({{comment='x'}}, {RECORD}, 1000)"
    calls = run_lua(tmp_path / "unused", script)
    assert [call.rc for call in calls] == ["0", "0"]
