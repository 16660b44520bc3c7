"""``fairgpu status`` from a snapshot and from a live look."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from policies.fairness.sla_weight import IndicatorReading
from slurm_plugin.cli import _health
from slurm_plugin.cli._status_rows import describe_budget, describe_reading, sla_state
from slurm_plugin.errors import SlurmUnavailable
from slurm_plugin.rebalancer.lease import hold_lease
from slurm_plugin.site.switch import turn_off
from tests.slurm_plugin.cli.recorded import busy_slurm, record, run
from tests.slurm_plugin.rebalancer.world import START_S, World, make_job, make_site

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_plugin.client import FakeSlurm


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """The cluster that the command line sees."""
    slurm = busy_slurm()
    monkeypatch.setattr("slurm_plugin.cli.status.make_client", lambda _: slurm)
    return slurm


def test_agents_are_shown_with_shares_jobs_and_what_they_hold(tmp_path: Path) -> None:
    done = run("status", "--snapshot", record(tmp_path))
    assert done.exit_code == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    # 2 of 16 GPUs = 0.125; over weight 0.6 = 0.2083.
    risk = ["risk", "0.6000", "0.1250", "gres/gpu", "0.2083", "2", "2", "1", "1m40s"]
    assert [*risk, "no", "target"] in lines
    assert ["risk", "0.6000", "1.00", "cpu=8", "mem=8192M", "gres/gpu=2", "-"] in lines
    assert ["gres/gpu", "16", "2", "14"] in lines


def test_findings_are_shown(tmp_path: Path) -> None:
    done = run("status", "--snapshot", record(tmp_path))
    assert "refused_tag" in done.stdout
    assert "may not use tag agent=risk" in done.stdout


def test_json_has_exact_shares(tmp_path: Path) -> None:
    body = json.loads(run("status", "--json", "--snapshot", record(tmp_path)).stdout)
    risk = next(one for one in body["agents"] if one["agent"] == "risk")
    assert (risk["dominant_share"], risk["weighted_share"], risk["allocation"]) == ("1/8", "5/24", [8, 8192, 2])
    assert (body["mode"], body["capacity"], body["health"]) == ("enforce", [128, 524_288, 16], None)


@pytest.mark.usefixtures("live")
def test_live_it_says_who_of_ours_lives(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    with hold_lease(tmp_path, now_s=1.0):
        body = json.loads(run("status", "--json", "--site", site.path).stdout)
    assert body["health"]["rebalancer"].startswith("pid ")
    assert body["health"]["hook"] == "no answer: there is no such socket"
    assert (body["health"]["off_reason"], body["health"]["last_cycle_age_s"]) == (None, None)


@pytest.mark.usefixtures("live")
def test_off_is_shown_with_its_reason(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    turn_off(site, "storage upgrade")
    done = run("status", "--site", site.path)
    assert "mode enforce, policy wdrf, OFF (storage upgrade)" in done.stdout
    assert "Rebalancer: not running, no cycle yet" in done.stdout


def test_the_age_of_the_last_cycle_is_shown(tmp_path: Path) -> None:
    world = World(tmp_path, make_job(1))
    world.cycle()
    health = _health.check_health(world.site, now_s=START_S + 65)
    assert health.last_cycle_age_s == pytest.approx(60.0)


def test_slurm_away_is_the_callers_error(tmp_path: Path, live: FakeSlurm) -> None:
    live.be_unavailable(1)
    done = run("status", "--site", make_site(tmp_path).path)
    assert isinstance(done.exception, SlurmUnavailable)


def test_a_hostile_snapshot_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[]")
    done = run("status", "--snapshot", path)
    assert "x.json: this is no FairGPU snapshot" in str(done.exception)


@pytest.mark.parametrize(
    ("name", "value", "target", "want"),
    [
        ("queue_wait_s", 90.0, 60.0, "queue wait 1m30s of 1m00s"),
        ("p99_latency_s", 0.18, 0.2, "p99 latency 180ms of 200ms"),
        ("error_rate_frac", 0.0004, 0.01, "error rate 0.0004 of 0.01"),
        ("p99_latency_s", None, 2.0, "p99 latency ? of 2.0s (stale)"),
    ],
)
def test_an_indicator_is_told_with_units(name: str, value: float | None, target: float, want: str) -> None:
    note = "" if value is not None else "stale"
    reading = IndicatorReading(name=name, value=value, target=target, ratio=None, note=note)
    assert describe_reading(reading) == want


def reading(ratio: float | None) -> IndicatorReading:
    return IndicatorReading(name="queue_wait_s", value=ratio, target=1.0, ratio=ratio)


SLA_STATES: dict[str, tuple[tuple[float | None, ...], str]] = {
    "nothing promised": ((), "no target"),
    "all within": ((0.2, 1.0), "met"),
    "the worst counts": ((1.2, 1.5, 0.1), "over by 50 %"),
    "an unknown one may be broken": ((0.2, None), "unknown"),
    "one over is enough, whatever is unknown": ((None, 3.0), "over by 200 %"),
    "far over": ((500.0,), "over by 999 %"),
}


@pytest.mark.parametrize(("ratios", "want"), SLA_STATES.values(), ids=SLA_STATES.keys())
def test_the_sla_state_in_words(ratios: tuple[float | None, ...], want: str) -> None:
    assert sla_state([reading(ratio) for ratio in ratios]) == want


def test_the_tables_fit_120_columns(tmp_path: Path) -> None:
    done = run("status", "--snapshot", record(tmp_path))
    tables = done.stdout[: done.stdout.index("Findings")]
    assert max(map(len, tables.splitlines())) <= 120


def test_the_rpc_budget_of_the_last_cycle_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Seven jobs want a factor; 1 update a second and a cycle every 5 s let 5 of them through.
    world = World(tmp_path, *(make_job(number) for number in range(1, 8)), rate=1)
    world.cycle()
    user = _health.service_user(world.site)
    world.slurm.diag |= {
        "Data since      Mon Nov 30 13": "02:27 2026 (1796043747)",
        f"Remote Procedure Call statistics by user/{user}": "count:14 ave_time:221 total_time:3100",
    }
    monkeypatch.setattr("slurm_plugin.cli.status.make_client", lambda _: world.slurm)
    text = run("status", "--site", world.site.path).stdout
    assert "RPC budget: 5 of 5 updates in the last cycle (1 per second), 0 left, 2 deferred; " in text
    assert f"slurmctld spent 3.1 ms on 14 RPCs of user {user} (0.22 ms each)" in text
    body = json.loads(run("status", "--json", "--site", world.site.path).stdout)["rpc_budget"]
    assert body["updates"] == {"deferred": 2, "per_cycle": 5, "per_second": 1, "sent": 5}
    assert body["controller"] == {"n_rpcs": 14, "since_s": 1796043747.0, "total_s": 0.0031, "user": user}


def test_without_a_cycle_and_statistics_the_budget_says_so() -> None:
    assert describe_budget(None, None) == "RPC budget: no cycle has told its updates yet"


@pytest.mark.usefixtures("live")
def test_a_state_directory_out_of_sight_is_not_said_to_be_off_for_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site(tmp_path)
    monkeypatch.setattr(_health, "off_reason", lambda _: "")
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, *how, **more: path != tmp_path and may(path, *how, **more))
    assert "OFF (perhaps: this user may not look into" in run("status", "--site", site.path).stdout
