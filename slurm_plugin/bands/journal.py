"""What was there before us: written and synced before each change, so that removal restores it.

One JSON object per line in ``<state_dir>/bands.jsonl``, appended only. The first line about an association holds its
former values. The file must belong to whoever applies (root or SlurmUser): a line in it becomes a command. When
everything is restored the file is renamed, not deleted.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from policies.quota.names import own_prefix
from slurm_plugin.bands.accounting import AssocKey
from slurm_plugin.errors import AlreadyRunningError, ConfigError, FairGpuError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE_NAME: Final = "bands.jsonl"
_VERSION: Final = 1
_MODE: Final = 0o600
"""Whoever can open it can lock it, and would keep every apply away."""


class JournalError(FairGpuError):
    """A former value could not be written down, so the change was not made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerAssoc:
    """What was written on an association before our first change; without QOSes of ours."""

    own_qos: tuple[str, ...]
    own_default: str


@dataclass(slots=True, kw_only=True)
class BandJournal:
    """The open journal of one cluster.

    Attributes
    ----------
    created : set of str
        QOSes that we created or took over.
    former : dict
        By association.
    """

    path: Path
    created: set[str] = field(default_factory=set)
    former: dict[AssocKey, FormerAssoc] = field(default_factory=dict)
    _file: IO[bytes] | None = None

    def note_qos(self, name: str, *, at_s: float) -> None:
        """Record that we are about to create or change a QOS of ours."""
        if name not in self.created:
            self._append({"kind": "qos", "name": name}, at_s=at_s)
            self.created.add(name)

    def note_assoc(self, key: AssocKey, former: FormerAssoc, *, at_s: float) -> None:
        """Record what an association had before our first change; later calls change nothing."""
        if key not in self.former:
            line = {
                "kind": "assoc",
                "account": key.account,
                "user": key.user,
                "partition": key.partition,
                "qos": list(former.own_qos),
                "default": former.own_default,
            }
            self._append(line, at_s=at_s)
            self.former[key] = former

    def close_restored(self, *, at_s: float) -> None:
        """Put the journal aside: nothing of ours is left. An empty one is deleted."""
        if not self.path.exists():
            return
        if self.path.stat().st_size == 0:
            self.path.unlink()
        else:
            self.path.rename(self.path.with_name(f"bands-removed-{int(at_s)}.jsonl"))
            _sync_directory(self.path.parent)

    def _append(self, line: Mapping[str, Any], *, at_s: float) -> None:
        if self._file is None:
            raise ConfigError(f"{self.path} is open for reading only")
        text = json.dumps({"version": _VERSION, "at_s": round(at_s, 3), **line}, sort_keys=True)
        _append_whole(self._file.fileno(), text.encode() + b"\n", self.path)


def read_journal(state_dir: Path, *, cluster: str) -> BandJournal:
    """Return what the journal holds, without opening it for writing; empty if there is none.

    Raises
    ------
    ConfigError
        It cannot be read, is damaged, names a QOS that is none of ours on this cluster, or belongs to somebody else.
    """
    path = state_dir / FILE_NAME
    journal = BandJournal(path=path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return journal
    except OSError as err:
        raise ConfigError(f"cannot read {path}: {err.strerror}; run as the user who applied, or as root") from err
    with open(descriptor, "rb") as file:  # noqa: PTH123 - opened above without following a link
        _load(journal, file, own_prefix(cluster))
    return journal


@contextmanager
def open_journal(state_dir: Path, *, cluster: str) -> Iterator[BandJournal]:
    """Open the journal for the ``with`` block; nobody else can meanwhile.

    Raises
    ------
    AlreadyRunningError
        Another apply runs.
    ConfigError
        As :func:`read_journal`, or the state directory is missing.
    """
    path = state_dir / FILE_NAME
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, _MODE)
    except OSError as err:
        raise ConfigError(
            f"cannot write {path}: {err.strerror}; run as root, which may write there. A missing state directory: "
            f"install -d -o fairgpu -m 0755 {state_dir}"
        ) from err
    with open(descriptor, "r+b", buffering=0) as raw:  # noqa: PTH123 - as above
        _lock(raw, path)
        journal = BandJournal(path=path, _file=raw)
        _load(journal, raw, own_prefix(cluster))
        os.fchmod(raw.fileno(), _MODE)
        _sync_directory(state_dir)
        yield journal


def _append_whole(descriptor: int, raw: bytes, path: Path) -> None:
    """Append and sync, or leave the file as it was and raise: no change is made without its line."""
    size = os.fstat(descriptor).st_size
    try:
        while raw:  # a disk that becomes full takes a part first, and says so at the next try
            raw = raw[os.write(descriptor, raw) :]
        os.fsync(descriptor)
    except OSError as err:
        os.ftruncate(descriptor, size)
        raise JournalError(f"cannot write {path}: {err.strerror}; the change was not made, run it again") from err


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as err:
        raise AlreadyRunningError(f"another 'fairgpu apply' runs and holds {path}") from err


def _load(journal: BandJournal, file: IO[bytes], prefix: str) -> None:
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode) or found.st_uid not in {0, os.geteuid()} or found.st_mode & 0o022:
        raise ConfigError(
            f"{journal.path} is not a file of root or SlurmUser that only its owner may write; "
            "its lines become commands, so it is not used. Look at it, then move it away"
        )
    lines = file.read().split(b"\n")
    torn = lines.pop()
    for number, line in enumerate(lines, start=1):
        _take(journal, line, number)
        if foreign := [name for name in journal.created if not name.startswith(prefix)]:
            raise _damaged(journal, number, f"QOS {foreign[0]!r:.140} does not begin with {prefix}")
    if torn and file.writable():
        # Cut short by a crash: its change was not made yet.
        os.ftruncate(file.fileno(), found.st_size - len(torn))


def _take(journal: BandJournal, line: bytes, number: int) -> None:
    try:
        entry = json.loads(line)
        what = (entry["version"], entry["kind"])
        if what == (_VERSION, "qos"):
            journal.created.add(str(entry["name"]))
        elif what == (_VERSION, "assoc"):
            key = AssocKey(str(entry["account"]), str(entry["user"]), str(entry["partition"]))
            former = FormerAssoc(own_qos=tuple(map(str, entry["qos"])), own_default=str(entry["default"]))
            journal.former.setdefault(key, former)
        else:
            raise _damaged(journal, number, f"unknown version or kind {what}")
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        raise _damaged(journal, number, str(err)) from err


def _damaged(journal: BandJournal, number: int, text: str) -> ConfigError:
    return ConfigError(f"{journal.path} is damaged", (f"line {number}: {text}",))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
