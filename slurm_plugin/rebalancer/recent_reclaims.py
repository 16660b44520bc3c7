"""The last reclaims in a file that everybody may read: a victim's owner learns why the job waits again.

The history is its owner's and group's alone. This file beside the standings has less: no user, no path, no text, only
what ``squeue`` shows. It is bounded, replaced as a whole, and what is read from it is checked value by value.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from policies.quota.names import Band
from slurm_plugin.rebalancer.standings import write_public

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILE_NAME: Final = "reclaims.json"
VERSION: Final = 1
MAX_RECLAIMS: Final = 50

_TEXTS: Final = ("job_id", "agent", "qos", "band")
_CLAIM: Final = ("claimant", "claimant_job")
_COUNTS: Final = ("restarts", "n_gpus")
_SECONDS: Final = ("at_s", "ran_s")
_FIELDS: Final = (*_TEXTS, *_CLAIM, *_COUNTS, "n_claimed_gpus", *_SECONDS)

_MAX_BYTES: Final = 1 << 18
_MAX_TEXT: Final = 256
_MAX_COUNT: Final = 2**53
_MAX_SECONDS: Final = 1e11
"""About the year 5000: the C library can still tell the time."""


@dataclass(slots=True)
class RecentReclaims:
    """What the rebalancer publishes; a successor goes on from what the file has."""

    _rows: tuple[Mapping[str, Any], ...] | None = None
    _written: bytes = b""

    def publish(self, run_dir: Path, rows: Iterable[Mapping[str, Any]], *, since_s: float) -> None:
        """Add rows of the history's table ``reclaims`` and write the file if it changes.

        Raises
        ------
        OSError
            The file was not written; the rows are kept for the next call.
        """
        known = read_reclaims(run_dir) if self._rows is None else self._rows
        # A successor may see the last reclaims of its predecessor again.
        merged = {(row["job_id"], row["restarts"]): row for row in (*known, *map(_published, rows))}
        kept = sorted((row for row in merged.values() if row["at_s"] >= since_s), key=lambda row: row["at_s"])
        self._rows = tuple(kept[-MAX_RECLAIMS:])
        body = {"version": VERSION, "reclaims": self._rows}
        content = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        if content != self._written:
            write_public(run_dir / FILE_NAME, content)
            self._written = content


def read_reclaims(run_dir: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the published reclaims, oldest first; none where the file is absent, of another version or damaged.

    A row has the keys of the history's table ``reclaims`` as far as they are published. A row with a value that cannot
    be right is left out.
    """
    try:
        tree = json.loads(_read_bounded(run_dir / FILE_NAME))
        if tree["version"] != VERSION:
            return ()
        found = [_published(row) for row in tree["reclaims"][:MAX_RECLAIMS] if _is_sound(row)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(sorted(found, key=lambda row: row["at_s"]))


def _published(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in _FIELDS}


def _read_bounded(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no regular file")
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"{path} is too long")
    return content


def _is_sound(row: object) -> bool:
    if not isinstance(row, dict) or not row.keys() >= set(_FIELDS):
        return False
    return (
        all(_is_text(row[name]) for name in _TEXTS)
        and all(row[name] is None or _is_text(row[name]) for name in _CLAIM)
        and all(_is_count(row[name]) for name in _COUNTS)
        and (row["n_claimed_gpus"] is None or _is_count(row["n_claimed_gpus"]))
        and all(_is_number(row[name]) and 0 <= row[name] <= _MAX_SECONDS for name in _SECONDS)
        and row["band"] in {band.value for band in Band}
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_TEXT


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
