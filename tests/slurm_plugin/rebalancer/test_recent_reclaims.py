"""The public file of recent reclaims: what is in it, how long it grows, and what a reader believes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from policies.records import JobId
from slurm_plugin.rebalancer.recent_reclaims import FILE_NAME, MAX_RECLAIMS, RecentReclaims, read_reclaims
from tests.slurm_plugin.rebalancer.band_world import REC, BandWorld
from tests.slurm_plugin.rebalancer.test_bands import gpus

if TYPE_CHECKING:
    from pathlib import Path

PUBLIC = {"job_id", "restarts", "agent", "qos", "band", "claimant", "claimant_job", "n_gpus", "n_claimed_gpus"}


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "at_s": 1000.0 + number,
        "job_id": str(number),
        "restarts": 1,
        "agent": "rec",
        "qos": "fg_fake_rec_borrow",
        "band": "borrow",
        "ran_s": 5.0,
        "claimant": "risk",
        "claimant_job": "50",
        "n_gpus": 1,
        "n_claimed_gpus": 4,
    } | changes


def write(path: Path, *rows: object) -> None:
    (path / FILE_NAME).write_text(json.dumps({"version": 1, "reclaims": rows}))


def test_a_reclaim_is_published_without_the_user_and_readable_by_all(tmp_path: Path) -> None:
    world = BandWorld(tmp_path, replace(gpus(1, "rec", 1), qos=f"{REC}_borrow"))
    world.slurm.start_job(JobId("1"), nodes="node01")
    world.cycle()
    assert read_reclaims(tmp_path) == ()
    world.slurm.requeue_job(JobId("1"))
    world.cycle()
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o644
    (found,) = read_reclaims(tmp_path)
    assert (found["job_id"], found["agent"], found["at_s"]) == ("1", "rec", world.now_s)
    assert set(found) == PUBLIC | {"at_s", "ran_s"}
    assert "rec-user" not in (tmp_path / FILE_NAME).read_text()


def test_a_successor_goes_on_and_tells_no_reclaim_twice(tmp_path: Path) -> None:
    RecentReclaims().publish(tmp_path, [row(1)], since_s=0.0)
    RecentReclaims().publish(tmp_path, [row(1, at_s=1500.0), row(2)], since_s=0.0)
    assert sorted(one["job_id"] for one in read_reclaims(tmp_path)) == ["1", "2"]


def test_the_file_is_bounded_and_what_is_too_old_goes(tmp_path: Path) -> None:
    recent = RecentReclaims()
    recent.publish(tmp_path, [row(number) for number in range(80)], since_s=0.0)
    kept = [one["job_id"] for one in read_reclaims(tmp_path)]
    assert kept == [str(number) for number in range(80 - MAX_RECLAIMS, 80)]
    recent.publish(tmp_path, [], since_s=1078.0)
    assert [one["job_id"] for one in read_reclaims(tmp_path)] == ["78", "79"]


def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    recent = RecentReclaims()
    recent.publish(tmp_path, [row(1)], since_s=0.0)
    before = (tmp_path / FILE_NAME).stat().st_ino
    recent.publish(tmp_path, [], since_s=0.0)
    assert (tmp_path / FILE_NAME).stat().st_ino == before


def test_what_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    recent = RecentReclaims()
    missing = tmp_path / "run"
    with pytest.raises(OSError, match="No such file"):
        recent.publish(missing, [row(1)], since_s=0.0)
    missing.mkdir()
    recent.publish(missing, [], since_s=0.0)
    assert [one["job_id"] for one in read_reclaims(missing)] == ["1"]


WRONG: dict[str, tuple[object, ...]] = {
    "at_s": ("now", 1e300, -1, True, None),
    "ran_s": ("5", float("nan"), float("inf")),
    "job_id": (None, 7, "", "x" * 10_000, ["1"]),
    "band": ("guarantee", {}),
    "claimant": (7, "y" * 300),
    "restarts": (-1, 1.5, 10**30, True),
    "n_claimed_gpus": ("4", -4),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_row_that_cannot_be_right_is_left_out(tmp_path: Path, name: str, value: object) -> None:
    write(tmp_path, row(1), row(2) | {name: value}, "3", None)
    assert [one["job_id"] for one in read_reclaims(tmp_path)] == ["1"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b'{"version":2,"reclaims":[]}',
        b'{"version":1,"reclaims":{}}',
        b'{"version":1,"reclaims":7}',
        b'{"version":1,"reclaims":[' + b" " * (1 << 18) + b"]}",
    ],
    ids=range(8),
)
def test_a_damaged_file_is_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    assert read_reclaims(tmp_path) == ()


def test_links_and_pipes_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, row(1))
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / FILE_NAME).symlink_to(tmp_path / FILE_NAME)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / FILE_NAME)
    assert read_reclaims(tmp_path / "link") == ()
    assert read_reclaims(tmp_path / "pipe") == ()
