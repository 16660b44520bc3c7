"""The directories and files of a cluster, the same for host mode and for containers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mini_slurm import place, site_files, slurm_files
from mini_slurm.people import PEOPLE, SERVICE_USER, group_text, identity, passwd_text

if TYPE_CHECKING:
    from mini_slurm.releases import Release
    from mini_slurm.spec import ClusterSpec

_DIRECTORIES: Final[dict[str, tuple[str, int]]] = {
    "etc": ("root", 0o755),
    "dev": ("root", 0o755),
    "log": ("root", 0o1777),  # each daemon makes its own log; removed with the cluster
    "home": ("root", 0o755),
    "home/root": ("root", 0o700),
    "run": ("root", 0o1777),
    "run/munge": ("munge", 0o755),
    "run/mariadb": ("mysql", 0o755),
    "run/fairgpu": (SERVICE_USER, 0o755),
    "var": ("root", 0o755),
    "var/munge": ("munge", 0o700),
    "var/mariadb": ("mysql", 0o700),
    "var/mariadb-tmp": ("mysql", 0o700),
    "var/slurmctld": ("slurm", 0o700),
    "var/slurmd": ("root", 0o755),
    "var/fairgpu": (SERVICE_USER, 0o755),
}
"""Path below the cluster's directory -> owner and mode."""


def write_files(spec: ClusterSpec, root: Path, release: Release) -> None:
    """Write every file that the daemons of `spec` need into `root`, which may be there but empty."""
    root.mkdir(mode=0o755, exist_ok=True)
    root.chmod(0o755)
    (root / "etc").mkdir(exist_ok=True)
    host = {name: place.read_text(Path(f"/etc/{name}")) for name in ("passwd", "group")}
    etc = {
        "passwd": passwd_text(host["passwd"], root),
        "group": group_text(host["group"]),
        "hosts": site_files.hosts_text(spec),
        "my.cnf": site_files.mariadb_cnf(spec, root),
        "slurm.conf": slurm_files.slurm_conf(spec, root, release),
        "gres.conf": slurm_files.gres_conf(spec, root),
        "job_submit.lua": site_files.submit_lua(spec, root),
        "fairgpu-site.yaml": site_files.site_yaml(spec, root),
        "spec.json": spec.to_json(),
    }
    if release.cgroup_conf is not None:
        etc["cgroup.conf"] = release.cgroup_conf
    for name, text in etc.items():
        (root / "etc" / name).write_text(text)
        (root / "etc" / name).chmod(0o644)
    for person in PEOPLE:
        _make_directory(root, f"home/{person.name}", person.name, 0o750)
    for path, (owner, mode) in _DIRECTORIES.items():
        _make_directory(root, path, owner, mode)


def _make_directory(root: Path, path: str, owner: str, mode: int) -> None:
    who = identity(root, owner)
    directory = root / path
    directory.mkdir(parents=True, exist_ok=True)
    os.chown(directory, who.uid, who.gid)
    directory.chmod(mode)
