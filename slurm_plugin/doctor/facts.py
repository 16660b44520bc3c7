"""Everything that the checks look at, gathered once, so that each check is a pure function of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from policies.records import NodeRecord, QosRecord
from slurm_plugin.bands.accounting import AssocRow, QosRow
from slurm_plugin.hook.plugin_file import PluginFile
from slurm_plugin.qos_helper.probe import HelperProbe
from slurm_plugin.site import SiteFile

_RELEASE: Final = re.compile(r"(\d+)\.(\d+)")
_NOTHING: Final = frozenset({"", "(null)", "N/A", "none", "NONE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PathFact:
    """A file or directory; ``owner`` is empty if it does not exist, ``filesystem`` the type of its mount."""

    path: Path
    exists: bool
    owner: str = ""
    mode: int = 0
    filesystem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PingFact:
    """What the hook server answered; ``latency_s`` is ``None`` without an answer, ``error`` says why."""

    latency_s: float | None = None
    state: str = ""
    error: str = ""
    is_refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What this host shows, Slurm aside.

    Attributes
    ----------
    service_user : str
        Owner of the state directory: who runs the rebalancer; ``fairgpu`` if there is no such directory.
    is_switch_visible : bool
        Whether this user may look for the kill switch; where not, ``is_off`` says nothing.
    unknown_peers : tuple of str
        Names in ``hook.peers`` that this host does not know.
    script : str or None
        Text of ``job_submit.lua``, ``None`` if it is not readable here.
    plugin : PluginFile or None
        The compiled shim that Slurm would load from here.
    shadowing : tuple of str
        Other distributions that bring one of our package names.
    qos_helper : HelperProbe or None
        What a ping of the QOS helper said; ``None`` without bands.
    standings_age_s : float or None
        Age of the rebalancer's last cycle, ``None`` if there is no trace of one.
    """

    service_user: str
    now_s: float
    site_file: PathFact
    state_dir: PathFact
    run_dir: PathFact
    ping: PingFact
    service_uid: int | None = None
    unknown_peers: tuple[str, ...] = ()
    script: str | None = None
    plugin: PluginFile | None = None
    shadowing: tuple[str, ...] = ()
    is_path_safe: bool = True
    qos_helper: HelperProbe | None = None
    standings_age_s: float | None = None
    is_off: bool = False
    is_switch_visible: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the checks look at. ``None`` is unknown, and ``missing`` may say why.

    Attributes
    ----------
    config : mapping of str to str
        ``scontrol show config``, empty if Slurm did not answer.
    partitions : mapping of str to mapping
        ``scontrol show partition`` by name and key.
    accounts : frozenset of str or None
        Accounts that slurmdbd knows on this cluster.
    associated_users : frozenset of str or None
        Users with an association on this cluster.
    admin_level : str or None
        ``AdminLevel`` of the service user.
    queue_users : frozenset of str or None
        Users with jobs in sight.
    n_jobs : int or None
        Records in slurmctld's job table as far as we see.
    nodes : tuple of NodeRecord or None
        Nodes as slurmctld has them.
    qos : tuple of QosRow or None
        QOSes of slurmdbd.
    qos_in_use : tuple of QosRecord or None
        QOSes as slurmctld has them.
    assoc_rows : tuple of AssocRow or None
        Associations of this cluster with the QOSes and defaults that count.
    controller_s : float or None
        The controller's clock when it was asked; ``asked_s`` is ours.
    """

    site: SiteFile
    host: HostFacts
    version: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, Mapping[str, str]] | None = None
    accounts: frozenset[str] | None = None
    associated_users: frozenset[str] | None = None
    admin_level: str | None = None
    queue_users: frozenset[str] | None = None
    n_jobs: int | None = None
    nodes: tuple[NodeRecord, ...] | None = None
    qos: tuple[QosRow, ...] | None = None
    qos_in_use: tuple[QosRecord, ...] | None = None
    assoc_rows: tuple[AssocRow, ...] | None = None
    controller_s: float | None = None
    asked_s: float = 0.0
    missing: Mapping[str, str] = field(default_factory=dict)

    def setting(self, key: str) -> str:
        """Return a value of Slurm's configuration; Slurm's spellings of nothing become an empty text."""
        value = self.config.get(key, "").strip()
        return "" if value in _NOTHING else value

    def setting_list(self, key: str) -> tuple[str, ...]:
        """Return the parts of a comma-separated value."""
        return tuple(part.strip() for part in self.setting(key).split(",") if part.strip())

    def option(self, key: str, name: str) -> str | None:
        """Return the value of ``name=value`` (empty for a bare ``name``) in an option list, ``None`` if absent."""
        for part in self.setting_list(key):
            word, _, value = part.partition("=")
            if word.lower() == name.lower():
                return value
        return None

    def line_with(self, key: str, *options: str) -> str:
        """Return the line of slurm.conf that keeps an option list and sets ``options`` (``name=value`` or ``name``)."""
        names = {option.partition("=")[0].lower() for option in options}
        kept = (part for part in self.setting_list(key) if part.partition("=")[0].lower() not in names)
        return f"slurm.conf: {key}={','.join((*kept, *options))}"

    def number(self, key: str) -> int:
        """Return the leading whole number of a value (``60 sec``), 0 if there is none."""
        match = re.match(r"\d+", self.setting(key))
        return int(match[0]) if match else 0

    @property
    def release(self) -> tuple[int, int]:
        """Year and month of Slurm's release, ``(25, 11)``; ``(0, 0)`` if unknown."""
        match = _RELEASE.search(self.version or self.config.get("SLURM_VERSION", ""))
        return (int(match[1]), int(match[2])) if match else (0, 0)
