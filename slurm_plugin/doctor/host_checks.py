"""Whether this host is set up so that FairGPU can run and only its owner can steer it."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Final

from slurm_plugin.doctor.check import CheckRule, Verdict, fail, ok, unknown, warn

if TYPE_CHECKING:
    from slurm_plugin.doctor.facts import Facts, PathFact

NETWORK_FILESYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "9p", "fuse.sshfs"}
)
_MAX_STANDINGS_AGE_S: Final = 60.0


def _writable_by_others(fact: PathFact) -> bool:
    return bool(fact.mode & stat.S_IWOTH)


def _site_file(facts: Facts) -> Verdict:
    fact = facts.host.site_file
    if _writable_by_others(fact):
        return fail(
            f"{fact.path} is writable by everybody",
            "anybody could give their agent all the weight",
            f"chmod o-w {fact.path}",
        )
    return ok(f"{fact.path}, owned by {fact.owner}")


def _install(facts: Facts, fact: PathFact) -> str:
    user = facts.host.service_user
    line = f"install -d -o {user} -m 0755 {fact.path}"
    return line if facts.host.service_uid is not None else f"useradd --system --shell /usr/sbin/nologin {user}\n{line}"


def _state_dir(facts: Facts) -> Verdict:
    fact = facts.host.state_dir
    if not fact.exists:
        return fail(
            f"{fact.path} is missing",
            "the history, the lease and the kill switch live there",
            _install(facts, fact),
        )
    if _writable_by_others(fact):
        return fail(
            f"{fact.path} is writable by everybody",
            "anybody could switch FairGPU off or write its history",
            f"chmod o-w {fact.path}",
        )
    if fact.filesystem in NETWORK_FILESYSTEMS:
        return fail(
            f"{fact.path} is on {fact.filesystem}",
            "locks and SQLite are not safe on a network file system",
            "site file: paths: {state_dir: /var/lib/fairgpu}  # a local disk",
        )
    if not fact.mode & stat.S_IWUSR:
        return fail(f"{fact.path} is read-only", "its owner cannot write there", f"chmod u+w {fact.path}")
    return ok(f"{fact.path}, owned by {fact.owner}, {fact.filesystem or 'file system unknown'}")


def _run_dir(facts: Facts) -> Verdict:
    fact = facts.host.run_dir
    if not fact.exists:
        return warn(
            f"{fact.path} is missing",
            "the rebalancer hands its standings to the hook there",
            _install(facts, fact),
        )
    if _writable_by_others(fact):
        return fail(
            f"{fact.path} is writable by everybody",
            "anybody could give the hook false standings",
            f"chmod o-w {fact.path}",
        )
    return ok(f"{fact.path}, owned by {fact.owner}")


def _packages(facts: Facts) -> Verdict:
    if not facts.host.shadowing:
        return ok("policies, slurm_plugin, airflow_dags are ours")
    return fail(
        ", ".join(facts.host.shadowing),
        "another distribution brings a package of the same name; which one is imported is chance",
        "install FairGPU into a virtual environment of its own: python3 -m venv /opt/fairgpu",
    )


def _import_path(facts: Facts) -> Verdict:
    if facts.host.is_path_safe:
        return ok("the working directory is not searched")
    return warn(
        "the working directory is searched for modules",
        "a file policies.py there would be run instead of ours",
        "start with python -P, or set PYTHONSAFEPATH=1",
    )


def _rebalancer(facts: Facts) -> Verdict:
    age = facts.host.standings_age_s
    interval = facts.site.rebalancer.interval_s
    fix = f"start it: sudo -u {facts.host.service_user} fairgpu rebalance"
    if age is None:
        return warn("no cycle seen", "missed jobs are not adopted and site factors not kept exact", fix)
    if age <= max(_MAX_STANDINGS_AGE_S, 3 * interval):
        return ok(f"last cycle {age:.0f} s ago, every {interval:g} s")
    return warn(
        f"last cycle {age:.0f} s ago",
        "the rebalancer stands still: the hook sets no site factor from standings this old",
        fix,
    )


def _mode(facts: Facts) -> Verdict:
    mode, fact = facts.site.policy.mode.value, facts.host.state_dir
    if not fact.exists:
        return warn(
            f"{mode}, but {fact.path} is missing, which counts as switched off",
            "nothing is changed without the directory that holds the switch",
            _install(facts, fact),
        )
    if not facts.host.is_switch_visible:
        return unknown(f"{mode}; switched off or not: not known", f"this user may not look into {fact.path}")
    if facts.host.is_off:
        return warn(
            f"{mode}, but switched off",
            "nothing is changed while the switch is set",
            f"sudo -u {facts.host.service_user} fairgpu on",
        )
    return ok(mode)


CHECKS: Final = (
    CheckRule(name="site-file", judge=_site_file),
    CheckRule(name="mode", judge=_mode),
    CheckRule(name="state-dir", judge=_state_dir),
    CheckRule(name="run-dir", judge=_run_dir),
    CheckRule(name="rebalancer", judge=_rebalancer),
    CheckRule(name="packages", judge=_packages),
    CheckRule(name="import-path", judge=_import_path),
)
