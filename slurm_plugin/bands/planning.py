"""Everything that ``plan``, ``apply`` and removal look at, read once: goal, present state, difference, complaints."""

from __future__ import annotations

import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies.quota.names import Band, band_qos
from policies.quota.nominal import AgentQuota, compute_nominals
from policies.quota.outage import nodes_in_service
from policies.records import Observation
from slurm_plugin.bands.accounting import TIMEOUT_S, Accounting, read_accounting
from slurm_plugin.bands.desired import Desired, band_names, compute_desired
from slurm_plugin.bands.diff import Difference, compute_difference
from slurm_plugin.bands.partitions import parse_partitions
from slurm_plugin.bands.precheck import Precheck, Surroundings, run_precheck
from slurm_plugin.client.command import Command, Runner, check
from slurm_plugin.errors import ConfigError, SlurmAuthError
from slurm_plugin.rebalancer.lease import lease_holder
from slurm_plugin.telemetry.groups import resolve_groups

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_plugin.bands.journal import BandJournal
    from slurm_plugin.client.protocol import SlurmClient
    from slurm_plugin.site import SiteFile

_NOT_YOU: Final = "only root and SlurmUser may do this: it reads and writes slurmdbd's QOSes and associations"


@dataclass(frozen=True, slots=True, kw_only=True)
class BandPlan:
    """What would be done, and why not."""

    quotas: tuple[AgentQuota, ...]
    desired: Desired
    accounting: Accounting
    observation: Observation
    difference: Difference
    precheck: Precheck

    @property
    def ours(self) -> frozenset[str]:
        """Names of the QOSes of this site file."""
        return frozenset(name for quota in self.quotas for name in band_names(quota))


def make_band_plan(site: SiteFile, client: SlurmClient, runner: Runner, journal: BandJournal) -> BandPlan:
    """Return goal, present state and difference for a site file with bands.

    Raises
    ------
    ConfigError
        No bands section, or Slurm's cluster is another one.
    SlurmError
        Slurm or slurmdbd is away or refuses this user.
    """
    policy = site.policy
    config = client.fetch_config()
    require_cluster(site, config)
    seen = client.observe()
    accounting = read_accounting(runner, policy.cluster.lower())
    quotas = compute_nominals(policy, nodes_in_service(seen.nodes, seen.at_s))
    users = {row.key.user for row in accounting.associations if row.key.user}
    groups = resolve_groups(users) if any(agent.groups for agent in policy.agents) else {}
    desired = compute_desired(policy, quotas, accounting, groups, created=journal.created)
    around = Surroundings(config=config, partitions=_partitions(runner), observation=seen)
    return BandPlan(
        quotas=quotas,
        desired=desired,
        accounting=accounting,
        observation=seen,
        difference=compute_difference(
            desired, accounting, journal, jobs=seen.jobs, is_steered=lease_holder(site.paths.state_dir) is not None
        ),
        precheck=run_precheck(policy, quotas, accounting, around),
    )


def own_names(site: SiteFile) -> frozenset[str]:
    """Return every name that a QOS of this site file's agents can have."""
    policy = site.policy
    return frozenset(band_qos(policy.cluster, agent.name, band) for agent in policy.agents for band in Band)


def require_cluster(site: SiteFile, config: Mapping[str, str]) -> None:
    """Refuse a site file that was written for another cluster: its name is in every QOS of ours.

    Raises
    ------
    ConfigError
    """
    found = config.get("ClusterName", "")
    if found.lower() != site.policy.cluster.lower():
        raise ConfigError(f"this is cluster {found!r}, {site.path} is for {site.policy.cluster!r}; nothing was done")


def require_privileges(config: Mapping[str, str], euid: int) -> None:
    """Refuse everybody but root and SlurmUser.

    Raises
    ------
    SlurmAuthError
        Names who may and how.
    """
    slurm_user = config.get("SlurmUser", "").partition("(")[0]
    if euid == 0 or _name_of(euid) == slurm_user:
        return
    raise SlurmAuthError(f"{_NOT_YOU}. Run: sudo -u {slurm_user or 'slurm'} fairgpu ...")


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _partitions(runner: Runner) -> dict[str, dict[str, str]]:
    argv = ("scontrol", "show", "partition", "-o")
    return parse_partitions(check(runner(Command(argv=argv, timeout_s=TIMEOUT_S)), argv))
