"""``fairgpu replay`` and ``fairgpu demo``: the same input gives the same plan, or the difference is named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from policies.plan import SetSiteFactor
from policies.records import JobId
from slurm_plugin.snapshot import Snapshot, write_snapshot
from tests.slurm_plugin.cli.recorded import busy_slurm, make_snapshot, record, run

if TYPE_CHECKING:
    from pathlib import Path


def _tampered(snapshot: Snapshot) -> Snapshot:
    first, *others = snapshot.plan.decisions
    assert isinstance(first, SetSiteFactor)
    plan = replace(snapshot.plan, decisions=(replace(first, new=first.new - 1), *others))
    return replace(snapshot, plan=plan)


def test_the_same_plan_exits_0(tmp_path: Path) -> None:
    done = run("replay", record(tmp_path))
    assert (done.exit_code, done.stderr) == (0, "1 of 1 plans are the same.\n")


def test_a_changed_decision_is_named_and_exits_1(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    write_snapshot(path, _tampered(make_snapshot(tmp_path)))
    done = run("replay", path)
    assert done.exit_code == 1
    assert "c1: job 3: recorded 0 -> 39999 (agent rec" in done.stdout
    assert ", now 0 -> 40000 (agent rec" in done.stdout


def test_missing_surplus_and_reordered_decisions_are_told_apart(tmp_path: Path) -> None:
    snapshot = make_snapshot(tmp_path)
    decisions = snapshot.plan.decisions
    first = decisions[0]
    assert isinstance(first, SetSiteFactor)
    variants = {
        "recorded no decision, now": decisions[1:],
        "now no decision": (*decisions, replace(first, job_id=JobId("77"))),
        "in another order": decisions[::-1],
    }
    for text, changed in variants.items():
        path = tmp_path / "variant.json"
        write_snapshot(path, replace(snapshot, plan=replace(snapshot.plan, decisions=changed)))
        assert text in run("replay", path).stdout


def test_another_field_of_the_plan_is_named(tmp_path: Path) -> None:
    snapshot = make_snapshot(tmp_path)
    path = tmp_path / "bad.json"
    write_snapshot(path, replace(snapshot, plan=replace(snapshot.plan, capacity=(1, 2, 3))))
    assert "capacity: recorded (1, 2, 3), now (128, 524288, 16)" in run("replay", path).stdout


def test_a_policy_that_this_release_lacks_is_a_difference(tmp_path: Path) -> None:
    snapshot = make_snapshot(tmp_path)
    path = tmp_path / "bad.json"
    write_snapshot(path, replace(snapshot, site_policy=replace(snapshot.site_policy, policy="astrology")))
    done = run("replay", path)
    assert done.exit_code == 1
    assert "astrology" in done.stdout


def test_folders_and_verbose_decisions(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write_snapshot(folder / "a.json.gz", make_snapshot(tmp_path))
    done = run("replay", "--verbose", folder)
    assert "wdrf: 2 of 16 gres/gpu held or queued before it" in done.stdout


def test_json_counts_the_differences(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    write_snapshot(path, _tampered(make_snapshot(tmp_path)))
    body = json.loads(run("replay", "--json", path, record(tmp_path)).stdout)
    assert (body["n_different"], len(body["cycles"])) == (1, 2)


def _record_run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    slurm = busy_slurm()
    for number in range(3):
        snapshot = make_snapshot(tmp_path, slurm)
        at_s = snapshot.observation.at_s
        write_snapshot(folder / f"{number}.json.gz", replace(snapshot, cycle_id=f"c{number}", now_s=at_s))
        slurm.advance(5)
        if number == 0:
            slurm.start_job(JobId("3"))
            slurm.finish_job(JobId("1"))
    return folder


def test_demo_tells_starts_ends_and_the_fair_counts(tmp_path: Path) -> None:
    done = run("demo", _record_run(tmp_path))
    assert done.exit_code == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    # risk runs 2 of its 3 startable jobs, rec runs 3 after five seconds; everything would fit at once.
    assert ["0", "0/1", "(2)", "2/3", "(2)", "2", "risk", "-"] in rows
    assert ["5", "1/1", "(1)", "1/2", "(2)", "1", "rec", "1", "risk"] in rows
    assert "3 of 3 recorded plans came out the same" in done.stdout


def test_the_runs_that_we_ship_come_out_the_same() -> None:
    done = run("demo")
    assert done.exit_code == 0, done.stdout[-2000:]
    fairness, borrowing = json.loads(run("demo", "--json").stdout)["runs"]
    assert len(fairness) > 30
    assert any(moment["taken_back"] for moment in borrowing)


def test_demo_fails_when_a_plan_differs(tmp_path: Path) -> None:
    folder = _record_run(tmp_path)
    write_snapshot(folder / "9.json", _tampered(make_snapshot(tmp_path)))
    done = run("demo", folder)
    assert done.exit_code == 1
    assert "cycle c1 DIFFERS: job 3" in done.stdout


def test_demo_plays_the_acts_of_a_run_in_their_order(tmp_path: Path) -> None:
    snapshot = make_snapshot(tmp_path)
    for name, now_s in (("a_later", 20.0), ("b_first", 10.0)):
        (tmp_path / "acts" / name).mkdir(parents=True)
        write_snapshot(tmp_path / "acts" / name / "1.json", replace(snapshot, cycle_id=name, now_s=now_s))
    told = json.loads(run("demo", "--json", tmp_path / "acts").stdout)
    assert [[moment["replayed"]["cycle_id"] for moment in act] for act in told["runs"]] == [["b_first"], ["a_later"]]


def test_demo_without_a_run_says_so(tmp_path: Path) -> None:
    done = run("demo", tmp_path)
    assert "no snapshot (*.json or *.json.gz) in this folder" in str(done.exception)
