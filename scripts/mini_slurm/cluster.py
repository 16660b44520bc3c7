"""Bring one cluster up, take it down, say how it is."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mini_slurm import containers, daemons, engine, layout, packages, place, processes
from mini_slurm.place import MiniError
from mini_slurm.releases import parse_version, release_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mini_slurm.spec import ClusterSpec

_LONGEST_SOCKET: Final = "run/mariadb/mariadb.sock"
_LOG_TAIL: Final = 25


@contextmanager
def exclusive(name: str) -> Iterator[Path]:
    """Yield the cluster's directory while no other mini-slurm changes the same cluster."""
    place.require_root()
    root = place.cluster_dir(name)
    root.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path = root.parent / f".{name}.lock"
    while True:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Another one may have removed the file that we waited for.
            if _is_still(path, lock.fileno()):
                try:
                    yield root
                finally:
                    path.unlink()
                return


def _is_still(path: Path, fd: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False


def up(spec: ClusterSpec, *, install: bool) -> bool:
    """Start `spec`; return False when a cluster of that name is up already, which is left alone."""
    _check_length(place.cluster_dir(spec.name))
    with exclusive(spec.name) as root:
        if place.init_pid(root) is not None and (root / "up").exists():
            return False
        _remove(root)  # what an `up` that was killed half-way left behind
        if spec.release:
            _up_in_containers(spec, root)
        else:
            _up_on_host(spec, root, install=install)
        return True


def _up_on_host(spec: ClusterSpec, root: Path, *, install: bool) -> None:
    for path in _closed_to_users():
        sys.stderr.write(f"mini-slurm: warning: users inside cannot read {path}; chmod o+rx it\n")
    packages.ensure(install=install)
    release = release_for(installed_version())
    with _undone_on_failure(root):
        layout.write_files(spec, root, release)
        daemons.make_secrets(spec, root)
        processes.start_init(root, spec.gpus_per_node)
        if spec.is_compiled:
            daemons.build_hook(root)
        daemons.start_munge(spec, root)
        daemons.start_database(spec, root)
        daemons.start_slurmdbd(root)
        daemons.load_accounts(root, spec.name)
        daemons.start_slurmctld(root)
        daemons.start_slurmds(root, spec)
        (root / "up").touch()


def _up_in_containers(spec: ClusterSpec, root: Path) -> None:
    image = engine.build(spec.release)
    root.mkdir(mode=0o755)
    (root / place.CONTAINERS_MARK).touch()
    with _undone_on_failure(root):
        placed = replace(spec, subnet=containers.make_network(spec.name))
        containers.start(placed, root, image)
        containers.wait_until_up(placed, root)
        daemons.wait_for_nodes(root, placed)
        (root / "up").touch()


def _remove(root: Path) -> None:
    """End everything of the cluster and remove its directory."""
    if place.has_containers(root):
        containers.remove(root.name)
    else:
        processes.stop_init(root)
    shutil.rmtree(root, ignore_errors=True)


def _check_length(root: Path) -> None:
    if len(str(root / _LONGEST_SOCKET).encode()) > place.SUN_PATH_MAX:
        msg = f"{root} is too long for Unix sockets; set FAIRGPU_MINI_DIR to a shorter directory"
        raise MiniError(msg)


def _closed_to_users() -> list[Path]:
    """Return directories of ours that ordinary users cannot read; closed ancestors are no problem."""
    candidates = (place.REPO, place.REPO / ".venv", place.REPO / ".venv/bin")
    return [path for path in candidates if path.is_dir() and path.stat().st_mode & 0o005 != 0o005]


def installed_version() -> tuple[int, int]:
    """Return (year, month) of the slurmctld in the system's path."""
    answer = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True, env=_system_env())
    return parse_version(answer.stdout)


def _system_env() -> dict[str, str]:
    return {"PATH": place.SYSTEM_PATH}


@contextmanager
def _undone_on_failure(root: Path) -> Iterator[None]:
    """On any failure, SIGTERM included: show the guilty log, end all processes, remove the directory."""
    before = signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        yield
    except BaseException as err:
        _show_log(root, err.log if isinstance(err, daemons.DaemonError) else "init")
        _remove(root)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit_on_signal(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _show_log(root: Path, log: str) -> None:
    lines = place.read_text(root / f"log/{log}.log").splitlines()[-_LOG_TAIL:]
    if lines:
        sys.stderr.write(f"mini-slurm: last lines of {log}.log:\n" + "".join(f"  {line}\n" for line in lines))


def down(name: str) -> bool:
    """Stop the cluster and remove its directory; return False when there was none."""
    with exclusive(name) as root:
        if not root.exists():
            return False
        _remove(root)
        return True


def names() -> list[str]:
    """Return the names of all clusters that have a directory, running or not."""
    base = place.base_dir()
    return sorted(path.parent.parent.name for path in base.glob("*/etc/spec.json")) if base.is_dir() else []


def restart(name: str, daemon: str) -> float:
    """Restart one daemon of the cluster and return how long that took, in seconds."""
    with exclusive(name) as root:
        place.need_init_pid(name)
        started_s = time.monotonic()
        daemons.restart(root, daemon)
        return time.monotonic() - started_s
