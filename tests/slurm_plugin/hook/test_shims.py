"""What a shim promises, whatever it is written in: the same cases for the Lua and for the compiled one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.hook.wire import HEADER_BYTES, encode_frame, parse_fields
from tests.slurm_plugin.hook.hostile import HOSTILE, REPLY, Hostile, replies
from tests.slurm_plugin.hook.shims import Modify, Shim, Submit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.slurm_plugin.hook.conftest import Start
    from tests.slurm_plugin.hook.shims import Step, Value

DEADLINE_MS = 20.0
SLACK_MS = 60.0
"""A busy machine may wake the shim late; its own waits end at the deadline."""

JOB = Submit()
TAGGED = Submit(more={"comment": "agent=risk"})
FROZEN = """
import socket, sys, time
listener = socket.socket(socket.AF_UNIX); listener.bind(sys.argv[1]); listener.listen(16); print("up", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("treat", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_server_changes_nothing_and_delays_little(
    shim: Shim, tmp_path: Path, treat: Callable[[socket.socket], None]
) -> None:
    with Hostile(tmp_path / "s", treat):
        (call,) = shim.run(tmp_path / "s", TAGGED)
    assert (call.rc, call.changed, call.told) == ("0", "", "")
    assert call.ms < DEADLINE_MS + SLACK_MS
    assert "passes unchanged" in call.logged


def test_without_a_server_the_job_passes(shim: Shim, tmp_path: Path) -> None:
    (call,) = shim.run(tmp_path / "none", JOB)
    assert (call.rc, call.changed) == ("0", "")


def test_a_frozen_server_costs_the_deadline_until_the_breaker_opens(shim: Shim, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", FROZEN, os.fspath(tmp_path / "s")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        server.send_signal(signal.SIGSTOP)
        calls = shim.run(tmp_path / "s", *[JOB] * 10)
        server.kill()
    assert {(call.rc, call.changed) for call in calls} == {("0", "")}
    assert all(DEADLINE_MS * 0.9 < call.ms < DEADLINE_MS + SLACK_MS for call in calls[:3])
    assert sorted(call.ms for call in calls[3:])[3] < 1.0


def test_a_full_backlog_passes_the_job(shim: Shim, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(tmp_path / "s"))
        listener.listen(0)
        calls = shim.run(tmp_path / "s", *[JOB] * 4, options={"failures": 100})
    assert {call.rc for call in calls} == {"0"}
    assert max(call.ms for call in calls) < DEADLINE_MS + SLACK_MS


def test_the_breaker_opens_and_closes_again(shim: Shim, tmp_path: Path) -> None:
    answers = iter([b"", b"", b"", encode_frame("R", REPLY), encode_frame("R", REPLY)])

    def treat(client: socket.socket) -> None:
        client.recv(65_536)
        client.sendall(next(answers))

    # Three are asked, three skipped; after the pause all are asked again.
    steps: list[Step] = [*[JOB] * 6, 0.4, *[JOB] * 2]
    with Hostile(tmp_path / "s", treat) as hostile:
        calls = shim.run(tmp_path / "s", *steps, options={"failures": 3, "pause_s": 0.3, "deadline_ms": 150})
    assert hostile.n_clients == 5
    assert [call.changed for call in calls] == [""] * 6 + ["site_factor=5"] * 2
    assert max(call.ms for call in calls[3:6]) < 5.0
    assert "answers again" in calls[6].logged


def test_one_failure_reopens_the_breaker(shim: Shim, tmp_path: Path) -> None:
    steps: list[Step] = [*[JOB] * 3, 0.3, *[JOB] * 3]
    with Hostile(tmp_path / "s", replies(b"")) as hostile:
        shim.run(tmp_path / "s", *steps, options={"failures": 2, "pause_s": 0.2, "deadline_ms": 150})
    assert hostile.n_clients == 3


PATIENT = {"deadline_ms": 150}


def test_the_real_server_sets_the_factor_only(shim: Shim, start: Start) -> None:
    (call,) = shim.run(start().path, Submit(more={"comment": "agent=rec"}), options=PATIENT)
    assert (call.rc, call.changed, call.told, call.logged) == ("0", "site_factor=40000", "", "")


def test_the_real_server_rejects_with_its_message(shim: Shim, start: Start) -> None:
    (call,) = shim.run(start().path, TAGGED, options=PATIENT)
    assert (call.rc, call.changed) == ("2002", "")
    assert "may not use tag agent=risk" in call.told


def test_what_is_said_about_an_accepted_job_reaches_the_user(shim: Shim, tmp_path: Path) -> None:
    reply = encode_frame("R", REPLY | {"user_msg": "did you mean agent=...?"})
    with Hostile(tmp_path / "s", replies(reply)):
        (call,) = shim.run(tmp_path / "s", JOB, options=PATIENT)
    assert (call.rc, call.changed, call.told) == ("0", "site_factor=5", "did you mean agent=...?")


QOS_SET = {
    "beside a factor": (REPLY | {"qos": "fg_c_rec"}, "site_factor=5 qos=fg_c_rec"),
    "alone": ({"verdict": "accept", "qos": "fg_c.x-1_rec"}, "qos=fg_c.x-1_rec"),
    "as long as Slurm allows": ({"verdict": "accept", "qos": "q" * 255}, f"qos={'q' * 255}"),
}


@pytest.mark.parametrize("asked", [{"qos": "normal"}, {}], ids=["a QOS asked", "no QOS asked"])
@pytest.mark.parametrize(("reply", "changed"), QOS_SET.values(), ids=QOS_SET.keys())
def test_the_qos_of_the_answer_replaces_what_was_asked(
    shim: Shim, tmp_path: Path, asked: dict[str, Value], reply: dict[str, str], changed: str
) -> None:
    with Hostile(tmp_path / "s", replies(encode_frame("R", reply))):
        (call,) = shim.run(tmp_path / "s", Submit(more=asked), options=PATIENT)
    assert (call.rc, call.changed) == ("0", changed)


def test_an_update_sets_no_qos(shim: Shim, tmp_path: Path) -> None:
    with Hostile(tmp_path / "s", replies(encode_frame("R", {"verdict": "accept", "qos": "fg_c_rec"}))):
        (call,) = shim.run(tmp_path / "s", Modify(fields={"qos": "normal"}, record=OLD, uid=1), options=PATIENT)
    assert (call.rc, call.changed) == ("0", "")


def test_percent_signs_and_control_characters_in_a_message_are_harmless(shim: Shim, tmp_path: Path) -> None:
    reply = encode_frame("R", {"verdict": "reject", "user_msg": "100% \x1b[31m %s %d\n\xe9\0"})
    with Hostile(tmp_path / "s", replies(reply)):
        (call,) = shim.run(tmp_path / "s", JOB, options=PATIENT)
    assert (call.rc, call.told) == ("2002", "100% ?[31m %s %d????")


def test_a_long_message_is_cut(shim: Shim, tmp_path: Path) -> None:
    with Hostile(tmp_path / "s", replies(encode_frame("R", {"verdict": "reject", "user_msg": "x" * 16_000}))):
        (call,) = shim.run(tmp_path / "s", JOB, options=PATIENT)
    assert call.told == "x" * 1_000


COMMENTS = {
    "quotes": """it\\'s "quoted" agent=rec""",
    "newlines": "line\nagent=rec\n\nend",
    "fake fields": "7:account,4:risk,3:uid,1:0, agent=rec",
    "format strings": "%s%n%d agent=rec",
    "invalid UTF-8": b"\xff\xfe agent=rec",
    "64 KiB": "agent=rec " + "x" * 65_536,
    "10 MiB": "agent=rec " + "agent=rec " * 1024 * 1024,
}


@pytest.mark.parametrize("comment", COMMENTS.values(), ids=COMMENTS.keys())
def test_hostile_comments_change_no_other_field(shim: Shim, start: Start, comment: str | bytes) -> None:
    running = start()
    (call,) = shim.run(running.path, Submit(more={"comment": comment}), options=PATIENT)
    assert (call.rc, call.changed) == ("0", "site_factor=40000")
    request = running.records()[0].request
    assert (running.records()[0].uid, request.account, request.partitions) == (1000, "rec", ("gpu",))
    assert running.records()[0].decision.agent == "rec"


def test_the_default_partition_stands_in(shim: Shim, start: Start) -> None:
    running = start()
    shim.run(running.path, Submit(without=("partition",), default_partition="gpu"), options=PATIENT)
    assert running.records()[0].request.partitions == ("gpu",)


def test_the_default_account_stands_in(shim: Shim, start: Start) -> None:
    running = start()
    shim.run(running.path, Submit(more={"default_account": "risk"}, without=("account",)), options=PATIENT)
    assert running.records()[0].request.account == "risk"


def test_neither_default_is_known(shim: Shim, start: Start) -> None:
    running = start()
    (call,) = shim.run(running.path, Submit(without=("account", "partition")), options=PATIENT)
    assert (call.rc, call.changed) == ("0", "")
    assert (running.records()[0].request.account, running.records()[0].request.partitions) == ("", ())


RECORD: dict[str, Value] = {"user_id": 1000, "account": "rec", "partition": "gpu", "comment": "agent=rec"}
FOREIGN: dict[str, Value] = {"comment": "agent=risk"}
UPDATES = {
    "root's own": (Modify(fields=FOREIGN, record=RECORD, uid=0), "0", 0),
    "our rebalancer's": (Modify(fields=FOREIGN, record=RECORD, uid=990), "0", 0),
    "a user's other change": (Modify(fields={"time_limit": 5}, record=RECORD, uid=1000), "0", 0),
    "the same comment again": (Modify(fields={"comment": "agent=rec"}, record=RECORD, uid=1000), "0", 0),
    "a user's new tag": (Modify(fields=FOREIGN, record=RECORD, uid=1000), "2002", 1),
    "a user's allowed tag": (Modify(fields={"comment": "agent=rec stage=a"}, record=RECORD, uid=1000), "0", 1),
    "a comment taken away": (Modify(fields={"comment": ""}, record=RECORD, uid=1000), "0", 1),
    "somebody else's uid does not help": (Modify(fields=FOREIGN | {"user_id": 0}, record=RECORD, uid=1001), "2002", 1),
}


@pytest.mark.parametrize(("update", "rc", "asked"), UPDATES.values(), ids=UPDATES.keys())
def test_updates(shim: Shim, start: Start, update: Modify, rc: str, asked: int) -> None:
    running = start()
    (got,) = shim.run(running.path, update, options=PATIENT | {"uids": [5, 990]})
    assert (got.rc, got.changed, len(running.records())) == (rc, "", asked)


def hear(shim: Shim, path: Path, step: Step) -> dict[str, str]:
    """Return the fields of the question that a step asks."""
    heard: list[dict[str, str]] = []

    def treat(client: socket.socket) -> None:
        heard.append(parse_fields(client.recv(65_536)[HEADER_BYTES:]))
        client.sendall(encode_frame("R", {"verdict": "accept"}))

    with Hostile(path, treat):
        (call,) = shim.run(path, step, options=PATIENT)
    assert call.rc == "0"
    return heard[0]


OLD: dict[str, Value] = {"user_id": 1, "account": "rec", "partition": "gpu", "qos": "a", "script": "#!"}
BAND_ASKS = {
    "sbatch": (Submit(more={"qos": "x", "script": "#!/bin/sh"}), "x - 1 -"),
    "srun": (Submit(more={"qos": "x", "requeue": 0}), "x 0 0 -"),
    "no QOS": (Submit(more={"script": "#!"}), "- - - -"),
    "a user's new QOS with requeue": (Modify(fields={"qos": "b", "requeue": 1}, record=OLD, uid=1), "b 1 1 1"),
    "no requeue while it is in a QOS": (Modify(fields={"requeue": 0}, record=OLD, uid=1), "a 0 1 0"),
    "back to the account's default": (Modify(fields={"qos": ""}, record=OLD, uid=1), "- - - 1"),
    "another comment, the QOS stays": (Modify(fields={"comment": "x", "qos": "a"}, record=OLD, uid=1), "- - - -"),
}


@pytest.mark.parametrize(("step", "want"), BAND_ASKS.values(), ids=BAND_ASKS.keys())
def test_what_the_server_hears_of_the_qos(shim: Shim, tmp_path: Path, step: Step, want: str) -> None:
    heard = hear(shim, tmp_path / "s", step)
    assert " ".join(heard.get(name, "-") for name in ("qos", "requeue", "batch", "moved")) == want


def test_the_server_hears_who_changes_a_job(shim: Shim, tmp_path: Path) -> None:
    heard = hear(shim, tmp_path / "s", Modify(fields={"qos": "b"}, record=OLD, uid=990))
    assert (heard["uid"], heard["by"]) == ("1", "990")


def test_setting_requeue_or_the_same_qos_asks_nobody(shim: Shim, start: Start) -> None:
    running = start()
    shim.run(running.path, Modify(fields={"requeue": 1, "qos": "a"}, record=OLD, uid=1), options=PATIENT)
    assert running.records() == []


def test_every_field_of_a_submission_arrives(shim: Shim, tmp_path: Path) -> None:
    fields: dict[str, Value] = {
        "comment": "c",
        "wckey": "w",
        "tres_per_node": "gres:gpu:a100:2",
        "tres_per_job": "gres/gpu:4",
        "tres_per_task": "gres/gpu=1",
        "tres_per_socket": "gres/gpu:1",
        "array_inx": "0-9:3%2",
        "dependency": "afterok:1",
        "min_nodes": 2,
        "num_tasks": 8,
        "cpus_per_task": 4,
        "min_cpus": 32,
        "sockets_per_node": 1,
        "priority": 0,
        "begin_time": 1_900_000_000,
        "min_mem_per_cpu": 4_096,
    }
    heard = hear(shim, tmp_path / "s", Submit(more=fields))
    want = {name: str(value) for name, value in fields.items()}
    assert heard == want | {"uid": "1000", "account": "rec", "partition": "gpu"}
