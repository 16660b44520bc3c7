"""The contract of every scheduling policy, ours or a site's: ``check_policy(policy)``."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, assert_never

from policies.canonical import canonical_bytes, plan_bytes
from policies.census import compute_state
from policies.errors import PolicyError
from policies.factor_plan import PolicyParams
from policies.plan import SetBorrowRank, SetPreemptList, SetQos, SetSiteFactor, StartNow
from policies.quota.layout import HIGHEST_BORROW_PRIORITY, LOWEST_BORROW_PRIORITY
from policies.quota.names import PREFIX, Band, band_qos
from policies.records import (
    AccountName,
    AgentName,
    JobId,
    JobRecord,
    JobState,
    NodeName,
    NodeRecord,
    Observation,
    PartitionName,
    QosRecord,
)
from policies.site_policy import AgentPolicy, BandPolicy, SitePolicy

if TYPE_CHECKING:
    from policies.plan import Decision, Plan
    from policies.registry import Policy
    from policies.state import ClusterState

NOW: Final = 1_000_000.0
_GPU: Final = PartitionName("gpu")
_JOB_TRES: Final = (("cpu", 8), ("gres/gpu", 1), ("mem", 16_000))
_NODE_TRES: Final = (("cpu", 64), ("gres/gpu", 4), ("mem", 256_000))


def check_policy(policy: Policy) -> None:
    """Raise unless the policy keeps the contract on small clusters: empty, idle, full, with unusual jobs.

    Raises
    ------
    PolicyError
        Lists every broken rule: it raises itself, is not deterministic, changes its input, does not explain a
        decision, or decides what cannot be enacted.

    Examples
    --------
    >>> from policies.registry import get_policy
    >>> check_policy(get_policy("wdrf").decide)
    """
    problems: list[str] = []
    banded = {f"bands, {name}": replace(observation, qos=_qos()) for name, observation in _clusters().items()}
    for name, observation in (_clusters() | banded).items():
        params = PolicyParams(site=_site(BandPolicy() if observation.qos else None))
        state = compute_state(observation, params.site)
        try:
            problems += [f"{name}: {problem}" for problem in _problems(policy, state, params)]
        except Exception as err:  # noqa: BLE001 - any failure of a foreign policy is a finding of this check
            problems.append(f"{name}: raises {type(err).__name__}: {err}")
    if problems:
        raise PolicyError("the policy breaks its contract:\n" + "\n".join(problems))


def _problems(policy: Policy, state: ClusterState, params: PolicyParams) -> list[str]:
    before = _fingerprint(state)
    plan = policy(state, params, now=NOW)
    problems = []
    if plan_bytes(plan) != plan_bytes(policy(state, params, now=NOW)):
        problems.append("is not deterministic: two calls differ")
    if _fingerprint(state) != before:
        problems.append("changes its input")
    if [standing.agent for standing in plan.standings] != [agent.name for agent in state.agents]:
        problems.append("does not give each agent's standing, by name")
    return problems + _decision_problems(plan, state, params)


def _decision_problems(plan: Plan, state: ClusterState, params: PolicyParams) -> list[str]:
    subjects = [(type(decision), _subject(decision)) for decision in plan.decisions]
    problems = [] if len(set(subjects)) == len(subjects) else ["decides about a job or QOS twice"]
    pending = frozenset(state.pending.job_ids)
    for decision in plan.decisions:
        found = [] if decision.reason else ["no reason"]
        found += _check_decision(decision, pending, params.site)
        problems += [f"{_subject(decision)}: {text}" for text in found]
    return problems


def _subject(decision: Decision) -> str:
    match decision:
        case SetSiteFactor() | SetQos() | StartNow():
            return f"job {decision.job_id}"
        case SetBorrowRank() | SetPreemptList():
            return f"QOS {decision.qos}"
        case _:
            assert_never(decision)


def _check_decision(decision: Decision, pending: frozenset[JobId], site: SitePolicy) -> list[str]:
    match decision:
        case SetSiteFactor():
            is_right = {
                "is not a managed pending job": decision.job_id in pending,
                f"site factor {decision.new} is outside [1, {site.factor_scale}]": (
                    1 <= decision.new <= site.factor_scale
                ),
                "changes nothing": decision.new != decision.old,
            }
        case SetQos():
            is_right = {
                "is not a managed pending job": decision.job_id in pending,
                f"{decision.new} is no QOS of ours": decision.new.startswith(PREFIX),
                "changes nothing": decision.new != decision.old,
            }
        case StartNow():
            is_right = {"is not a managed pending job": decision.job_id in pending}
        case SetBorrowRank():
            is_right = {
                "is no QOS of ours": decision.qos.startswith(PREFIX),
                f"priority {decision.new} is no borrow rank": (
                    LOWEST_BORROW_PRIORITY <= decision.new <= HIGHEST_BORROW_PRIORITY
                ),
                "changes nothing": decision.new != decision.old,
            }
        case SetPreemptList():
            is_right = {
                "touches a QOS that is not ours": all(
                    name.startswith(PREFIX) for name in (decision.qos, *set(decision.new) - set(decision.old))
                ),
                "is not sorted": list(decision.new) == sorted(decision.new),
                "changes nothing": decision.new != decision.old,
            }
        case _:
            assert_never(decision)
    return [text for text, is_fine in is_right.items() if not is_fine]


def _fingerprint(state: ClusterState) -> bytes:
    pending = state.pending
    arrays = (
        state.held, state.n_running, pending.agent, pending.demand, pending.n_tasks, pending.startability,
        pending.nice, pending.submit_s, pending.wait_from_s, pending.site_factor, pending.id_major,
    )  # fmt: skip
    return canonical_bytes((state.capacity, state.findings, tuple(array.tolist() for array in arrays)))


def _site(bands: BandPolicy | None) -> SitePolicy:
    agents = tuple(
        AgentPolicy(name=AgentName(name), accounts=(AccountName(name),), base_weight=weight)
        for name, weight in (("a", Fraction(3, 5)), ("b", Fraction(2, 5)), ("idle", Fraction(0)))
    )
    return SitePolicy(cluster="check", partitions=(_GPU,), agents=agents, bands=bands)


def _qos() -> tuple[QosRecord, ...]:
    """Bands of agents a (1 GPU) and b (2); weight-0 agent idle has none."""
    records = []
    for agent, gpus in ((AgentName("a"), 1), (AgentName("b"), 2)):
        names = {band: band_qos("check", agent, band) for band in Band}
        limits = (("gres/gpu", gpus),)
        records += [
            QosRecord(name=names[Band.GUARANTEED], priority=100, grp_tres=limits),
            QosRecord(name=names[Band.BORROW], priority=LOWEST_BORROW_PRIORITY, grp_tres=limits),
            QosRecord(name=names[Band.OPPORTUNISTIC], priority=1),
        ]
    return tuple(records)


def _clusters() -> dict[str, Observation]:
    node = NodeRecord(name=NodeName("n1"), partitions=(_GPU,), state="mixed", is_schedulable=True, tres=_NODE_TRES)
    empty = Observation(at_s=NOW, cluster="check", jobs=(), nodes=())
    idle = replace(empty, nodes=(node,))
    waiting = tuple(_job(10 + n, "ab"[n % 2], is_running=False) for n in range(6))
    running = tuple(_job(n, "a", is_running=True) for n in range(1, 5))
    unusual = (
        replace(waiting[0], priority=0, reason="JobHeldUser", site_factor=None),
        replace(waiting[1], tres=(("cpu", 10**6),)),
        replace(waiting[2], n_tasks=1000, job_id=JobId("12"), array_job_id="12"),
        replace(waiting[3], account=AccountName("idle")),
        replace(waiting[4], account=AccountName("stranger")),
        replace(waiting[5], site_factor=40_000),
        replace(waiting[0], job_id=JobId("30"), restarts=1, reason="BeginTime", eligible_s=int(NOW) + 100),
    )
    return {
        "no nodes, no jobs": empty,
        "no nodes": replace(empty, jobs=waiting),
        "idle": idle,
        "jobs wait": replace(idle, jobs=waiting),
        "full": replace(idle, jobs=(*running, *waiting)),
        "down": replace(idle, jobs=(*running, *waiting), nodes=(replace(node, is_schedulable=False),)),
        "unusual jobs": replace(idle, jobs=unusual),
    }


def _job(number: int, account: str, *, is_running: bool) -> JobRecord:
    return JobRecord(
        job_id=JobId(str(number)),
        user="u",
        uid=1000,
        account=AccountName(account),
        partitions=(_GPU,),
        state=JobState.RUNNING if is_running else JobState.PENDING,
        tres=_JOB_TRES,
        priority=1,
        submit_s=int(NOW) - 100 + number,
        nodes="n1" if is_running else "",
        site_factor=None if is_running else 0,
    )
