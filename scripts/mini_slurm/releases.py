"""What differs between Slurm releases in the files that mini-slurm writes: one table.

Nothing elsewhere asks for a version.

Measured on 22.05.8, 24.11.5, 25.11.7 and 26.05.5, from Debian's packages or built from source; only
22.05 is in daily use here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mini_slurm.place import MiniError


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One row: lines for slurm.conf, the whole cgroup.conf (None: no file), the requeue delay's spelling."""

    first: tuple[int, int]
    slurm_conf: tuple[str, ...] = ()
    cgroup_conf: str | None = None
    auth_info: tuple[str, ...] = ()
    scheduler_parameters: tuple[str, ...] = ()


_NO_CGROUP: Final = "CgroupPlugin=disabled\n"

RELEASES: Final = (
    # CgroupPlugin=disabled makes slurmd 22.05 fail; without the file it needs no cgroup here.
    Release(first=(22, 5), slurm_conf=("SwitchType=switch/none",), auth_info=("cred_expire=10",)),
    # From here slurmd wants a cgroup file system even with proctrack/linuxproc, unless it is disabled.
    Release(first=(23, 11), cgroup_conf=_NO_CGROUP, auth_info=("cred_expire=10",)),
    # The requeue delay has its own parameter and no longer hangs on the credential's life time.
    Release(first=(25, 11), cgroup_conf=_NO_CGROUP, scheduler_parameters=("requeue_delay=5",)),
)


DEBIAN: Final = {"22.05": "bookworm", "24.11": "trixie", "26.05": "sid"}
"""Slurm release -> Debian release that has it, for clusters in containers."""


def parse_version(text: str) -> tuple[int, int]:
    """Return (year, month) of the output of ``slurmctld -V``, e.g. ``slurm-wlm 22.05.8`` -> (22, 5)."""
    words = text.split()
    parts = words[-1].split(".") if words else []
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        msg = f"cannot read Slurm's version from {text!r}"
        raise MiniError(msg)
    return int(parts[0]), int(parts[1])


def release_for(version: tuple[int, int]) -> Release:
    """Return the newest row that is not newer than `version`; releases before 22.05 are refused."""
    fitting = [release for release in RELEASES if release.first <= version]
    if not fitting:
        msg = f"Slurm {version[0]}.{version[1]:02} is older than 22.05"
        raise MiniError(msg)
    return max(fitting, key=lambda release: release.first)
