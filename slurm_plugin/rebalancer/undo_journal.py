"""An undo journal in memory and on disk: a line per job that we changed, with the value before our first write."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Generic

from slurm_plugin.rebalancer.store import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from policies.records import JobId
    from slurm_plugin.rebalancer.store import HistoryStore


class UndoJournal(Generic[Line]):
    """The journal of one kind of value.

    Parameters
    ----------
    kind : type
        Class of its lines.
    attempt : callable
        Runs an action on the open database; returns whether it worked.
    """

    def __init__(self, kind: type[Line], attempt: Callable[[Callable[[HistoryStore], object]], bool]) -> None:
        self._kind: type[Line] = kind
        self._attempt = attempt
        self._lines: dict[JobId, Line] = {}
        self._is_loaded = False
        self._unwritten: dict[JobId, Line | None] = {}

    @property
    def lines(self) -> Mapping[JobId, Line]:
        """Lines by job id, as far as the database could be read."""
        if not self._is_loaded:
            self._is_loaded = self._attempt(self._load)
        return self._lines

    def touch(self, lines: Sequence[Line]) -> bool:
        """Note lines; return whether they are on disk."""
        return self._change({line.job_id: line for line in lines})

    def forget(self, job_ids: Iterable[JobId]) -> bool:
        """Drop lines; return whether the disk knows."""
        return self._change(dict.fromkeys(job_ids))

    def save(self) -> bool:
        """Write what the disk missed."""
        return self._change({})

    def _load(self, store: HistoryStore) -> None:
        # What this process noted meanwhile knows the last write; the line on disk knows the former value.
        for job_id, known in store.journal(self._kind).items():
            newer = self._lines.get(job_id)
            if newer is None or newer.submit_s != known.submit_s:
                self._lines[job_id] = newer or known
            else:
                self._lines[job_id] = replace(newer, former=known.former)

    def _change(self, changes: Mapping[JobId, Line | None]) -> bool:
        for job_id, line in changes.items():
            if line is None:
                self._lines.pop(job_id, None)
            else:
                self._lines[job_id] = line
        self._unwritten |= changes
        if self._unwritten and self._attempt(self._write):
            self._unwritten.clear()
        return not self._unwritten

    def _write(self, store: HistoryStore) -> None:
        store.touch(self._kind, [line for line in self._unwritten.values() if line is not None])
        store.forget(self._kind, [job_id for job_id, line in self._unwritten.items() if line is None])
