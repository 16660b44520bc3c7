"""Act two: one agent takes what is idle by quota, cap and chance; the lenders come back and have theirs in time."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from borrowing_verdict import (
    all_completed,
    expected_flood,
    gpus,
    is_within_limits,
    predict,
    read_bound,
    restarts_agree,
)
from borrowing_workload import BANDS, FLOODER, LENDERS, SCRIPT, USERS
from picture_bands import Mark, draw_bands
from recording import Recorder
from stage import Stage
from talk import console, tell_picture
from workload import GPUS

from policies.quota.nominal import compute_nominals
from policies.records import JobId
from slurm_plugin.site import load_site

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from borrowing_workload import Lender
    from cluster import DemoCluster
    from talk import Checks

    from policies.records import JobRecord

_FILL_S: Final = 30
_END_S: Final = 120
_EXPLAIN_S: Final = 10
_SETTLE_S: Final = 2
"""Between a claim that is served and the next: one cycle and Slurm's count of the victims' restarts."""
_PLAN_LINES: Final = 5
_SHOWN_VICTIMS: Final = 3
_TAKEN: Final = "Taken back from you because"
_TOLD: Final = ("Job ", "Waits", "Band", _TAKEN)


def play_borrowing(cluster: DemoCluster, *, picture: Path, record: Path | None) -> Checks:
    """Apply the bands, flood, claim, let everything finish, remove the bands; what held."""
    before = _dump(cluster)
    stage = _apply(cluster, record)
    cluster.start_daemons(stage.site, helper=True)
    checks = _flood(stage)
    claims, control = _control(stage)
    predicted = predict(stage.observe(), load_site(stage.site).policy, claims)
    checks |= _reclaim(stage, predicted)
    checks |= control | _finish(stage)
    _draw(stage, picture)
    cluster.stop_daemons()
    console.print("[bold]   fairgpu apply --remove[/bold]")
    console.out("   " + stage.fairgpu("root", "apply", "--remove", "--yes").splitlines()[-1])
    checks["after 'apply --remove' slurmdbd's dump is as before"] = _dump(cluster) == before
    return checks


def _dump(cluster: DemoCluster) -> str:
    """Everything that slurmdbd says about this cluster's associations and about QOSes."""
    show = (("dump", cluster.name, "file=/dev/stdout"), ("-P", "show", "assoc", f"cluster={cluster.name}"))
    return "".join(cluster.run("root", "sacctmgr", *argv) for argv in (*show, ("-P", "show", "qos")))


def _apply(cluster: DemoCluster, record: Path | None) -> Stage:
    path = cluster.write_site("bands", BANDS)
    script = cluster.root / "etc" / "demo-job.sh"
    script.write_text(SCRIPT, encoding="utf-8")
    policy = load_site(path).policy
    if policy.bands is None:
        msg = f"{path} has no bands"
        raise RuntimeError(msg)
    bound = read_bound(cluster.run("root", "scontrol", "show", "config"), grace_s=policy.bands.grace_s)
    stage = Stage(
        cluster=cluster,
        site=path,
        quotas={},
        bound=bound,
        recorder=Recorder(cluster, record, since_s=time.time()),
        script=str(script),
    )
    console.print("[bold]   fairgpu plan[/bold]")
    lines = stage.fairgpu("root", "plan").splitlines()
    shown = [line for line in lines if f"_{FLOODER}" in line or f"account={FLOODER}" in line][:_PLAN_LINES]
    for line in [*shown, f"... {len(lines) - len(shown)} more lines"]:
        console.out("   " + line[:140])
    console.print("[bold]   fairgpu apply --yes[/bold]")
    console.out("   " + stage.fairgpu("root", "apply", "--yes").splitlines()[-1])
    stage.quotas = {str(quota.agent): quota for quota in compute_nominals(policy, stage.observe().nodes)}
    return stage


def _flood(stage: Stage) -> Checks:
    want = expected_flood(stage.quotas[FLOODER])
    stage.samples.append(stage.cluster.sample())
    console.print(
        f"\n   {USERS[FLOODER]} ({FLOODER}) floods: {stage.flood()} x sbatch --gpus=1, while the others sleep"
    )
    is_full = stage.watch(lambda sample: sample.gpus_by_qos == want, _FILL_S)
    found = stage.samples[-1].gpus_by_qos
    console.print(f"   {FLOODER} holds " + ", ".join(f"{found[name]} in {name}" for name in want))
    status = stage.fairgpu("fairgpu", "status").partition("Bands\n")[2]
    console.out("   Bands\n" + "\n".join("   " + line for line in status.splitlines()[:5]))
    nominal, cap = gpus(stage.quotas[FLOODER])
    text = f"alone, {FLOODER} runs its quota of {nominal}, borrows exactly its cap of {cap}, opportunistic jobs fill up"
    return {text: is_full}


def _control(stage: Stage) -> tuple[list[JobRecord], Checks]:
    """The claims without the Preempt lists; return how they wait, and that the first got nothing in its time."""
    cluster, first = stage.cluster, LENDERS[0]
    seconds = replace(stage.bound, grace_s=0).victims_gone_s
    cluster.freeze("rebalance")
    names = [str(stage.quotas[lender.agent].guaranteed_qos) for lender in LENDERS]
    for name in names:
        cluster.run("root", "sacctmgr", "-i", "modify", "qos", name, "set", "preempt=")
    console.print(f"\n   control run: the lenders' Preempt lists emptied, their jobs wait {seconds:g} s")
    began_s = time.monotonic()
    jobs = [stage.claim(lender) for lender in LENDERS]
    is_served = stage.watch(stage.has_quota(first), seconds)
    claims = {job.job_id: job for job in stage.observe().jobs}
    cluster.run("root", "scancel", *jobs)
    cluster.thaw("rebalance")
    stage.marks.append(Mark(from_s=began_s, to_s=stage.samples[-1].at_s, text="control: no Preempt lists"))
    stage.watch(lambda _: all(_preempt(cluster)[name] for name in names), _FILL_S)
    console.print("   the rebalancer has written the lists again")
    return [claims[JobId(job_id)] for job_id in jobs], {"the same check fails without Preempt lists": not is_served}


def _preempt(cluster: DemoCluster) -> dict[str, str]:
    shown = cluster.run("root", "sacctmgr", "-nP", "show", "qos", "format=name,preempt")
    return dict(line.split("|") for line in shown.splitlines())


def _reclaim(stage: Stage, predicted: Mapping[str, Mapping[str, str]]) -> Checks:
    """Let the lenders come back, one after the other: whether each had its quota in time, and who paid."""
    checks: Checks = {}
    taken: set[str] = set()
    last: set[str] = set()
    for lender in LENDERS:
        agent, quota = lender.agent, stage.quotas[lender.agent]
        expected = predicted.get(str(quota.guaranteed_qos), {})
        has_grace = str(stage.quotas[FLOODER].borrow_qos) in expected.values()
        bound = stage.bound if has_grace else replace(stage.bound, grace_s=0)
        took_s = _claim(stage, lender)
        last = set(stage.restarts) - taken
        taken |= last
        console.print(f"\n   {USERS[agent]} ({agent}) asks for its whole quota and has it after {took_s:.1f} s")
        console.print(f"      bound: {bound.describe()}")
        console.print(f"      taken from {FLOODER}: jobs {_folded(last)}; predicted {_folded(expected)}")
        whole = f"{agent} has its whole quota of {gpus(quota)[0]} GPUs after {took_s:.1f} s"
        checks[f"{whole} (bound {bound.victims_gone_s:g} s)"] = took_s <= bound.victims_gone_s
        checks[f"it was taken from the {len(expected)} jobs that the core predicts for {agent}"] = last == set(expected)
    stage.served.touch()
    checks["no band ever exceeds its quota or cap"] = is_within_limits(stage.samples, stage.quotas.values())
    return checks | _explain(stage, min(last or taken, key=int, default=None))


def _claim(stage: Stage, lender: Lender) -> float:
    """Submit a lender's whole quota; seconds until all of it runs, infinite if it never did."""
    began_s = time.monotonic()
    stage.jobs.append(stage.claim(lender))
    is_there = stage.watch(stage.has_quota(lender), 2 * stage.bound.promised_s)
    ended_s = time.monotonic()  # when the answer came: Slurm may be asked long before it answers
    took_s = ended_s - began_s if is_there else math.inf
    text = f"{lender.agent} claims {gpus(stage.quotas[lender.agent])[0]}, has them after {took_s:.1f} s"
    stage.marks.append(Mark(from_s=began_s, to_s=ended_s, text=text))
    stage.watch(lambda _: False, _SETTLE_S)
    return took_s


def _folded(job_ids: Iterable[str]) -> str:
    return ",".join(sorted(job_ids, key=int)) or "none"


def _explain(stage: Stage, victim: str | None) -> Checks:
    """Ask why a job is waiting again; the rebalancer knows it after its next cycle."""
    claim = f"a victim is told why: '{_TAKEN} ...'"
    if victim is None:
        return {claim: False}
    console.print(f"[bold]   fairgpu explain {victim}[/bold]")
    stage.watch(lambda _: _TAKEN in stage.fairgpu("fairgpu", "explain", victim), _EXPLAIN_S)
    lines = stage.fairgpu("fairgpu", "explain", victim).splitlines()
    console.out("\n".join("   " + line for line in lines if line.startswith(_TOLD)))
    return {claim: any(line.startswith(_TAKEN) for line in lines)}


def _finish(stage: Stage) -> Checks:
    console.print("   waiting until every job has ended")
    cluster = stage.cluster
    stage.watch(lambda _: not cluster.run("root", "squeue", "--noheader").strip(), _END_S)
    stage.watch(lambda _: all_completed(stage.accounting(), stage.jobs), _FILL_S)
    states, restarts = stage.accounting(), stage.restarts
    for job_id in sorted(restarts, key=int)[:_SHOWN_VICTIMS]:
        console.print(f"   sacct: job {job_id}: {', '.join(states[job_id])}")
    console.print(f"   sacct: {len(states)} jobs, {len(restarts)} of them taken back")
    return {
        f"sacct: all {len(stage.jobs)} jobs ended COMPLETED": all_completed(states, stage.jobs),
        f"sacct: each of the {len(restarts)} victims has one PREEMPTED run for each restart": restarts_agree(
            states, restarts
        ),
    }


def _draw(stage: Stage, path: Path) -> None:
    draw_bands(path, samples=stage.samples, rows=GPUS, marks=stage.marks, quotas=stage.quotas)
    tell_picture(path)
