"""The processes of one cluster, seen from the host: start its pid 1, run commands, find and end daemons."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mini_slurm import place
from mini_slurm.enter import environment, inside_argv
from mini_slurm.people import identity
from mini_slurm.place import MiniError, read_text

if TYPE_CHECKING:
    from collections.abc import Callable

_PYTHON: Final = (sys.executable, "-E", "-s", "-S", "-c")
_RUN_INIT: Final = (
    "import sys; from pathlib import Path; sys.path[0] = sys.argv[1]; "
    "from mini_slurm.init import run_init; run_init(Path(sys.argv[2]), int(sys.argv[3]))"
)


class Process(NamedTuple):
    """A process in a cluster: pid on the host, pid inside, command name."""

    pid: int
    inner_pid: int
    name: str


def wait_until(predicate: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll `predicate` every 20 ms; raise `MiniError` naming `what` when it stays false for `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline_s:
            msg = f"gave up after {timeout_s:g} s: {what}"
            raise MiniError(msg)
        time.sleep(0.02)


def start_init(root: Path, gpus_per_node: int) -> int:
    """Start the cluster's pid 1 in fresh namespaces, wait until they are ready and return its host pid."""
    scripts = Path(__file__).resolve().parents[1]
    flags = ("--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "--propagation", "private")
    with (root / "log/init.log").open("w") as log:
        outer = subprocess.Popen(
            ["unshare", *flags, *_PYTHON, _RUN_INIT, str(scripts), str(root), str(gpus_per_node)],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def is_ready() -> bool:
        if outer.poll() is not None:
            msg = "the namespaces could not be made"
            raise MiniError(msg)
        return bool(_record_init(root, outer.pid)) and (root / "ready").exists()

    wait_until(is_ready, 15, "namespaces are ready")
    outer.returncode = 0  # unshare outlives us on purpose; without this Popen warns when it is collected
    return place.init_pid(root) or 0


def _record_init(root: Path, outer_pid: int) -> int | None:
    """Write down unshare's only child, as soon as there is one."""
    if place.pid_file(root).exists():
        return place.init_pid(root)
    children = read_text(Path(f"/proc/{outer_pid}/task/{outer_pid}/children")).split()
    if not children:
        return None
    pid = int(children[0])
    return place.record_pid(root, pid)


def stop_init(root: Path) -> None:
    """Kill the cluster's pid 1 and wait until the kernel has ended everything in its pid namespace."""
    pid = place.init_pid(root)
    if pid is None:
        return
    ticks = place.start_ticks(pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: place.start_ticks(pid) != ticks, 30, f"process {pid} and its namespace end")


def run_inside(
    root: Path,
    argv: list[str],
    *,
    user: str = "root",
    stdin: str = "",
    machine: str = place.FIRST_MACHINE,
) -> subprocess.CompletedProcess[str]:
    """Run `argv` inside as `user` and return the outcome; stderr is folded into stdout."""
    pid = place.init_pid(root, machine)
    if pid is None:
        msg = "the cluster's pid 1 is gone"
        raise MiniError(msg)
    who = identity(root, user)
    return subprocess.run(
        inside_argv(pid, who, "/", argv),
        env=environment(root, who) | {"MYSQL_UNIX_PORT": str(root / "run/mariadb/mariadb.sock")},
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


def members(root: Path, machine: str = place.FIRST_MACHINE) -> list[Process]:
    """Return every process whose pid namespace is the machine's, its pid 1 first."""
    init = place.init_pid(root, machine)
    if init is None:
        return []
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    if not place.in_container():  # which sees its own processes only, and may not look at namespaces
        namespace = _pid_namespace(init)
        pids = [pid for pid in pids if _pid_namespace(pid) == namespace]
    return [_describe(pid) for pid in pids]


def _pid_namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _describe(pid: int) -> Process:
    fields = dict(line.split(":", 1) for line in read_text(Path(f"/proc/{pid}/status")).splitlines() if ":" in line)
    inner = fields.get("NSpid", "0").split()
    return Process(pid, int(inner[-1]) if inner else 0, fields.get("Name", "").strip())


def find_daemon(root: Path, pid_file: str, machine: str) -> Process | None:
    """Return the living process that a pid file under ``run/`` names (by its pid inside), or None."""
    text = read_text(root / "run" / pid_file).strip()
    if not text.isdigit():
        return None
    return next((process for process in members(root, machine) if process.inner_pid == int(text)), None)


def can_connect(address: str, port: int) -> bool:
    """Return whether something accepts TCP connections at `address`."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex((address, port)) == 0


def is_listening(root: Path, port: int, machine: str = place.FIRST_MACHINE) -> bool:
    """Return whether something on the machine listens on TCP `port`, without connecting to it."""
    pid = place.init_pid(root, machine)
    sockets = read_text(Path(f"/proc/{pid}/net/tcp")) + read_text(Path(f"/proc/{pid}/net/tcp6"))
    return any(
        fields[1].endswith(f":{port:04X}") and fields[3] == "0A"
        for fields in map(str.split, sockets.splitlines())
        if len(fields) > 3
    )
