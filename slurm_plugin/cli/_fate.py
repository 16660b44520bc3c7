"""What becomes of the decisions that ``fairgpu status`` sees: written in the next cycle, or what is in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.plan import SetBorrowRank, SetPreemptList, SetQos
from policies.site_policy import Mode
from slurm_plugin.cli._health import describe_write
from slurm_plugin.cli._status_rows import describe_decisions
from slurm_plugin.rebalancer.own_qos import OwnQos
from slurm_plugin.rebalancer.writers import listed_by_owner

if TYPE_CHECKING:
    from policies.plan import Decision, Plan
    from policies.site_policy import SitePolicy
    from slurm_plugin.cli._health import Health
    from slurm_plugin.snapshot import Snapshot


def describe_fates(snapshot: Snapshot, health: Health | None) -> list[str]:
    """Return one line per fate, with how many decisions of each kind it has."""
    policy, plan = snapshot.site_policy, snapshot.plan
    is_off = health is not None and health.off_reason is not None
    stuck: tuple[Decision, ...] = ()
    if health is not None and health.lacks_helper and not is_off and policy.mode is Mode.ENFORCE:
        stuck = need_helper(plan, policy)
    groups = (
        (tuple(one for one in plan.decisions if one not in stuck), describe_write(policy, is_off=is_off)),
        (stuck, "not written until the QOS helper answers"),
    )
    return [
        f"{describe_decisions(decisions)} differ from the plan of this moment ({fate})."
        for decisions, fate in groups
        if decisions
    ]


def need_helper(plan: Plan, policy: SitePolicy) -> tuple[Decision, ...]:
    """Return the decisions that only the QOS helper can write, and the moves that wait for such a list."""
    own = OwnQos.from_policy(policy)
    unlisted = listed_by_owner((one for one in plan.decisions if isinstance(one, SetPreemptList)), own)
    return tuple(
        one
        for one in plan.decisions
        if isinstance(one, (SetBorrowRank, SetPreemptList)) or (isinstance(one, SetQos) and one.new in unlisted)
    )
