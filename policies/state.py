"""The cluster as the scheduling policies see it: columns instead of rows.

Built once per cycle by :func:`policies.census.compute_state`. Arrays are read-only; amounts are exact integers:
``int64`` where they fit, Python integers in an object array otherwise (ADR 0002).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from policies.plan import Finding
from policies.quota.band_state import BandState
from policies.records import IndicatorSample, JobId
from policies.site_policy import AgentPolicy
from policies.startability import Startability

ExactArray = NDArray[Any]
"""Whole numbers: dtype ``int64``, or ``object`` holding Python integers."""

NO_FACTOR: Final = -(2**63)
"""In :attr:`PendingJobs.site_factor`: Slurm shows no site factor (the job is held or not yet eligible)."""

STARTABILITIES: Final = tuple(Startability)
"""Code -> meaning of :attr:`PendingJobs.startability`."""

STARTABLE_CODE: Final = STARTABILITIES.index(Startability.STARTABLE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingJobs:
    """Managed pending jobs, one per row, in the order of the observation.

    Attributes
    ----------
    job_ids : tuple of JobId
    agent : (n,) int64
        Index into :attr:`ClusterState.agents`.
    demand : (n, n_tres) exact
        What one task asks for, typed GPUs only where the user named the type (ADR 0003).
    n_tasks : (n,) int64
        Array tasks that the record stands for, >= 1.
    startability : (n,) int64
        Index into :data:`STARTABILITIES`.
    shape : (n,) int64
        Number of what the job asks for and where; jobs with one number fit the same nodes.
    nice, submit_s, id_major, id_minor : (n,) int64
        Keys of the agent's own order; the job id is split into numbers (``12_3`` is 12 and 3).
    wait_from_s : (n,) int64
        When the job became eligible, else when it was submitted.
    deadline_s : (n,) float64
        When it wants to be done, seconds since the epoch; ``inf`` where nothing is wanted or the agent's order
        does not look at deadlines.
    site_factor : (n,) int64
        What Slurm shows now; 0 nobody set one, :data:`NO_FACTOR` nothing shown.
    """

    job_ids: tuple[JobId, ...]
    agent: NDArray[np.int64]
    demand: ExactArray
    n_tasks: NDArray[np.int64]
    startability: NDArray[np.int64]
    shape: NDArray[np.int64]
    nice: NDArray[np.int64]
    submit_s: NDArray[np.int64]
    wait_from_s: NDArray[np.int64]
    deadline_s: NDArray[np.float64]
    site_factor: NDArray[np.int64]
    id_major: NDArray[np.int64]
    id_minor: NDArray[np.int64]

    @property
    def is_startable(self) -> NDArray[np.bool_]:
        """Which jobs Slurm could start as far as we can tell, (n,) bool."""
        result: NDArray[np.bool_] = self.startability == STARTABLE_CODE
        return result

    def __len__(self) -> int:
        return len(self.job_ids)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterState:
    """One snapshot.

    Attributes
    ----------
    tres : tuple of str
        Axis order: ``cpu``, ``mem``, ``gres/gpu``, then typed GPUs by name.
    capacity : tuple of int
        What the agents share, per axis; > 0 wherever an agent holds something.
    agents : tuple of AgentPolicy
        By name.
    held : (n_agents, n_tres) exact
        What the agents' running (and suspended, completing, ...) jobs hold.
    n_running : (n_agents,) int64
    bands : BandState or None
        ``None`` where the site file has no bands.
    """

    at_s: float
    tres: tuple[str, ...]
    capacity: tuple[int, ...]
    agents: tuple[AgentPolicy, ...]
    held: ExactArray
    n_running: NDArray[np.int64]
    pending: PendingJobs
    indicators: tuple[IndicatorSample, ...] = ()
    findings: tuple[Finding, ...] = ()
    bands: BandState | None = None


def freeze(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, read-only from now on."""
    array.flags.writeable = False
    return array
