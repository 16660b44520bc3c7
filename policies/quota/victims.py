"""Which running jobs a claim takes back: what Slurm will choose, and what would be right.

``predict_victims`` follows Slurm's preemption (``select/cons_tres`` with ``preempt/qos``): candidates by QOS priority,
then fewer nodes, then the older job; they are taken out one by one until the claimant fits. Two more rounds
(``preempt_reorder_count`` 1, the default) leave out what was taken for nothing: each begins with the job that decided
the round before, then those on the nodes found there. What was taken on the last round's nodes are the victims.

``choose_victims`` simulates that, validates each victim on a copy, and commits to the first set that is lawful: nobody
at or below nominal loses a job to another agent, no victim too many, each job as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies.census import split_job_id
from policies.quota.amounts import add_tres, excess
from policies.records import AgentName, JobRecord, Tres

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from policies.quota.band_state import BandState
    from policies.quota.free_room import FreeRoom
    from policies.records import JobId
    from policies.state import ClusterState

N_REORDERS: Final = 2
"""How often Slurm goes through the candidates again: ``preempt_reorder_count`` + 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loan:
    """A running job that may be taken back: an opportunistic or borrowed one.

    Attributes
    ----------
    order : tuple of int
        Slurm's order: QOS priority, number of nodes, job id; the lowest goes first.
    """

    job: JobRecord
    agent: AgentName
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What an agent uses and is owed."""

    used: Tres
    nominal: Tres


def list_loans(state: ClusterState, bands: BandState, preempt: Collection[str]) -> tuple[Loan, ...]:
    """Running jobs of the QOSes in a Preempt list, in Slurm's order."""
    loans = []
    for _, job in bands.counted():
        if job.qos in preempt and job.qos in bands.place_of:
            owner, band = bands.place_of[job.qos]
            own = bands.agents[owner]
            record = None if own is None else own.qos(band)
            order = (0 if record is None else record.priority, max(1, job.n_nodes), *split_job_id(job.job_id))
            loans.append(Loan(job=job, agent=state.agents[owner].name, order=order))
    return tuple(sorted(loans, key=lambda loan: loan.order))


def predict_victims(claim: JobRecord, loans: Sequence[Loan], room: FreeRoom) -> tuple[Loan, ...] | None:
    """The jobs that Slurm will preempt for one task of the claim.

    Parameters
    ----------
    loans : sequence of Loan
        In Slurm's order.
    room : FreeRoom
        What is free; it is not changed.

    Returns
    -------
    tuple of Loan or None
        In Slurm's order. Empty if the claim fits without; ``None`` if it does not fit even without all of them.
    """
    if room.where(claim) is not None:
        return ()
    order = list(loans)
    taken, nodes = _take_until_it_fits(claim, order, room)
    if not taken:
        return None
    for _ in range(min(N_REORDERS, len(order) - 1)):
        order = _reorder(order, taken, nodes, room)
        taken, nodes = _take_until_it_fits(claim, order, room)
    victims = [loan for loan in taken if not nodes.isdisjoint(room.rows_of(loan.job))]
    return tuple(sorted(victims, key=lambda loan: loan.order))


def choose_victims(
    claim: JobRecord, loans: Sequence[Loan], room: FreeRoom, *, accounts: Mapping[AgentName, Account], agent: AgentName
) -> tuple[Loan, ...] | None:
    """The lawful, minimal set of victims that is closest to Slurm's choice, for a claim of ``agent``.

    Returns
    -------
    tuple of Loan or None
        As :func:`predict_victims`. Each victim's agent is above its nominal quota at that victim's turn, or it is the
        claimant itself.
    """
    banned: set[JobId] = set()
    while True:
        left = [loan for loan in loans if loan.job.job_id not in banned]
        victims = predict_victims(claim, left, room)
        if not victims:
            return victims
        victims = _prune(claim, victims, room)
        unlawful = _first_unlawful(victims, accounts, agent)
        if unlawful is None:
            return victims
        banned.add(unlawful.job.job_id)


def _take_until_it_fits(
    claim: JobRecord, loans: Sequence[Loan], room: FreeRoom
) -> tuple[tuple[Loan, ...], frozenset[int]]:
    """The loans taken, and the nodes that the claim then gets; nothing taken if it does not fit at all."""
    copy = room.copy()
    for number, loan in enumerate(loans, 1):
        copy.release(loan.job)
        rows = copy.where(claim)
        if rows is not None:
            return tuple(loans[:number]), frozenset(rows)
    return (), frozenset()


def _reorder(order: Sequence[Loan], taken: Sequence[Loan], nodes: frozenset[int], room: FreeRoom) -> list[Loan]:
    """The last one taken, then those on more of the nodes found; the others stay as they are, behind."""
    *before, last = taken
    overlap = {loan.job.job_id: len(nodes.intersection(room.rows_of(loan.job))) for loan in before}
    rest = [*before, *order[len(taken) :]]
    return [last, *sorted(rest, key=lambda loan: -overlap.get(loan.job.job_id, 0))]


def _without(room: FreeRoom, victims: Sequence[Loan]) -> FreeRoom:
    copy = room.copy()
    for loan in victims:
        copy.release(loan.job)
    return copy


def _prune(claim: JobRecord, victims: tuple[Loan, ...], room: FreeRoom) -> tuple[Loan, ...]:
    """Without those that the claim does not need; the one that Slurm would take last is spared first."""
    for loan in sorted(victims, key=lambda loan: loan.order, reverse=True):
        rest = tuple(other for other in victims if other is not loan)
        if _without(room, rest).where(claim) is not None:
            victims = rest
    return victims


def _first_unlawful(victims: Sequence[Loan], accounts: Mapping[AgentName, Account], agent: AgentName) -> Loan | None:
    used = {name: dict(account.used) for name, account in accounts.items()}
    for loan in victims:
        if loan.agent != agent and not excess(accounts[loan.agent].nominal, used[loan.agent]):
            return loan
        add_tres(used[loan.agent], loan.job.tres, -1)
    return None
