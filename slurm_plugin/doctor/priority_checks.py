"""Whether the site factor decides, and against which other numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policies.site_policy import FactorMode, Mode
from slurm_plugin.doctor.check import CheckRule, Verdict, fail, ok, warn
from slurm_plugin.priority_factors import factor_maxima

if TYPE_CHECKING:
    from slurm_plugin.doctor.facts import Facts

_UNBOUNDED: Final = {
    "NO_NORMAL_ALL": "association, partition, qos and TRES",
    "NO_NORMAL_ASSOC": "association",
    "NO_NORMAL_PART": "partition",
    "NO_NORMAL_QOS": "qos",
    "NO_NORMAL_TRES": "TRES",
}
_SMALL_FRACTION: Final = 20
"""In ``blend`` mode we warn when the scale is less than one twentieth of the other factors' sum."""


def _priority_type(facts: Facts) -> Verdict:
    found = facts.setting("PriorityType")
    if found == "priority/multifactor":
        return ok(found)
    return fail(
        found or "not set",
        "only priority/multifactor adds the site factor; with another one FairGPU orders nothing",
        "slurm.conf: PriorityType=priority/multifactor",
    )


def _site_factor_plugin(facts: Facts) -> Verdict:
    found = facts.setting("PrioritySiteFactorPlugin")
    if not found:
        return ok("none")
    complain = fail if facts.site.policy.mode is Mode.ENFORCE else warn
    return complain(
        found,
        "the plugin overwrites the site factors that FairGPU sets, every PriorityCalcPeriod",
        "slurm.conf: remove the line PrioritySiteFactorPlugin",
    )


def _weights(facts: Facts) -> Verdict:
    # With bands the QOS part must outweigh ours instead: the check band-order is about that.
    has_bands = facts.site.policy.bands is not None
    maxima = tuple(one for one in factor_maxima(facts.config) if not has_bands or one[0] != "qos")
    total, scale = sum(value for _, value in maxima), facts.site.policy.factor_scale
    parts = ", ".join(f"{name} {value}" for name, value in maxima if value)
    found = f"scale {scale} against {total}" + (f" ({parts})" if parts else "")
    if facts.site.policy.factor_mode is FactorMode.DOMINANT:
        if scale > total:
            return ok(found)
        return fail(
            found,
            "mode dominant promises that the site factor outweighs all others together",
            f"site file: site_factor: {{scale: {total + 1}, mode: dominant}}",
        )
    if scale * _SMALL_FRACTION >= total:
        return ok(found)
    return warn(
        found,
        "the other factors decide the order; ours can hardly be seen",
        f"site file: site_factor: {{scale: {total}, mode: blend}}",
    )


def _flags(facts: Facts) -> Verdict:
    flags = facts.setting_list("PriorityFlags")
    found = ",".join(flags) or "none"
    if "INCR_ONLY" in flags:
        return fail(
            found,
            "with INCR_ONLY a priority never falls, so a lower site factor has no effect",
            "slurm.conf: remove INCR_ONLY from PriorityFlags",
        )
    unbounded = [_UNBOUNDED[flag] for flag in flags if flag in _UNBOUNDED]
    if unbounded and facts.site.policy.factor_mode is FactorMode.DOMINANT:
        return warn(
            found,
            f"the contribution of {', '.join(unbounded)} is not bounded by its weight: dominance cannot be shown",
            "slurm.conf: remove the NO_NORMAL_ flags from PriorityFlags",
        )
    return ok(found)


def _partition_tiers(facts: Facts) -> Verdict:
    partitions = facts.partitions or {}
    tiers = {
        name: partitions[name].get("PriorityTier", "1") for name in facts.site.policy.partitions if name in partitions
    }
    found = ", ".join(f"{name}={tier}" for name, tier in tiers.items()) or "no managed partition"
    if len(set(tiers.values())) <= 1:
        return ok(found)
    return warn(
        found,
        "jobs of a higher tier go first whatever their priority is; FairGPU orders within a tier only",
        "slurm.conf: the same PriorityTier for all managed partitions",
    )


CHECKS: Final = (
    CheckRule(name="priority-type", judge=_priority_type, needs=("config",)),
    CheckRule(name="site-factor-plugin", judge=_site_factor_plugin, needs=("config",)),
    CheckRule(name="factor-scale", judge=_weights, needs=("config",)),
    CheckRule(name="priority-flags", judge=_flags, needs=("config",)),
    CheckRule(name="partition-tiers", judge=_partition_tiers, needs=("partitions",)),
)
