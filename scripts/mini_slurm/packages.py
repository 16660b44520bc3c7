"""Debian packages: which are needed, and how to install them without starting the services they bring."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mini_slurm.place import SYSTEM_PATH, MiniError

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES: Final = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-mysql-plugin",
    "munge",
    "mariadb-server",
    "lua-socket",
    "iproute2",
    "util-linux",
    "procps",
    "gcc",
    "libc6-dev",
    "libslurm-dev",
)
_COMMANDS: Final = (
    *("slurmctld", "slurmd", "slurmdbd", "sacctmgr", "sbatch", "sprio", "munged"),
    *("mariadbd", "mariadb-install-db", "mariadb", "ip", "pkill", "nsenter", "unshare", "setpriv", "cc"),
)
LUA_PLUGIN: Final = "*/slurm*/job_submit_lua.so"
"""Below /usr/lib."""

_LIBRARIES: Final = (
    LUA_PLUGIN,
    "*/slurm*/accounting_storage_mysql.so",
    "*/lua/5.1/socket/unix.so",
)
_HEADERS: Final = ("/usr/include/slurm/slurm.h",)
_POLICY: Final = Path("/usr/sbin/policy-rc.d")


def missing() -> list[str]:
    """Return the commands and files that are not there; empty when nothing need be installed."""
    commands = [name for name in _COMMANDS if shutil.which(name, path=SYSTEM_PATH) is None]
    libraries = [pattern for pattern in _LIBRARIES if not any(Path("/usr/lib").glob(pattern))]
    return commands + libraries + [path for path in _HEADERS if not Path(path).exists()]


def ensure(*, install: bool) -> None:
    """Install what is missing; raise `MiniError` when that fails or is not wanted."""
    if not missing():
        return
    directory = os.open(_POLICY.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)  # two of us must not save and restore each other's policy
        _install(install=install)
    finally:
        os.close(directory)


def _install(*, install: bool) -> None:
    lacking = missing()
    if not lacking:
        return
    if not install:
        msg = f"missing: {' '.join(lacking)}; run: apt-get install --no-install-recommends {' '.join(PACKAGES)}"
        raise MiniError(msg)
    sys.stderr.write(f"mini-slurm: installing packages, because {', '.join(lacking)} are missing\n")
    with _services_held_back():
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", *PACKAGES)
    lacking = missing()
    if lacking:
        msg = f"still missing after installing the packages: {' '.join(lacking)}"
        raise MiniError(msg)


def _apt(*argv: str) -> None:
    command = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=180", "-o", "Dpkg::Use-Pty=0", *argv]
    done = subprocess.run(
        command,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        msg = f"apt-get {argv[0]} failed ({done.returncode}):\n" + "\n".join(done.stdout.splitlines()[-20:])
        raise MiniError(msg)


@contextmanager
def _services_held_back() -> Iterator[None]:
    """Forbid package scripts to start services; put back whatever policy there was before."""
    before: tuple[bytes, int] | None = None
    if _POLICY.exists():
        before = (_POLICY.read_bytes(), _POLICY.stat().st_mode & 0o7777)
    _write_policy(b"#!/bin/sh\nexit 101\n", 0o755)
    try:
        yield
    finally:
        if before is None:
            _POLICY.unlink()
        else:
            _write_policy(*before)


def _write_policy(text: bytes, mode: int) -> None:
    _POLICY.write_bytes(text)
    _POLICY.chmod(mode)
