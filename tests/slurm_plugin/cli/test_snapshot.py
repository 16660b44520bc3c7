"""``fairgpu snapshot``: a fresh cycle or the daemon's last one, to stdout or a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from policies.cycle import decide, plan_bytes
from slurm_plugin.snapshot import parse_snapshot, read_snapshot
from tests.slurm_plugin.cli.recorded import busy_slurm, run
from tests.slurm_plugin.rebalancer.world import World, make_job, make_site

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def _live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_plugin.cli.snapshot.make_client", lambda _: busy_slurm())


@pytest.mark.usefixtures("_live")
def test_a_fresh_cycle_goes_to_stdout(tmp_path: Path) -> None:
    done = run("snapshot", "--site", make_site(tmp_path).path)
    snapshot = parse_snapshot(done.stdout.encode())
    assert len(snapshot.observation.jobs) == 7
    again = decide(snapshot.observation, snapshot.site_policy, snapshot.sla_memory, now=snapshot.now_s)
    assert plan_bytes(again) == plan_bytes(snapshot.plan)


@pytest.mark.usefixtures("_live")
def test_a_file_that_ends_in_gz_is_compressed(tmp_path: Path) -> None:
    path = tmp_path / "c.json.gz"
    done = run("snapshot", "-o", path, "--site", make_site(tmp_path).path)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "7 jobs, 3 decisions" in done.stderr
    assert path.read_bytes()[:2] == b"\x1f\x8b"


@pytest.mark.usefixtures("_live")
def test_nothing_in_slurm_or_the_state_directory_is_changed(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    run("snapshot", "--site", site.path)
    assert [path.name for path in tmp_path.iterdir()] == ["site.yaml"]


def test_last_is_the_daemons_last_cycle(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    result = world.cycle()
    path = tmp_path / "last.json"
    assert run("snapshot", "--last", "-o", path, "--site", world.site.path).exit_code == 0
    assert read_snapshot(path) == result.snapshot


def test_last_without_a_daemon_says_so(tmp_path: Path) -> None:
    done = run("snapshot", "--last", "--site", make_site(tmp_path).path)
    assert "no rebalancer has kept a cycle" in str(done.exception)


@pytest.mark.usefixtures("_live")
def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    done = run("snapshot", "-o", tmp_path / "no" / "c.json", "--site", make_site(tmp_path).path)
    assert "No such file or directory" in str(done.exception)
