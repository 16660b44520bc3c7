"""A snapshot gives back the same cycle, and a hostile file gives an error that names what is wrong."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from policies.plan import (
    AgentStanding,
    BandMemory,
    Finding,
    Plan,
    SetBorrowRank,
    SetPreemptList,
    SetQos,
    SetSiteFactor,
    SlaMemory,
    StartNow,
)
from policies.records import (
    AccountName,
    AgentName,
    IndicatorSample,
    JobId,
    JobRecord,
    JobState,
    NodeName,
    NodeRecord,
    Observation,
    PartitionName,
)
from policies.site_policy import AgentPolicy, JobOrder, Mode, SitePolicy, SlaTargets
from slurm_plugin.snapshot import (
    MIB,
    Snapshot,
    SnapshotError,
    load_run,
    parse_snapshot,
    read_snapshot,
    snapshot_bytes,
    write_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JOB = JobRecord(
    job_id=JobId("12_3"),
    array_job_id="12",
    user="alice",
    uid=1001,
    account=AccountName("risk"),
    partitions=(PartitionName("gpu"), PartitionName("long")),
    state=JobState.PENDING,
    tres=(("cpu", 4), ("gres/gpu", 2)),
    submit_s=1_700_000_000,
    site_factor=-5,
    comment='agent=risk "quoted"\n\x00 caf\xe9 \udcff',
)
NODE = NodeRecord(
    name=NodeName("node01"),
    partitions=(PartitionName("gpu"),),
    state="mixed+drain",
    is_schedulable=False,
    tres=(("cpu", 16),),
)
OBSERVATION = Observation(
    at_s=1_700_000_100.125,
    cluster="c1",
    slurm_version="24.11.5",
    jobs=(JOB,),
    nodes=(NODE,),
    indicators=(IndicatorSample(agent=AgentName("risk"), name="p99_latency_s", value=0.1, at_s=1.0),),
    groups_by_user=(("alice", ("hpc", "risk")),),
    problems=(("job state FOO", 2),),
)
POLICY = SitePolicy(
    cluster="c1",
    mode=Mode.ENFORCE,
    partitions=(PartitionName("gpu"),),
    agents=(
        AgentPolicy(
            name=AgentName("risk"),
            accounts=(AccountName("risk"),),
            base_weight=Fraction(3, 5),
            order=JobOrder.DEADLINE,
            sla=SlaTargets(queue_wait_s=60.0),
        ),
    ),
)
MEMORY = SlaMemory(agent=AgentName("risk"), smoothed=1 / 3, factor=Fraction(4, 3), at_s=1_700_000_095)
PLAN = Plan(
    at_s=1_700_000_100.125,
    policy="wdrf",
    decisions=(
        SetSiteFactor(
            job_id=JobId("12_3"),
            agent=AgentName("risk"),
            old=None,
            new=39_000,
            tag=Fraction(10**40, 3 * 10**40 + 1),
            is_adoption=True,
            reason="missed by the hook",
        ),
        SetQos(job_id=JobId("13"), agent=AgentName("risk"), old="fg_c1_risk", new="fg_c1_risk_borrow", reason="full"),
        StartNow(job_id=JobId("14"), agent=AgentName("risk"), reason="below nominal"),
        SetBorrowRank(qos="fg_c1_risk_borrow", agent=AgentName("risk"), old=9, new=2, reason="above nominal"),
        SetPreemptList(qos="fg_c1_risk", agent=AgentName("risk"), old=("a", "b"), new=(), reason="below nominal"),
    ),
    standings=(
        AgentStanding(
            agent=AgentName("risk"),
            base_weight=Fraction(3, 5),
            sla_factor=Fraction(1),
            weight=Fraction(3, 5),
            allocation=(4, 0),
            queued=(0, 2),
            dominant_share=Fraction(1, 4),
            weighted_share=None,
            dominant_tres="cpu",
            n_running=1,
            n_pending=1,
            n_startable=1,
            oldest_wait_s=3.5,
        ),
    ),
    tres=("cpu", "gres/gpu"),
    capacity=(16, 4),
    sla_memory=(MEMORY,),
    band_memory=(BandMemory(job_id=JobId("13"), restarts=2, reclaimed_s=(1.0, 2.5)),),
    findings=(Finding(kind="tag", subject="12", text="refused"),),
)
SNAPSHOT = Snapshot(
    cycle_id="c-1",
    now_s=1_700_000_100.125,
    observation=OBSERVATION,
    site_policy=POLICY,
    sla_memory=(MEMORY,),
    plan=PLAN,
)


def test_reading_gives_back_exactly_what_was_written() -> None:
    assert parse_snapshot(snapshot_bytes(SNAPSHOT)) == SNAPSHOT


def test_a_snapshot_of_the_first_version_is_read_with_defaults() -> None:
    body = json.loads(snapshot_bytes(SNAPSHOT))
    body["version"] = 1
    del body["snapshot"]["band_memory"], body["snapshot"]["observation"]["qos"], body["snapshot"]["plan"]["band_memory"]
    for node in body["snapshot"]["observation"]["nodes"]:
        del node["out_since_s"]
    factor, *others = body["snapshot"]["plan"]["decisions"]
    del factor["kind"]
    body["snapshot"]["plan"]["decisions"] = [factor]
    assert others
    read = parse_snapshot(json.dumps(body).encode())
    assert read.plan.decisions == PLAN.decisions[:1]
    assert (read.band_memory, read.observation.qos) == ((), ())


def test_a_whole_number_in_a_float_field_stays_a_whole_number() -> None:
    assert isinstance(parse_snapshot(snapshot_bytes(SNAPSHOT)).sla_memory[0].at_s, int)


def test_equal_snapshots_give_equal_bytes_in_ascii() -> None:
    raw = snapshot_bytes(SNAPSHOT)
    assert raw == snapshot_bytes(parse_snapshot(raw))
    assert raw.isascii()


def test_gzipped_file_is_read_back_and_private(tmp_path: Path) -> None:
    path = tmp_path / "one.json.gz"
    write_snapshot(path, SNAPSHOT)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert path.stat().st_mode & 0o077 == 0
    assert read_snapshot(path) == SNAPSHOT


def test_writing_leaves_no_other_file(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "one.json", SNAPSHOT)
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


def test_a_recorded_run_comes_back_in_order_of_time(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "a.json.gz", SNAPSHOT)
    write_snapshot(tmp_path / "b.json", dataclasses.replace(SNAPSHOT, now_s=1.0))
    (tmp_path / "README").write_text("no snapshot")
    assert [snapshot.now_s for snapshot in load_run(tmp_path)] == [1.0, SNAPSHOT.now_s]


@pytest.mark.parametrize("field", ["observation.jobs", "site_policy.agents"])
def test_records_that_come_twice_are_refused(field: str) -> None:
    body = json.loads(snapshot_bytes(SNAPSHOT))
    holder, name = field.split(".")
    body["snapshot"][holder][name] *= 2
    with pytest.raises(SnapshotError, match="comes twice"):
        parse_snapshot(json.dumps(body).encode())


def test_a_folder_without_snapshots_or_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="no snapshot"):
        load_run(tmp_path)
    with pytest.raises(SnapshotError, match=r"none: No such file"):
        load_run(tmp_path / "none")


def _set(path: str, value: object) -> Callable[[dict[str, object]], None]:
    def change(body: dict[str, object]) -> None:
        *parents, last = path.split(".")
        target: object = body
        for key in parents:
            target = target[int(key)] if isinstance(target, list) else target[key]  # type: ignore[index]
        target[int(last) if isinstance(target, list) else last] = value  # type: ignore[index]

    return change


HOSTILE = {
    "another format": (_set("format", "x"), "no FairGPU snapshot"),
    "a later version": (_set("version", 3), "version 3"),
    "text for a number": (_set("snapshot.now_s", "1"), "snapshot.now_s: expected float"),
    "true for a number": (_set("snapshot.observation.jobs.0.uid", value=True), "jobs[0].uid: expected int"),
    "unknown state": (_set("snapshot.observation.jobs.0.state", "WAT"), "'WAT' is none of"),
    "unknown field": (_set("snapshot.observation.jobs.0.__class__", "os"), "unknown fields ['__class__']"),
    "bad fraction": (_set("snapshot.plan.decisions.0.tag", "1/x"), "expected a fraction"),
    "zero denominator": (_set("snapshot.plan.decisions.0.tag", "1/0"), "denominator"),
    "number for a list": (_set("snapshot.observation.jobs", 7), "expected a list"),
    "pair of three": (_set("snapshot.plan.capacity", ["a"]), "capacity[0]: expected int"),
    "list for an object": (_set("snapshot.plan", []), "expected an object"),
    "unknown kind": (_set("snapshot.plan.decisions.1.kind", "Exec"), "'Exec' is none of"),
    "kind of a list": (_set("snapshot.plan.decisions.1.kind", []), "is none of"),
    "decision that is none": (_set("snapshot.plan.decisions", ["x"]), "expected an object"),
    "field of another kind": (_set("snapshot.plan.decisions.1.tag", "1/2"), "unknown fields ['tag']"),
    "number beyond 64 bits": (_set("snapshot.observation.jobs.0.nice", 2**63), "nice: an integer of 64 bits"),
    "number too long to print": (_set("snapshot.now_s", 16**3000), "now_s: an integer of 12001 bits is out"),
    "infinity": (_set("snapshot.now_s", 1e999), "now_s: inf is out of range"),
    "negative amount": (_set("snapshot.observation.jobs.0.tres.0.1", -1), "TRES amount is not in 0.."),
    "node of an exabyte": (_set("snapshot.observation.nodes.0.tres.0.1", 2**51), "TRES amount is not in 0.."),
    "node out since before time": (
        _set("snapshot.observation.nodes.0.out_since_s", -1),
        "snapshot.observation.nodes: a time is not in 0..",
    ),
    "negative time": (_set("snapshot.observation.jobs.0.submit_s", -1), "a time is not in 0.."),
    "negative tasks": (_set("snapshot.observation.jobs.0.n_tasks", -1), "n_tasks or n_nodes"),
    "scale of nothing": (_set("snapshot.site_policy.factor_scale", 0), "factor_scale: 0 is not in 1.."),
    "negative weight": (_set("snapshot.site_policy.agents.0.base_weight", "-1/2"), "no base_weight is above 0"),
    "negative bound": (_set("snapshot.site_policy.sla.bound", "-1/2"), "sla.bound is below 0"),
    "agent of nobody": (_set("snapshot.plan.standings.0.agent", "\x1b[31m"), "is no agent of the site policy"),
    "agent without standing": (_set("snapshot.plan.standings", []), "not one per agent"),
    "amounts cut short": (_set("snapshot.plan.standings.0.allocation", [4]), "not one amount per TRES"),
    "capacity cut short": (_set("snapshot.plan.capacity", [4]), "plan.capacity: not one amount"),
}


def _dump(body: object) -> bytes:
    # Python writes an infinity as a word; other programs write a number that is one.
    return re.sub(r"\bInfinity\b", "1e999", json.dumps(body)).encode()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_field_that_does_not_fit_is_named(name: str) -> None:
    change, message = HOSTILE[name]
    body = json.loads(snapshot_bytes(SNAPSHOT))
    change(body)
    with pytest.raises(SnapshotError) as caught:
        parse_snapshot(_dump(body))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format":"fairgpu-snapshot","version":1,"snapshot":NaN}',
        b"9" * 10_000,
        b"\x1f\x8bnot gzip",
        gzip.compress(b"{}")[:-4],
    ],
    ids=["empty", "not utf-8", "deep", "nan", "long number", "bad gzip", "cut gzip"],
)
def test_bytes_that_are_no_json_are_refused(raw: bytes) -> None:
    with pytest.raises(SnapshotError):
        parse_snapshot(raw)


def test_a_gzip_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_plugin.snapshot.MAX_BYTES", MIB)
    with pytest.raises(SnapshotError, match=r"^unpacked it is larger than 1 MiB, the limit; a cycle with"):
        parse_snapshot(gzip.compress(b" " * (MIB + 1)))


def test_a_file_that_is_no_snapshot_of_one_cycle_is_refused_by_its_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("slurm_plugin.snapshot.MAX_BYTES", MIB)
    path = tmp_path / "large.json"
    path.write_bytes(b" " * (MIB + 1))
    with pytest.raises(SnapshotError, match=r"large\.json: it is larger than 1 MiB"):
        read_snapshot(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"none\.json: No such file"):
        read_snapshot(tmp_path / "none.json")
