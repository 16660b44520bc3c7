from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from policies.site_policy import Mode
from policies.submission.decision import (
    AgentSource,
    Identity,
    SubmissionDecision,
    SubmissionRequest,
    Verdict,
)
from policies.submission.tags import NO_TAGS
from slurm_plugin.hook import recorder as recorder_module
from slurm_plugin.hook.recorder import Recorder, submission_row
from slurm_plugin.hook.service import SubmissionRecord
from slurm_plugin.hook.stats import HookStats
from slurm_plugin.rebalancer.store import HistoryError, HistoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pytest


def record(uid: int = 1) -> SubmissionRecord:
    request = SubmissionRequest(
        identity=Identity(user="alice", groups=None), account="rec", partitions=("gpu",), text=""
    )
    decision = SubmissionDecision(
        verdict=Verdict.UNMANAGED, agent=None, source=AgentSource.NONE, tags=NO_TAGS, message="", reason="r"
    )
    return SubmissionRecord(
        at_s=5.0, uid=uid, op="S", mode=Mode.ENFORCE, request=request, decision=decision, site_factor=None
    )


class FailingOnce:
    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []
        self.n_calls = 0

    def add_submissions(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.n_calls += 1
        if self.n_calls == 1:
            raise HistoryError("locked")
        self.rows += rows

    def close(self) -> None:
        self.rows.append({"closed": True})


def test_records_reach_the_history(tmp_path: Path) -> None:
    recorder = Recorder(lambda: HistoryStore(tmp_path / "history.db"), HookStats())
    for uid in range(450):  # more than two batches
        recorder.add(record(uid))
    recorder.start()
    recorder.stop()
    with HistoryStore(tmp_path / "history.db") as store:
        rows = store.query("SELECT uid, verdict, message FROM submissions ORDER BY uid")
    assert [row["uid"] for row in rows] == list(range(450))
    assert (rows[0]["verdict"], rows[0]["message"]) == ("unmanaged", "r")


def test_a_failed_write_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    sink = FailingOnce()
    recorder = Recorder(lambda: sink, HookStats())
    recorder.add(record())
    with caplog.at_level(logging.ERROR):
        recorder._flush()
        recorder._flush()
    assert sink.rows == [submission_row(record())]
    assert caplog.text.count("history_failed") == 1


def test_what_cannot_be_kept_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MAX_WAITING", 2)
    stats = HookStats()
    recorder = Recorder(FailingOnce, stats)
    for _ in range(3):
        recorder.add(record())
    assert stats.counts["history_dropped"] == 1
    recorder.stop()  # never started: the two that wait are lost, and counted
    assert stats.counts["history_dropped"] == 3
