"""A disk that is really full (a tiny tmpfs): ordering goes on, nothing is cut short, all is written later."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.bands.journal import FILE_NAME as BANDS_NAME
from slurm_plugin.bands.journal import JournalError, open_journal, read_journal
from slurm_plugin.hook.recorder import Recorder
from slurm_plugin.hook.stats import HookStats
from slurm_plugin.rebalancer.history import FILE_NAME as HISTORY_NAME
from slurm_plugin.rebalancer.lease import hold_lease, lease_holder
from slurm_plugin.rebalancer.snapshot_ring import keep_snapshot, last_snapshot
from slurm_plugin.rebalancer.standings import FILE_NAME as STANDINGS_NAME
from slurm_plugin.rebalancer.standings import write_standings
from slurm_plugin.rebalancer.store import HistoryStore, TouchedJob
from slurm_plugin.site.switch import is_off, turn_off
from tests.slurm_plugin.hook.test_recorder import record
from tests.slurm_plugin.rebalancer.world import World, make_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")


class TinyDisk:
    """A file system of 256 KiB; ``path`` is where it is mounted."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Take the last page."""
        with (self.path / "ballast").open("ab", buffering=0) as ballast:
            try:
                while ballast.write(bytes(4096)):
                    pass
            except OSError:
                return

    def free(self) -> None:
        """Give the space back."""
        (self.path / "ballast").unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[TinyDisk]:
    path = tmp_path / "tiny"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "tiny", path], check=True)
    yield TinyDisk(path)
    subprocess.run(["umount", "--lazy", path], check=True)


@needs_root
def test_ordering_goes_on_and_the_journal_is_written_when_there_is_room(disk: TinyDisk) -> None:
    world = World(disk.path, make_job(1))
    disk.fill()
    with hold_lease(disk.path, now_s=1.0):
        world.cycle()
        assert world.factor(1)
        assert not (disk.path / STANDINGS_NAME).exists()
        disk.free()
        world.cycle()
    assert [path.name for path in disk.path.iterdir() if path.name.startswith(f".{STANDINGS_NAME}")] == []
    with HistoryStore(disk.path / HISTORY_NAME) as store:
        assert set(store.journal(TouchedJob)) == {"1"}
        assert store.query("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    world.rebalancer.history.close()


@needs_root
def test_what_was_there_before_stays_whole(tmp_path: Path, disk: TinyDisk) -> None:
    world = World(tmp_path, make_job(1))
    first, second = world.cycle(), world.cycle()
    write_standings(disk.path, b"standings")
    keep_snapshot(disk.path, first.snapshot)
    disk.fill()
    with pytest.raises(OSError, match="No space left"):
        write_standings(disk.path, bytes(4096))
    with pytest.raises(OSError, match="No space left"):
        keep_snapshot(disk.path, second.snapshot)
    assert (disk.path / STANDINGS_NAME).read_bytes() == b"standings"
    assert last_snapshot(disk.path) == first.snapshot
    assert list(disk.path.rglob(".*")) == []
    disk.free()
    keep_snapshot(disk.path, second.snapshot)
    assert last_snapshot(disk.path) == second.snapshot


@needs_root
def test_the_lease_and_the_kill_switch_need_no_room(disk: TinyDisk) -> None:
    world = World(disk.path, make_job(1))
    disk.fill()
    with hold_lease(disk.path, now_s=1.0):
        assert lease_holder(disk.path) is not None
    assert lease_holder(disk.path) is None
    turn_off(world.site)
    assert is_off(world.site)


@needs_root
def test_no_change_of_a_band_is_made_without_its_whole_line(disk: TinyDisk) -> None:
    written: set[str] = set()
    with open_journal(disk.path, cluster="cluster") as journal:
        journal.note_qos("fg_cluster_first", at_s=1.0)
        disk.fill()

        def note_many() -> None:
            for number in range(200):
                journal.note_qos(f"fg_cluster_agent{number:03d}", at_s=1.0)
                written.add(f"fg_cluster_agent{number:03d}")

        with pytest.raises(JournalError, match="the change was not made"):
            note_many()
        assert written  # the page had room for some: the last one was cut in the middle
        assert read_journal(disk.path, cluster="cluster").created == {"fg_cluster_first"} | written
        assert (disk.path / BANDS_NAME).read_bytes().endswith(b"\n")
        disk.free()
        journal.note_qos("fg_cluster_last", at_s=2.0)
    assert read_journal(disk.path, cluster="cluster").created == {"fg_cluster_first", "fg_cluster_last"} | written


@needs_root
def test_the_hook_keeps_its_records_until_there_is_room(disk: TinyDisk) -> None:
    store: list[HistoryStore] = []

    def open_store() -> HistoryStore:
        store[:] = [HistoryStore(disk.path / HISTORY_NAME)]
        return store[0]

    recorder = Recorder(open_store, HookStats())
    recorder.add(record())
    disk.fill()
    recorder._flush()
    assert store == []
    disk.free()
    recorder._flush()
    assert store[0].query("SELECT count(*) AS n FROM submissions") == [{"n": 1}]
    store[0].close()
