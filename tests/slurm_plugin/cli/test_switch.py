from __future__ import annotations

import json
import os
import stat
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from policies.records import JobId
from slurm_plugin.cli import switch
from slurm_plugin.cli.switch import off_command, on_command
from slurm_plugin.client.fake import FakeSlurm
from slurm_plugin.errors import ConfigError, SlurmUnavailable
from slurm_plugin.rebalancer.lease import hold_lease
from slurm_plugin.rebalancer.reset import ResetReport
from slurm_plugin.site import load_site
from slurm_plugin.site.switch import is_off, off_reason, turn_off

if TYPE_CHECKING:
    from pathlib import Path

    import click
    from click.testing import Result

SITE = """\
cluster: fake
mode: enforce
partitions: [gpu]
agents:
  risk: {{accounts: [risk], base_weight: 1}}
paths: {{state_dir: {path}, run_dir: {path}}}
"""


@pytest.fixture
def site_path(tmp_path: Path) -> Path:
    path = tmp_path / "site.yaml"
    path.write_text(SITE.format(path=tmp_path))
    return path


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = FakeSlurm()
    monkeypatch.setattr(switch, "_TalkingSlurm", lambda _settings: fake)
    return fake


def run(command: click.Command, site_path: Path, *argv: str) -> Result:
    return CliRunner().invoke(command, ["--site", str(site_path), *argv], catch_exceptions=False)


def write_standings(site_path: Path, *, age_s: float) -> None:
    (site_path.parent / "standings.json").write_text(json.dumps({"at_s": time.time() - age_s}))


def test_off_without_a_rebalancer_resets_by_itself(site_path: Path, slurm: FakeSlurm) -> None:
    result = run(off_command, site_path, "--reason", "storage upgrade")
    assert result.exit_code == 0
    assert "0 jobs have their former site factor again" in result.stdout
    assert "Resume with: fairgpu on" in result.stdout
    site = load_site(site_path)
    assert (off_reason(site) or "").startswith("storage upgrade (by ")
    assert slurm.written == ()


def test_off_leaves_the_reset_to_a_rebalancer_that_runs(site_path: Path, slurm: FakeSlurm) -> None:
    slurm.be_unavailable(100)
    with hold_lease(site_path.parent, now_s=time.time()):
        result = run(off_command, site_path)
    assert result.exit_code == 0
    assert f"The rebalancer (pid {os.getpid()}) resets site factors within 5s." in result.stdout


@pytest.mark.usefixtures("slurm")
def test_off_does_not_rely_on_a_rebalancer_that_stands_still(site_path: Path) -> None:
    write_standings(site_path, age_s=900)
    with hold_lease(site_path.parent, now_s=time.time() - 1_000):
        result = run(off_command, site_path)
    assert "finished no cycle for 900 s" in result.stderr
    assert "0 jobs have their former site factor again" in result.stdout


@pytest.mark.usefixtures("slurm")
def test_off_again_makes_sure_by_itself(site_path: Path) -> None:
    turn_off(load_site(site_path))
    with hold_lease(site_path.parent, now_s=time.time()):
        result = run(off_command, site_path)
    assert "was off already" in result.stderr
    assert "0 jobs have" in result.stdout


def test_off_as_asked_leaves_the_factors(site_path: Path, slurm: FakeSlurm) -> None:
    slurm.be_unavailable(100)
    result = run(off_command, site_path, "--no-reset")
    assert result.exit_code == 0
    assert "Site factors stay as they are (--no-reset)." in result.stdout


def test_off_stays_off_when_slurm_is_away(site_path: Path, slurm: FakeSlurm) -> None:
    slurm.be_unavailable(100)
    with pytest.raises(SlurmUnavailable):
        run(off_command, site_path)
    assert is_off(load_site(site_path))


def test_refused_jobs_are_listed_and_exit_1(site_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = ResetReport(restored=((JobId("1"), 0),), failed=((JobId("2"), "denied\x1b"),))
    monkeypatch.setattr(switch, "reset_effects", lambda *_, **__: report)
    result = run(off_command, site_path)
    assert result.exit_code == 1
    assert "1 jobs have their former site factor again, 0 ended meanwhile, 1 were refused." in result.stdout
    assert "  job 2: denied\\x1b" in result.stdout


@pytest.mark.usefixtures("slurm")
def test_off_as_json(site_path: Path) -> None:
    answer = json.loads(run(off_command, site_path, "--json", "--reason", "x").stdout)
    assert answer["is_off"] is True
    assert answer["rebalancer_pid"] is None
    lists: dict[str, list[str]] = {"restored": [], "ranks": [], "failed": []}
    assert answer["reset"] == {"restored": [], "gone": [], "failed": [], "moved": [], "lists": lists}


def test_on_says_when_effects_resume(site_path: Path) -> None:
    turn_off(load_site(site_path))
    # A rebalancer that was off for long has run no cycle, and is well.
    write_standings(site_path, age_s=9_000)
    with hold_lease(site_path.parent, now_s=time.time() - 10_000):
        result = run(on_command, site_path)
    assert result.stdout.splitlines() == [
        "FairGPU is on.",
        f"The hook resumes at once, the rebalancer (pid {os.getpid()}) within 5s.",
    ]
    assert not is_off(load_site(site_path))


def test_on_twice_names_the_rebalancer_that_is_missing(site_path: Path) -> None:
    result = run(on_command, site_path)
    assert "FairGPU was on already." in result.stdout
    assert "start it: fairgpu rebalance" in result.stdout


def test_on_while_observing_says_that_nothing_changes(site_path: Path) -> None:
    site_path.write_text(site_path.read_text().replace("enforce", "observe"))
    assert "nothing is changed" in run(on_command, site_path).stdout


def test_on_as_json(site_path: Path) -> None:
    turn_off(load_site(site_path))
    answer = json.loads(run(on_command, site_path, "--json").stdout)
    assert answer == {"is_off": False, "was_off": True, "rebalancer_pid": None}


def test_a_wrong_site_file_still_tells_how_to_switch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError):
        off_command.main(["--site", str(tmp_path / "none.yaml")], standalone_mode=False)
    assert "creating or removing 'off' in the state directory does the same" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory away")
@pytest.mark.usefixtures("slurm")
def test_root_leaves_no_history_that_the_owner_could_not_write(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 65_534, 65_534)
    site_path = tmp_path / "site.yaml"
    site_path.write_text(SITE.format(path=state))
    run(off_command, site_path)
    owners = {path.name: path.stat().st_uid for path in state.iterdir() if path.name != "off"}
    assert owners
    assert set(owners.values()) == {65_534}
    assert stat.S_IMODE((state / "off").stat().st_mode) == 0o644
