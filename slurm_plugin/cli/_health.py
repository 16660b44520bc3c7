"""Whether our own parts live: the switch, the rebalancer, the hook server, the QOS helper."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from policies.site_policy import Mode
from slurm_plugin.cli._numbers import duration
from slurm_plugin.doctor.host import DEFAULT_USER
from slurm_plugin.doctor.ping import ping_hook
from slurm_plugin.qos_helper.probe import WITHOUT, how_to_start, probe_helper
from slurm_plugin.rebalancer.lease import lease_holder
from slurm_plugin.rebalancer.standings import FILE_NAME as STANDINGS_NAME
from slurm_plugin.rebalancer.standings import read_standings_age_s
from slurm_plugin.site.switch import off_reason

_NO_ANSWER: Final = "no answer"

if TYPE_CHECKING:
    from policies.site_policy import SitePolicy
    from slurm_plugin.site import SiteFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether our own parts live.

    Attributes
    ----------
    off_reason : str or None
        Why FairGPU is switched off; ``None`` if it is on.
    last_cycle_age_s : float or None
        Age of the rebalancer's last cycle in which it was on, seconds.
    rebalancer : str
        ``pid 12``, ``not running`` or ``unknown`` (this user may not look).
    hook : str
        What a ping said.
    qos_helper : str or None
        What a ping said; ``None`` where the site has no bands.
    """

    off_reason: str | None
    last_cycle_age_s: float | None
    rebalancer: str
    hook: str
    qos_helper: str | None

    @property
    def lacks_helper(self) -> bool:
        """Whether bands are steered here and no QOS helper answers."""
        return self.qos_helper is not None and self.qos_helper.startswith(_NO_ANSWER)

    def aged(self, seconds: float) -> Health:
        """Return the same as it is to be shown ``seconds`` after it was seen."""
        age_s = self.last_cycle_age_s
        return self if age_s is None else replace(self, last_cycle_age_s=age_s + seconds)


def check_health(site: SiteFile, *, now_s: float) -> Health:
    """Look at the switch, the lease, the standings file and the hook's socket."""
    try:
        holder = lease_holder(site.paths.state_dir)
        rebalancer = "not running" if holder is None else f"pid {holder.pid}"
    except OSError:
        rebalancer = "unknown"
    ping = ping_hook(site.hook.socket, n_pings=1)
    if ping.latency_s is not None:
        hook = f"answers in {ping.latency_s * 1000:.2f} ms, {ping.state}"
    elif ping.is_refused:
        hook = "listens (only root and SlurmUser may ask it)"
    else:
        hook = f"no answer: {ping.error}"
    return Health(
        off_reason=_off_reason(site),
        last_cycle_age_s=read_standings_age_s(site.paths.run_dir, now_s),
        rebalancer=rebalancer,
        hook=hook,
        qos_helper=None if site.policy.bands is None else _ping_helper(site),
    )


def _ping_helper(site: SiteFile) -> str:
    probe = probe_helper(site)
    if probe.is_closed:
        return "listens (only root and the rebalancer's user may ask it)"
    if probe.error:
        return f"{_NO_ANSWER} ({probe.error}): jobs are ordered, but {WITHOUT}. Start it: {how_to_start()}"
    return "answers"


def describe_write(policy: SitePolicy, *, is_off: bool) -> str:
    """Return what becomes of a change that needs no QOS helper."""
    if policy.mode is not Mode.ENFORCE:
        return f"mode {policy.mode.value}, nothing is written"
    return "nothing is written while FairGPU is off" if is_off else "the next cycle writes it"


def is_surely_off(site: SiteFile) -> bool:
    """Return whether the kill switch is seen; a state directory out of sight (a login node) proves nothing here."""
    return os.access(site.paths.state_dir, os.X_OK) and off_reason(site) is not None


def _off_reason(site: SiteFile) -> str | None:
    reason, directory = off_reason(site), site.paths.state_dir
    if reason != "" or os.access(directory, os.X_OK):
        return reason
    if directory.exists():
        return f"perhaps: this user may not look into {directory}"
    return f"perhaps: {directory} is missing on this host"


def describe_health(health: Health) -> list[str]:
    """Return one line per part of ours."""
    age_s = health.last_cycle_age_s
    cycle = "no cycle yet" if age_s is None else f"last cycle {duration(age_s)} ago"
    lines = [f"Rebalancer: {health.rebalancer}, {cycle}", f"Submit hook: {health.hook}"]
    if health.qos_helper is not None:
        lines.append(f"QOS helper: {health.qos_helper}")
    return lines


def service_user(site: SiteFile) -> str:
    """Return who runs the rebalancer: the owner of its standings, else of the state directory."""
    for path in (site.paths.run_dir / STANDINGS_NAME, site.paths.state_dir):
        try:
            return pwd.getpwuid(path.stat().st_uid).pw_name
        except (OSError, KeyError):
            continue
    return DEFAULT_USER
