"""One rebalancer at a time, whatever became of the last one."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.errors import AlreadyRunningError
from slurm_plugin.rebalancer.lease import FILE_NAME, LeaseHolder, hold_lease, lease_holder

if TYPE_CHECKING:
    from pathlib import Path

HOLD_AND_DIE = """
import os, signal, sys, pathlib
from slurm_plugin.rebalancer.lease import hold_lease
with hold_lease(pathlib.Path(sys.argv[1]), now_s=1.0):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nobody_holds_a_lease_that_was_never_taken(tmp_path: Path) -> None:
    assert lease_holder(tmp_path) is None


def test_the_holder_is_named_while_it_holds(tmp_path: Path) -> None:
    with hold_lease(tmp_path, now_s=7.5):
        assert lease_holder(tmp_path) == LeaseHolder(pid=os.getpid(), started_s=7.5)
    assert lease_holder(tmp_path) is None


def test_the_second_is_refused_and_told_the_pid(tmp_path: Path) -> None:
    with (
        hold_lease(tmp_path, now_s=1.0),
        pytest.raises(AlreadyRunningError, match=f"pid {os.getpid()}"),
        hold_lease(tmp_path, now_s=2.0),
    ):
        pass


def test_a_killed_holder_leaves_the_lease_free(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", HOLD_AND_DIE, str(tmp_path)], check=False)
    assert done.returncode == -9
    assert lease_holder(tmp_path) is None
    with hold_lease(tmp_path, now_s=2.0):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_cannot_keep_the_rebalancer_away_by_locking_its_file(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch(mode=0o644)  # as an earlier release left it
    for path in [tmp_path, *list(tmp_path.parents)[:2]]:
        path.chmod(0o755)
    with hold_lease(tmp_path, now_s=1.0):
        os.seteuid(65_534)
        try:
            with pytest.raises(PermissionError):
                lease_holder(tmp_path)
        finally:
            os.seteuid(0)


def test_a_link_in_place_of_the_lease_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"), hold_lease(tmp_path, now_s=1.0):
        pass


def test_garbage_in_the_file_is_an_unknown_holder(tmp_path: Path) -> None:
    with hold_lease(tmp_path, now_s=1.0):
        (tmp_path / FILE_NAME).write_text("not json")
        assert lease_holder(tmp_path) == LeaseHolder(pid=0, started_s=0.0)
