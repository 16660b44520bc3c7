"""What this host shows: directories, users, the hook server, the rebalancer's last cycle, our packages."""

from __future__ import annotations

import os
import pwd
import sys
import time
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurm_plugin.doctor.facts import HostFacts, PathFact
from slurm_plugin.doctor.ping import ping_hook
from slurm_plugin.hook.plugin_file import find_plugin
from slurm_plugin.qos_helper.probe import probe_helper
from slurm_plugin.rebalancer.standings import read_standings_age_s
from slurm_plugin.site.switch import is_off

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurm_plugin.site import SiteFile

DISTRIBUTION: Final = "slurm-fairgpu"
DEFAULT_USER: Final = "fairgpu"
"""Who runs FairGPU by docs/how-to/install.md; asked about while no state directory names its owner."""

PACKAGES: Final = ("policies", "slurm_plugin", "airflow_dags")
_MAX_FILE_BYTES: Final = 4_194_304
_MOUNTS: Final = Path("/proc/self/mounts")


def collect_host(site: SiteFile, config: Mapping[str, str]) -> HostFacts:
    """Return the facts of this host; ``config`` (Slurm's, may be empty) tells where ``job_submit.lua`` lies."""
    mounts = _read(_MOUNTS) or ""
    state_dir = look_at(site.paths.state_dir, mounts)
    user = state_dir.owner or DEFAULT_USER
    now_s = time.time()
    return HostFacts(
        service_user=user,
        service_uid=uid_of(user),
        now_s=now_s,
        site_file=look_at(site.path, mounts),
        state_dir=state_dir,
        run_dir=look_at(site.paths.run_dir, mounts),
        ping=ping_hook(site.hook.socket),
        unknown_peers=tuple(name for name in site.hook.peers if uid_of(name) is None),
        script=_read_script(config.get("SLURM_CONF", "")),
        plugin=find_plugin(config.get("PluginDir", "")),
        shadowing=find_shadowing(packages_distributions()),
        is_path_safe=is_path_safe(sys.path, is_safe_flag=sys.flags.safe_path),
        qos_helper=None if site.policy.bands is None else probe_helper(site),
        standings_age_s=read_standings_age_s(site.paths.run_dir, now_s),
        is_off=is_off(site),
        is_switch_visible=state_dir.exists and os.access(site.paths.state_dir, os.X_OK),
    )


def look_at(path: Path, mounts: str) -> PathFact:
    """Return what a path is like; ``mounts`` is the text of ``/proc/self/mounts``."""
    try:
        found = path.stat()
    except OSError:
        return PathFact(path=path, exists=False)
    return PathFact(
        path=path,
        exists=True,
        owner=_user_name(found.st_uid),
        mode=found.st_mode,
        filesystem=find_filesystem(path.resolve(), mounts),
    )


def find_filesystem(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds an absolute path, empty if no mount point fits."""
    best: tuple[int, str] = (-1, "")
    for line in mounts.splitlines():
        parts = line.split(" ")
        if len(parts) < 3:
            continue
        # The kernel writes blanks and backslashes in a mount point as octal numbers.
        point = Path(parts[1].encode("latin-1", "replace").decode("unicode_escape"))
        # The last of two mounts on one point covers the first.
        if path.is_relative_to(point) and len(point.parts) >= best[0]:
            best = (len(point.parts), parts[2])
    return best[1]


def find_shadowing(owners: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return ``distribution (package)`` for each other distribution that brings one of our package names."""
    return tuple(
        sorted(
            f"{distribution} ({package})"
            for package in PACKAGES
            for distribution in set(owners.get(package, ()))
            if distribution != DISTRIBUTION
        )
    )


def is_path_safe(search: Sequence[str], *, is_safe_flag: bool) -> bool:
    """Return whether modules are not searched in the working directory first."""
    return is_safe_flag or not (search and search[0] in {"", ".", str(Path.cwd())})


def _read_script(slurm_conf: str) -> str | None:
    return _read(Path(slurm_conf).parent / "job_submit.lua") if slurm_conf.startswith("/") else None


def _read(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_FILE_BYTES)
    except OSError:
        return None


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def uid_of(name: str) -> int | None:
    """Return a user's uid, ``None`` for a name that this host does not know."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None
