"""The wall clock is set forward or back by an hour between two cycles: nothing stops for that hour."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from policies.records import JobId
from slurm_plugin.client.qos import ASSOC_MGR, RETRY_AFTER_S, QosReader
from slurm_plugin.errors import SlurmError
from slurm_plugin.rebalancer.daemon import recent_memory
from slurm_plugin.rebalancer.enact import is_young
from slurm_plugin.rebalancer.history import History
from slurm_plugin.rebalancer.journal import Absences
from slurm_plugin.rebalancer.pauses import PAUSE_S, Pauses, move_key
from slurm_plugin.rebalancer.rate_limit import TokenBucket
from slurm_plugin.rebalancer.snapshot_ring import KEEP, last_snapshot, snapshot_paths
from tests.slurm_plugin.rebalancer.band_world import REC, BandWorld
from tests.slurm_plugin.rebalancer.world import START_S, World, make_job

if TYPE_CHECKING:
    from pathlib import Path

    from policies.records import JobRecord

HOUR_S = 3600.0
BOTH_WAYS = pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])


def old_job(number: int, **changes: Any) -> JobRecord:
    """Job that was eligible before each jump; Slurm itself lets one wait that is eligible in the future."""
    long_ago = int(START_S - 3 * HOUR_S)
    return make_job(number, submit_s=long_ago, eligible_s=long_ago, **changes)


@BOTH_WAYS
def test_updates_go_on_at_their_rate(tmp_path: Path, jump_s: float) -> None:
    world = World(tmp_path, *(old_job(number) for number in range(1, 31)), rate=1)
    world.cycle()
    world.cycle(jump_s)
    for _ in range(6):
        world.cycle()
    assert all(world.factor(number) for number in range(1, 31))


def test_a_bucket_fills_again_from_where_the_clock_was_set_back_to() -> None:
    _, bucket = TokenBucket.full(rate_per_s=1, interval_s=5, now_s=HOUR_S).take(5, now_s=HOUR_S)
    granted, bucket = bucket.take(5, now_s=0.0)
    assert granted == 0
    assert bucket.take(5, now_s=3.0)[0] == 3


@BOTH_WAYS
def test_a_pause_lasts_no_longer_than_a_minute(jump_s: float) -> None:
    pauses = Pauses()
    pauses.note_refused(move_key(JobId("1")), now_s=START_S)
    pauses.rest_helper(now_s=START_S)
    pauses.refresh((), {}, now_s=START_S + PAUSE_S / 4)
    assert move_key(JobId("1")) in pauses
    assert pauses.is_helper_resting(now_s=START_S + PAUSE_S / 4)
    pauses.refresh((), {}, now_s=START_S + jump_s)
    assert move_key(JobId("1")) not in pauses
    assert not pauses.is_helper_resting(now_s=START_S + jump_s)


@pytest.mark.parametrize(("age_s", "want"), [(0, True), (4, True), (5, False), (-4, True), (-HOUR_S, False)])
def test_a_job_from_the_future_is_not_young(age_s: float, *, want: bool) -> None:
    assert is_young(make_job(1, submit_s=int(START_S - age_s)), now_s=START_S, min_age_s=5) is want


@BOTH_WAYS
def test_the_history_is_tried_again(tmp_path: Path, jump_s: float) -> None:
    now_s = [START_S]
    history = History(tmp_path / "missing" / "history.db", clock=lambda: now_s[0])
    assert history.query("SELECT 1") == []
    (tmp_path / "missing").mkdir()
    assert history.query("SELECT 1") == []
    now_s[0] += jump_s
    assert history.query("SELECT 1 AS n") == [{"n": 1}]
    history.close()


@BOTH_WAYS
def test_slurmdbd_is_asked_again(jump_s: float) -> None:
    now_s, asked = [START_S], []

    def ask(argv: tuple[str, ...]) -> str:
        if argv == ASSOC_MGR:
            return ""
        asked.append(argv)
        raise SlurmError("slurmdbd is away")

    reader = QosReader(ask=ask, now=lambda: now_s[0])
    for at_s in (START_S, START_S + RETRY_AFTER_S / 2, START_S + jump_s):
        now_s[0] = at_s
        reader.read(Counter())
    assert len(asked) == 2


def test_the_last_kept_cycle_is_the_last_one_although_its_time_is_earlier(tmp_path: Path) -> None:
    world = World(tmp_path, old_job(1))
    for _ in range(3):
        world.cycle()
    result = world.cycle(-HOUR_S)
    assert last_snapshot(tmp_path) == result.snapshot
    for _ in range(KEEP):
        result = world.cycle()
    assert last_snapshot(tmp_path) == result.snapshot
    assert len(snapshot_paths(tmp_path)) == KEEP


def test_a_restart_after_the_clock_was_set_back_remembers_reclaims(tmp_path: Path) -> None:
    job = old_job(1, account="rec", qos=f"{REC}_borrow")
    world = BandWorld(tmp_path, job)
    world.slurm.start_job(JobId("1"), nodes="node01")
    result = world.cycle()
    assert result.plan.band_memory
    assert recent_memory(world.site, now_s=world.now_s - HOUR_S).bands == result.plan.band_memory


def test_what_is_missing_is_gone_in_time_although_the_clock_was_set_back() -> None:
    absences, job_id = Absences(), JobId("1")
    assert absences.find_over([job_id], now_s=START_S) == ()
    assert absences.find_over([job_id], now_s=START_S - HOUR_S) == ()
    assert absences.find_over([job_id], now_s=START_S - HOUR_S + 31) == (job_id,)
