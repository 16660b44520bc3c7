"""Whether this Slurm is one that FairGPU knows, and whether it counts what we divide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_plugin.doctor.check import CheckRule, Verdict, fail, ok, warn

if TYPE_CHECKING:
    from slurm_plugin.doctor.facts import Facts

OLDEST: Final = (22, 5)
NEWEST: Final = (26, 5)
_RECORDED: Final = ("22.05", "24.11", "25.11", "26.05")
_ALWAYS_TRACKED: Final = frozenset({"billing", "cpu", "energy", "fs/disk", "mem", "node", "pages", "vmem"})
_DEFAULT_EXPIRE_S: Final = 120
_MAX_REQUEUE_DELAY_S: Final = 30
_MAX_BF_INTERVAL_S: Final = 60
_DEFAULT_BF_INTERVAL_S: Final = 30
_DEFAULT_BF_MAX_JOB_TEST: Final = 500
_MAX_CLOCK_SKEW_S: Final = 5.0


def _reachable(facts: Facts) -> Verdict:
    if facts.config:
        return ok(f"cluster {facts.setting('ClusterName')} answers")
    return fail(
        "no answer",
        facts.missing.get("config", "scontrol show config failed"),
        "run on a host where 'scontrol ping' says UP, or name Slurm's commands with --slurm-bin-dir",
    )


def _cluster_name(facts: Facts) -> Verdict:
    found, wanted = facts.setting("ClusterName"), facts.site.policy.cluster
    if found.lower() == wanted.lower():
        return ok(found)
    return fail(
        f"{found}, the site file says {wanted}",
        "this site file was written for another cluster",
        f"site file: cluster: {found}",
    )


def _version(facts: Facts) -> Verdict:
    release, found = facts.release, facts.version or "unknown"
    if release < OLDEST:
        return fail(found, "FairGPU needs Slurm 22.05 or newer", "upgrade Slurm")
    if release > NEWEST:
        return warn(found, f"newer than every release that FairGPU was tested with ({', '.join(_RECORDED)})")
    return ok(found)


def _tracked_tres(facts: Facts) -> Verdict:
    tracked = facts.setting_list("AccountingStorageTRES")
    gpus = [name for name in tracked if name.startswith("gres/gpu")]
    if "gres/gpu" in tracked:
        return ok(", ".join(gpus))
    kept = (name for name in tracked if name not in _ALWAYS_TRACKED)
    return fail(
        ", ".join(gpus) or "no GPU",
        "Slurm does not count GPUs per job, so shares would be of CPUs and memory only",
        f"slurm.conf: AccountingStorageTRES={','.join((*kept, 'gres/gpu'))}  # and gres/gpu:TYPE for each type",
    )


def _select_type(facts: Facts) -> Verdict:
    found = facts.setting("SelectType")
    if found == "select/cons_tres":
        return ok(found)
    return fail(
        found or "not set",
        "only select/cons_tres places single GPUs",
        "slurm.conf: SelectType=select/cons_tres",
    )


def _part_limits(facts: Facts) -> Verdict:
    found = facts.setting("EnforcePartLimits") or "NO"
    if found.upper() in {"ALL", "ANY", "YES"}:
        return ok(found)
    return warn(
        found,
        "Slurm accepts jobs that no partition can ever run; they wait for ever",
        "slurm.conf: EnforcePartLimits=ALL",
    )


def requeue_delay_s(facts: Facts) -> int:
    """Return how long Slurm holds a requeued job back, seconds."""
    delay = facts.option("SchedulerParameters", "requeue_delay") if facts.release >= (25, 11) else None
    text = delay or facts.option("AuthInfo", "cred_expire") or str(_DEFAULT_EXPIRE_S)
    return 1 + (int(text) if text.isdecimal() else _DEFAULT_EXPIRE_S)


def _requeue_delay(facts: Facts) -> Verdict:
    seconds = requeue_delay_s(facts)
    if seconds - 1 <= _MAX_REQUEUE_DELAY_S:
        return ok(f"{seconds} s")
    key, value = (
        ("SchedulerParameters", "requeue_delay=5") if facts.release >= (25, 11) else ("AuthInfo", "cred_expire=5")
    )
    return warn(
        f"{seconds} s",
        "a requeued job (node failure, preemption) may not start again before",
        facts.line_with(key, value),
    )


def _scheduler(facts: Facts) -> Verdict:
    kind = facts.setting("SchedulerType")
    if kind != "sched/backfill":
        return warn(
            kind or "not set",
            "without backfill a large job at the head lets GPUs idle",
            "slurm.conf: SchedulerType=sched/backfill",
        )
    interval = facts.option("SchedulerParameters", "bf_interval") or str(_DEFAULT_BF_INTERVAL_S)
    found = f"backfill, bf_interval={interval}"
    if interval.isdecimal() and int(interval) > _MAX_BF_INTERVAL_S:
        fix = facts.line_with("SchedulerParameters", "bf_interval=30")
        return warn(found, "freed GPUs wait that long for a job from behind the head", fix)
    return _backfill_depth(facts, found)


def _backfill_depth(facts: Facts, found: str) -> Verdict:
    depth = facts.option("SchedulerParameters", "bf_max_job_test") or str(_DEFAULT_BF_MAX_JOB_TEST)
    n_jobs = facts.n_jobs or 0
    is_short = depth.isdecimal() and 0 < int(depth) < n_jobs
    if not is_short or facts.option("SchedulerParameters", "bf_continue") is not None:
        return ok(found)
    return warn(
        f"{found}, bf_max_job_test={depth}, {n_jobs} jobs",
        "backfill looks at the first jobs only and starts again at the head when the queue changes",
        facts.line_with("SchedulerParameters", "bf_continue", "bf_max_job_test=1000"),
    )


def _controllers(facts: Facts) -> Verdict:
    hosts = [value for key, value in facts.config.items() if key.startswith("SlurmctldHost[")]
    if len(hosts) <= 1:
        return ok(hosts[0] if hosts else "one")
    return warn(
        ", ".join(hosts),
        "after a takeover the other controller asks its own hook server",
        "run fairgpu hook-server and fairgpu rebalance on each of them",
    )


def _clock(facts: Facts) -> Verdict:
    skew = (facts.controller_s or 0.0) - facts.asked_s
    # sdiag reports whole seconds, so a second of difference is none.
    if abs(skew) <= _MAX_CLOCK_SKEW_S:
        return ok(f"{skew:+.0f} s")
    return fail(
        f"{skew:+.0f} s",
        "the controller's clock and this host's differ: ages and deadlines would be wrong",
        "let both follow one time server: timedatectl set-ntp true",
    )


CHECKS: Final = (
    CheckRule(name="slurm-reachable", judge=_reachable),
    CheckRule(name="cluster-name", judge=_cluster_name, needs=("config",)),
    CheckRule(name="slurm-version", judge=_version, needs=("version",)),
    CheckRule(name="gpu-accounting", judge=_tracked_tres, needs=("config",)),
    CheckRule(name="select-type", judge=_select_type, needs=("config",)),
    CheckRule(name="partition-limits", judge=_part_limits, needs=("config",)),
    CheckRule(name="requeue-delay", judge=_requeue_delay, needs=("config",)),
    CheckRule(name="scheduler", judge=_scheduler, needs=("config",)),
    CheckRule(name="controllers", judge=_controllers, needs=("config",)),
    CheckRule(name="clock", judge=_clock, needs=("controller_s",)),
)
