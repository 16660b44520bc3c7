"""The overflow rules, reclaim counts and moves job by job: slow, plain, and the oracle for the columns of ``policies``.

It shares the room on nodes, the arithmetic of limits and the report with the real thing, and nothing of the passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from policies.plan import BandMemory, SetQos
from policies.quota.amounts import GPU, add_tres, exceeded, n_fitting
from policies.quota.band_plan import BandPlan, _starts, make_move
from policies.quota.band_report import band_findings, band_standings
from policies.quota.eligible import MAX_REQUEUE_DELAY_S, may_borrow
from policies.quota.free_room import FreeRoom
from policies.quota.memory import keep_memory
from policies.quota.names import BORROWED, Band
from policies.quota.overflow import Overflow, Reservation, usage_by_band
from policies.quota.steering import agent_uses, occupied_bands, steer_lists, steer_ranks
from policies.quota.wishes import BANDS, NO_BAND, Wish
from policies.records import JobId
from policies.startability import Startability
from policies.state import STARTABILITIES, STARTABLE_CODE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from policies.quota.band_state import BandState
    from policies.records import JobRecord, QosRecord, Tres
    from policies.site_policy import BandPolicy
    from policies.state import ClusterState

_OVER_LIMIT: Final = STARTABILITIES.index(Startability.OVER_LIMIT)
_DELAYED: Final = STARTABILITIES.index(Startability.DELAYED)


class WishByRow(dict[int, Wish]):
    """Wishes of one pass."""

    n_rows = 0

    @property
    def band(self) -> Any:
        """Band codes as the report wants them."""
        return np.array([BANDS.index(self[row].band) if row in self else NO_BAND for row in range(self.n_rows)])

    @property
    def has_quota(self) -> Any:
        """Rows for which the guaranteed band has room."""
        rows = range(self.n_rows)
        found = [row in self and self[row].reason.startswith("its guaranteed band has room") for row in rows]
        return np.array(found, dtype=np.bool_)


class HereByJob(NamedTuple):
    """Code of the band in which each pending job waits now."""

    here: NDArray[np.int64]


@dataclass(slots=True, kw_only=True, eq=False)
class Outcome:
    """As ``Overflow``."""

    columns: HereByJob
    wishes: WishByRow = field(default_factory=WishByRow)
    used: list[dict[Band, dict[str, int]]] = field(default_factory=list)
    claims: list[dict[str, int]] = field(default_factory=list)
    claimants: list[int] = field(default_factory=list)
    victims: list[int] = field(default_factory=list)
    idle_rows: list[int] = field(default_factory=list)
    idle_gpus: int = 0
    never: list[int] = field(default_factory=list)
    reservations: dict[int, Reservation] = field(default_factory=dict)


_WHY: Final = {
    Band.BORROW: "within the borrow cap, on resources that are idle",
    Band.OPPORTUNISTIC: "beyond the borrow cap, on resources that are idle",
}
_WAITS_ON: Final = {
    Band.BORROW: "it waits on within the borrow cap, nothing that it could borrow is idle now",
    Band.OPPORTUNISTIC: "it waits on beyond the borrow cap, nothing that it could borrow is idle now",
}


_ROOM_BY_USE: Final = "its guaranteed band has room, which an earlier job of the agent cannot use now"


def is_within(record: QosRecord, job: JobRecord) -> bool:
    """Whether a job of this size is within the QOS's limits, however little else runs in it."""
    request = (*job.tres, ("node", max(1, job.n_nodes)))
    return not (exceeded(record.grp_tres, request) or exceeded(record.max_tres_per_job, request))


def overflow_by_job(
    state: ClusterState, bands: BandState, order: Sequence[int], *, policy: BandPolicy, barred: frozenset[JobId]
) -> Outcome:
    """Where each pending job should wait, found job by job."""
    return _Pass(state, bands, policy, barred).run(order)


class _Pass:
    """One pass over the pending jobs; room in bands and on nodes only shrinks while it goes on."""

    def __init__(self, state: ClusterState, bands: BandState, policy: BandPolicy, barred: frozenset[JobId]) -> None:
        self.state, self.bands, self.policy, self.barred = state, bands, policy, barred
        self.is_open = waits_for_room(state, bands)
        self.owner: list[int] = state.pending.agent.tolist()
        self.qos = {agent: own for agent, own in enumerate(bands.agents) if own is not None}
        self.is_reserved: set[int] = set()
        self._admitted: dict[tuple[int, Band, Tres, int], bool] = {}
        self._descriptions: dict[tuple[int, Tres], str] = {}
        places = [bands.band_of(agent, job) for agent, job in zip(self.owner, bands.pending, strict=True)]
        here = np.array([NO_BAND if band is None else BANDS.index(band) for band in places], dtype=np.int64)
        self.out = Outcome(columns=HereByJob(here), used=usage_by_band(bands), claims=[{} for _ in bands.agents])
        self.used = [{band: dict(amounts) for band, amounts in own.items()} for own in self.out.used]
        self.room = FreeRoom(bands.nodes, [job for _, job in bands.running] + list(bands.foreign))

    def run(self, order: Sequence[int]) -> Outcome:
        """All phases."""
        self._reserve(order)
        rest = [row for row in order if not self._settle_guaranteed(row)]
        for band in BORROWED:
            rest = [row for row in rest if not self._settle_borrowed(row, band)]
        for row in rest:
            self._stay(row)
        return self.out

    def _reserve(self, order: Sequence[int]) -> None:
        """Per agent the first job in order that would fit its quota, but not what is left of it, for too long."""
        for row in order:
            agent, job = self.owner[row], self.bands.pending[row]
            waited_s = int(self.state.at_s - float(self.state.pending.wait_from_s[row]))
            is_due = waited_s >= self.policy.starve_after_s and self.is_open[row]
            if not is_due or agent not in self.qos or agent in self.out.reservations:
                continue
            limits = self.qos[agent].guaranteed.grp_tres
            is_blocked = not n_fitting(limits, self.used[agent][Band.GUARANTEED], job.tres, 1)
            if is_blocked and not exceeded(limits, job.tres):
                self.out.reservations[agent] = Reservation(row=row, job_id=job.job_id, waited_s=waited_s)

    def _settle_guaranteed(self, row: int) -> bool:
        """First phase; whether the job needs no further look."""
        agent, job = self.owner[row], self.bands.pending[row]
        if agent not in self.qos:
            if self.is_open[row]:
                self.room.place(job)
            return True
        if agent in self.out.reservations and self.out.reservations[agent].row == row:
            self.is_reserved.add(agent)
        is_victim = is_delayed_victim(self.state, row, job)
        n_fit = self._n_guaranteed(row) if self.is_open[row] or is_victim else 0
        if n_fit:
            self._claim(row, n_fit)
        elif is_victim and self._has_room_by_use(row):
            self._wish(row, Band.GUARANTEED, _ROOM_BY_USE)
        elif not self.is_open[row] and not self._is_at_home(row):
            self._wish(row, Band.GUARANTEED, "each job starts out in its guaranteed band")
        if is_victim and row in self.out.wishes:
            self.out.victims.append(row)
        return bool(n_fit) or not self.is_open[row]

    def _has_room_by_use(self, row: int) -> bool:
        """Whether running jobs alone leave room in the guaranteed band: earlier pending ones may be stuck."""
        agent, job = self.owner[row], self.bands.pending[row]
        limits, used = self.qos[agent].guaranteed.grp_tres, self.out.used[agent][Band.GUARANTEED]
        return not self._leaves_band(row) and n_fitting(limits, used, job.tres, 1) > 0

    def _n_guaranteed(self, row: int) -> int:
        """How many tasks of the job have room in its guaranteed band."""
        if self._leaves_band(row):
            return 0
        agent, job = self.owner[row], self.bands.pending[row]
        used = self.used[agent][Band.GUARANTEED]
        return n_fitting(self.qos[agent].guaranteed.grp_tres, used, job.tres, max(1, job.n_tasks))

    def _claim(self, row: int, n_fit: int) -> None:
        agent, job = self.owner[row], self.bands.pending[row]
        add_tres(self.used[agent][Band.GUARANTEED], job.tres, n_fit)
        self._wish(row, Band.GUARANTEED, "its guaranteed band has room for it")
        missing = n_fit - self.room.place(job, n_fit)
        if missing:
            add_tres(self.out.claims[agent], job.tres, missing)
            self.out.claimants.append(row)
            self.room.set_aside(job)

    def _leaves_band(self, row: int) -> bool:
        """Whether the guaranteed band is kept for an older job of the same agent."""
        agent = self.owner[row]
        reservation = self.out.reservations.get(agent)
        if reservation is None or reservation.row == row:
            return False
        submit_s = self.state.pending.submit_s
        return agent in self.is_reserved or bool(submit_s[row] > submit_s[reservation.row])

    def _could_ever_use(self, row: int, band: Band) -> bool:
        """Whether a borrowed band admits the job at all, full or not."""
        agent, job = self.owner[row], self.bands.pending[row]
        key = (agent, band, job.tres, job.n_nodes)
        if key not in self._admitted:
            record = self.qos[agent].qos(band)
            self._admitted[key] = record is not None and is_within(record, job)
        return self._admitted[key] and may_borrow(job)

    def _may_use(self, row: int, band: Band) -> bool:
        return self._could_ever_use(row, band) and self.bands.pending[row].job_id not in self.barred

    def _is_at_home(self, row: int) -> bool:
        """Whether the job waits in a band of its agent in which it may wait."""
        band = self.bands.band_of(self.owner[row], self.bands.pending[row])
        return band is Band.GUARANTEED or (band is not None and self._may_use(row, band))

    def _settle_borrowed(self, row: int, band: Band) -> bool:
        """Later phases; whether the job has room in this band and on the nodes (or waits there already)."""
        agent, job = self.owner[row], self.bands.pending[row]
        record = self.qos[agent].qos(band)
        if record is None or not self._may_use(row, band):
            return False
        used = self.used[agent][band]
        n_fit = n_fitting(record.grp_tres, used, job.tres, max(1, job.n_tasks))
        n_placed = self.room.place(job, n_fit)
        waits_here = n_fit and self.bands.band_of(agent, job) is band and not self._has_room_by_use(row)
        if not n_placed and not waits_here:
            return False
        add_tres(used, job.tres, n_placed or 1)
        why = (_WHY if n_placed else _WAITS_ON)[band]
        self._wish(row, band, f"{self._why_full(row)}; {why}")
        return True

    def _stay(self, row: int) -> None:
        """Last phase: no band has room now. What only policy keeps idle is counted."""
        agent, job = self.owner[row], self.bands.pending[row]
        is_too_large = bool(exceeded(self.qos[agent].guaranteed.grp_tres, job.tres))
        if is_too_large and not any(self._could_ever_use(row, band) for band in BORROWED):
            self.out.never.append(row)
        n_idle = self.room.place(job)
        if n_idle:
            self.out.idle_rows.append(row)
            self.out.idle_gpus += n_idle * dict(job.tres).get(GPU, 0)
        here = self.bands.band_of(agent, job)
        usable = [band for band in reversed(BORROWED) if self._may_use(row, band)]
        if self._has_room_by_use(row):
            self._wish(row, Band.GUARANTEED, _ROOM_BY_USE)
        elif usable and self._leaves_band(row):
            band = next((band for band in usable if band is here), usable[0])
            self.out.wishes[row] = Wish(band=band, reason=self._why_full(row), is_parked=True)
        else:
            self._wish(row, Band.GUARANTEED, f"{self._why_full(row)}; no other band has room for it now")

    def _wish(self, row: int, band: Band, reason: str) -> None:
        self.out.wishes[row] = Wish(band=band, reason=reason)

    def _why_full(self, row: int) -> str:
        agent, job = self.owner[row], self.bands.pending[row]
        asked = dict(job.tres)
        beyond = [
            f"{asked[name]} {name} of {limit}"
            for name, limit in self.qos[agent].guaranteed.grp_tres
            if name in asked and asked[name] > limit
        ]
        if beyond:
            return f"it asks for more than the whole guaranteed band: {', '.join(beyond)}"
        if self._leaves_band(row):
            kept = self.out.reservations[agent]
            return (
                f"the guaranteed band is kept for job {kept.job_id}, which has waited {kept.waited_s} s for room in it"
            )
        key = (agent, job.tres)
        if key not in self._descriptions:
            self._descriptions[key] = self._describe_use(agent, job.tres)
        return self._descriptions[key]

    def _describe_use(self, agent: int, tres: Tres) -> str:
        """What of the guaranteed band is taken; final once the first phase is over."""
        used, asked = self.used[agent][Band.GUARANTEED], dict(tres)
        full = [
            f"{used.get(name, 0)} of {limit} {name} taken, it asks for {asked[name]}"
            for name, limit in self.qos[agent].guaranteed.grp_tres
            if asked.get(name) and used.get(name, 0) + asked[name] > limit
        ]
        return f"the guaranteed band is full for it: {', '.join(full)}"


def waits_for_room(state: ClusterState, bands: BandState) -> list[bool]:
    """Which pending jobs could start, or are held back only by a limit of one of our QOSes; by row."""
    codes = state.pending.startability
    open_rows = codes == STARTABLE_CODE
    for row in np.flatnonzero(codes == _OVER_LIMIT).tolist():
        job = bands.pending[row]
        open_rows[row] = job.qos in bands.place_of and _is_qos_limit(job.reason)
    result: list[bool] = open_rows.tolist()
    return result


def is_delayed_victim(state: ClusterState, row: int, job: JobRecord) -> bool:
    """Whether the job waits out Slurm's delay after a requeue."""
    return (
        int(state.pending.startability[row]) == _DELAYED
        and job.restarts > 0
        and job.eligible_s is not None
        and job.eligible_s - job.submit_s <= MAX_REQUEUE_DELAY_S
    )


def _is_qos_limit(reason: str) -> bool:
    return all(part.strip("() ").startswith(("QOSGrp", "QOSMax")) for part in reason.split(","))


def reclaims_by_job(
    state: ClusterState, bands: BandState, memory: Sequence[BandMemory], policy: BandPolicy
) -> dict[JobId, BandMemory]:
    """As ``count_reclaims``."""
    before = {item.job_id: item for item in memory}
    seen: dict[JobId, BandMemory] = {}
    for agent, job, is_running in _jobs(state, bands):
        band = bands.band_of(agent, job)
        old = before.get(job.job_id) or _of_its_array(before, job)
        if (old is None and band not in BORROWED) or (is_running and band is Band.GUARANTEED):
            continue
        n_new = 0 if old is None else max(0, job.restarts - old.restarts)
        kept = () if old is None else tuple(at for at in old.reclaimed_s if at > state.at_s - policy.window_s)
        times = (*kept, *(state.at_s,) * n_new)
        is_barred = len(times) >= policy.max_reclaims or (
            old is not None and old.is_barred and _fits(bands, agent, job)
        )
        seen[job.job_id] = BandMemory(job_id=job.job_id, restarts=job.restarts, reclaimed_s=times, is_barred=is_barred)
    return seen


def _of_its_array(before: Mapping[JobId, BandMemory], job: JobRecord) -> BandMemory | None:
    return before.get(JobId(job.array_job_id)) if job.array_task_id else None


def _fits(bands: BandState, agent: int, job: JobRecord) -> bool:
    own = bands.agents[agent]
    return own is not None and not exceeded(own.guaranteed.grp_tres, job.tres)


def _jobs(state: ClusterState, bands: BandState) -> Iterator[tuple[int, JobRecord, bool]]:
    for agent, job in zip(state.pending.agent.tolist(), bands.pending, strict=True):
        yield agent, job, False
    for agent, job in bands.running:
        yield agent, job, True


def plan_bands_by_job(
    state: ClusterState, bands: BandState, policy: BandPolicy, *, order: Sequence[int], memory: Sequence[BandMemory]
) -> BandPlan:
    """Decide for the bands.

    Parameters
    ----------
    order : sequence of int
        Pending rows, first to start first.
    memory : sequence of BandMemory
        Of the cycle before.
    """
    seen = reclaims_by_job(state, bands, memory, policy)
    barred = frozenset(job_id for job_id, item in seen.items() if item.is_barred)
    outcome = overflow_by_job(state, bands, order, policy=policy, barred=barred)
    outcome.wishes.n_rows = len(bands.pending)
    overflow = cast("Overflow", outcome)
    uses = agent_uses(bands)
    back, out, parked = _moves(state, bands, overflow, order)
    lists = tuple(steer_lists(state, bands, uses, occupied_bands(bands, (move.new for move in (*back, *out, *parked)))))
    ranks = steer_ranks(state, bands, uses, overflow.claims)
    return BandPlan(
        urgent=(*lists, *ranks, *back, *_starts(state, bands, overflow, uses), *out),
        deferred=tuple(parked),
        standings=band_standings(state, bands, overflow, uses),
        findings=band_findings(state, bands, overflow),
        memory=_remember(state, bands, overflow, seen),
        overflow=overflow,
        uses=uses,
        seen=seen,
        lists=lists,
        bands=bands,
    )


def _moves(
    state: ClusterState, bands: BandState, overflow: Overflow, order: Sequence[int]
) -> tuple[list[SetQos], list[SetQos], list[SetQos]]:
    """Back to guaranteed; out to where they could start; out of a reserved guaranteed band."""
    back: list[SetQos] = []
    out: list[SetQos] = []
    parked: list[SetQos] = []
    for row in order:
        move = make_move(state, bands, overflow, row)
        if move is not None:
            wish = overflow.wishes.get(row)
            assert wish is not None
            chosen = parked if wish.is_parked else back if wish.band is Band.GUARANTEED else out
            chosen.append(move)
    return back, out, parked


def _remember(
    state: ClusterState, bands: BandState, overflow: Overflow, seen: Mapping[JobId, BandMemory]
) -> tuple[BandMemory, ...]:
    waiting = {}
    for row, (agent, job) in enumerate(zip(state.pending.agent.tolist(), bands.pending, strict=True)):
        wish = overflow.wishes.get(row)
        if (bands.band_of(agent, job) if wish is None else wish.band) in BORROWED:
            waiting[job.job_id] = job
    running = frozenset(job.job_id for agent, job in bands.running if bands.band_of(agent, job) in BORROWED)
    return keep_memory(seen, waiting, running)
