"""What is the compiled shim's alone: threads, memory, Slurm's releases, its settings file."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from slurm_plugin.hook.wire import encode_frame
from tests.slurm_plugin.hook.hostile import HOSTILE, REPLY, Hostile, replies, silent
from tests.slurm_plugin.hook.shims import CompiledShim, Host, Modify, Submit, build_host, host_line, write_settings

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from slurm_plugin.hook.plugin_build import Toolchain
    from tests.slurm_plugin.hook.conftest import Start
    from tests.slurm_plugin.hook.shims import Call, Step, Value

JOB: Final = Submit()
RECORD: Final[dict[str, Value]] = {"user_id": 1000, "account": "rec", "partition": "gpu", "comment": "agent=rec"}
RETAG: Final = Modify(fields={"comment": "agent=risk"}, record=RECORD, uid=1000)
N_CALLS: Final = int(os.environ.get("FAIRGPU_PLUGIN_CALLS", "8000"))
"""Calls of the memory test; 1000000 is a day's worth of submissions of a very busy site (about two minutes)."""

GROWTH_KIB: Final = 2_048
"""Arenas and stacks of 16 threads; a leak of 3 bytes in each of a million calls is more."""

DAY_OF_SERVER: Final = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX); listener.bind(sys.argv[1]); listener.listen(512)
for _ in range(3): os.fork()
print("up", flush=True)
reply = bytes.fromhex(sys.argv[2])
while True:
    client, _ = listener.accept()
    client.recv(65536); client.sendall(reply); client.close()
"""


@pytest.fixture(scope="module")
def plain_host(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Host:
    """The plugin as sites get it."""
    return build_host(toolchain, tmp_path_factory.mktemp("plain"))


@pytest.fixture
def plain(plain_host: Host, tmp_path: Path) -> CompiledShim:
    return CompiledShim(plain_host, tmp_path / "plugin")


@pytest.fixture
def quick_server(tmp_path: Path) -> Iterator[Path]:
    """A server of eight processes that always says the same."""
    reply = encode_frame("R", REPLY | {"user_msg": "x" * 300}).hex()
    argv = [sys.executable, "-c", DAY_OF_SERVER, os.fspath(tmp_path / "q"), reply]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        yield tmp_path / "q"
        os.killpg(server.pid, 9)


def counts(call: Call) -> dict[str, int]:
    """Return ``accepted``, ``rejected``, ``factors``, ``grown_kib``, ``texts`` and ``files`` of a storm."""
    return {name: int(value) for name, value in re.findall(r"(\w+)=(-?\d+)", f"{call.rc} {call.changed}")}


def test_many_calls_of_many_threads_grow_no_memory(plain: CompiledShim, quick_server: Path) -> None:
    warm_up, storm = (f"storm threads#16 calls#{n} {host_line(JOB)[7:]}" for n in (50, N_CALLS // 16))
    # The deadline is generous: whether every call was answered must not depend on how busy the machine is.
    _, call = plain.run_lines(quick_server, warm_up, storm, options={"deadline_ms": 200, "failures": 1_000})
    got = counts(call)
    assert (got["accepted"], got["texts"], got["files"]) == (N_CALLS, 0, 0)
    assert got["factors"] > N_CALLS * 0.95
    assert got["grown_kib"] < GROWTH_KIB


@pytest.mark.parametrize("name", ["silent", "garbage", "a cut body", "closes at once", "byte by byte"])
def test_sixteen_threads_before_a_hostile_server_pass_every_job(plain: CompiledShim, tmp_path: Path, name: str) -> None:
    line = f"storm threads#16 calls#200 {host_line(JOB)[7:]}"
    with Hostile(tmp_path / "s", HOSTILE[name]) as hostile:
        (call,) = plain.run_lines(tmp_path / "s", line)
    assert counts(call)["accepted"] == 3_200
    assert (counts(call)["factors"], counts(call)["files"]) == (0, 0)
    # Those that asked before the breaker opened; nobody asked afterwards.
    assert hostile.n_clients <= 16 + 3
    assert call.logged.count("passes unchanged") == 3


def test_after_the_pause_one_of_many_threads_tries(plain: CompiledShim, tmp_path: Path) -> None:
    line = f"storm threads#16 calls#20 {host_line(JOB)[7:]}"
    with Hostile(tmp_path / "s", silent) as hostile:
        plain.run_lines(tmp_path / "s", line, options={"pause_s": 0.5})
        before = hostile.n_clients
        plain.run_lines(tmp_path / "s", line, "sleep 0.6", line, options={"pause_s": 0.5, "failures": 1})
    assert hostile.n_clients - before <= 16 + 1


def test_threads_do_not_race(toolchain: Toolchain, tmp_path: Path, start: Start) -> None:
    folder = tmp_path / "tsan"
    folder.mkdir()
    host = build_host(toolchain, folder, flags=("-fsanitize=thread",))
    host = dataclasses.replace(host, env={"TSAN_OPTIONS": "halt_on_error=1 exitcode=66"})
    line = f"storm threads#8 calls#40 {host_line(JOB)[7:]}"
    path = start().path
    calls = CompiledShim(host, tmp_path / "plugin").run_lines(path, line, line, options={"deadline_ms": 200})
    assert [counts(call)["accepted"] for call in calls] == [320, 320]


def test_valgrind_finds_nothing(plain_host: Host, tmp_path: Path) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("needs valgrind")
    runner = ("valgrind", "-q", "--error-exitcode=9", "--leak-check=full")
    shim = CompiledShim(dataclasses.replace(plain_host, runner=runner), tmp_path / "plugin")
    reject = encode_frame("R", {"verdict": "reject", "user_msg": "no"})
    answers = iter([encode_frame("R", REPLY), reject, reject, b"", b"\xff" * 99, b"FG1R00000040", reject[:-2]])

    def treat(client: socket.socket) -> None:
        client.recv(65_536)
        client.sendall(next(answers))

    steps: list[Step] = [JOB, JOB, RETAG, JOB, JOB, JOB, JOB]
    options = {"deadline_ms": 200, "failures": 100}
    with Hostile(tmp_path / "s", treat):
        calls = shim.run(tmp_path / "s", *steps, options=options)
    assert [call.rc for call in calls] == ["0", "2002", "2002", "0", "0", "0", "0"]


def test_the_message_of_a_plugin_before_ours_is_kept(plain_host: Host, tmp_path: Path) -> None:
    shim = CompiledShim(dataclasses.replace(plain_host, env={"HOST_TOLD": "site says hi"}), tmp_path / "plugin")
    with Hostile(tmp_path / "s", replies(encode_frame("R", REPLY | {"user_msg": "so do we"}))):
        (call,) = shim.run(tmp_path / "s", JOB, options={"deadline_ms": 150})
    assert call.told == "site says hi|so do we"


def other_release(toolchain: Toolchain, folder: Path, *, change: int) -> CompiledShim:
    """Return the plugin in a Slurm whose version number differs in the bits of ``change``."""
    year, month, micro = map(int, toolchain.version.split("."))
    folder.mkdir()
    running = (year << 16 | month << 8 | micro) ^ change
    host = build_host(toolchain, folder, defines=(f"-DRUNNING={running:#x}",))
    return CompiledShim(host, folder / "plugin")


def test_under_another_micro_release_it_works(toolchain: Toolchain, tmp_path: Path) -> None:
    shim = other_release(toolchain, tmp_path / "micro", change=0x1)
    with Hostile(tmp_path / "s", replies(encode_frame("R", REPLY))):
        (call,) = shim.run(tmp_path / "s", JOB, options={"deadline_ms": 150})
    assert call.changed == "site_factor=5"


def test_under_another_release_it_loads_and_asks_nobody(toolchain: Toolchain, tmp_path: Path) -> None:
    shim = other_release(toolchain, tmp_path / "major", change=0x100)
    with Hostile(tmp_path / "s", replies(encode_frame("R", {"verdict": "reject"}))) as hostile:
        calls = shim.run(tmp_path / "s", JOB, RETAG, JOB)
    assert [(call.rc, call.changed, call.told, call.logged) for call in calls] == [("0", "", "", "")] * 3
    assert hostile.n_clients == 0
    assert "disabled, jobs pass unchanged: built for Slurm" in shim.stderr


def test_a_slurmctld_that_shows_no_jobs_passes_updates_and_says_so_once(toolchain: Toolchain, tmp_path: Path) -> None:
    folder = tmp_path / "blind"
    folder.mkdir()
    shim = CompiledShim(build_host(toolchain, folder, defines=("-DNO_JOB_COPY",)), tmp_path / "plugin")
    calls = shim.run(tmp_path / "none", RETAG, RETAG)
    assert [call.rc for call in calls] == ["0", "0"]
    assert ["updates pass unchanged" in call.logged for call in calls] == [True, False]


class Session:
    """A host that is asked line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def submit(self) -> str:
        """Return what changed and was logged."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(host_line(JOB).encode() + b"\n")
        self._process.stdin.flush()
        row = self._process.stdout.readline().decode().rstrip("\n").split("\t")
        return f"{row[2]}; {row[4].strip()}"

    def end(self) -> None:
        """Let the host end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()


def test_changed_settings_count_at_once_and_close_the_breaker(plain_host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "plugin"
    with (
        Hostile(tmp_path / "s", replies(encode_frame("R", REPLY))),
        plain_host.start(folder, tmp_path / "none", {"failures": 1, "pause_s": 600}) as process,
    ):
        session = Session(process)
        session.submit()
        assert session.submit() == "; "  # the breaker is open
        write_settings(folder, tmp_path / "s", {"deadline_ms": 200})
        assert session.submit() == "site_factor=5; "
        session.end()
    assert process.returncode == 0


BAD_SETTINGS = {
    "a word": "deadline",
    "an unknown name": "deadlin_ms = 5",
    "no number": "deadline_ms = soon",
    "not a whole number": "failures = 3x",
    "too long a deadline": "deadline_ms = 5000",
    "not a number": "pause_s = nan",
    "too many uids": f"uids = {', '.join(map(str, range(17)))}",
    "a relative path": "socket = run/hook.sock",
    "a path that no socket can have": f"socket = /{'x' * 120}",
    "a line without an end": "x" * 2_000,
}


@pytest.mark.parametrize("line", BAD_SETTINGS.values(), ids=BAD_SETTINGS.keys())
def test_damaged_settings_leave_the_former_ones_in_force(sanitized_host: Host, tmp_path: Path, line: str) -> None:
    folder = tmp_path / "plugin"
    with (
        Hostile(tmp_path / "s", replies(encode_frame("R", REPLY))),
        sanitized_host.start(folder, tmp_path / "s", {"deadline_ms": 200}) as process,
    ):
        session = Session(process)
        assert session.submit() == "site_factor=5; "
        path = folder / "job_submit_fairgpu.conf"
        path.write_text(f"# {tmp_path}\n\n{line}\n")
        assert session.submit() == f"site_factor=5; fairgpu: settings not used: {path}, line 3"
        assert session.submit() == "site_factor=5; "
        session.end()
    assert process.returncode == 0
