"""What status, explain, replay and rebalance --restore-lists say about bands."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from policies.cycle import decide
from policies.plan import SetQos, SetSiteFactor
from policies.records import JobId, JobState, NodeName
from slurm_plugin.cli import rebalance
from slurm_plugin.cli._band_table import bands_section
from slurm_plugin.cli._fate import need_helper
from slurm_plugin.cli._status_rows import agents_section, capacity_section, weights_section
from slurm_plugin.cli._watch import Seen
from slurm_plugin.rebalancer.lease import hold_lease
from slurm_plugin.site.switch import turn_off
from slurm_plugin.snapshot import read_snapshot, write_snapshot
from tests.slurm_plugin.cli.recorded import run
from tests.slurm_plugin.rebalancer.band_world import FULL_RISK, REC, RISK, BandWorld
from tests.slurm_plugin.rebalancer.test_bands import busy, gpus


@pytest.fixture
def world(tmp_path: Path) -> BandWorld:
    """Rec at its quota with one loan and six opportunistic jobs, all running."""
    made = busy(tmp_path)
    made.cycle()
    for number in range(3, 10):
        made.slurm.start_job(JobId(str(number)), nodes="node03")
    return made


def record(world: BandWorld, path: Path) -> Path:
    file = path / "cycle.json.gz"
    write_snapshot(file, world.cycle().snapshot)
    return file


def live(world: BandWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command line see the world's Slurm and helper."""
    monkeypatch.setattr("slurm_plugin.cli._fresh.make_client", lambda _: world.slurm)
    monkeypatch.setattr("slurm_plugin.cli.status.make_client", lambda _: world.slurm)
    monkeypatch.setattr(rebalance, "CliSlurm", lambda _: world.slurm)
    monkeypatch.setattr(rebalance, "SocketQosHelper", lambda **_: world.helper)


def test_status_shows_quota_use_and_loans_by_band(world: BandWorld, tmp_path: Path) -> None:
    done = run("status", "--snapshot", record(world, tmp_path))
    cells = [line.split() for line in done.stdout.splitlines()]
    # agent, tres, quota, used, borrowed, of cap, opportunistic, other, lent, over
    assert ["rec", "gres/gpu", "6", "6", "1", "1", "6", "0", "0", "7"] in [row[:10] for row in cells]
    assert ["risk", "gres/gpu", "10", "0", "0", "2", "0", "0", "7", "0"] in [row[:10] for row in cells]
    tables = done.stdout.partition("Findings")[0]
    assert max(map(len, tables.splitlines())) <= 120


def test_a_borrow_qos_that_is_gone_has_no_cap(world: BandWorld) -> None:
    snapshot = world.cycle().snapshot
    left = tuple(record for record in snapshot.observation.qos if record.name != f"{RISK}_borrow")
    seen = replace(snapshot.observation, qos=left)
    plan = decide(seen, snapshot.site_policy, now=snapshot.now_s)
    section = bands_section(plan)
    assert section is not None
    caps = {row[0]: row[section.columns.index("of cap")] for row in section.rows}
    assert caps == {"rec": "1", "risk": None}


def test_every_column_is_documented(world: BandWorld, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "status.md").read_text(encoding="utf-8")
    seen = Seen(snapshot=read_snapshot(record(world, tmp_path)))
    bands = bands_section(seen.snapshot.plan)
    assert bands is not None
    sections = (
        agents_section(seen.snapshot, None),
        bands,
        weights_section(seen.snapshot),
        capacity_section(seen.snapshot),
    )
    documented = set(re.findall(r"`([^`]+)`", "".join(line for line in page.splitlines() if line.startswith("| `"))))
    assert {name for section in sections for name in section.columns} - documented == set()


def test_status_without_bands_has_no_such_table(tmp_path: Path) -> None:
    from tests.slurm_plugin.cli.recorded import record as record_plain  # noqa: PLC0415 - a name like ours

    assert "Bands" not in run("status", "--snapshot", record_plain(tmp_path)).stdout


def test_status_says_that_no_helper_answers(world: BandWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    live(world, monkeypatch)
    body = json.loads(run("status", "--json", "--site", world.site.path).stdout)
    assert body["health"]["qos_helper"].startswith("no answer")
    text = run("status", "--site", world.site.path).stdout
    assert "ranks and Preempt lists stay as they are, and no job moves into a borrow band that its agent's own" in text
    assert "Start it: systemctl start fairgpu-qos-helper, or: sudo -u slurm fairgpu qos-helper" in text
    assert tmp_path.exists()


def test_status_does_not_promise_what_only_the_helper_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = busy(tmp_path)
    live(world, monkeypatch)
    lines = run("status", "--site", world.site.path).stdout.splitlines()
    (written,) = [line for line in lines if "the next cycle writes it" in line]
    (stuck,) = [line for line in lines if "not written until the QOS helper answers" in line]
    assert "Preempt list" not in written
    assert "borrow rank" not in written
    assert "Preempt list(s)" in stuck
    turn_off(world.site)
    assert "until the QOS helper answers" not in run("status", "--site", world.site.path).stdout


def test_moves_into_a_band_that_the_own_list_lacks_wait_for_the_helper(tmp_path: Path) -> None:
    world = busy(tmp_path)
    own = world.slurm.qos(REC)
    without = tuple(name for name in own.preempt if name != f"{REC}_borrow")
    world.slurm.set_qos(dataclasses.replace(own, preempt=without))
    plan = world.cycle().plan
    stuck = need_helper(plan, world.site.policy)
    moves = [one for one in plan.decisions if isinstance(one, SetQos) and one.new == f"{REC}_borrow"]
    assert moves
    assert set(moves) <= set(stuck)
    assert not [one for one in stuck if isinstance(one, SetSiteFactor)]


def test_explain_shows_the_band(world: BandWorld, tmp_path: Path) -> None:
    file = record(world, tmp_path)
    borrower = next(str(n) for n in range(3, 10) if world.qos_of(n) == f"{REC}_borrow")
    text = run("explain", borrower, "--snapshot", file).stdout
    assert "Band      borrow: cpu=1,gres/gpu=1,mem=1024M in use of" in text
    assert "it runs on borrowed resources" in text
    assert "Band      guaranteed" in run("explain", "1", "--snapshot", file).stdout


def test_explain_says_why_a_job_was_taken_back(world: BandWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    live(world, monkeypatch)
    world.cycle()
    borrower = JobId(next(str(n) for n in range(3, 10) if world.qos_of(n) == f"{REC}_borrow"))
    world.slurm.requeue_job(borrower)
    world.slurm.add_job(gpus(50, "risk", 4))
    world.slurm.start_job(JobId("50"), nodes="node03")
    world.cycle()
    text = run("explain", borrower, "--site", world.site.path).stdout
    assert (
        "Taken back from you because it ran on borrowed quota (fg_fake_rec_borrow), and agent risk is owed it" in text
    )
    assert "its job 50" in text
    assert "Last moves between bands" in text
    body = json.loads(run("explain", borrower, "--json", "--site", world.site.path).stdout)
    assert [row["claimant_job"] for row in body["history"]["reclaims"]] == ["50"]


def close_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the history unreadable, as for a researcher."""

    def refuse(_site: object) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("slurm_plugin.cli.explain.history_path", refuse)
    monkeypatch.setattr("slurm_plugin.cli._history.history_path", refuse)


def take_back(world: BandWorld) -> JobId:
    """Let risk's job 50 take back rec's loan."""
    world.cycle()
    borrower = JobId(next(str(n) for n in range(3, 10) if world.qos_of(n) == f"{REC}_borrow"))
    world.slurm.requeue_job(borrower)
    world.slurm.add_job(gpus(50, "risk", 4))
    world.slurm.start_job(JobId("50"), nodes="node03")
    world.cycle()
    return borrower


def test_whoever_may_not_read_the_history_is_told_of_a_reclaim(
    world: BandWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(world, monkeypatch)
    borrower = take_back(world)
    close_history(monkeypatch)
    text = run("explain", borrower, "--site", world.site.path).stdout
    assert (
        "Taken back from you because it ran on borrowed quota (fg_fake_rec_borrow), and agent risk is owed it: "
        "its job 50 needed the place (restart 1, after 5.0s on its nodes)."
    ) in text
    assert "Restarted" not in text
    body = json.loads(run("status", "--json", "--site", world.site.path).stdout)
    assert [(row["job_id"], row["claimant_job"]) for row in body["reclaims"]] == [(borrower, "50")]
    assert (body["disruption"]["n_reclaims"], body["disruption"]["n_asked"]) == (1, 4)


def test_a_victim_that_ended_is_told_without_the_history(world: BandWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    live(world, monkeypatch)
    borrower = take_back(world)
    world.slurm.finish_job(borrower)
    close_history(monkeypatch)
    done = run("explain", borrower, "--site", world.site.path)
    assert done.exit_code == 0
    assert done.stdout.startswith(f"Job {borrower} is not in Slurm's queue any more; the history is not readable")
    assert "Taken back from you" in done.stdout


def test_a_restart_that_nobody_tells_is_told_with_who_knows(world: BandWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    live(world, monkeypatch)
    borrower = take_back(world)
    known = run("explain", borrower, "--site", world.site.path).stdout
    assert "Restarted" not in known
    close_history(monkeypatch)
    (world.site.paths.run_dir / "reclaims.json").unlink()
    text = run("explain", borrower, "--site", world.site.path).stdout
    assert "Restarted once; on borrowed quota a restart is usually a reclaim. Its history is readable by user " in text
    assert "make you a member of that group" in text
    assert "Restarted" not in run("explain", "1", "--site", world.site.path).stdout


def test_status_measures_what_was_taken_for_what_was_claimed(world: BandWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    live(world, monkeypatch)
    world.cycle()
    for number in [n for n in range(3, 10) if world.qos_of(n) == f"{REC}_borrow"]:
        world.slurm.requeue_job(JobId(str(number)))
    world.slurm.add_job(gpus(50, "risk", 4))
    world.slurm.start_job(JobId("50"), nodes="node03")
    world.cycle()
    rows = world.rebalancer.history.query("SELECT n_gpus, n_claimed_gpus FROM reclaims")
    taken = sum(row["n_gpus"] for row in rows)
    assert taken >= 1
    body = json.loads(run("status", "--json", "--site", world.site.path).stdout)["disruption"]
    assert (body["n_reclaims"], body["n_taken"], body["n_asked"]) == (len(rows), taken, 4)
    text = run("status", "--site", world.site.path).stdout
    assert f"{len(rows)} job(s) taken back, {taken} GPU(s) for 4 asked: {taken / 4:.2f} for one, within" in text


def test_explain_says_which_claims_come_first(world: BandWorld, tmp_path: Path) -> None:
    world.slurm.set_node_state(NodeName("node04"), "down")
    for number in (50, 51):
        world.slurm.add_job(gpus(number, "risk", 4))
    file = record(world, tmp_path)
    waits = "1 claim(s) wait before it: Slurm ends one job per node at a time"
    assert "Slurm is expected to take back for it: " in run("explain", "50", "--snapshot", file).stdout
    assert waits not in run("explain", "50", "--snapshot", file).stdout
    assert waits in run("explain", "51", "--snapshot", file).stdout


def test_explain_says_which_jobs_are_ending_for_a_claim(world: BandWorld, tmp_path: Path) -> None:
    world.slurm.set_node_state(NodeName("node04"), "down")
    world.slurm.add_job(gpus(50, "risk", 4))
    before = run("explain", "50", "--snapshot", record(world, tmp_path)).stdout
    assert "Slurm is expected to take back for it: " in before
    for number in range(3, 10):
        world.slurm.add_job(replace(world.slurm.job(JobId(str(number))), state=JobState.COMPLETING))
    text = run("explain", "50", "--snapshot", record(world, tmp_path)).stdout
    assert "7 jobs are ending for it now: 3, 4, 5, 6, 7, 8, 9" in text
    assert "expected to take back" not in text


def test_replay_decides_a_cycle_with_bands_the_same(world: BandWorld, tmp_path: Path) -> None:
    done = run("replay", record(world, tmp_path))
    assert done.exit_code == 0
    assert "DIFFERENT" not in done.stdout


def test_demo_tells_bands_and_what_was_taken_back(world: BandWorld, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "borrowing"
    folder.mkdir(parents=True)
    write_snapshot(folder / "1.json.gz", world.cycle().snapshot)
    borrower = JobId(next(str(n) for n in range(3, 10) if world.qos_of(n) == f"{REC}_borrow"))
    world.slurm.requeue_job(borrower)
    world.slurm.add_job(gpus(50, "risk", 4))
    world.slurm.start_job(JobId("50"), nodes="node03")
    write_snapshot(folder / "2.json.gz", world.cycle().snapshot)
    rows = [line.split() for line in run("demo", tmp_path / "run").stdout.splitlines()]
    assert any(row[1:5] == ["6+1+6", "(0)", "0+0+0", "(0)"] for row in rows)
    # started 1 risk, nothing ended, taken back 1 rec
    assert any(row[1:10] == ["6+0+6", "(1)", "4+0+0", "(0)", "1", "risk", "-", "1", "rec"] for row in rows)
    told = json.loads(run("demo", "--json", tmp_path / "run").stdout)
    assert [moment["taken_back"] for moment in told["runs"][0]] == [[], [[borrower, "rec"]]]


def test_restore_lists_writes_them_once_and_only_without_a_rebalancer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = busy(tmp_path)
    world.cycle()
    live(world, monkeypatch)
    assert world.slurm.qos(RISK).preempt != FULL_RISK
    world.slurm.set_qos(dataclasses.replace(world.slurm.qos(f"{REC}_borrow"), priority=6))
    monkeypatch.setattr("slurm_plugin.cli.rebalance.time.time", lambda: world.now_s)
    with hold_lease(tmp_path, now_s=world.now_s):
        assert "nothing to do" in run("rebalance", "--restore-lists", "--site", world.site.path).stderr
    assert world.slurm.qos(RISK).preempt != FULL_RISK
    done = run("rebalance", "--restore-lists", "--site", world.site.path)
    assert f"{RISK}: full Preempt list again" in done.stdout
    assert f"{REC}_borrow: borrow rank as apply wrote it again" in done.stdout
    assert world.slurm.qos(f"{REC}_borrow").priority == 9
    assert world.slurm.qos(RISK).preempt == FULL_RISK
    assert run("rebalance", "--restore-lists", "--site", world.site.path).stdout == ""


def test_restore_lists_fails_loudly_without_a_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = busy(tmp_path)
    world.cycle()
    live(world, monkeypatch)
    world.helper.is_away = True
    done = run("rebalance", "--restore-lists", "--site", world.site.path)
    assert done.exit_code == 1
    assert RISK in done.stderr
