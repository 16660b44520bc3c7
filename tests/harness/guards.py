"""Each guard of the bands, and how to run without it: by what the core is told, or by what is enacted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final

from policies.plan import Decision, Plan, SetBorrowRank, SetPreemptList, SetQos, StartNow
from policies.quota.layout import full_preempt_list
from policies.quota.names import Band
from tests.harness.world import World, as_if_all_could_be_requeued

if TYPE_CHECKING:
    from policies.plan import BandMemory
    from policies.records import Observation
    from policies.site_policy import SitePolicy

Inputs = tuple["Observation", "SitePolicy", tuple["BandMemory", ...]]


def _same_inputs(inputs: Inputs) -> Inputs:
    return inputs


def _same_plan(world: World, plan: Plan) -> Plan:
    del world
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A run without one guard.

    Attributes
    ----------
    breaks : str
        The check that fails then.
    """

    breaks: str
    inputs: Callable[[Inputs], Inputs] = _same_inputs
    plan: Callable[[World, Plan], Plan] = _same_plan


def _no_requeue_flag(inputs: Inputs) -> Inputs:
    return (as_if_all_could_be_requeued(inputs[0]), *inputs[1:])


def _no_memory(inputs: Inputs) -> Inputs:
    return (*inputs[:2], ())


def _never_starving(inputs: Inputs) -> Inputs:
    site = inputs[1]
    assert site.bands is not None
    return (inputs[0], replace(site, bands=replace(site.bands, starve_after_s=inf)), inputs[2])


def _without(is_dropped: Callable[[Decision], bool]) -> Callable[[World, Plan], Plan]:
    def change(world: World, plan: Plan) -> Plan:
        del world
        return replace(plan, decisions=tuple(decision for decision in plan.decisions if not is_dropped(decision)))

    return change


def _own_loans_exempt(world: World, plan: Plan) -> Plan:
    """A guaranteed QOS may not preempt the agent's own bands."""
    for quota in world.quotas:
        record = world.slurm.qos[str(quota.guaranteed_qos)]
        record.preempt -= {str(quota.borrow_qos), str(quota.opportunistic_qos)}
    return replace(plan, decisions=tuple(_strip_own(world, decision) for decision in plan.decisions))


def _strip_own(world: World, decision: Decision) -> Decision:
    if not isinstance(decision, SetPreemptList):
        return decision
    quota = next(quota for quota in world.quotas if quota.agent == decision.agent)
    own = {quota.borrow_qos, quota.opportunistic_qos} if decision.qos == quota.guaranteed_qos else set()
    return replace(decision, new=tuple(name for name in decision.new if name not in own))


def _full_lists(world: World, plan: Plan) -> Plan:
    """Everybody's loans are in everybody's list, always."""
    for quota in world.quotas:
        for name, band in ((quota.guaranteed_qos, Band.GUARANTEED), (quota.borrow_qos, Band.BORROW)):
            world.slurm.qos[str(name)].preempt = frozenset(full_preempt_list(world.quotas, quota.agent, band))
    return _without(lambda decision: isinstance(decision, SetPreemptList))(world, plan)


def _relabel_by_total_use(world: World, plan: Plan) -> Plan:
    """Whoever is above nominal in all has its pending jobs moved out, room or not."""
    over = {standing.agent for standing in plan.standings if standing.bands and standing.bands.over}
    moved = {decision.job_id for decision in plan.decisions if isinstance(decision, SetQos)}
    extra = []
    for job in world.slurm.pending.values():
        quota = next(quota for quota in world.quotas if quota.agent == job.agent)
        is_moved = any(str(job.job_id) == job_id for job_id in moved)
        if quota.agent in over and quota.opportunistic_qos and job.is_requeueable and not is_moved:
            extra.append((job, quota.opportunistic_qos))
    for job, qos in extra:
        job.qos = qos
    return plan


REMOVALS: Final[dict[str, Removal]] = {
    "own loans are preemptible": Removal(breaks="owed quota", plan=_own_loans_exempt),
    "agents at or below nominal leave the lists": Removal(breaks="at or below nominal", plan=_full_lists),
    "borrow ranks": Removal(
        breaks="most over-served first", plan=_without(lambda decision: isinstance(decision, SetBorrowRank))
    ),
    "k reclaims, then no borrowing": Removal(breaks="no loops", inputs=_no_memory),
    "move out only while the quota is full": Removal(breaks="own quota first", plan=_relabel_by_total_use),
    "move back first": Removal(
        breaks="own quota first",
        plan=_without(lambda decision: isinstance(decision, SetQos) and not decision.new.endswith(("_borrow", "_opp"))),
    ),
    "start victims below nominal at once": Removal(
        breaks="owed quota", plan=_without(lambda decision: isinstance(decision, StartNow))
    ),
    "quota reservation": Removal(breaks="reservation", inputs=_never_starving),
    "only requeueable batch jobs borrow": Removal(breaks="no job dies", inputs=_no_requeue_flag),
}
"""Guard -> the run without it."""
