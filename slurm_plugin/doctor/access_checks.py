"""Whether we may do what we have to, and whether the names in the site file are real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_plugin.doctor.check import NO_ANSWER, CheckRule, Verdict, fail, ok, unknown, warn

if TYPE_CHECKING:
    from slurm_plugin.doctor.facts import Facts

_ENFORCES_ASSOCIATIONS: Final = frozenset({"associations", "limits", "qos", "safe", "wckeys", "all"})
_OPERATORS: Final = frozenset({"operator", "administrator", "admin"})
_SHOWN_NAMES: Final = 5


def _operator(facts: Facts) -> Verdict:
    user, level = facts.host.service_user, facts.admin_level or ""
    if user in {"root", slurm_user(facts)}:
        return ok(f"{user} is always allowed")
    if facts.admin_level is None:
        return unknown(f"{user}: not known", facts.missing.get("admin_level", NO_ANSWER))
    if level.lower() in _OPERATORS:
        return ok(f"{user}: {level}")
    return fail(
        f"{user}: {level or 'unknown to slurmdbd'}",
        "Slurm refuses this user's SiteFactor updates",
        f"sacctmgr -i modify user {user} set adminlevel=operator"
        if level
        else f"sacctmgr -i add user {user} account=root adminlevel=operator",
    )


def slurm_user(facts: Facts) -> str:
    """Return SlurmUser's name, which Slurm prints as ``slurm(64030)``."""
    return facts.setting("SlurmUser").partition("(")[0]


def _partitions(facts: Facts) -> Verdict:
    known = facts.partitions or {}
    absent = [name for name in facts.site.policy.partitions if name not in known]
    if not absent:
        return ok(", ".join(facts.site.policy.partitions))
    return fail(
        f"unknown: {', '.join(absent)}",
        "no job can be in a partition that does not exist",
        f"site file: partitions: [{', '.join(sorted(known))}]  # those of this cluster",
    )


def _accounts(facts: Facts) -> Verdict:
    known = facts.accounts or frozenset()
    wanted = [account for agent in facts.site.policy.agents for account in agent.accounts]
    absent = [account for account in wanted if account not in known]
    if not absent:
        return ok(f"{len(wanted)} known")
    return warn(
        f"unknown: {', '.join(absent)}",
        "no job can run under an account that does not exist",
        "\n".join(f"sacctmgr -i add account {account}  # or take it out of the site file" for account in absent),
    )


def _enforcement(facts: Facts) -> Verdict:
    words = facts.setting_list("AccountingStorageEnforce")
    found = ",".join(words) or "none"
    if _ENFORCES_ASSOCIATIONS & {word.lower() for word in words}:
        return ok(found)
    return fail(
        found,
        "anybody may submit under any account, and so take another agent's share",
        facts.line_with("AccountingStorageEnforce", "associations", "limits", "qos")
        + "  # users without an association are refused then: see the check associations",
    )


def _associations(facts: Facts) -> Verdict:
    lacking = sorted((facts.queue_users or frozenset()) - (facts.associated_users or frozenset()))
    if not lacking:
        return ok("all users in the queue have one")
    shown = ", ".join(lacking[:_SHOWN_NAMES]) + (", ..." if len(lacking) > _SHOWN_NAMES else "")
    return warn(
        f"{len(lacking)} users without one: {shown}",
        "with AccountingStorageEnforce their next submissions are refused",
        f"sacctmgr -i add user {lacking[0]} account=ACCOUNT",
    )


CHECKS: Final = (
    CheckRule(name="operator", judge=_operator, needs=("config",)),
    CheckRule(name="partitions", judge=_partitions, needs=("partitions",)),
    CheckRule(name="accounts", judge=_accounts, needs=("accounts",)),
    CheckRule(name="account-enforcement", judge=_enforcement, needs=("config",)),
    CheckRule(name="associations", judge=_associations, needs=("queue_users", "associated_users")),
)
