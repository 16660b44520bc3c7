"""One rebalancer at a time: a lock file that the kernel frees when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from slurm_plugin.errors import AlreadyRunningError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE_NAME: Final = "rebalancer.lock"
_MODE: Final = 0o600
_TRIES: Final = 5
_PAUSE_S: Final = 0.05

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """Who holds the lease: process id and start time (seconds since the epoch); 0 if not readable."""

    pid: int
    started_s: float


@contextmanager
def hold_lease(state_dir: Path, *, now_s: float) -> Iterator[None]:
    """Hold the lease for the ``with`` block. A full disk keeps our pid out of the file, not us from the lease.

    Raises
    ------
    AlreadyRunningError
        If another process holds it; the message names its pid.
    """
    # Nobody else may open it: whoever can read a file can lock it, and would keep every rebalancer away.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(state_dir / FILE_NAME, flags, _MODE)
    with os.fdopen(descriptor, "r+", encoding="ascii") as file:
        _lock(file, state_dir)
        os.fchmod(descriptor, _MODE)
        _say_who(descriptor, json.dumps({"pid": os.getpid(), "started_s": now_s}) + "\n")
        yield
        os.ftruncate(descriptor, 0)


def lease_holder(state_dir: Path) -> LeaseHolder | None:
    """Return who holds the lease, ``None`` if nobody does.

    Raises
    ------
    PermissionError
        Only root and the rebalancer's user may look.
    """
    try:
        file = (state_dir / FILE_NAME).open(encoding="ascii")
    except FileNotFoundError:
        return None
    with file:
        if _try_lock(file, fcntl.LOCK_SH):
            return None
        return _parse_holder(file.read())


def _say_who(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    try:
        os.pwrite(descriptor, text.encode("ascii"), 0)
    except OSError as err:
        _log.error("event=write_failed file=%s error=%r", FILE_NAME, str(err))


def _lock(file: IO[str], state_dir: Path) -> None:
    # A reader probes with a shared lock for an instant: one refusal is no proof of another holder.
    for _ in range(_TRIES):
        if _try_lock(file, fcntl.LOCK_EX):
            return
        time.sleep(_PAUSE_S)
    file.seek(0)
    holder = _parse_holder(file.read())
    raise AlreadyRunningError(f"another rebalancer runs (pid {holder.pid}) and holds {state_dir / FILE_NAME}")


def _try_lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _parse_holder(text: str) -> LeaseHolder:
    try:
        body = json.loads(text)
        return LeaseHolder(pid=int(body["pid"]), started_s=float(body["started_s"]))
    except (ValueError, KeyError, TypeError):
        return LeaseHolder(pid=0, started_s=0.0)
