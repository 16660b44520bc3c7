"""Which band each pending job should wait in: the overflow rules of ``docs/explanation/bands.md``.

In the order in which jobs should start: first every job that has room in its guaranteed band (moved back if it had
left), then those that fit the borrow cap and free resources, then those that fit free resources alone. Everything else
waits in the guaranteed band.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from policies.quota.amounts import add_tres, exceeded, n_fitting
from policies.quota.band_state import BORROWED, BandState
from policies.quota.eligible import is_delayed_victim, may_borrow, waits_for_room
from policies.quota.free_room import GPU, FreeRoom
from policies.quota.names import Band
from policies.records import JobId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.records import JobRecord, QosRecord, Tres
    from policies.site_policy import BandPolicy
    from policies.state import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Where one pending job should wait, and why; ``is_parked`` where it could not start there now."""

    band: Band
    reason: str
    is_parked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reservation:
    """A job that has waited too long for room in its agent's guaranteed band: later jobs leave it the band."""

    row: int
    job_id: JobId
    waited_s: int


@dataclass(slots=True, kw_only=True, eq=False)
class Overflow:
    """The outcome; filled by one pass.

    Attributes
    ----------
    wishes : dict of int to Wish
        By pending row; a row that is absent is left alone.
    used : list of dict
        Per agent: what its running jobs use by band, before this pass.
    claims : list of dict
        Per agent: what its jobs ask for that have room in the guaranteed band but find no free resources.
    claimants, victims : list of int
        Rows of those jobs; rows of requeued jobs that may start at once.
    idle_rows : list of int
        Rows of jobs that would find free resources, but no band admits them.
    idle_gpus : int
        GPUs that those jobs could use.
    never : list of int
        Rows of jobs that ask for more than each band's limit.
    reservations : dict of int to Reservation
        By agent.
    """

    wishes: dict[int, Wish] = field(default_factory=dict)
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


_ROOM_BY_USE: Final = "its guaranteed band has room, which an earlier job of the agent cannot use now"


def is_within(record: QosRecord, job: JobRecord) -> bool:
    """Whether a job of this size is within the QOS's limits, however little else runs in it."""
    request = (*job.tres, ("node", max(1, job.n_nodes)))
    return not (exceeded(record.grp_tres, request) or exceeded(record.max_tres_per_job, request))


def usage_by_band(bands: BandState) -> list[dict[Band, dict[str, int]]]:
    """What counts against each band's limits, per agent. Jobs outside the bands are not in it."""
    used: list[dict[Band, dict[str, int]]] = [{band: {} for band in Band} for _ in bands.agents]
    for _, job in bands.counted():
        if job.qos in bands.place_of:
            owner, band = bands.place_of[job.qos]
            add_tres(used[owner][band], job.tres)
    return used


def plan_overflow(
    state: ClusterState, bands: BandState, order: Sequence[int], *, policy: BandPolicy, barred: frozenset[JobId]
) -> Overflow:
    """Where each pending job should wait.

    Parameters
    ----------
    order : sequence of int
        Pending rows, first to start first.
    barred : frozenset of JobId
        Jobs that were taken back too often.
    """
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
        self.out = Overflow(used=usage_by_band(bands), claims=[{} for _ in bands.agents])
        self.used = [{band: dict(amounts) for band, amounts in own.items()} for own in self.out.used]
        self.room = FreeRoom(bands.nodes, [job for _, job in bands.running] + list(bands.foreign))

    def run(self, order: Sequence[int]) -> Overflow:
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
        self._wish(row, band, f"{self._why_full(row)}; {_WHY[band]}")
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
