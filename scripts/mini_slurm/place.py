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
MACHINE_VARIABLE: Final = "MINI_SLURM_MACHINE"
"""Set for a container's start program only: which machine of the cluster it is."""
ROOT_VARIABLE: Final = "MINI_SLURM_ROOT"
SPEC_VARIABLE: Final = "MINI_SLURM_SPEC"
FIRST_MACHINE: Final = "ctl"
CONTAINERS_MARK: Final = "containers"
"""A file in the directory of a cluster that runs in containers."""
IMAGE_REPO: Final = "/opt/fairgpu"
"""Where the image has this repository's code and its environment."""
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


def in_container() -> bool:
    """Return whether this process is a container's own start program, which sees only itself."""
    return MACHINE_VARIABLE in os.environ


def has_containers(root: Path) -> bool:
    """Return whether the cluster at `root` runs in containers."""
    return (root / CONTAINERS_MARK).exists()


def init_pid(root: Path, machine: str = FIRST_MACHINE) -> int | None:
    """Return the host pid of a machine's pid 1, or None when it does not run."""
    if in_container():
        return 1
    pid = _recorded_pid(pid_file(root, machine))
    if pid is None and has_containers(root):
        from mini_slurm.containers import main_pid  # noqa: PLC0415 - only when a container was restarted

        found = main_pid(root.name, machine)
        pid = record_pid(root, found, machine) if found else None
    return pid


def pid_file(root: Path, machine: str = FIRST_MACHINE) -> Path:
    """Return where the pid of a machine's pid 1 is written down."""
    return root / ("init.pid" if machine == FIRST_MACHINE else f"init.{machine}.pid")


def record_pid(root: Path, pid: int, machine: str = FIRST_MACHINE) -> int:
    """Write down and return a machine's pid 1, with boot id and start time: a reused pid is never taken for ours."""
    pid_file(root, machine).write_text(f"{pid} {boot_id()} {start_ticks(pid)}\n")
    return pid


def _recorded_pid(path: Path) -> int | None:
    fields = read_text(path).split()
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
