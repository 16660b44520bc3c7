"""A small site with bands: agents ``a`` and ``b`` on 8 or more GPUs, and short ways to look at a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policies.cycle import decide
from policies.plan import Plan, SetBorrowRank, SetPreemptList, SetQos, StartNow
from policies.records import PartitionName
from policies.site_policy import BandPolicy
from tests.strategies import NOW, make_job, make_observation, make_quota, make_running, make_site, make_tres

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.records import JobRecord, QosRecord

SITE = make_site({"a": 1, "b": 1}, bands=BandPolicy())
QUOTAS = (*make_quota("a", 4), *make_quota("b", 4))


def running(job_id: str, agent: str = "a", band: str = "", gpus: int = 1, **changes: Any) -> JobRecord:
    """A running job in a band of its agent."""
    changes = {"tres": make_tres(cpu=1, mem=1000, gpu=gpus)} | changes
    account = changes.pop("account", agent)
    return make_running(job_id, account, **({"qos": f"fg_c_{agent}{band}"} | changes))


def waiting(job_id: str, agent: str = "a", band: str = "", gpus: int = 1, **changes: Any) -> JobRecord:
    """A pending job in a band of its agent."""
    changes = {"tres": make_tres(cpu=1, mem=1000, gpu=gpus), "site_factor": 1} | changes
    return make_job(job_id, agent, **({"qos": f"fg_c_{agent}{band}"} | changes))


def elsewhere(job_id: str, agent: str = "a", band: str = "", gpus: int = 1, **changes: Any) -> JobRecord:
    """A running job in a band of the agent, in a partition that is not managed."""
    changes = {"partitions": (PartitionName("other"),), "nodes": "m1"} | changes
    return running(job_id, agent, band, gpus, **changes)


def victim(job_id: str, agent: str = "a", band: str = "_borrow", gpus: int = 1, **changes: Any) -> JobRecord:
    """A job that was taken back and waits out Slurm's delay."""
    fields: dict[str, Any] = {"restarts": 1, "reason": "BeginTime", "submit_s": int(NOW), "eligible_s": int(NOW) + 121}
    return waiting(job_id, agent, band, gpus, **(fields | changes))


def plan_of(jobs: Sequence[JobRecord], qos: Sequence[QosRecord] = QUOTAS, **changes: Any) -> Plan:
    """The plan of one cycle; ``site``, ``memory``, ``nodes`` may be given."""
    site, memory = changes.pop("site", SITE), changes.pop("memory", ())
    records = tuple(sorted(qos, key=lambda record: record.name))
    return decide(make_observation(jobs, qos=records, **changes), site, (), memory, now=NOW)


def moves(plan: Plan) -> dict[str, str]:
    """Job -> new QOS, without the cluster's prefix."""
    return {str(d.job_id): d.new.removeprefix("fg_c_") for d in plan.decisions if isinstance(d, SetQos)}


def starts(plan: Plan) -> list[str]:
    """Jobs that are started at once."""
    return [str(decision.job_id) for decision in plan.decisions if isinstance(decision, StartNow)]


def ranks(plan: Plan) -> dict[str, int]:
    """Agent -> new borrow rank."""
    return {str(d.agent): d.new for d in plan.decisions if isinstance(d, SetBorrowRank)}


def lists(plan: Plan) -> dict[str, tuple[str, ...]]:
    """QOS -> new Preempt list, all without the prefix."""
    return {
        d.qos.removeprefix("fg_c_"): tuple(name.removeprefix("fg_c_") for name in d.new)
        for d in plan.decisions
        if isinstance(d, SetPreemptList)
    }


def reason_of(plan: Plan, job_id: str) -> str:
    """Why a job is moved."""
    (found,) = [d for d in plan.decisions if isinstance(d, SetQos) and d.job_id == job_id]
    return found.reason


def texts(plan: Plan, kind: str) -> list[str]:
    """Texts of the findings of a kind."""
    return [f"{finding.subject}: {finding.text}" for finding in plan.findings if finding.kind == kind]
