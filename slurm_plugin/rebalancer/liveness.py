"""Whether a rebalancer lives and runs cycles: the lease says who, the standings file says when the last one was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurm_plugin.rebalancer.lease import LeaseHolder, lease_holder
from slurm_plugin.rebalancer.standings import read_standings_age_s

if TYPE_CHECKING:
    from slurm_plugin.site import SiteFile

STUCK_AFTER_S: Final = 10.0
"""A rebalancer that holds the lease but finished no cycle for so long (and three intervals) is stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """What was found.

    Attributes
    ----------
    holder : LeaseHolder or None
        Who holds the lease.
    idle_s : float
        Time since its last cycle or its start, seconds; 0 without a holder.
    """

    holder: LeaseHolder | None
    idle_s: float
    is_stuck: bool

    @property
    def is_alive(self) -> bool:
        """Whether a rebalancer runs cycles."""
        return self.holder is not None and not self.is_stuck


def look_for_rebalancer(site: SiteFile, *, now_s: float) -> Liveness:
    """Look at the lease and the standings file."""
    holder = _find_holder(site)
    if holder is None:
        return Liveness(holder=None, idle_s=0.0, is_stuck=False)
    cycle_age_s = read_standings_age_s(site.paths.run_dir, now_s)
    idle_s = min(now_s - holder.started_s, cycle_age_s if cycle_age_s is not None else now_s)
    is_stuck = idle_s > max(STUCK_AFTER_S, 3 * site.rebalancer.interval_s)
    return Liveness(holder=holder, idle_s=idle_s, is_stuck=is_stuck)


def _find_holder(site: SiteFile) -> LeaseHolder | None:
    try:
        return lease_holder(site.paths.state_dir)
    except PermissionError:  # neither root nor the rebalancer's user; its last cycle tells whether it lives
        return LeaseHolder(pid=0, started_s=0.0)
