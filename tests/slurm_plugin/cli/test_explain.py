"""``fairgpu explain``: the arithmetic, and what it says of jobs that are not waiting for us."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from policies.reason_advice import advise
from policies.records import JobId
from slurm_plugin.cli import explain
from slurm_plugin.client import CliSettings, CliSlurm
from slurm_plugin.site.switch import turn_off
from tests.slurm_plugin.cli.recorded import busy_slurm, record, run
from tests.slurm_plugin.client.recordings import RELEASES, RecordedCluster
from tests.slurm_plugin.rebalancer.world import START_S, World, make_job, make_site

if TYPE_CHECKING:
    from pathlib import Path


def _explain(tmp_path: Path, job: str, *options: str) -> str:
    done = run("explain", job, *options, "--snapshot", record(tmp_path))
    assert done.exit_code == 0
    return done.stdout


def test_every_number_of_the_factor_is_shown(tmp_path: Path) -> None:
    text = _explain(tmp_path, "4")
    # 2 of 16 GPUs held, nothing queued before it: 1/8 over 3/5 is 5/24, rounded down to 0.2083.
    assert "Weight    3/5 (base) x 1 (SLA factor) = 3/5 = 0.6000" in text
    assert "Tag       largest share 1/8 (gres/gpu) / weight 3/5 = 5/24 = 0.2083" in text
    assert "Factor    40000 / (1 + 0.2083) = 33104" in text
    assert "Slurm shows 40000; the next cycle writes it" in text
    assert "Place     2 of 2 startable jobs" in text


def test_json_is_exact(tmp_path: Path) -> None:
    place = json.loads(_explain(tmp_path, "4", "--json"))["explanation"]["place"]
    assert (place["tag"], place["quantised_tag"], place["site_factor"]) == ("5/24", "2083/10000", 33_104)


def test_a_refused_tag_is_told(tmp_path: Path) -> None:
    text = _explain(tmp_path, "3")
    assert "Agent     rec (named by its account" in text
    assert "Tags      FairGPU: User rec-user with account rec may not use tag agent=risk." in text


def test_an_impossible_job_can_never_run(tmp_path: Path) -> None:
    text = _explain(tmp_path, "6")
    assert "can never run: no 1 node(s) of gpu can give cpu=4,gres/gpu=64" in text
    assert "not counted for its agent's share tags" in text


def test_a_held_job_is_not_counted(tmp_path: Path) -> None:
    text = _explain(tmp_path, "5")
    assert "Waits     JobHeldUser: is held by its user" in text
    assert "Slurm shows nothing (held or not yet eligible)" in text


def test_an_unmanaged_job_is_left_alone(tmp_path: Path) -> None:
    assert "Agent     none, FairGPU leaves this job alone" in _explain(tmp_path, "7")


def test_a_running_job_waits_for_nothing(tmp_path: Path) -> None:
    text = _explain(tmp_path, "1")
    assert "Waits     for nothing" in text
    assert "Tag  " not in text


def test_an_unknown_job_is_an_error_on_stderr(tmp_path: Path) -> None:
    done = run("explain", "99", "--snapshot", record(tmp_path))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "job 99 is not in the queue" in done.stderr


@pytest.mark.parametrize(
    ("mode", "switch", "fate"),
    [
        ("enforce", "on", "the next cycle writes it"),
        ("enforce", "off", "nothing is written while FairGPU is off"),
        ("observe", "on", "mode observe, nothing is written"),
    ],
)
def test_a_write_is_announced_only_where_one_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, switch: str, fate: str
) -> None:
    site = make_site(tmp_path, mode=mode)
    if switch == "off":
        turn_off(site)
    monkeypatch.setattr("slurm_plugin.cli._fresh.make_client", lambda _: busy_slurm())
    assert f"Slurm shows 40000; {fate}" in run("explain", "4", "--site", site.path).stdout


@pytest.mark.parametrize("comment", ["agnet=risk", "run 7; Agent=risk", "agents=risk,stage=train"])
def test_a_mistyped_agent_tag_is_pointed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comment: str) -> None:
    world = World(tmp_path, make_job(1, comment=comment), make_job(2, comment="nightly=yes agent=risk"))
    monkeypatch.setattr("slurm_plugin.cli._fresh.make_client", lambda _: world.slurm)
    assert "did you mean agent=...?" in run("explain", "1", "--site", world.site.path).stdout
    assert "did you mean" not in run("explain", "2", "--site", world.site.path).stdout


REASONS = {
    "QOSGrpCpuLimit": ("all jobs of its QOS together use the CPUs", "it starts when one of them ends"),
    "JobHeldUser": ("is held by its user", "scontrol release 1"),
    "InvalidQOS": ("its QOS is invalid", "scontrol update jobid=1 qos=..."),
    "ReqNodeNotAvail, UnavailableNodes:node04": ("are down, drained or busy", "leave out --nodelist"),
    "Phase of the moon": ("Slurm's reason Phase_of_the_moon is not in FairGPU's table", "ask your admin"),
}


@pytest.mark.parametrize(("reason", "want"), REASONS.items())
def test_slurms_reason_is_told_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, want: tuple[str, str]
) -> None:
    world = World(tmp_path, make_job(1, reason=reason))
    monkeypatch.setattr("slurm_plugin.cli._fresh.make_client", lambda _: world.slurm)
    lines = run("explain", "1", "--site", world.site.path).stdout.splitlines()
    (waits,) = [line for line in lines if line.startswith("Waits ")]
    (step,) = [line for line in lines if line.startswith("Next step ")]
    assert waits.startswith(f"Waits     {reason}: ")
    assert (want[0] in waits, want[1] in step) == (True, True)


@pytest.mark.parametrize("release", RELEASES)
def test_every_recorded_reason_is_understood(release: str) -> None:
    seen = CliSlurm(CliSettings(runner=RecordedCluster(release=release))).observe()
    waiting = [job for job in seen.jobs if job.state.is_pending]
    assert {"BeginTime", "JobHeldUser", "QOSGrpGRES"} <= {job.reason for job in waiting}
    strange = {job.reason for job in waiting if "not in FairGPU's table" in advise(job, None).words}
    assert strange == set()


def test_a_history_of_others_is_mentioned_only_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, make_job(1))
    monkeypatch.setattr("slurm_plugin.cli._fresh.make_client", lambda _: world.slurm)

    def refuse(_site: object) -> bool:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as closed:
        closed.setattr(explain, "history_path", refuse)
        waiting = run("explain", "1", "--site", world.site.path)
        gone = run("explain", "99", "--site", world.site.path)
    assert (waiting.exit_code, waiting.stderr) == (0, "")
    assert gone.exit_code == 1
    assert "the history is not readable for this user" in gone.stderr


def test_the_daemons_sla_factor_is_used_without_its_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, make_job(1))
    memory = {"agent": "risk", "smoothed": 0.4, "factor": "3/2", "at_s": START_S}
    (tmp_path / "standings.json").write_text(json.dumps({"at_s": START_S, "sla_memory": [memory]}))
    monkeypatch.setattr("slurm_plugin.cli._fresh.make_client", lambda _: world.slurm)
    assert "x 3/2 (SLA factor)" in run("explain", "1", "--site", world.site.path).stdout


def test_a_job_that_is_gone_is_found_in_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    world.slurm.finish_job(JobId("1"))
    world.cycle()
    monkeypatch.setattr("slurm_plugin.cli._fresh.make_client", lambda _: world.slurm)
    done = run("explain", "1", "--site", world.site.path)
    assert done.exit_code == 0
    assert "not in Slurm's queue any more" in done.stdout
    assert re.search(r"ended \(last seen before \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\) +\d{4}-\d\d-\d\d ", done.stdout)
    assert not re.search(r"GONE|e\+|\d{9}|_s\b", done.stdout.partition("Last decisions")[0])
    assert "wdrf: nothing held or queued before it" in done.stdout
    body = json.loads(run("explain", "1", "--json", "--site", world.site.path).stdout)
    assert body["explanation"] is None
    assert [row["new"] for row in body["history"]["decisions"]] == [40_000]


def test_a_waiting_job_also_shows_its_last_decisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    monkeypatch.setattr("slurm_plugin.cli._fresh.make_client", lambda _: world.slurm)
    done = run("explain", "1", "--site", world.site.path)
    assert "Last decisions" in done.stdout
    assert "written" in done.stdout


def test_a_damaged_history_is_told_and_does_not_stop_the_explanation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, make_job(1))
    (tmp_path / "history.db").write_bytes(b"damaged" * 500)
    monkeypatch.setattr("slurm_plugin.cli._fresh.make_client", lambda _: world.slurm)
    done = run("explain", "1", "--site", world.site.path)
    assert done.exit_code == 0
    assert "the history cannot be read" in done.stderr
    assert "Factor    40000" in done.stdout
