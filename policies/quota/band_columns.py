"""The pending jobs as columns that the overflow rules look at: own band, shape, what each band admits."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from policies.census import exact_array
from policies.interning import Interned
from policies.quota.eligible import may_borrow
from policies.quota.names import Band
from policies.quota.wishes import BANDS, NO_BAND
from policies.records import JobId, JobRecord
from policies.state import ExactArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from policies.quota.band_state import AgentBands, BandState
    from policies.records import QosRecord, Tres
    from policies.state import ClusterState

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]

NODE: Final = "node"
_QOS: Final = attrgetter("qos")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limits:
    """One kind of limit of all agents.

    Attributes
    ----------
    amount : (n_agents, n_axes) exact
        0 where there is none.
    is_set : (n_agents, n_axes) bool
        Whether there is one.
    """

    amount: ExactArray
    is_set: Bools

    def lack_room(self, agent: Ints, asked: ExactArray, used: ExactArray) -> Bools:
        """Which requests Slurm would not admit once beside ``used``, as in :func:`amounts.n_fitting`, (n,) bool.

        Parameters
        ----------
        agent : (n,) int64
        asked : (n, n_axes) exact
        used : (n_agents, n_axes) exact
        """
        if not self.is_set.any():
            return np.zeros(len(agent), dtype=np.bool_)
        room = self.amount - used
        return _any((asked > 0) & self.is_set[agent] & (asked > room[agent]))

    def are_exceeded(self, agent: Ints, asked: ExactArray) -> Bools:
        """Which requests are above the limit itself, (n,) bool."""
        if not self.is_set.any():
            return np.zeros(len(agent), dtype=np.bool_)
        return _any(self.is_set[agent] & (asked > self.amount[agent]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BandColumns:
    """n pending jobs; a column has one row per job, in the order of ``BandState.pending``.

    Attributes
    ----------
    axes : tuple of str
        TRES that are limited or asked for anywhere, and ``node``.
    models : tuple of JobRecord
        One job of each shape; jobs of one shape find room on the same nodes.
    shape : (n,) int64
        Which of them.
    asked : (n, n_axes) exact
        What one task asks for.
    here : (n,) int64
        Code of the agent's own band that the job's QOS is, or ``NO_BAND``.
    is_banded : (n,) bool
        Whether the agent has bands.
    has_band : (n_agents, 3) bool
    group : tuple of Limits
        Of all jobs of a band together, by band code.
    could_use : (n, 3) bool
        Whether a borrowed band admits the job at all, full or not.
    may_use : (n, 3) bool
        The same without those that were taken back too often.
    is_at_home : (n,) bool
        Whether the job waits in a band of its agent in which it may wait.
    """

    axes: tuple[str, ...]
    models: tuple[JobRecord, ...]
    shape: Ints
    asked: ExactArray
    here: Ints
    is_banded: Bools
    has_band: Bools
    group: tuple[Limits, ...]
    could_use: Bools
    may_use: Bools
    is_at_home: Bools

    def use_of(self, used: Sequence[Mapping[Band, Mapping[str, int]]], code: int) -> ExactArray:
        """What agents use of a band, (n_agents, n_axes)."""
        rows = [[own[BANDS[code]].get(name, 0) for name in self.axes] for own in used]
        return exact_array(rows).reshape(len(used), len(self.axes))


def compute_columns(
    state: ClusterState, bands: BandState, barred: frozenset[JobId], *, has_opportunistic: bool
) -> BandColumns:
    """Columns of the pending jobs.

    Parameters
    ----------
    barred : frozenset of JobId
        Jobs that were taken back too often.
    has_opportunistic : bool
        Off: the opportunistic QOSes, which outlive the switch, admit nobody.
    """
    agent, jobs = state.pending.agent, bands.pending
    shape = state.pending.shape
    models = _models(shape, jobs)
    axes = _axes(bands, models)
    asked = _table([job.tres for job in models], axes).amount
    sized = asked.copy()
    sized[:, axes.index(NODE)] = [max(1, job.n_nodes) for job in models]
    has_band = np.array([[own is not None and own.qos(band) is not None for band in BANDS] for own in bands.agents])
    has_band = has_band.reshape(len(bands.agents), len(BANDS))
    here = _here(bands, agent)
    is_movable = np.fromiter(map(may_borrow, jobs), dtype=np.bool_, count=len(jobs))
    could_use = _admitted(bands, axes, agent, sized[shape])
    could_use[~is_movable] = False
    could_use[~has_band[agent]] = False
    could_use[:, BANDS.index(Band.OPPORTUNISTIC)] &= has_opportunistic
    may_use = could_use & _is_free(state, barred)[:, None]
    return BandColumns(
        axes=axes,
        models=models,
        shape=shape,
        asked=asked[shape],
        here=here,
        is_banded=has_band[agent, 0],
        has_band=has_band,
        group=tuple(_limits(bands.agents, band, "grp_tres", axes) for band in BANDS),
        could_use=could_use,
        may_use=may_use,
        is_at_home=(here == 0) | ((here > 0) & may_use[np.arange(len(jobs)), here]),
    )


def _any(table: NDArray[Any]) -> Bools:
    return np.asarray(table.any(axis=1), dtype=np.bool_)


def _models(shape: Ints, jobs: Sequence[JobRecord]) -> tuple[JobRecord, ...]:
    """One job of each shape; the numbers have no gaps."""
    first = np.zeros(int(shape.max(initial=-1)) + 1, dtype=np.int64)
    first[shape[::-1]] = np.arange(len(shape))[::-1]
    return tuple(jobs[row] for row in first.tolist())


def _axes(bands: BandState, models: Iterable[JobRecord]) -> tuple[str, ...]:
    names = {NODE}
    for own in bands.agents:
        for record in () if own is None else filter(None, map(own.qos, BANDS)):
            names.update(name for name, _ in (*record.grp_tres, *record.max_tres_per_job))
    for job in models:
        names.update(name for name, _ in job.tres)
    return tuple(sorted(names))


def _limits(agents: Iterable[AgentBands | None], band: Band, kind: str, axes: tuple[str, ...]) -> Limits:
    records: list[QosRecord | None] = [None if own is None else own.qos(band) for own in agents]
    return _table([() if record is None else getattr(record, kind) for record in records], axes)


def _table(rows: Sequence[Tres], axes: tuple[str, ...]) -> Limits:
    found = [dict(row) for row in rows]
    shape = (len(rows), len(axes))
    return Limits(
        amount=exact_array([[row.get(name, 0) for name in axes] for row in found]).reshape(shape),
        is_set=np.array([[name in row for name in axes] for row in found], dtype=np.bool_).reshape(shape),
    )


def _admitted(bands: BandState, axes: tuple[str, ...], agent: Ints, sized: ExactArray) -> Bools:
    """Whether jobs of this size are within each band's limits, however little else runs in it, (n, 3) bool."""
    columns = [
        ~_limits(bands.agents, band, "grp_tres", axes).are_exceeded(agent, sized)
        & ~_limits(bands.agents, band, "max_tres_per_job", axes).are_exceeded(agent, sized)
        for band in BANDS
    ]
    return np.stack(columns, axis=1)


def _here(bands: BandState, agent: Ints) -> Ints:
    """Code of the own band that each job waits in."""
    names = Interned(map(_QOS, bands.pending))
    owner = names.spread(lambda name: bands.place_of[name][0] if name in bands.place_of else NO_BAND)
    code = names.spread(lambda name: BANDS.index(bands.place_of[name][1]) if name in bands.place_of else NO_BAND)
    return np.where(owner == agent, code, NO_BAND)


def _is_free(state: ClusterState, barred: frozenset[JobId]) -> Bools:
    if not barred:
        return np.ones(len(state.pending), dtype=np.bool_)
    return np.array([job_id not in barred for job_id in state.pending.job_ids], dtype=np.bool_)
