"""Builders of small clusters and Hypothesis strategies, shared by all tests."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from policies.plan import SetSiteFactor
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
    QosRecord,
    Tres,
)
from policies.site_policy import AgentPolicy, SitePolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.plan import Plan

NOW = 1_000_000.0
Amounts = tuple[int, ...]


def make_tres(cpu: int = 0, mem: int = 0, gpu: int = 0, **typed: int) -> Tres:
    """TRES of a job or node; ``a100=2`` is ``gres/gpu:a100``."""
    amounts = {"cpu": cpu, "mem": mem, "gres/gpu": gpu}
    amounts |= {f"gres/gpu:{name}": amount for name, amount in typed.items()}
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def make_job(job_id: str, account: str = "a", **changes: Any) -> JobRecord:
    """A pending job of 1 GPU in partition ``gpu``, submitted 100 s ago."""
    fields: dict[str, Any] = {
        "user": "u",
        "uid": 1000,
        "partitions": (PartitionName("gpu"),),
        "state": JobState.PENDING,
        "reason": "Priority",
        "tres": make_tres(cpu=1, mem=1000, gpu=1),
        "priority": 1,
        "submit_s": int(NOW) - 100,
        "site_factor": 0,
    }
    return JobRecord(job_id=JobId(job_id), account=AccountName(account), **(fields | changes))


def make_running(job_id: str, account: str = "a", nodes: str = "n1", **changes: Any) -> JobRecord:
    """A running job of 1 GPU."""
    fields: dict[str, Any] = {"state": JobState.RUNNING, "reason": "None", "site_factor": None}
    return make_job(job_id, account, **(fields | {"nodes": nodes} | changes))


def make_node(name: str = "n1", *, tres: Tres | None = None, up: bool = True, **changes: Any) -> NodeRecord:
    """A node of 64 CPUs and 8 GPUs in partition ``gpu``."""
    fields: dict[str, Any] = {"partitions": (PartitionName("gpu"),), "state": "mixed" if up else "down"}
    return NodeRecord(
        name=NodeName(name),
        is_schedulable=up,
        tres=make_tres(cpu=64, mem=64_000, gpu=8) if tres is None else tres,
        **(fields | changes),
    )


def make_site(weights: Mapping[str, Any], **changes: Any) -> SitePolicy:
    """A site whose agents have one account each, of the same name."""
    agents = tuple(
        value
        if isinstance(value, AgentPolicy)
        else AgentPolicy(name=AgentName(name), accounts=(AccountName(name),), base_weight=Fraction(value))
        for name, value in sorted(weights.items())
    )
    fields: dict[str, Any] = {"cluster": "c", "partitions": (PartitionName("gpu"),)}
    return SitePolicy(agents=agents, **(fields | changes))


def make_observation(
    jobs: Sequence[JobRecord] = (), nodes: Sequence[NodeRecord] | None = None, **changes: Any
) -> Observation:
    """An observation at ``NOW``, one default node unless nodes are given."""
    chosen = (make_node(),) if nodes is None else tuple(nodes)
    return Observation(at_s=NOW, cluster="c", jobs=tuple(jobs), nodes=chosen, **changes)


def site_factors(plan: Plan) -> tuple[SetSiteFactor, ...]:
    """The plan's decisions about site factors, in its order."""
    return tuple(decision for decision in plan.decisions if isinstance(decision, SetSiteFactor))


def make_sample(agent: str, name: str, value: float, at_s: float = NOW) -> IndicatorSample:
    """One indicator sample."""
    return IndicatorSample(agent=AgentName(agent), name=name, value=value, at_s=at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrfInstance:
    """A small DRF problem: one kind of task per agent, as in the paper.

    Attributes
    ----------
    demand : tuple of tuple of int
        One task per agent.
    n_tasks : tuple of int
        Tasks that each agent wants.
    """

    capacity: Amounts
    demand: tuple[Amounts, ...]
    weights: tuple[Fraction, ...]
    n_tasks: tuple[int, ...]

    @property
    def jobs(self) -> list[list[Amounts]]:
        """Whole jobs per agent."""
        return [[task] * n for task, n in zip(self.demand, self.n_tasks, strict=True)]


@st.composite
def drf_instances(draw: st.DrawFn, *, max_agents: int = 4, max_axes: int = 3) -> DrfInstance:
    """Small problems with whole numbers, so that ties happen often."""
    n_axes = draw(st.integers(1, max_axes))
    n_agents = draw(st.integers(1, max_agents))
    amounts = st.tuples(*[st.integers(0, 4)] * n_axes).filter(any)
    weight = st.builds(Fraction, st.integers(1, 6), st.sampled_from([1, 3, 10]))
    return DrfInstance(
        capacity=draw(st.tuples(*[st.integers(1, 20)] * n_axes)),
        demand=tuple(draw(amounts) for _ in range(n_agents)),
        weights=tuple(draw(weight) for _ in range(n_agents)),
        n_tasks=tuple(draw(st.integers(1, 8)) for _ in range(n_agents)),
    )


_REASONS = ("Priority", "Resources", "None", "Dependency", "QOSGrpGRES", "JobHeldUser", "Something new")


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """Small clusters with running and pending jobs of agents ``a``, ``b``, ``z`` (weight 0) and of nobody."""
    accounts = st.sampled_from(["a", "b", "z", "nobody"])
    tres = st.builds(make_tres, cpu=st.integers(1, 20), mem=st.integers(0, 9000), gpu=st.integers(0, 3))
    pending: list[dict[str, Any]] = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "account": accounts,
                    "tres": tres,
                    "reason": st.sampled_from(_REASONS),
                    "n_tasks": st.integers(1, 3),
                    "nice": st.sampled_from([0, 0, 10]),
                    "submit_s": st.integers(int(NOW) - 50, int(NOW)),
                    "site_factor": st.sampled_from([None, 0, 1, 20_000, 40_000]),
                }
            ),
            max_size=8,
        )
    )
    running = draw(st.lists(st.tuples(accounts, st.integers(1, 2)), max_size=4))
    jobs = [
        make_running(str(i + 1), account, tres=make_tres(cpu=2, mem=100, gpu=gpu))
        for i, (account, gpu) in enumerate(running)
    ]
    jobs += [make_job(str(i + 100), **fields) for i, fields in enumerate(pending)]
    return make_observation(jobs, [make_node(), make_node("n2", up=draw(st.booleans()))])


def make_quota(agent: str, gpus: int, **changes: Any) -> tuple[QosRecord, ...]:
    """The three QOSes of an agent on cluster ``c``: ``gpus`` guaranteed, ``borrow`` (default 1) and no limit beyond.

    ``opp=False`` leaves the opportunistic QOS out; ``max_nodes`` is MaxTRESPerJob of the borrow QOS; ``rank`` its
    priority; ``preempt`` the guaranteed QOS's list.
    """
    name = f"fg_c_{agent}"
    limits = changes.get("limits", (("gres/gpu", gpus),))
    max_nodes = changes.get("max_nodes")
    records = (
        QosRecord(name=name, priority=100, grp_tres=limits, preempt=changes.get("preempt", ())),
        QosRecord(
            name=f"{name}_borrow",
            priority=changes.get("rank", 9),
            grp_tres=(("gres/gpu", changes.get("borrow", 1)),),
            max_tres_per_job=(("node", max_nodes),) if max_nodes else (),
        ),
        QosRecord(name=f"{name}_opp", priority=1),
    )
    return records if changes.get("opp", True) else records[:2]
