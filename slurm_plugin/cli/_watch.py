"""Looking at the cluster once or again and again, for ``fairgpu status`` and ``fairgpu top``.

One look is one observation of Slurm. What slurmctld spent on our RPCs (``sdiag``) is asked for less often, and the
memory of the SLA weights and bands is taken from the daemon once and then carried from look to look.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from policies.quota.disruption import Disruption
from policies.records import Observation
from slurm_plugin.cli._fresh import fresh_snapshot
from slurm_plugin.cli._health import Health, check_health, service_user
from slurm_plugin.cli._history import latest_reclaims, recent_disruption
from slurm_plugin.client import SlurmClient
from slurm_plugin.errors import SlurmError
from slurm_plugin.rebalancer.daemon import Memory
from slurm_plugin.rebalancer.observe import GroupCache
from slurm_plugin.rebalancer.own_qos import OwnQos
from slurm_plugin.rebalancer.reclaims import find_reclaims, reclaim_row
from slurm_plugin.rebalancer.update_budget import ControllerLoad, UpdateBudget, read_budget, read_load
from slurm_plugin.site import SiteFile
from slurm_plugin.snapshot import Snapshot

LOAD_MAX_AGE_S: Final = 30.0
N_RECLAIMS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look.

    Attributes
    ----------
    health, budget, load
        ``None`` where a snapshot file was looked at, or nothing is known.
    reclaims : tuple of mapping
        Rows of the history's table ``reclaims``, newest first: the history's where this user may read it, else those
        seen between two looks.
    disruption : Disruption or None
        What reclaims within the site's window took for what was claimed; ``None`` without bands or history.
    """

    snapshot: Snapshot
    health: Health | None = None
    budget: UpdateBudget | None = None
    load: ControllerLoad | None = None
    reclaims: tuple[Mapping[str, Any], ...] = ()
    disruption: Disruption | None = None


@dataclass(slots=True, kw_only=True)
class Watch:
    """What is kept between two looks."""

    site: SiteFile
    client: SlurmClient
    _groups: GroupCache = field(default_factory=GroupCache)
    _memory: Memory | None = None
    _before: Observation | None = None
    _reclaims: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=N_RECLAIMS))
    _load: ControllerLoad | None = None
    _load_s: float = float("-inf")

    def look(self) -> Seen:
        """Look once.

        Raises
        ------
        SlurmError
            Slurm could not be observed; what was kept stays.
        """
        snapshot = fresh_snapshot(self.site, self.client, groups=self._groups, memory=self._memory)
        self._memory = Memory(snapshot.plan.sla_memory, snapshot.plan.band_memory)
        self._note_reclaims(snapshot)
        now_s = snapshot.now_s
        return Seen(
            snapshot=snapshot,
            health=check_health(self.site, now_s=now_s),
            budget=read_budget(self.site.paths.run_dir),
            load=self._fetch_load(now_s),
            reclaims=latest_reclaims(self.site, N_RECLAIMS) or tuple(self._reclaims),
            disruption=self._disruption(now_s),
        )

    def _disruption(self, now_s: float) -> Disruption | None:
        bands = self.site.policy.bands
        return None if bands is None else recent_disruption(self.site, since_s=now_s - bands.window_s)

    def _note_reclaims(self, snapshot: Snapshot) -> None:
        before, self._before = self._before, snapshot.observation
        if before is not None:
            own = OwnQos.from_policy(snapshot.site_policy)
            found = find_reclaims(before, snapshot.observation, own)
            self._reclaims.extendleft(reclaim_row(one, at_s=snapshot.now_s) for one in found)

    def _fetch_load(self, now_s: float) -> ControllerLoad | None:
        if not 0 <= now_s - self._load_s < LOAD_MAX_AGE_S:
            self._load_s = now_s
            try:
                self._load = read_load(self.client.fetch_diag(), service_user(self.site))
            except SlurmError:  # the numbers of our cost are not worth an error: statistics may be closed to users
                self._load = None
        return self._load
