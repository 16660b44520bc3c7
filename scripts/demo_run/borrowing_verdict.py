"""What act two must show, computed: quotas and caps from the core, the bound from Slurm's settings, victims predicted.

No number here was tuned to fit what the demo prints.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from workload import CAPACITY, TRES

from policies.census import compute_state
from policies.quota.free_room import FreeRoom
from policies.quota.victims import list_loans, predict_victims

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from cluster import Sample

    from policies.quota.nominal import AgentQuota
    from policies.records import JobRecord, Observation
    from policies.site_policy import SitePolicy

GPU: Final = "gres/gpu"
_N_GPUS: Final = CAPACITY[TRES.index(GPU)]
_N_PASSES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How long a reclaim may take, from Slurm's own settings, seconds.

    Attributes
    ----------
    grace_s : float
        GraceTime of the victims' QOS.
    pass_s : float
        One scheduling pass: ``sched_interval + bf_interval``, since it may have to wait for either.
    """

    grace_s: float
    kill_wait_s: float
    message_timeout_s: float
    pass_s: float

    @property
    def victims_gone_s(self) -> float:
        """GraceTime + KillWait + two passes."""
        return self.grace_s + self.kill_wait_s + _N_PASSES * self.pass_s

    @property
    def promised_s(self) -> float:
        """Promise 3: MessageTimeout on top, for a claim that has to ask Slurm again."""
        return self.victims_gone_s + self.message_timeout_s

    def describe(self) -> str:
        """The sum, digit for digit."""
        parts = f"GraceTime {self.grace_s:g} + KillWait {self.kill_wait_s:g} + {_N_PASSES} passes of {self.pass_s:g}"
        gone = f"{parts} = {self.victims_gone_s:g} s"
        return f"{gone}; + MessageTimeout {self.message_timeout_s:g} = {self.promised_s:g} s (promise 3)"


def read_bound(config: str, *, grace_s: float) -> Bound:
    """Take the bound from the text of ``scontrol show config``."""
    return Bound(
        grace_s=grace_s,
        kill_wait_s=_number(config, r"^KillWait\s*= (\d+) sec"),
        message_timeout_s=_number(config, r"^MessageTimeout\s*= (\d+) sec"),
        pass_s=_number(config, r"\bsched_interval=(\d+)") + _number(config, r"\bbf_interval=(\d+)"),
    )


def _number(text: str, pattern: str) -> float:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        msg = f"scontrol show config has no {pattern}"
        raise ValueError(msg)
    return float(found[1])


def gpus(quota: AgentQuota) -> tuple[int, int]:
    """Nominal quota and borrow cap of an agent in GPUs."""
    return dict(quota.nominal or ())[GPU], dict(quota.borrow_cap)[GPU]


def expected_flood(quota: AgentQuota) -> Counter[str]:
    """GPUs by QOS when one agent alone asks for more than the cluster has: quota, cap, the rest opportunistic."""
    nominal, cap = gpus(quota)
    names = (str(quota.guaranteed_qos), str(quota.borrow_qos), str(quota.opportunistic_qos))
    return Counter(dict(zip(names, (nominal, cap, _N_GPUS - nominal - cap), strict=True)))


def is_within_limits(samples: Iterable[Sample], quotas: Iterable[AgentQuota]) -> bool:
    """Whether no sample shows more than the quota or the cap in any band that has one."""
    limits = {
        name: limit
        for quota in quotas
        for name, limit in zip((str(quota.guaranteed_qos), str(quota.borrow_qos)), gpus(quota), strict=True)
    }
    return all(sample.gpus_by_qos[name] <= limit for sample in samples for name, limit in limits.items())


def predict(seen: Observation, policy: SitePolicy, claims: Iterable[JobRecord]) -> dict[str, dict[str, str]]:
    """Whom the claims take from, one after the other, as the core predicts it from one observation.

    Parameters
    ----------
    seen : Observation
        Before the claims.
    claims : iterable of JobRecord
        As they will wait, in the order of their turn.

    Returns
    -------
    dict
        QOS of the claims -> job id of a victim -> QOS that the victim runs in.
    """
    state = compute_state(seen, policy)
    bands = state.bands
    if bands is None:
        msg = "slurmctld shows no QOS of ours"
        raise ValueError(msg)
    preempt = {record.name: record.preempt for record in seen.qos}
    room = FreeRoom(bands.nodes, [held for _, held in bands.running] + list(bands.foreign))
    taken: set[str] = set()
    predicted: dict[str, dict[str, str]] = {}
    for claim in claims:
        loans = [loan for loan in list_loans(state, bands, preempt[claim.qos]) if loan.job.job_id not in taken]
        victims = [loan.job for loan in predict_victims(claim, loans, room) or ()]
        for job in victims:
            room.release(job)
        room.place(claim)
        predicted.setdefault(claim.qos, {}).update({str(job.job_id): job.qos for job in victims})
        taken |= {str(job.job_id) for job in victims}
    return predicted


def read_accounting(text: str) -> dict[str, tuple[str, ...]]:
    """States of each job from ``sacct -XDnP --format=jobid,state``, one for each time that it was started."""
    states: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        job_id, _, state = line.partition("|")
        states[job_id] = (*states.get(job_id, ()), state.split()[0])
    return states


def all_completed(states: Mapping[str, tuple[str, ...]], job_ids: Collection[str]) -> bool:
    """Whether sacct knows each job, and the last it says of it is COMPLETED."""
    return all(states.get(job_id, ("",))[-1] == "COMPLETED" for job_id in job_ids)


def restarts_agree(states: Mapping[str, tuple[str, ...]], restarts: Mapping[str, int]) -> bool:
    """Whether sacct shows as many preempted runs of each job as slurmctld counted restarts, and of no other job."""
    preempted = {job_id: n for job_id, found in states.items() if (n := len(found) - 1)}
    ended = {state for found in states.values() for state in found[:-1]}
    return preempted == dict(restarts) and ended <= {"PREEMPTED"}
