"""The history database's tables, as numbered migrations (``docs/reference/history.md`` is made from them)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Final

MIGRATIONS: Final[tuple[str, ...]] = (
    """
    CREATE TABLE cycles (
        cycle_id TEXT PRIMARY KEY,
        at_s REAL NOT NULL,
        outcome TEXT NOT NULL,
        mode TEXT NOT NULL,
        duration_s REAL NOT NULL,
        n_jobs INTEGER NOT NULL,
        n_decisions INTEGER NOT NULL,
        n_written INTEGER NOT NULL,
        n_deferred INTEGER NOT NULL,
        n_failed INTEGER NOT NULL,
        plan_digest TEXT NOT NULL,
        text TEXT NOT NULL
    );
    CREATE INDEX cycles_at ON cycles (at_s);
    CREATE TABLE decisions (
        cycle_id TEXT NOT NULL,
        at_s REAL NOT NULL,
        job_id TEXT NOT NULL,
        agent TEXT NOT NULL,
        kind TEXT NOT NULL,
        reason TEXT NOT NULL,
        tag TEXT,
        old INTEGER,
        new INTEGER NOT NULL,
        is_adoption INTEGER NOT NULL,
        outcome TEXT NOT NULL,
        text TEXT NOT NULL
    );
    CREATE INDEX decisions_job ON decisions (job_id, at_s);
    CREATE INDEX decisions_at ON decisions (at_s);
    CREATE TABLE jobs (
        job_id TEXT NOT NULL,
        submit_s INTEGER NOT NULL,
        agent TEXT,
        source TEXT NOT NULL,
        flags TEXT NOT NULL,
        user TEXT NOT NULL,
        account TEXT NOT NULL,
        partitions TEXT NOT NULL,
        state TEXT NOT NULL,
        site_factor INTEGER,
        start_s INTEGER,
        end_s REAL,
        first_seen_s REAL NOT NULL,
        changed_s REAL NOT NULL,
        PRIMARY KEY (job_id, submit_s)
    );
    CREATE INDEX jobs_end ON jobs (end_s);
    CREATE TABLE submissions (
        at_s REAL NOT NULL,
        uid INTEGER NOT NULL,
        user TEXT NOT NULL DEFAULT '',
        account TEXT NOT NULL DEFAULT '',
        partitions TEXT NOT NULL DEFAULT '',
        verdict TEXT NOT NULL DEFAULT '',
        agent TEXT,
        source TEXT NOT NULL DEFAULT '',
        flags TEXT NOT NULL DEFAULT '',
        site_factor INTEGER,
        message TEXT NOT NULL DEFAULT ''
    );
    CREATE INDEX submissions_at ON submissions (at_s);
    CREATE TABLE touched_jobs (
        job_id TEXT PRIMARY KEY,
        submit_s INTEGER NOT NULL,
        former INTEGER NOT NULL,
        last_written INTEGER NOT NULL,
        at_s REAL NOT NULL
    );
    CREATE TABLE findings (
        kind TEXT NOT NULL,
        subject TEXT NOT NULL,
        text TEXT NOT NULL,
        first_seen_s REAL NOT NULL,
        last_seen_s REAL NOT NULL,
        PRIMARY KEY (kind, subject, text)
    );
    CREATE INDEX findings_seen ON findings (last_seen_s);
    """,
    """
    CREATE TABLE band_decisions (
        cycle_id TEXT NOT NULL,
        at_s REAL NOT NULL,
        kind TEXT NOT NULL,
        job_id TEXT,
        qos TEXT,
        agent TEXT NOT NULL,
        old TEXT,
        new TEXT NOT NULL,
        reason TEXT NOT NULL,
        outcome TEXT NOT NULL,
        text TEXT NOT NULL
    );
    CREATE INDEX band_decisions_job ON band_decisions (job_id, at_s);
    CREATE INDEX band_decisions_at ON band_decisions (at_s);
    CREATE TABLE reclaims (
        at_s REAL NOT NULL,
        job_id TEXT NOT NULL,
        restarts INTEGER NOT NULL,
        agent TEXT NOT NULL,
        user TEXT NOT NULL,
        qos TEXT NOT NULL,
        band TEXT NOT NULL,
        ran_s REAL NOT NULL,
        nodes TEXT NOT NULL,
        tres TEXT NOT NULL,
        claimant TEXT,
        claimant_job TEXT,
        reason TEXT NOT NULL,
        PRIMARY KEY (job_id, restarts, at_s)
    );
    CREATE INDEX reclaims_at ON reclaims (at_s);
    CREATE TABLE touched_qos (
        job_id TEXT PRIMARY KEY,
        submit_s INTEGER NOT NULL,
        former TEXT NOT NULL,
        last_written TEXT NOT NULL,
        at_s REAL NOT NULL
    );
    """,
    """
    ALTER TABLE reclaims ADD COLUMN n_gpus INTEGER;
    ALTER TABLE reclaims ADD COLUMN n_claimed_gpus INTEGER;
    """,
)
"""Migration ``n`` (from 0) brings a database from version ``n`` (``PRAGMA user_version``) to ``n + 1``."""

AGE_COLUMNS: Final[dict[str, str]] = {
    "cycles": "at_s",
    "decisions": "at_s",
    "jobs": "end_s",
    "submissions": "at_s",
    "findings": "last_seen_s",
    "band_decisions": "at_s",
    "reclaims": "at_s",
}
"""Table -> the column that retention looks at. The journals are not here: their rows go with their jobs."""

DESCRIPTIONS: Final[dict[str, str]] = {
    "cycles": "One row per cycle: how it ended, how long it took, the digest of its plan.",
    "decisions": "What was decided about a job's site factor, why, and what became of it. A decision that repeats the "
    "job's last one with the same outcome is not written again.",
    "jobs": "Managed jobs as the rebalancer saw them, one row per job id and submit time. `flags` is a JSON "
    "object of the tags in the comment; `site_factor` is the last value that Slurm showed or that we wrote; "
    "`changed_s` is when the row last changed; `end_s` is when the job was first missing.",
    "submissions": "What the hook server answered, one row per submission; the job has no id yet then.",
    "touched_jobs": "The journal of the undo: the site factor that a job had before the first write "
    "(`former`) and the last one written. A row goes when its job is gone or restored.",
    "findings": "What an operator should see, once per text, with the first and last time.",
    "band_decisions": "What was decided about the bands: a pending job moved to another QOS (`SetQos`), the delay of "
    "a requeued job lifted (`StartNow`), a borrow QOS ranked (`SetBorrowRank`), a Preempt list written "
    "(`SetPreemptList`). `job_id` is set for the first two, `qos` for the others. Repetitions are left out as above.",
    "reclaims": "Jobs taken back: seen as one restart more of a job that ran in a borrow or opportunistic QOS, on "
    "nodes that are still up. `claimant` and `claimant_job` are who has or waits for the place, as far as it was seen; "
    "`ran_s` is how long the job had run; `n_gpus` is what it held, `n_claimed_gpus` what `claimant_job` asks for.",
    "touched_qos": "The journal of the undo for QOSes: where a pending job waited before our first move (`former`) "
    "and the last QOS written.",
}


def history_page() -> str:
    """Return ``docs/reference/history.md``."""
    lines = [
        "# History",
        "",
        "The rebalancer and the hook server keep a history in `history.db` in the state directory, an SQLite file",
        "in write-ahead mode (not on NFS), readable by its owner and group. Read it with any SQLite tool, for example",
        "`sqlite-utils query history.db 'select * from decisions order by at_s desc limit 20'`. Rows older than",
        "30 days are deleted. A full disk or a locked file never stops a cycle: what could not be written is",
        "counted in the metric `fairgpu_history_errors_total` and logged once per outage. Times are seconds since",
        "the epoch. This page is made from the code; a test compares.",
    ]
    for table, columns in _columns().items():
        lines += ["", f"## {table}", "", DESCRIPTIONS[table], "", "| column | type | may be empty |", "|---|---|---|"]
        lines += [f"| `{name}` | {kind} | {'yes' if is_nullable else ''} |" for name, kind, is_nullable in columns]
    return "\n".join(lines) + "\n"


def _columns() -> dict[str, list[tuple[str, str, bool]]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in MIGRATIONS:
            connection.executescript(migration)
        return {
            table: [
                (name, kind, not (is_required or key))
                for _, name, kind, is_required, _, key in connection.execute(f"PRAGMA table_info({table})")
            ]
            for table in DESCRIPTIONS
        }
