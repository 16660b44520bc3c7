"""Writes the decisions to the history in a thread of its own, so that no answer waits for a disk."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from policies.site_policy import Mode
from slurm_plugin.errors import FairGpuError
from slurm_plugin.hook.outcome import printable
from slurm_plugin.hook.wire import OP_MODIFY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policies.submission.tags import Tags
    from slurm_plugin.hook.service import SubmissionRecord
    from slurm_plugin.hook.stats import HookStats

MAX_WAITING: Final = 100_000
"""Records that wait for the disk; further ones are dropped and counted."""

BATCH: Final = 200
FLUSH_INTERVAL_S: Final = 0.5
MAX_TEXT: Final = 256

_log = logging.getLogger(__name__)


class SubmissionSink(Protocol):
    """Where the rows go: the history store."""

    def add_submissions(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows."""

    def close(self) -> None:
        """Release the store."""


class Recorder:
    """A bounded queue and the thread that empties it.

    Parameters
    ----------
    open_sink : callable
        Opens the store; called in the writing thread, again after a failure.
    """

    def __init__(self, open_sink: Callable[[], SubmissionSink], stats: HookStats) -> None:
        self._open_sink = open_sink
        self._stats = stats
        self._waiting: deque[SubmissionRecord] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._sink: SubmissionSink | None = None
        self._is_failing = False

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def add(self, record: SubmissionRecord) -> None:
        """Queue one record; never blocks, wakes nobody (the thread looks twice a second)."""
        if len(self._waiting) >= MAX_WAITING:
            self._stats.count("history_dropped")
        else:
            self._waiting.append(record)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Write what waits and end the thread; what cannot be written in time is counted as dropped."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if self._waiting:
            _log.error("event=history_lost rows=%d", len(self._waiting))
            self._stats.counts["history_dropped"] += len(self._waiting)

    def _run(self) -> None:
        while not self._stop.wait(FLUSH_INTERVAL_S):
            self._flush()
        self._flush()
        if self._sink is not None:
            self._sink.close()

    def _flush(self) -> None:
        while self._waiting:
            batch = [self._waiting[n] for n in range(min(BATCH, len(self._waiting)))]
            try:
                if self._sink is None:
                    self._sink = self._open_sink()
                self._sink.add_submissions([submission_row(record) for record in batch])
            except (FairGpuError, OSError) as err:
                self._note_failure(err)
                return
            self._is_failing = False
            for _ in batch:
                self._waiting.popleft()

    def _note_failure(self, err: Exception) -> None:
        # The rows stay queued and are tried again; one line per outage.
        if not self._is_failing:
            _log.error("event=history_failed error=%s", err)
        self._is_failing = True


def submission_row(record: SubmissionRecord) -> dict[str, Any]:
    """Row of the history's ``submissions`` table for one decision.

    The message starts with what makes the row differ from an effective submission: the mode, a modification.
    """
    request, decision = record.request, record.decision
    notes = [] if record.mode is Mode.ENFORCE else [f"[{record.mode}]"]
    if record.op == OP_MODIFY:
        notes.append("[modify]")
    return {
        "at_s": record.at_s,
        "uid": record.uid,
        "user": request.identity.user or "",
        "account": printable(request.account[:MAX_TEXT]),
        "partitions": printable(",".join(request.partitions)[:MAX_TEXT]),
        "verdict": decision.verdict.value,
        "agent": decision.agent,
        "source": decision.source.value,
        "flags": flags_json(decision.tags),
        "site_factor": record.site_factor,
        "message": printable(" ".join([*notes, decision.message or decision.reason])),
    }


def flags_json(tags: Tags) -> str:
    """Tags that were set, as canonical JSON: ``{"agent":"risk","stage":"preprocess"}``."""
    names = ("agent", "stage", "model", "precision", "sla_s", "deadline_s", "checkpoint", "needs")
    values = {name: value for name in names if (value := getattr(tags, name)) not in (None, ())}
    return json.dumps(values, sort_keys=True, separators=(",", ":"))
