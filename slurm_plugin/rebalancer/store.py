"""The history: an SQLite file that the rebalancer and the hook server write and everybody else reads.

Write-ahead logging and a short busy timeout let both write. Every failure of the database comes out as
:class:`HistoryError`, so that the caller can count it and go on: history never stops a cycle.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from sqlite_utils import Database

from policies.records import JobId
from slurm_plugin.errors import FairGpuError
from slurm_plugin.rebalancer.schema import AGE_COLUMNS, MIGRATIONS

if TYPE_CHECKING:
    from pathlib import Path

    from policies.plan import Finding

BUSY_TIMEOUT_S: Final = 1.0
RETENTION_S: Final = 30 * 86_400.0
_MODE: Final = 0o640
_PAUSE_S: Final = 0.02
PRUNE_BATCH: Final = 5_000
"""Rows per table and call, so that pruning never holds the database for long."""

Row = Mapping[str, Any]
"""One row at the database's border, column name to value."""


class HistoryError(FairGpuError):
    """The history database cannot be read or written (locked, full, damaged, newer than this release)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedJob:
    """One line of the undo journal.

    Attributes
    ----------
    former : int
        The site factor before our first write.
    last_written : int
        What we last asked Slurm for (it may not have arrived).
    """

    job_id: JobId
    submit_s: int
    former: int
    last_written: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedQos:
    """One line of the undo journal of QOSes; as :class:`TouchedJob` with names of QOSes."""

    job_id: JobId
    submit_s: int
    former: str
    last_written: str
    at_s: float


Line = TypeVar("Line", TouchedJob, TouchedQos)
_JOURNALS: Final[dict[type, str]] = {TouchedJob: "touched_jobs", TouchedQos: "touched_qos"}


class HistoryStore:
    """An open history database; use it from one thread. Every method may raise :class:`HistoryError`.

    Raises
    ------
    PermissionError
        This user may not read it. It is for its owner and group: it tells what everybody's jobs do, and whoever
        can read a database can lock it.

    Parameters
    ----------
    path : Path
        Created with its tables if absent.
    busy_timeout_s : float
        How long a write waits for another process, seconds.
    """

    def __init__(self, path: Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        with _history_errors(path):
            _create_private(path)
            _migrate(path, busy_timeout_s)
            connection = sqlite3.connect(path, timeout=busy_timeout_s)
            connection.execute("PRAGMA synchronous=FULL")
            self._db = Database(connection, execute_plugins=False)
        self._path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._db.conn.close()

    def add_cycle(self, row: Row) -> None:
        """Append one cycle; a cycle id that exists is replaced."""
        self._write_many("cycles", (row,), "OR REPLACE")

    def add_decisions(self, rows: Sequence[Row]) -> None:
        """Append decisions with their outcomes."""
        self._write_many("decisions", rows)

    def add_submissions(self, rows: Sequence[Row]) -> None:
        """Append what the hook server answered; keys are columns of ``submissions``, text may be absent."""
        self._write_many("submissions", rows)

    def upsert_jobs(self, rows: Sequence[Row]) -> None:
        """Insert or update jobs by id and submit time; ``first_seen_s`` and a known ``start_s`` stay."""
        self._write_many(
            "jobs",
            rows,
            suffix="""ON CONFLICT (job_id, submit_s) DO UPDATE SET agent = excluded.agent,
                source = excluded.source, flags = excluded.flags, state = excluded.state,
                partitions = excluded.partitions, end_s = excluded.end_s,
                site_factor = coalesce(excluded.site_factor, site_factor),
                start_s = coalesce(excluded.start_s, start_s), changed_s = excluded.changed_s""",
        )

    def upsert_findings(self, findings: Iterable[Finding], *, at_s: float) -> None:
        """Insert findings or move their last time to ``at_s``."""
        rows = [
            {"kind": f.kind, "subject": f.subject, "text": f.text, "first_seen_s": at_s, "last_seen_s": at_s}
            for f in findings
        ]
        suffix = "ON CONFLICT (kind, subject, text) DO UPDATE SET last_seen_s = excluded.last_seen_s"
        self._write_many("findings", rows, suffix=suffix)

    def add_band_decisions(self, rows: Sequence[Row]) -> None:
        """Append decisions about bands with their outcomes."""
        self._write_many("band_decisions", rows)

    def add_reclaims(self, rows: Sequence[Row]) -> None:
        """Append reclaims; one that is known is replaced."""
        self._write_many("reclaims", rows, "OR REPLACE")

    def journal(self, kind: type[Line]) -> dict[JobId, Line]:
        """Return the undo journal of one kind by job id."""
        rows = self.query(f"SELECT * FROM {_JOURNALS[kind]} ORDER BY job_id")  # noqa: S608 - a table of ours
        return {JobId(row["job_id"]): kind(**row) for row in rows}

    def touch(self, kind: type[Line], lines: Sequence[Line]) -> None:
        """Insert or replace journal lines; on return they are on disk."""
        rows = [{name: getattr(line, name) for name in kind.__slots__} for line in lines]
        self._write_many(_JOURNALS[kind], rows, "OR REPLACE")

    def forget(self, kind: type[Line], job_ids: Iterable[JobId]) -> None:
        """Delete journal lines."""
        sql = f"DELETE FROM {_JOURNALS[kind]} WHERE job_id = ?"  # noqa: S608 - a table of ours
        with _history_errors(self._path), self._db.conn as connection:
            connection.executemany(sql, [(job,) for job in job_ids])

    def prune(self, *, now_s: float, retention_s: float = RETENTION_S) -> int:
        """Delete up to ``PRUNE_BATCH`` rows per table older than the retention; return how many went."""
        total = 0
        for table, column in AGE_COLUMNS.items():
            with _history_errors(self._path), self._db.conn as connection:
                cursor = connection.execute(
                    f"DELETE FROM {table} WHERE rowid IN "  # noqa: S608 - names from our own table, no input
                    f"(SELECT rowid FROM {table} WHERE {column} < ? LIMIT ?)",
                    (now_s - retention_s, PRUNE_BATCH),
                )
                total += cursor.rowcount
        return total

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return the rows of a SELECT as dictionaries."""
        with _history_errors(self._path):
            return list(self._db.query(sql, parameters))

    def _write_many(self, table: str, rows: Sequence[Row], verb: str = "", *, suffix: str = "") -> None:
        if not rows:
            return
        columns = tuple(rows[0])
        sql = (
            f"INSERT {verb} INTO {table} ({', '.join(columns)}) "  # noqa: S608 - checked below, values are bound
            f"VALUES ({', '.join(f':{column}' for column in columns)}) {suffix}"
        )
        with _history_errors(self._path):
            known = {column.name for column in self._db[table].columns}
            if not known.issuperset(columns):
                raise HistoryError(f"{table} has no column {', '.join(sorted(set(columns) - known))}")
            with self._db.conn as connection:
                connection.executemany(sql, [dict(row) for row in rows])


def _create_private(path: Path) -> None:
    """Create the file before SQLite does, which gives its own two files beside it the same mode."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and status.st_mode & stat.S_IRWXO:
            os.fchmod(descriptor, _MODE)
    finally:
        os.close(descriptor)


def _migrate(path: Path, busy_timeout_s: float) -> None:
    with closing(sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == len(MIGRATIONS):
            return
        _switch_to_wal(connection, until_s=time.monotonic() + busy_timeout_s)
        connection.execute("BEGIN IMMEDIATE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise HistoryError(f"{path} is of version {version}, this release knows {len(MIGRATIONS)}")
        for migration in MIGRATIONS[version:]:
            for statement in migration.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")


def _switch_to_wal(connection: sqlite3.Connection, *, until_s: float) -> None:
    # SQLite does not wait here itself when another process switches at the same time.
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as err:
            if "locked" not in str(err) or time.monotonic() > until_s:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


@contextmanager
def _history_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as err:
        raise HistoryError(f"history {path}: {err}") from err
