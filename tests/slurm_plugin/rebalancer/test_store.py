"""The history database: what goes in comes out, two processes write, failures have one type."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from policies.plan import Finding
from policies.records import JobId
from slurm_plugin.rebalancer.schema import AGE_COLUMNS, DESCRIPTIONS, MIGRATIONS
from slurm_plugin.rebalancer.store import HistoryError, HistoryStore, TouchedJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WRITE_MANY = """
import sys, pathlib
from slurm_plugin.rebalancer.store import HistoryStore
with HistoryStore(pathlib.Path(sys.argv[1]), busy_timeout_s=20) as store:
    for n in range(100):
        store.add_submissions([{"at_s": n, "uid": int(sys.argv[2]), "user": "u", "verdict": "accept"}])
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HistoryStore]:
    with HistoryStore(tmp_path / "history.db") as opened:
        yield opened


def _job(**changes: object) -> dict[str, Any]:
    row: dict[str, Any] = {
        "job_id": "1",
        "submit_s": 100,
        "agent": "risk",
        "source": "tag",
        "flags": "{}",
        "user": "alice",
        "account": "risk",
        "partitions": "gpu",
        "state": "PENDING",
        "site_factor": None,
        "start_s": None,
        "end_s": None,
        "first_seen_s": 101.0,
        "changed_s": 101.0,
    }
    return row | changes


def test_a_job_keeps_its_first_sight_start_and_last_known_factor(store: HistoryStore) -> None:
    store.upsert_jobs([_job(site_factor=39_000)])
    store.upsert_jobs([_job(state="RUNNING", start_s=110, first_seen_s=111.0, changed_s=111.0)])
    store.upsert_jobs([_job(state="GONE", end_s=120.0, changed_s=120.0)])
    (row,) = store.query("SELECT * FROM jobs")
    assert (row["first_seen_s"], row["start_s"], row["end_s"]) == (101.0, 110, 120.0)
    assert (row["state"], row["site_factor"]) == ("GONE", 39_000)


def test_a_job_id_of_another_submit_time_is_another_job(store: HistoryStore) -> None:
    store.upsert_jobs([_job(), _job(submit_s=200)])
    assert len(store.query("SELECT * FROM jobs")) == 2


def test_a_finding_is_kept_once_with_its_first_and_last_time(store: HistoryStore) -> None:
    finding = Finding(kind="tag", subject="1", text="refused")
    store.upsert_findings([finding], at_s=1.0)
    store.upsert_findings([finding], at_s=9.0)
    (row,) = store.query("SELECT first_seen_s, last_seen_s FROM findings")
    assert row == {"first_seen_s": 1.0, "last_seen_s": 9.0}


def test_the_journal_remembers_until_it_forgets(store: HistoryStore) -> None:
    entry = TouchedJob(job_id=JobId("1"), submit_s=100, former=-7, last_written=39_000, at_s=1.0)
    store.touch(TouchedJob, [entry])
    assert store.journal(TouchedJob) == {JobId("1"): entry}
    store.forget(TouchedJob, [JobId("1")])
    assert store.journal(TouchedJob) == {}


def test_the_journal_survives_a_restart(tmp_path: Path) -> None:
    entry = TouchedJob(job_id=JobId("1"), submit_s=100, former=0, last_written=1, at_s=1.0)
    with HistoryStore(tmp_path / "history.db") as first:
        first.touch(TouchedJob, [entry])
    with HistoryStore(tmp_path / "history.db") as second:
        assert second.journal(TouchedJob) == {JobId("1"): entry}


def test_old_rows_are_pruned_and_the_journal_is_not(store: HistoryStore) -> None:
    store.add_submissions([{"at_s": at_s, "uid": 1, "user": "u", "verdict": "accept"} for at_s in (1.0, 99.0)])
    store.upsert_jobs([_job(end_s=1.0), _job(job_id="2")])
    store.touch(TouchedJob, [TouchedJob(job_id=JobId("1"), submit_s=1, former=0, last_written=1, at_s=1.0)])
    assert store.prune(now_s=100.0, retention_s=50.0) == 2
    assert [row["at_s"] for row in store.query("SELECT at_s FROM submissions")] == [99.0]
    assert [row["job_id"] for row in store.query("SELECT job_id FROM jobs")] == ["2"]
    assert len(store.journal(TouchedJob)) == 1


def test_an_unknown_column_is_named(store: HistoryStore) -> None:
    with pytest.raises(HistoryError, match="submissions has no column latency"):
        store.add_submissions([{"at_s": 1.0, "uid": 1, "latency": 3}])


def test_two_processes_write_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    argv = [sys.executable, "-c", WRITE_MANY, str(path)]
    writers = [subprocess.Popen([*argv, uid]) for uid in ("1", "2")]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    with HistoryStore(path) as store:
        rows = store.query("SELECT uid, count(*) AS n FROM submissions GROUP BY uid ORDER BY uid")
    assert rows == [{"uid": 1, "n": 100}, {"uid": 2, "n": 100}]


@pytest.mark.parametrize("is_there", [False, True])
def test_the_files_are_for_owner_and_group_only(tmp_path: Path, *, is_there: bool) -> None:
    path = tmp_path / "history.db"
    if is_there:
        path.touch(mode=0o644)
    with HistoryStore(path) as store:
        store.upsert_jobs([_job()])
        assert {one.name: one.stat().st_mode & 0o777 for one in tmp_path.iterdir()} == {
            "history.db": 0o640,
            "history.db-shm": 0o640,
            "history.db-wal": 0o640,
        }


def test_switching_a_new_database_waits_for_another_that_does(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    blocker = sqlite3.connect(path, check_same_thread=False)
    blocker.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(0.1, blocker.rollback)
    timer.start()
    with HistoryStore(path, busy_timeout_s=10):
        timer.join()
    blocker.close()


def test_a_locked_database_is_a_history_error(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with HistoryStore(path, busy_timeout_s=0.01) as store:
        blocker = sqlite3.connect(path)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(HistoryError, match="locked"):
            store.upsert_jobs([_job()])
        blocker.close()
        store.upsert_jobs([_job()])


def test_a_full_disk_is_a_history_error(store: HistoryStore) -> None:
    store._db.conn.execute("PRAGMA max_page_count = 1")
    with pytest.raises(HistoryError, match="full"):
        store.upsert_jobs([_job(flags="x" * 2_000_000)])


def test_a_damaged_file_is_a_history_error(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(HistoryError, match="not a database"):
        HistoryStore(path)


def test_a_database_of_a_later_release_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    HistoryStore(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(HistoryError, match="this release knows"):
        HistoryStore(path)


def test_every_table_is_described_and_ages_or_is_the_journal(store: HistoryStore) -> None:
    tables = {row["name"] for row in store.query("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == set(DESCRIPTIONS) == set(AGE_COLUMNS) | {"touched_jobs", "touched_qos"}
