"""The helper as a process: put together, run until SIGTERM, cleaned up."""

from __future__ import annotations

import logging
import os
import signal
from typing import TYPE_CHECKING

from slurm_plugin.client.command import ProcessRunner
from slurm_plugin.errors import ConfigError
from slurm_plugin.hook.server import HookServer
from slurm_plugin.hook.socket_file import open_listener
from slurm_plugin.hook.stats import HookStats
from slurm_plugin.qos_helper.client import helper_socket
from slurm_plugin.qos_helper.service import QosHelperService
from slurm_plugin.qos_helper.site_rules import SiteRules
from slurm_plugin.rebalancer.logfmt import key_values

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_plugin.site import SiteFile

_log = logging.getLogger(__name__)


def run_qos_helper(site: SiteFile, *, slurm_bin_dir: Path | None = None) -> None:
    """Change QOSes for the rebalancer until SIGTERM or SIGINT. Only root and the state directory's owner may ask.

    Raises
    ------
    AlreadyRunningError
        Another helper listens.
    ConfigError
        The site has no bands, or the socket cannot be made.
    """
    if site.policy.bands is None:
        raise ConfigError("the site file has no bands: there is no QOS of ours to change")
    peers = frozenset({0, _rebalancer_uid(site)})
    listener = open_listener(helper_socket(site), peers, what="QOS helper")
    try:
        service = QosHelperService(rules=SiteRules(site), runner=ProcessRunner(bin_dir=slurm_bin_dir))
        server = HookServer(listener.socket, service, stats=HookStats(), allowed_uids=peers)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: server.stop())
        _log.info(key_values(event="ready", socket=listener.path, peers=sorted(peers), uid=os.geteuid()))
        server.run()
    finally:
        listener.close()
    _log.info(key_values(event="stopped"))


def _rebalancer_uid(site: SiteFile) -> int:
    try:
        return site.paths.state_dir.stat().st_uid
    except OSError as err:
        raise ConfigError(f"paths.state_dir {site.paths.state_dir}: {err.strerror}; its owner is who may ask") from err
