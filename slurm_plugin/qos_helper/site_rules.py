"""The rules of the site file as it is now: agents come and go while the helper runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from slurm_plugin.qos_helper.rules import HelperRules
from slurm_plugin.rebalancer.logfmt import key_values
from slurm_plugin.site.watch import SiteWatcher

if TYPE_CHECKING:
    from slurm_plugin.qos_helper.request import QosChange
    from slurm_plugin.site import SiteFile

_log = logging.getLogger(__name__)


class SiteRules:
    """Rules that follow the site file; a broken or missing one is logged and the former rules stay.

    Parameters
    ----------
    site : SiteFile
        As loaded. Socket, users and cluster are those of the start: another cluster's name needs a new process.
    """

    def __init__(self, site: SiteFile) -> None:
        self._watcher = SiteWatcher(site)
        self._cluster = site.policy.cluster
        self._rules = HelperRules.from_policy(site.policy)

    def check(self, change: QosChange) -> None:
        """Accept a change by the rules of now.

        Raises
        ------
        RefusedError
            It is outside the rules.
        """
        if self._watcher.look():
            self._take(self._watcher.site)
        self._rules.check(change)

    def _take(self, site: SiteFile) -> None:
        if site.policy.cluster != self._cluster:
            _log.error(key_values(event="rules_kept", error="the site file is of another cluster now"))
            return
        self._rules = HelperRules.from_policy(site.policy)
        _log.info(key_values(event="rules", agents=len(self._rules.guaranteed)))
