"""Where a cluster lives on disk and which process holds its namespaces.

Imports little: ``mini-slurm exec`` must be quick.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

REPO: Final = Path(__file__).resolve().parents[2]
SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULT_NAME: Final = "mini"
DEFAULT_BASE: Final = "/var/tmp/fairgpu-mini"  # noqa: S108 - root-owned directory, made with mode 0755 before use
SUN_PATH_MAX: Final = 107
"""Longest path of a Unix socket in bytes (``sun_path`` without its final NUL)."""


class MiniError(Exception):
    """Something a user of mini-slurm can act on; the message says what and how."""


class UsageError(MiniError):
    """The command line makes no sense; exit code 2."""


def base_dir() -> Path:
    """Return the directory that holds every cluster's directory."""
    return Path(os.environ.get("FAIRGPU_MINI_DIR") or DEFAULT_BASE).absolute()


def cluster_dir(name: str) -> Path:
    """Return the directory of cluster `name`; refuse names that Slurm or a path could misread."""
    plain = name.replace("_", "").replace("-", "")
    well_formed = name[:1].isalpha() and plain.isascii() and plain.isalnum() and name == name.lower()
    if not well_formed or len(name) > 32:
        msg = f"bad cluster name {name!r}: a lower-case letter, then letters, digits, '-' or '_', at most 32"
        raise MiniError(msg)
    return base_dir() / name


def read_text(path: Path) -> str:
    """Return the text of `path`, or "" when it does not exist (any more)."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def start_ticks(pid: int) -> str:
    """Return when host process `pid` started, in clock ticks since boot; "" when it is gone or a zombie."""
    fields = read_text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return "" if len(fields) < 20 or fields[0] in "ZX" else fields[19]


def boot_id() -> str:
    """Return the kernel's random id of this boot."""
    return read_text(Path("/proc/sys/kernel/random/boot_id")).strip()


def init_pid(root: Path) -> int | None:
    """Return the host pid of the cluster's pid 1, or None when it does not run.

    The file also carries boot id and start time, so that a reused pid is never taken for ours.
    """
    fields = read_text(root / "init.pid").split()
    if len(fields) != 3 or fields[1] != boot_id() or start_ticks(int(fields[0])) != fields[2]:
        return None
    return int(fields[0])


def need_init_pid(name: str) -> int:
    """Return the host pid of the cluster's pid 1; raise `MiniError` when the cluster is not up."""
    pid = init_pid(cluster_dir(name))
    if pid is None:
        msg = f"cluster {name!r} is not up: scripts/mini-slurm up --name {name}"
        raise MiniError(msg)
    return pid


def require_root() -> None:
    """Raise `MiniError` unless we are root: namespaces, device files and other users' processes need it."""
    if os.geteuid() != 0:
        msg = "must run as root (namespaces, device files, several users)"
        raise MiniError(msg)
