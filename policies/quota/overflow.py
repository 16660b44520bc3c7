"""Which band each pending job should wait in: the overflow rules of ``docs/explanation/bands.md``.

In the order in which jobs should start: first every job that has room in its guaranteed band (moved back if it had
left), then those that fit the borrow cap and free resources, then those that fit free resources alone. Everything else
waits in the guaranteed band.

Room only shrinks during a pass. So each phase looks at columns first: what has no room at its start needs no further
look, and only the jobs that may find some are taken one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from policies.quota.amounts import GPU, add_tres, describe_beyond, n_fitting
from policies.quota.band_columns import BandColumns, compute_columns
from policies.quota.eligible import delayed_victims, waits_for_room
from policies.quota.free_room import FreeRoom
from policies.quota.names import BORROWED, Band
from policies.quota.wishes import BANDS, Rule, Wishes
from policies.records import JobId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from policies.quota.band_state import BandState
    from policies.site_policy import BandPolicy
    from policies.state import ClusterState

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]


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
    wishes : Wishes
        Where the pending jobs should wait; a job without a wish is left alone.
    columns : BandColumns
        What was known of the jobs.
    used : list of dict
        Per agent: what Slurm charges to each band, before this pass.
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

    wishes: Wishes
    columns: BandColumns
    used: list[dict[Band, dict[str, int]]] = field(default_factory=list)
    claims: list[dict[str, int]] = field(default_factory=list)
    claimants: list[int] = field(default_factory=list)
    victims: list[int] = field(default_factory=list)
    idle_rows: list[int] = field(default_factory=list)
    idle_gpus: int = 0
    never: list[int] = field(default_factory=list)
    reservations: dict[int, Reservation] = field(default_factory=dict)


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
    return _Pass(state, bands, policy, barred).run(np.array(order, dtype=np.int64))


class _Pass:
    """One pass over the pending jobs; room in bands and on nodes only shrinks while it goes on."""

    def __init__(self, state: ClusterState, bands: BandState, policy: BandPolicy, barred: frozenset[JobId]) -> None:
        self.state, self.bands, self.policy = state, bands, policy
        self.columns = columns = compute_columns(state, bands, barred, has_opportunistic=policy.opportunistic)
        self.is_open = waits_for_room(state, bands)
        self.is_victim = delayed_victims(state, bands)
        self.agent = state.pending.agent
        self.owner: list[int] = self.agent.tolist()
        self.qos = {agent: own for agent, own in enumerate(bands.agents) if own is not None}
        self.is_reserved: set[int] = set()
        self.full: set[tuple[int, int]] = set()
        used = usage_by_band(bands)
        self.lacks_room = [
            limits.lack_room(self.agent, columns.asked, columns.use_of(used, code))
            for code, limits in enumerate(columns.group)
        ]
        self.used = [{band: dict(amounts) for band, amounts in own.items()} for own in used]
        self.room = FreeRoom(bands.nodes, [job for _, job in bands.running] + list(bands.foreign))
        self.out = Overflow(
            wishes=Wishes(len(state.pending), self._why_full),
            columns=columns,
            used=used,
            claims=[{} for _ in bands.agents],
        )

    def run(self, order: Ints) -> Overflow:
        """All phases."""
        self._reserve(order)
        rest = self._settle_guaranteed(order)
        for band in BORROWED:
            rest = self._settle_borrowed(rest, band)
        self._stay(rest)
        return self.out

    def _reserve(self, order: Ints) -> None:
        """Per agent the first job in order that would fit its quota, but not what is left of it, for too long."""
        waited_s = np.trunc(self.state.at_s - self.state.pending.wait_from_s)
        is_due = self.is_open & self.columns.is_banded & (waited_s >= self.policy.starve_after_s)
        is_blocked = self.lacks_room[0] & ~self.columns.group[0].are_exceeded(self.agent, self.columns.asked)
        rows = order[(is_due & is_blocked)[order]]
        _, first = np.unique(self.agent[rows], return_index=True)
        for row in rows[np.sort(first)].tolist():
            self.out.reservations[self.owner[row]] = Reservation(
                row=row, job_id=self.bands.pending[row].job_id, waited_s=int(waited_s[row])
            )

    def _settle_guaranteed(self, order: Ints) -> Ints:
        """First phase; the rows that need a further look, in order."""
        columns = self.columns
        may_fit = ~self.lacks_room[0] & ~self._is_younger_than_kept()
        is_looked_at = np.where(self.is_open, may_fit, self.is_victim | ~columns.is_at_home)
        is_looked_at = np.where(columns.is_banded, is_looked_at, self.is_open)
        is_looked_at[[kept.row for kept in self.out.reservations.values()]] = True
        is_settled = ~(self.is_open & columns.is_banded)
        for row in order[is_looked_at[order]].tolist():
            if self._find_room(row):
                is_settled[row] = True
        return order[~is_settled[order]]

    def _find_room(self, row: int) -> bool:
        """Whether the job has room in its guaranteed band (or none is needed: its agent has no bands)."""
        agent, job = self.owner[row], self.bands.pending[row]
        if agent not in self.qos:
            self.room.place(job)
            return True
        if agent in self.out.reservations and self.out.reservations[agent].row == row:
            self.is_reserved.add(agent)
        is_open, is_victim = bool(self.is_open[row]), bool(self.is_victim[row])
        n_fit = self._n_guaranteed(row) if is_open or is_victim else 0
        wishes = self.out.wishes
        if n_fit:
            self._claim(row, n_fit)
        elif is_victim and not self.lacks_room[0][row] and not self._leaves_band(row):
            wishes.put(row, Rule.ROOM_BY_USE)
        elif not is_open and not self.columns.is_at_home[row]:
            wishes.put(row, Rule.STARTS_OUT)
        if is_victim and wishes.band[row] >= 0:
            self.out.victims.append(row)
        return bool(n_fit)

    def _n_guaranteed(self, row: int) -> int:
        """How many tasks of the job have room in its guaranteed band."""
        agent, job = self.owner[row], self.bands.pending[row]
        request = (agent, int(self.columns.shape[row]))
        if request in self.full or self._leaves_band(row):
            return 0
        used = self.used[agent][Band.GUARANTEED]
        n_fit = n_fitting(self.qos[agent].guaranteed.grp_tres, used, job.tres, max(1, job.n_tasks))
        if not n_fit:
            self.full.add(request)
        return n_fit

    def _claim(self, row: int, n_fit: int) -> None:
        agent, job = self.owner[row], self.bands.pending[row]
        add_tres(self.used[agent][Band.GUARANTEED], job.tres, n_fit)
        self.out.wishes.put(row, Rule.HAS_ROOM)
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

    def _leave_band(self, rows: Ints) -> Bools:
        """The same of many rows after the first phase: each job that a band is kept for has had its turn."""
        kept_row = self._kept_rows()[self.agent[rows]]
        result: Bools = (kept_row >= 0) & (kept_row != rows)
        return result

    def _is_younger_than_kept(self) -> Bools:
        """Jobs that leave the guaranteed band to an older one from the start."""
        kept_row = self._kept_rows()[self.agent]
        submit_s = self.state.pending.submit_s
        result: Bools = (kept_row >= 0) & (submit_s > submit_s[kept_row])
        return result

    def _kept_rows(self) -> Ints:
        """Per agent the row that its guaranteed band is kept for, else -1."""
        rows = np.full(len(self.bands.agents), -1, dtype=np.int64)
        for agent, reservation in self.out.reservations.items():
            rows[agent] = reservation.row
        return rows

    def _have_room_by_use(self, rows: Ints) -> Bools:
        """Whether running jobs alone leave room in the guaranteed band: earlier pending ones may be stuck."""
        return ~self.lacks_room[0][rows] & ~self._leave_band(rows)

    def _may_be_placed(self, rows: Ints) -> Bools:
        """Whether the nodes have room for one task as yet."""
        shape = self.columns.shape[rows]
        fits = np.zeros(len(self.columns.models), dtype=np.bool_)
        for code in np.unique(shape).tolist():
            fits[code] = self.room.has_room(self.columns.models[code])
        result: Bools = fits[shape]
        return result

    def _settle_borrowed(self, rows: Ints, band: Band) -> Ints:
        """Later phases: jobs with room in this band and on the nodes (or that wait there already) stop here."""
        code, columns = BANDS.index(band), self.columns
        is_candidate = columns.may_use[rows, code] & ~self.lacks_room[code][rows]
        chosen = rows[is_candidate]
        waits_here = (columns.here[chosen] == code) & ~self._have_room_by_use(chosen)
        may_be_placed = self._may_be_placed(chosen)
        is_limited = columns.group[code].is_set[self.agent[chosen]].any(axis=1)
        stays = waits_here & ~may_be_placed & ~is_limited
        self.out.wishes.put(chosen[stays], Rule.WAITS_ON, code)
        is_settled = np.zeros(len(columns.here), dtype=np.bool_)
        is_settled[chosen[stays]] = True
        looked_at = (may_be_placed | waits_here) & ~stays
        for row, is_here in zip(chosen[looked_at].tolist(), waits_here[looked_at].tolist(), strict=True):
            is_settled[row] = self._try_borrowed(row, band, is_here=is_here)
        return rows[~is_settled[rows]]

    def _try_borrowed(self, row: int, band: Band, *, is_here: bool) -> bool:
        agent, job = self.owner[row], self.bands.pending[row]
        record = self.qos[agent].qos(band)
        used = self.used[agent][band]
        n_fit = n_fitting(() if record is None else record.grp_tres, used, job.tres, max(1, job.n_tasks))
        n_placed = self.room.place(job, n_fit)
        if not n_placed and not (n_fit and is_here):
            return False
        add_tres(used, job.tres, n_placed or 1)
        self.out.wishes.put(row, Rule.IDLE if n_placed else Rule.WAITS_ON, BANDS.index(band))
        return True

    def _stay(self, rows: Ints) -> None:
        """Last phase: no band has room now. What only policy keeps idle is counted."""
        columns = self.columns
        is_too_large = columns.group[0].are_exceeded(self.agent[rows], columns.asked[rows])
        self.out.never += rows[is_too_large & ~columns.could_use[rows, 1:].any(axis=1)].tolist()
        for row in rows[self._may_be_placed(rows)].tolist():
            n_idle = self.room.place(self.bands.pending[row])
            if n_idle:
                self.out.idle_rows.append(row)
                self.out.idle_gpus += n_idle * dict(self.bands.pending[row].tres).get(GPU, 0)
        self.out.wishes.put(rows, Rule.NOWHERE)
        self.out.wishes.put(rows[self._have_room_by_use(rows)], Rule.ROOM_BY_USE)
        self._park(rows[self._leave_band(rows) & columns.may_use[rows, 1:].any(axis=1)])

    def _park(self, rows: Ints) -> None:
        """Out of a guaranteed band that is kept: where they are, else opportunistic, else borrow."""
        here, may_use = self.columns.here[rows], self.columns.may_use[rows]
        is_here = (here > 0) & may_use[np.arange(len(rows)), here]
        self.out.wishes.put(rows, Rule.PARKED, np.where(is_here, here, np.where(may_use[:, 2], 2, 1)))

    def _why_full(self, row: int) -> str:
        """Why the guaranteed band does not take the job; true once the first phase is over."""
        agent, job = self.owner[row], self.bands.pending[row]
        limits = self.qos[agent].guaranteed.grp_tres
        if beyond := describe_beyond(limits, job.tres):
            return f"it asks for more than the whole guaranteed band: {beyond}"
        if self._leaves_band(row):
            kept = self.out.reservations[agent]
            return (
                f"the guaranteed band is kept for job {kept.job_id}, which has waited {kept.waited_s} s for room in it"
            )
        used, asked = self.used[agent][Band.GUARANTEED], dict(job.tres)
        full = [
            f"{used.get(name, 0)} of {limit} {name} taken, it asks for {asked[name]}"
            for name, limit in limits
            if asked.get(name) and used.get(name, 0) + asked[name] > limit
        ]
        return f"the guaranteed band is full for it: {', '.join(full)}"
