"""MariaDB is down for half a minute, and the rebalancer dies meanwhile: claims are served, ordering goes on."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from slurm_plugin.client.qos import RETRY_AFTER_S
from tests.e2e.mini_cluster import MiniCluster, accepts, members, start_qos_helper, start_rebalancer
from tests.e2e.test_bands import RECLAIM_S, fill, preempt_list, tell
from tests.reclaims.queue import QUOTA, qos, rows, running, submit, write_site

if TYPE_CHECKING:
    from collections.abc import Iterator

DOWN_S: Final = 30.0
GAP_S: Final = 5.0 + 5.0
"""Longest time between two good cycles: one wait for slurmdbd (``database_timeout_s``), and a busy machine."""

STEERS_S: Final = RETRY_AFTER_S + 15.0
"""slurmdbd is asked again after its pause; then a cycle and the helper's command."""


@pytest.fixture(scope="module")
def banded() -> Iterator[MiniCluster]:
    """Yield a cluster of its own after ``fairgpu apply``."""
    name = f"e2e{os.getpid()}-s"
    try:
        cluster = MiniCluster.up(name, "--hook")
        write_site(cluster)
        yield cluster
    finally:
        MiniCluster(name).down()


def kill_mariadb(cluster: MiniCluster) -> None:
    for pid in members(cluster.root):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "mariadbd":
                os.kill(pid, signal.SIGKILL)


def start_mariadb(cluster: MiniCluster) -> None:
    options = f"--defaults-file={cluster.root}/etc/my.cnf"
    cluster.run("root", "setsid", "--fork", "mariadbd", options, "--user=mysql")
    cluster.wait(lambda: accepts(cluster.root / "run/mariadb/mariadb.sock"), 30, "MariaDB listens")


def history(cluster: MiniCluster, sql: str, *values: object) -> list[dict[str, Any]]:
    with contextlib.closing(sqlite3.connect(cluster.root / "var/fairgpu/history.db", timeout=10)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(sql, values)]


def longest_gap_s(cluster: MiniCluster, since_s: float) -> float:
    sql = "SELECT at_s FROM cycles WHERE outcome = 'ok' AND at_s >= ? ORDER BY at_s"
    times: list[float] = [since_s, *(row["at_s"] for row in history(cluster, sql, since_s)), time.time()]
    return max(later - earlier for earlier, later in itertools.pairwise(times))


def test_with_mariadb_down_loans_come_back_and_ordering_goes_on(banded: MiniCluster) -> None:
    with contextlib.ExitStack() as stack:
        stack.callback(banded.clear_jobs)
        stack.callback(start_qos_helper(banded).ensure_ended)
        rebalancer = start_rebalancer(banded)
        fill(banded, "risk")
        loans = {qos(banded, "risk", "_borrow"), qos(banded, "risk", "_opp")}
        banded.wait(lambda: loans <= set(preempt_list(banded, "rec")), 15, "risk's loans may be claimed")
        time.sleep(3)  # a cycle that saw the loans run is kept
        kill_mariadb(banded)
        down_s = time.monotonic()
        rebalancer.kill()
        submit(banded, "rec", QUOTA["rec"])
        banded.wait(lambda: running(banded)[qos(banded, "rec")] == QUOTA["rec"], 60, "the lender has its quota")
        tell(f"\nwith MariaDB and rebalancer dead rec had its GPUs after {time.monotonic() - down_s:.1f} s")
        assert time.monotonic() - down_s <= RECLAIM_S
        victims = {row.job_id for row in rows(banded) if row.restarts}
        restarted_s = time.time()
        stack.callback(start_rebalancer(banded).ensure_ended)
        told = {row["job_id"] for row in history(banded, "SELECT job_id FROM reclaims")}
        assert victims <= told  # they were taken back while no rebalancer lived
        (late,) = submit(banded, "rec", 1)
        banded.wait(lambda: banded.sprio().get(late, 0) > 0, 2 * GAP_S, "a new job gets its factor")
        time.sleep(max(0.0, DOWN_S - (time.monotonic() - down_s)))
        gap_s = longest_gap_s(banded, restarted_s)
        tell(f"\nlongest time without a good cycle {gap_s:.1f} s (bound {GAP_S} s)")
        assert gap_s <= GAP_S
        start_mariadb(banded)
        # Without loans risk leaves vision's list; only a helper that reaches slurmdbd can write that.
        banded.run("root", "scancel", "--user=alice")
        assert loans <= set(preempt_list(banded, "vision"))
        banded.wait(lambda: loans.isdisjoint(preempt_list(banded, "vision")), STEERS_S, "lists are steered again")
