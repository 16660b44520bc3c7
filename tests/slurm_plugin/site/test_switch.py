from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.errors import ConfigError
from slurm_plugin.site.switch import is_off, off_reason, switch_path, turn_off, turn_on

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurm_plugin.site import SiteFile

    MakeSite = Callable[..., SiteFile]


def test_off_then_on_is_as_before(make_site: MakeSite) -> None:
    site = make_site()
    assert (is_off(site), off_reason(site)) == (False, None)
    turn_off(site, "storage upgrade")
    assert (is_off(site), off_reason(site)) == (True, "storage upgrade")
    assert turn_on(site) is True
    assert is_off(site) is False
    assert turn_on(site) is False


def test_switching_leaves_no_other_file_and_is_readable_by_all(make_site: MakeSite, tmp_path: Path) -> None:
    site = make_site()
    turn_off(site, "one")
    turn_off(site, "two")
    assert [path.name for path in tmp_path.iterdir()] == ["off"]
    assert switch_path(site).stat().st_mode & 0o777 == 0o644
    assert off_reason(site) == "two"


def test_a_full_disk_costs_the_reason_but_not_the_switch(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    site = make_site()
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail)  # test_survival.py does it with a file system that is really full
        turn_off(site, "why")
        assert (is_off(site), off_reason(site)) == (True, "")
        turn_off(site, "again")
    assert [path.name for path in tmp_path.iterdir()] == ["off"]
    assert turn_on(site)


def test_a_link_in_place_of_the_switch_is_replaced_and_never_followed(make_site: MakeSite, tmp_path: Path) -> None:
    site = make_site(state_dir=tmp_path / "state")
    site.paths.state_dir.mkdir()
    target = tmp_path / "precious"
    target.write_text("keep")
    switch_path(site).symlink_to(target)
    assert is_off(site)
    assert off_reason(site) == ""
    turn_off(site, "x")
    assert target.read_text() == "keep"
    assert not switch_path(site).is_symlink()


def test_a_dangling_link_counts_as_off(make_site: MakeSite) -> None:
    site = make_site()
    switch_path(site).symlink_to("nowhere")
    assert is_off(site)


def test_a_pipe_in_place_of_the_switch_does_not_block(make_site: MakeSite) -> None:
    site = make_site()
    os.mkfifo(switch_path(site))
    assert off_reason(site) == ""


def test_a_state_directory_that_cannot_be_looked_into_counts_as_off(make_site: MakeSite, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert is_off(make_site(state_dir=tmp_path / "file"))


def test_a_state_directory_that_is_gone_counts_as_off(make_site: MakeSite, tmp_path: Path) -> None:
    assert is_off(make_site(state_dir=tmp_path / "not-mounted"))


def test_a_reason_is_bounded_and_may_hold_anything(make_site: MakeSite) -> None:
    site = make_site()
    turn_off(site, "\ud800\n" + "x" * 10_000)
    reason = off_reason(site)
    assert reason is not None
    assert len(reason) <= 4_096


def test_a_missing_state_directory_names_the_command_that_makes_it(make_site: MakeSite, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"install -d -o fairgpu -m 0755"):
        turn_off(make_site(state_dir=tmp_path / "none"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_is_told_whom_to_become(make_site: MakeSite, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    site = make_site(state_dir=state)
    turn_off(site)
    for path in [tmp_path, *list(tmp_path.parents)[:2]]:
        path.chmod(0o755)
    os.seteuid(65_534)
    try:
        with pytest.raises(ConfigError, match=r"belongs to root .*run: sudo -u root fairgpu on"):
            turn_on(site)
        with pytest.raises(ConfigError, match="sudo -u root fairgpu off"):
            turn_off(site)
    finally:
        os.seteuid(0)
