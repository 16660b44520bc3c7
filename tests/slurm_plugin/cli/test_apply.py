"""``fairgpu plan`` and ``fairgpu apply`` against a cluster and a slurmdbd in memory."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from policies.records import JobId, JobState
from slurm_plugin.bands.planning import require_cluster, require_privileges
from slurm_plugin.cli import apply, plan
from slurm_plugin.cli._bands import Reach, reach, recorded_qos
from slurm_plugin.cli.apply import apply_command
from slurm_plugin.cli.plan import plan_command
from slurm_plugin.client import FakeSlurm
from slurm_plugin.client.command import Command, CommandResult
from slurm_plugin.errors import ConfigError, SlurmAuthError, SlurmRejected
from slurm_plugin.rebalancer.history import FILE_NAME
from slurm_plugin.rebalancer.lease import hold_lease
from slurm_plugin.rebalancer.store import HistoryStore, TouchedQos
from slurm_plugin.site import load_site
from slurm_plugin.site.switch import turn_off
from tests.slurm_plugin.bands.conftest import SITE, observation
from tests.slurm_plugin.bands.fake_sacctmgr import shop
from tests.slurm_plugin.bands.test_precheck import CONFIG, PARTITION
from tests.slurm_plugin.bands.test_remove import job

if TYPE_CHECKING:
    from pathlib import Path

    import click
    from click.testing import Result


class World:
    """A site file, a controller and a slurmdbd."""

    def __init__(self, folder: Path) -> None:
        self.site_path = folder / "site.yaml"
        self.write(SITE)
        self.db = shop()
        self.slurm = FakeSlurm.from_observation(observation())
        self.slurm.config |= {**CONFIG, "ClusterName": "shop"}

    def write(self, text: str) -> None:
        folder = self.site_path.parent
        self.site_path.write_text(f"{text}paths: {{state_dir: {folder}, run_dir: {folder}}}\n")

    def reach(self, *_: object, **__: object) -> Reach:
        return Reach(site=load_site(self.site_path), client=self.slurm, runner=self._run)

    def _run(self, command: Command) -> CommandResult:
        return CommandResult(0, PARTITION + "\n", "") if command.argv[0] == "scontrol" else self.db(command)

    def do(self, command: click.Command, *argv: str, typed: str | None = None) -> Result:
        words = ["--site", str(self.site_path), *argv]
        return CliRunner().invoke(command, words, input=typed, catch_exceptions=False)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    found = World(tmp_path)
    monkeypatch.setattr(apply, "reach", found.reach)
    monkeypatch.setattr(plan, "reach", found.reach)
    return found


def test_plan_shows_and_exits_with_4_only_if_asked(world: World) -> None:
    assert world.do(plan_command).exit_code == 0
    result = world.do(plan_command, "--exit-code")
    assert result.exit_code == 4
    assert "~ association account=rec  defaultqos: normal -> fg_shop_rec" in result.stdout
    assert world.db.image() == shop().image()


def test_apply_then_plan_is_no_difference(world: World) -> None:
    assert world.do(apply_command, "--yes").exit_code == 0
    result = world.do(plan_command, "--exit-code")
    assert result.exit_code == 0
    assert result.stdout.startswith("No difference")


def test_plan_as_json_has_the_same_lines(world: World) -> None:
    shown = json.loads(world.do(plan_command, "--json").stdout)
    assert shown["differs"] is True
    assert "~ association account=rec  defaultqos: normal -> fg_shop_rec" in shown["diff"]
    assert "fg_shop_risk_opp" in [change["name"] for change in shown["changes"] if change["kind"] == "CreateQos"]
    assert [quota["agent"] for quota in shown["quotas"]] == ["rec", "risk"]


def test_what_is_forbidden_stops_both(world: World) -> None:
    world.slurm.config["PreemptType"] = "preempt/none"
    for command, argv in ((plan_command, ()), (apply_command, ("--yes",)), (apply_command, ("--dry-run",))):
        result = world.do(command, *argv)
        assert result.exit_code == 1
        assert "forbidden: PreemptType=preempt/none" in result.stdout
        assert "    slurm.conf: PreemptType=preempt/qos" in result.stdout
    assert world.db.written == []


def test_dry_run_writes_nothing(world: World) -> None:
    assert world.do(apply_command, "--dry-run").exit_code == 0
    assert world.db.written == []


def test_without_a_terminal_it_wants_yes(world: World) -> None:
    result = world.do(apply_command)
    assert result.exit_code == 2
    assert "use --yes" in result.output
    assert world.db.written == []


@pytest.mark.parametrize("argv", [(), ("--remove",)])
def test_no_is_an_answer(world: World, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]) -> None:
    if argv:
        world.do(apply_command, "--yes")
    n_written = len(world.db.written)
    monkeypatch.setattr(apply, "_is_terminal", lambda: True)
    result = world.do(apply_command, *argv, typed="n\n")
    assert result.exit_code == 1
    assert "Nothing was changed." in result.stderr
    assert len(world.db.written) == n_written


def test_the_difference_and_what_is_written_have_headings(world: World) -> None:
    result = world.do(apply_command, "--yes")
    assert result.stdout.startswith("Changes that make slurmdbd as the site file wants it:\n\n")
    assert result.stderr.startswith("\nWriting:\n")
    removed = world.do(apply_command, "--remove", "--yes")
    assert removed.stdout.startswith("Changes that take everything of ours out of slurmdbd:\n\n")


def test_plan_ends_with_how_much_and_what_next(world: World) -> None:
    shown = world.do(plan_command).stdout.splitlines()
    n_changes = len(json.loads(world.do(plan_command, "--json").stdout)["diff"])
    assert shown[-2] == f"{n_changes} changes, 1 warnings, 0 forbidden."
    assert shown[-1] == "Next: fairgpu apply"
    world.slurm.config["PreemptType"] = "preempt/none"
    assert world.do(plan_command).stdout.splitlines()[-1] == "Next: mend what is forbidden, then: fairgpu plan"


def test_now_without_remove_is_a_usage_error(world: World) -> None:
    assert world.do(apply_command, "--now").exit_code == 2


def test_a_retired_qos_goes_when_unused_and_is_listed_while_used(world: World) -> None:
    world.do(apply_command, "--yes")
    world.slurm.add_job(job("7", "fg_shop_rec", JobState.RUNNING))
    world.write(SITE.replace("  rec: {accounts: [rec], base_weight: 0.3}\n", ""))
    result = world.do(apply_command, "--yes")
    assert "qos fg_shop_rec remains: 1 jobs still have it (7)" in result.stdout
    assert {name for name in world.db.qos if name.startswith("fg_shop_rec")} == {"fg_shop_rec"}
    world.slurm.finish_job(JobId("7"))
    world.do(apply_command, "--yes")
    assert "fg_shop_rec" not in world.db.qos


def test_a_refusal_of_slurmdbd_is_told_in_its_words(world: World) -> None:
    def refuse(_command: Command) -> CommandResult:
        return CommandResult(0, "", " These associations don't have access to their default qos.\n")

    answer = world.db
    world.db = lambda command: refuse(command) if "defaultqos=fg_shop_risk" in command.argv else answer(command)  # type: ignore[assignment]
    with pytest.raises(SlurmRejected, match=r"nothing was changed\. These associations don't have access"):
        world.do(apply_command, "--yes")


def test_remove_restores_and_says_so(world: World) -> None:
    world.do(apply_command, "--yes")
    world.slurm.add_job(job("1", "fg_shop_risk"))
    result = world.do(apply_command, "--remove", "--yes")
    assert result.exit_code == 0
    assert "1 pending jobs were moved out of our QOSes." in result.stdout
    assert "Removed: nothing of ours is left" in result.stdout
    assert world.db.image() == shop().image()
    assert "Nothing of ours is in slurmdbd." in world.do(apply_command, "--remove", "--yes").stdout
    assert not (world.site_path.parent / "bands.jsonl").exists()


def test_a_removal_that_was_killed_after_its_last_deletion_puts_the_journal_aside(world: World) -> None:
    world.do(apply_command, "--yes")
    journal = world.site_path.parent / "bands.jsonl"
    kept = journal.read_bytes()
    world.do(apply_command, "--remove", "--yes")
    journal.write_bytes(kept)
    assert world.do(apply_command, "--remove", "--yes").exit_code == 0
    assert not journal.exists()


def test_remove_works_without_the_bands_section(world: World) -> None:
    world.do(apply_command, "--yes")
    world.write(SITE.replace("bands: {}\n", ""))
    assert world.do(apply_command, "--remove", "--yes").exit_code == 0
    assert world.db.image() == shop().image()


def test_remove_now_exits_with_1_while_something_runs(world: World) -> None:
    world.do(apply_command, "--yes")
    world.slurm.add_job(job("1", "fg_shop_risk", JobState.RUNNING))
    result = world.do(apply_command, "--remove", "--now", "--yes")
    assert result.exit_code == 1
    assert "qos fg_shop_risk remains: 1 jobs still have it (1)" in result.stdout


def test_remove_dry_run_writes_nothing(world: World) -> None:
    world.do(apply_command, "--yes")
    n_written = len(world.db.written)
    assert "- qos fg_shop_risk  (when no job has it)" in world.do(apply_command, "--remove", "--dry-run").stdout
    assert len(world.db.written) == n_written


def test_remove_refuses_while_a_rebalancer_would_work_against_it(world: World) -> None:
    world.write(SITE + "mode: enforce\n")
    world.do(apply_command, "--yes")
    with hold_lease(world.site_path.parent, now_s=time.time()):
        with pytest.raises(ConfigError, match=f"rebalancer \\(pid {os.getpid()}\\) runs"):
            world.do(apply_command, "--remove", "--yes")
        turn_off(load_site(world.site_path))
        assert world.do(apply_command, "--remove", "--yes").exit_code == 0


def test_a_moved_job_goes_back_to_the_qos_that_the_rebalancer_recorded(world: World) -> None:
    world.do(apply_command, "--yes")
    world.slurm.add_job(job("1", "fg_shop_risk_opp", user="bob"))
    with HistoryStore(world.site_path.parent / FILE_NAME) as store:
        line = TouchedQos(job_id=JobId("1"), submit_s=900, former="normal", last_written="fg_shop_risk_opp", at_s=1.0)
        store.touch(TouchedQos, [line])
    world.do(apply_command, "--remove", "--yes")
    # Not bob's default, which is long.
    assert world.slurm.job(JobId("1")).qos == "normal"


def test_a_history_that_cannot_be_read_is_told(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    (world.site_path.parent / FILE_NAME).write_text("no database at all, but long enough to look at it" * 40)
    assert recorded_qos(load_site(world.site_path))(job("1", "x")) == ""
    assert "cannot be read" in capsys.readouterr().err


def test_only_root_and_slurm_user_may(world: World) -> None:
    config = {"SlurmUser": "nobody(65534)"}
    require_privileges(config, 0)
    require_privileges(config, 65534)
    with pytest.raises(SlurmAuthError, match="only root and SlurmUser"):
        require_privileges(config, 1)
    with pytest.raises(SlurmAuthError, match="sudo -u nobody"):
        require_privileges(config, 4_000_000)
    assert world.db.written == []


def test_another_cluster_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="this is cluster 'other'"):
        require_cluster(load_site(world.site_path), {"ClusterName": "other"})


def test_without_bands_plan_says_how_to_begin(world: World) -> None:
    world.write(SITE.replace("bands: {}\n", ""))
    with pytest.raises(ConfigError, match="has no bands section"):
        reach(world.site_path, None)
