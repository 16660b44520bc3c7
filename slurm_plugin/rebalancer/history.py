"""The history as the daemon uses it: what cannot be written is counted and logged, never a reason to stop.

The undo journals (of site factors and of QOSes) are also kept in memory, so that a locked or full disk does not make
us forget a former value while we run; what the disk missed is written as soon as it can be.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from slurm_plugin.rebalancer.store import HistoryError, HistoryStore, TouchedJob, TouchedQos
from slurm_plugin.rebalancer.undo_journal import UndoJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from policies.plan import Finding
    from policies.records import JobId, JobRecord

FILE_NAME: Final = "history.db"
PRUNE_EVERY_S: Final = 3_600.0
RETRY_AFTER_S: Final = 3.0
"""Pause after a failure: a locked database costs a cycle one wait, not one per operation."""

SUBMISSION_SLACK_S: Final = 5
"""Seconds between the hook's answer and the submit time that Slurm gives the job, at most."""

_log = logging.getLogger(__name__)


class History:
    """The daemon's history.

    Parameters
    ----------
    path : Path
        The database; opened at the first use and again after each failure.
    on_error : callable
        Called once per failed operation.
    clock : callable
        Seconds; for the pause after a failure.

    Attributes
    ----------
    factors, moves : UndoJournal
        What each job had before our first write: its site factor, its QOS.
    """

    def __init__(
        self,
        path: Path,
        *,
        on_error: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._clock = clock
        self._retry_at_s = float("-inf")
        self._on_error = on_error
        self._store: HistoryStore | None = None
        self._is_failing = False
        self.factors = UndoJournal(TouchedJob, self._attempt)
        self.moves = UndoJournal(TouchedQos, self._attempt)
        self._pruned_s = 0.0

    def known_factors(self, jobs: Sequence[JobRecord]) -> dict[JobId, int]:
        """Return the last factor of ours that jobs are known to have: as seen before, else as the hook set it."""
        found: dict[JobId, int] = {}
        self._attempt(lambda store: found.update(_find_factors(store, jobs)))
        return found

    def add_cycle(self, row: Mapping[str, Any]) -> None:
        """Append a cycle."""
        self._attempt(lambda store: store.add_cycle(row))

    def add_decisions(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append decisions."""
        self._attempt(lambda store: store.add_decisions(rows))

    def add_band_decisions(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append decisions about bands."""
        self._attempt(lambda store: store.add_band_decisions(rows))

    def add_reclaims(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append reclaims."""
        self._attempt(lambda store: store.add_reclaims(rows))

    def upsert_jobs(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Insert or update jobs; return whether it worked."""
        return self._attempt(lambda store: store.upsert_jobs(rows))

    def upsert_findings(self, findings: Sequence[Finding], *, at_s: float) -> None:
        """Insert or update findings."""
        self._attempt(lambda store: store.upsert_findings(findings, at_s=at_s))

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return the rows of a SELECT, none if the database cannot be read."""
        rows: list[dict[str, Any]] = []
        self._attempt(lambda store: rows.extend(store.query(sql, parameters)))
        return rows

    def tidy(self, *, now_s: float) -> None:
        """Write what the disk missed; delete what is past the retention, at most once an hour."""
        self.factors.save()
        self.moves.save()
        if now_s - self._pruned_s >= PRUNE_EVERY_S:
            self._pruned_s = now_s
            self._attempt(lambda store: store.prune(now_s=now_s))

    def close(self) -> None:
        """Close the database."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _attempt(self, action: Callable[[HistoryStore], object]) -> bool:
        if 0 < self._retry_at_s - self._clock() <= RETRY_AFTER_S:  # more: the clock was set back
            self._on_error()
            return False
        try:
            if self._store is None:
                self._store = HistoryStore(self._path)
            action(self._store)
        except (HistoryError, OSError) as err:
            self._on_error()
            if not self._is_failing:  # one line per outage
                _log.error("event=history_failed error=%r", str(err))
            self._is_failing = True
            self._retry_at_s = self._clock() + RETRY_AFTER_S
            self.close()
            return False
        self._is_failing = False
        return True


def _find_factors(store: HistoryStore, jobs: Sequence[JobRecord]) -> dict[JobId, int]:
    if not jobs:
        return {}
    first_s = min(job.submit_s for job in jobs) - SUBMISSION_SLACK_S
    # A job that left the agents' partitions or accounts has ended for the table; it is asked for by its id.
    rows = store.query(
        "SELECT job_id, submit_s, site_factor FROM jobs WHERE site_factor IS NOT NULL "
        "AND job_id IN (SELECT value FROM json_each(?)) ORDER BY submit_s",
        (json.dumps([job.job_id for job in jobs]),),
    )
    seen = {row["job_id"]: (row["submit_s"], row["site_factor"]) for row in rows}
    # A message in brackets marks a modification or a mode that sets nothing (the hook's recorder).
    answers: dict[int, list[tuple[float, int]]] = {}
    for row in store.query(
        "SELECT uid, at_s, site_factor FROM submissions WHERE at_s >= ? AND site_factor IS NOT NULL "
        "AND verdict = 'accept' AND message NOT LIKE '[%'",
        (first_s,),
    ):
        answers.setdefault(row["uid"], []).append((row["at_s"], row["site_factor"]))
    found: dict[JobId, int] = {}
    for job in jobs:
        submit_s, factor = seen.get(job.job_id, (None, 0))
        if submit_s is not None and (submit_s == job.submit_s or job.restarts > 0):
            found[job.job_id] = factor
        elif (answered := _answer_near(answers.get(job.uid, ()), job)) is not None:
            found[job.job_id] = answered
    return found


def _answer_near(answers: Iterable[tuple[float, int]], job: JobRecord) -> int | None:
    near = [factor for at_s, factor in answers if abs(at_s - job.submit_s) <= SUBMISSION_SLACK_S]
    if job.site_factor in near:
        return job.site_factor
    return near[0] if near else None
