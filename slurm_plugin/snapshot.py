"""Cycle snapshots: what one cycle read, knew and decided, as a file that gives back the same objects.

A snapshot is canonical JSON (sorted keys, no blanks, ASCII), optionally gzipped. Fractions are ``"p/q"``,
every field is written, a missing one takes its default, unknown fields are errors. Files come from strangers (a bug
report is a snapshot): nothing in them is executed, sizes are bounded, every value is checked against the type of its
field, and what belongs together must fit (``snapshot_checks``).
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policies.plan import BandMemory, Plan, SlaMemory
from policies.records import Observation
from policies.site_policy import SitePolicy
from slurm_plugin.errors import FairGpuError
from slurm_plugin.snapshot_checks import find_problem
from slurm_plugin.typed_json import Json, TypedJsonError, from_jsonable, to_jsonable

FORMAT: Final = "fairgpu-snapshot"
VERSION: Final = 2
"""2 added the bands (QOSes, band memory, decisions of several kinds)."""

_READABLE: Final = (1, VERSION)
MIB: Final = 1024 * 1024
MAX_BYTES: Final = 160 * MIB
"""Largest accepted snapshot after decompression: twice the 80 MiB of 100,000 pending jobs, the scale we design for.
Reading takes about ten times the size in memory."""


class SnapshotError(FairGpuError):
    """A snapshot file cannot be read; the message names the file or field and what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One cycle.

    Attributes
    ----------
    cycle_id : str
        The id that log lines, history rows and explanations of the cycle carry.
    now_s : float
        The time that ``decide`` was given, seconds since the epoch.
    sla_memory : tuple of SlaMemory
    band_memory : tuple of BandMemory
        What ``decide`` was given from the cycle before.
    plan : Plan
        What it returned.
    """

    cycle_id: str
    now_s: float
    observation: Observation
    site_policy: SitePolicy
    sla_memory: tuple[SlaMemory, ...]
    plan: Plan
    band_memory: tuple[BandMemory, ...] = ()


def snapshot_bytes(snapshot: Snapshot) -> bytes:
    """Return the canonical JSON of a snapshot, newline at the end; equal snapshots give equal bytes."""
    body = {"format": FORMAT, "version": VERSION, "snapshot": to_jsonable(Snapshot, snapshot)}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"


def parse_snapshot(raw: bytes) -> Snapshot:
    """Return the snapshot in ``raw`` (plain or gzipped).

    Raises
    ------
    SnapshotError
        If it is no snapshot, of another version, too large, a field does not fit its type, or fields contradict.
    """
    if len(raw) > MAX_BYTES:
        raise SnapshotError(_too_large("it is"))
    body = _parse_json(_decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise SnapshotError("this is no FairGPU snapshot: the field 'format' is missing or different")
    if body.get("version") not in _READABLE:
        raise SnapshotError(f"snapshot version {body.get('version')!r} is not {VERSION}: use the FairGPU that wrote it")
    try:
        snapshot = from_jsonable(Snapshot, body.get("snapshot"), "snapshot")
    except TypedJsonError as err:
        raise SnapshotError(str(err)) from err
    if problem := find_problem(snapshot.observation, snapshot.site_policy, snapshot.plan):
        raise SnapshotError(f"snapshot.{problem}")
    return snapshot


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Write a snapshot atomically, readable by its owner only (comments and user names are in it).

    A name that ends in ``.gz`` is gzipped without a time stamp, so that equal snapshots give equal files.
    """
    raw = snapshot_bytes(snapshot)
    if path.suffix == ".gz":
        raw = gzip.compress(raw, compresslevel=6, mtime=0)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_snapshot(path: Path) -> Snapshot:
    """Return the snapshot in a file.

    Raises
    ------
    SnapshotError
        If the file cannot be read or is no snapshot; the message starts with its name.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        return parse_snapshot(raw)
    except OSError as err:
        raise SnapshotError(f"{path}: {err.strerror or err}") from err
    except SnapshotError as err:
        raise SnapshotError(f"{path}: {err}") from err


def load_run(directory: Path) -> tuple[Snapshot, ...]:
    """Return a recorded run (``*.json`` and ``*.json.gz`` in a folder), ordered by time, then by name.

    Raises
    ------
    SnapshotError
        The folder cannot be read or holds no snapshot, or as :func:`read_snapshot`.
    """
    try:
        paths = sorted(path for path in directory.iterdir() if path.name.endswith((".json", ".json.gz")))
    except OSError as err:
        raise SnapshotError(f"{directory}: {err.strerror or err}") from err
    if not paths:
        raise SnapshotError(f"{directory}: no snapshot (*.json or *.json.gz) in this folder")
    return tuple(sorted((read_snapshot(path) for path in paths), key=lambda snapshot: snapshot.now_s))


def _decompress(raw: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            plain = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as err:
        raise SnapshotError(f"damaged gzip data: {err}") from err
    if len(plain) > MAX_BYTES:
        raise SnapshotError(_too_large("unpacked it is"))
    return plain


def _too_large(what: str) -> str:
    return f"{what} larger than {MAX_BYTES // MIB} MiB, the limit; a cycle with 100,000 pending jobs has about 80 MiB"


def _parse_json(raw: bytes) -> Json:
    try:
        return json.loads(raw, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as err:  # ValueError also covers bad UTF-8 and numbers of many digits
        raise SnapshotError(f"not valid JSON: {err}") from err


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
