"""A real Slurm for the end-to-end tests, started by ``scripts/mini-slurm``, and our daemons inside it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

REPO: Final = Path(__file__).resolve().parents[2]
MINI: Final = str(REPO / "scripts/mini-slurm")
USERS: Final = ("alice", "bob", "carol", "dave", "mallory", "fairgpu")
RELEASE: Final = os.environ.get("FAIRGPU_E2E_RELEASE", "")
"""Slurm release whose clusters are tested, in containers; empty: the one of this host, in namespaces."""
SCALE: Final = 1_000_000
"""``site_factor.scale`` of the site file that ``mini-slurm`` writes."""


class QueuedJob(NamedTuple):
    """One line of squeue, all text as Slurm prints it."""

    job_id: str
    user: str
    account: str
    partition: str
    state: str
    reason: str
    priority: str
    nodes: str
    comment: str


_SQUEUE_FORMAT: Final = "%i|%u|%a|%P|%T|%r|%Q|%N|%k"


def wait_for(predicate: Callable[[], object], *, timeout_s: float, what: str, every_s: float = 0.1) -> None:
    """Poll until `predicate` is true; fail with `what` after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline_s:
            msg = f"not within {timeout_s:g} s: {what}"
            raise AssertionError(msg)
        time.sleep(every_s)


class MiniCluster:
    """One cluster that is up; ``root`` is its directory, readable from the host."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root = base_dir() / name

    @classmethod
    def up(cls, name: str, *options: str) -> MiniCluster:
        """Start a cluster; the test run fails, it does not skip, when Slurm cannot be started."""
        done = _mini("up", "--name", name, *options, *(("--docker", f"--release={RELEASE}") if RELEASE else ()))
        if done.returncode:
            msg = f"mini-slurm up failed:\n{done.stdout}{done.stderr}"
            raise AssertionError(msg)
        return cls(name)

    def down(self) -> None:
        """Stop and remove the cluster."""
        done = _mini("down", "--name", self.name)
        assert done.returncode == 0, done.stderr

    def restart(self, daemon: str) -> None:
        """Restart slurmctld or slurmdbd and wait until it answers."""
        done = _mini("restart", "--name", self.name, daemon)
        assert done.returncode == 0, done.stderr

    def argv(self, user: str, *argv: str) -> list[str]:
        """Return the host command that runs `argv` inside as `user`."""
        homeless = ("--cwd", "/") if user == "slurm" else ()
        return [MINI, "exec", "--name", self.name, "--user", user, *homeless, "--", *argv]

    def run(
        self,
        user: str,
        *argv: str,
        check: bool = True,
        input: str | bytes | None = None,  # noqa: A002 - subprocess.run's own word
    ) -> subprocess.CompletedProcess[str]:
        """Run `argv` inside as `user`; undecodable output is kept as surrogates."""
        raw = input.encode(errors="surrogateescape") if isinstance(input, str) else input
        done = subprocess.run(self.argv(user, *argv), input=raw or b"", capture_output=True, check=False)
        out, err = (part.decode(errors="surrogateescape") for part in (done.stdout, done.stderr))
        if check and done.returncode:
            msg = f"{user}: {' '.join(argv)} exited with {done.returncode}\n{out}{err}"
            raise AssertionError(msg)
        return subprocess.CompletedProcess(list(argv), done.returncode, out, err)

    def popen(self, user: str, *argv: str, stdout: IO[bytes] | int | None = None) -> subprocess.Popen[bytes]:
        """Start `argv` inside as `user` and do not wait; stderr joins stdout."""
        return subprocess.Popen(
            self.argv(user, *argv), stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT
        )

    def sbatch(self, user: str, *args: str) -> str:
        """Submit a batch job as `user` and return its id; without ``--wrap`` it sleeps for ten minutes."""
        wrap = () if any(arg.startswith("--wrap") for arg in args) else ("--wrap=sleep 600",)
        return self.run(user, "sbatch", "--parsable", "--output=/dev/null", *args, *wrap).stdout.strip()

    def wait(self, predicate: Callable[[], object], timeout_s: float = 30, what: str = "the condition") -> None:
        """Poll `predicate`; when it stays false fail and show the queue."""
        try:
            wait_for(predicate, timeout_s=timeout_s, what=what)
        except AssertionError as err:
            shown = "\n".join(map(str, self.squeue()[:40]))
            msg = f"{err}; the queue is\n{shown}"
            raise AssertionError(msg) from None

    def squeue(self, *args: str) -> list[QueuedJob]:
        """Return the jobs that squeue knows (pending, running, completing), in its order."""
        lines = self.run("root", "squeue", "--noheader", f"--format={_SQUEUE_FORMAT}", *args).stdout.splitlines()
        return [QueuedJob(*line.split("|", len(QueuedJob._fields) - 1)) for line in lines]

    def state(self, job_id: str) -> str:
        """Return the state of one job, finished ones included while slurmctld remembers them, or ""."""
        found = self.run("root", "squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job_id}", check=False)
        return found.stdout.strip()

    def sprio(self) -> dict[str, int]:
        """Return the site factor (column SITE) of every pending job."""
        lines = self.run("root", "sprio", "--noheader", "--format=%i %S").stdout.splitlines()
        return {job_id: int(site) for job_id, site in (line.split() for line in lines if line.strip())}

    def clear_jobs(self) -> None:
        """Cancel every job and wait until nothing is queued, running or completing."""
        for user in USERS:
            self.run("root", "scancel", "--quiet", f"--user={user}", check=False)
        self.run("root", "scancel", "--quiet", "--user=root", check=False)
        self.wait(lambda: not self.squeue(), 60, "the queue is empty")

    def log(self, daemon: str) -> str:
        """Return the whole log of a daemon: ``slurmctld``, ``fairgpu-hook-server`` and so on."""
        return (self.root / f"log/{daemon}.log").read_text(errors="replace")


class Daemon:
    """One of our own daemons running inside, as user fairgpu by default; ``pid`` is its pid on the host."""

    def __init__(self, cluster: MiniCluster, *argv: str, user: str = "fairgpu") -> None:
        self.argv = argv
        self.log_path = cluster.root / "log" / f"{'-'.join(argv[:2])}.log"
        with self.log_path.open("ab") as log:
            self._outer = cluster.popen(user, *argv, stdout=log)
        wait_for(self._find_pid, timeout_s=10, what=f"{argv} is started", every_s=0.01)

    def _find_pid(self) -> bool:
        """Find nsenter's only child, which becomes the daemon by exec and keeps its pid."""
        proc = Path(f"/proc/{self._outer.pid}")
        if self._outer.poll() is not None:
            msg = f"{self.argv} ended with {self._outer.returncode}:\n{self.log()}"
            raise AssertionError(msg)
        if (proc / "comm").read_text().strip() != "nsenter":
            return False
        children = (proc / f"task/{self._outer.pid}/children").read_text().split()
        self.pid = int(children[0]) if children else 0
        return bool(children)

    def log(self) -> str:
        """Return everything that this daemon's kind has written to its log in this cluster."""
        return self.log_path.read_text(errors="replace")

    def is_running(self) -> bool:
        """Return whether the daemon still lives (frozen counts as alive)."""
        return self._outer.poll() is None

    def ready(self, predicate: Callable[[], object], what: str, timeout_s: float = 20) -> None:
        """Wait for `predicate`; on failure end the daemon and show its log."""

        def alive_and_ready() -> object:
            assert self.is_running(), f"{self.argv} ended with {self._outer.returncode}"
            return predicate()

        try:
            wait_for(alive_and_ready, timeout_s=timeout_s, what=what)
        except AssertionError as err:
            self.kill()
            msg = f"{err}\n{self.log()}"
            raise AssertionError(msg) from None

    def freeze(self) -> None:
        """Stop the daemon with SIGSTOP, as a hung process."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen daemon go on; nsenter stopped together with its child."""
        for pid in (self.pid, self._outer.pid):
            with contextlib.suppress(ProcessLookupError):  # it may just have ended
                os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the daemon with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self, timeout_s: float = 15) -> int:
        """End the daemon with SIGTERM and return its exit code."""
        return self._end(signal.SIGTERM, timeout_s)

    def _end(self, number: signal.Signals, timeout_s: float = 15) -> int:
        if self._outer.poll() is None:
            os.kill(self.pid, number)
            self.thaw()
            self._outer.wait(timeout_s)
        return self._outer.returncode

    def ensure_ended(self) -> None:
        """End the daemon however it takes; for fixtures."""
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
            msg = f"{self.argv} ignored SIGTERM"
            raise AssertionError(msg) from None


def close_breaker(cluster: MiniCluster) -> None:
    """Make the shim forget that another test's server did not answer: changed settings close its breaker."""
    settings = cluster.root / "lib/job_submit_fairgpu.conf"
    if settings.exists():
        settings.touch()
    else:
        (cluster.root / "etc/job_submit.lua").touch()
        time.sleep(1.1)  # slurmctld sees the script's new time at the next second


def start_hook_server(cluster: MiniCluster, *options: str) -> Daemon:
    """Start ``fairgpu hook-server`` and wait until its socket accepts connections."""
    daemon = Daemon(cluster, "fairgpu", "hook-server", *options)
    path = cluster.root / "run/fairgpu/hook.sock"
    daemon.ready(lambda: accepts(path), f"{path} accepts connections")
    return daemon


def start_qos_helper(cluster: MiniCluster) -> Daemon:
    """Start ``fairgpu qos-helper`` as SlurmUser and wait until its socket accepts connections."""
    daemon = Daemon(cluster, "fairgpu", "qos-helper", user="slurm")
    path = cluster.root / "run/fairgpu-qos/helper.sock"
    daemon.ready(lambda: accepts(path), f"{path} accepts connections")
    return daemon


def start_rebalancer(cluster: MiniCluster, *options: str) -> Daemon:
    """Start ``fairgpu rebalance`` and wait until its first cycle has written the standings."""
    path = cluster.root / "run/fairgpu/standings.json"
    before = _mtime_ns(path)
    daemon = Daemon(cluster, "fairgpu", "rebalance", *options)
    daemon.ready(lambda: _mtime_ns(path) > before, "the first cycle has written the standings")
    return daemon


def accepts(path: Path) -> bool:
    """Return whether something accepts connections on the Unix socket `path`."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def _mtime_ns(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def base_dir() -> Path:
    """Return where ``mini-slurm`` keeps its clusters."""
    return Path(os.environ.get("FAIRGPU_MINI_DIR") or "/var/tmp/fairgpu-mini")


def members(root: Path) -> set[int]:
    """Return the host pids of all processes in the cluster at `root`: one pid namespace, or one in each container."""
    namespaces = {_namespace(path.read_text().split()[0]) for path in root.glob("init*.pid")}
    return {int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _namespace(p.name) in namespaces}


def _namespace(pid: str) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return None


def remove_leftovers(prefix: str) -> None:
    """Take down clusters called `prefix` + pid whose test run no longer exists."""
    for path in base_dir().glob(f"{prefix}*"):
        pid = path.name.removeprefix(prefix).split("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            _mini("down", "--name", path.name)


def _mini(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MINI, *argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
