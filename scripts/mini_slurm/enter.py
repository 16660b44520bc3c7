"""Run a command inside a cluster as one of its users.

Imports little: ``mini-slurm exec`` must be quick.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from mini_slurm import place
from mini_slurm.people import Identity, identity
from mini_slurm.place import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_KEPT: Final = ("TERM", "LANG", "TZ", "COLUMNS", "LINES", "NO_COLOR", "OMP_NUM_THREADS")
_KEPT_PREFIXES: Final = (
    "LC_",
    "FAIRGPU_",
    "COVERAGE_",
    "COV_CORE_",
    "SBATCH_",
    "SQUEUE_",
    "SINFO_",
    "SPRIO_",
)

EXEC_USAGE: Final = """\
usage: mini-slurm exec [--name N] [--user U] [--cwd D] -- CMD [ARG ...]

Run CMD inside the cluster as user U (default root); stdin and stdout are passed
through and CMD's exit code is ours. The working directory is U's home inside
the cluster unless --cwd names another.

examples:
  mini-slurm exec -- sinfo
  mini-slurm exec --user alice -- sbatch --gres=gpu:1 --wrap 'sleep 60'
  mini-slurm exec --user fairgpu -- fairgpu status
"""


def environment(root: Path, who: Identity) -> dict[str, str]:
    """Return the environment of a command inside: user, cluster, and a few names of the caller's."""
    kept = {k: v for k, v in os.environ.items() if k in _KEPT or k.startswith(_KEPT_PREFIXES)}
    return kept | {
        "HOME": who.home,
        "USER": who.name,
        "LOGNAME": who.name,
        "SHELL": who.shell if who.uid else "/bin/sh",
        "PATH": f"{place.IMAGE_REPO if place.has_containers(root) else place.REPO}/.venv/bin:{place.SYSTEM_PATH}",
        "SLURM_CONF": str(root / "etc/slurm.conf"),
        "FAIRGPU_SITE": str(root / "etc/fairgpu-site.yaml"),
    }


def inside_argv(pid: int, who: Identity, cwd: str, argv: list[str]) -> list[str]:
    """Return the command that runs `argv` in the namespaces of `pid` as `who`, in directory `cwd`."""
    enter = ["nsenter", f"--target={pid}", "--net", "--uts", "--mount", "--pid", "--"]
    if place.in_container():
        enter = []
    become = []
    if who.uid:
        groups = ",".join(str(gid) for gid in who.groups)
        become = ["setpriv", f"--reuid={who.uid}", f"--regid={who.gid}", f"--groups={groups}", "--"]
    return [*enter, *become, "env", f"--chdir={cwd}", "--", *argv]


def run_exec(argv: list[str]) -> int:
    """Replace this process by the command that `argv` describes; return only after ``--help``."""
    options = {"--name": place.DEFAULT_NAME, "--user": "root", "--cwd": ""}
    rest = list(argv)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        flag, equals, value = rest.pop(0).partition("=")
        if flag in {"-h", "--help"}:
            sys.stdout.write(EXEC_USAGE)
            return 0
        if flag not in options or not (equals or rest):
            msg = f"exec: cannot use {flag!r} here\n{EXEC_USAGE}"
            raise UsageError(msg)
        options[flag] = value if equals else rest.pop(0)
    command = rest[1:] if rest[:1] == ["--"] else rest
    if not command:
        msg = f"exec: no command given\n{EXEC_USAGE}"
        raise UsageError(msg)
    _replace_process(options, command)
    return 0


def _replace_process(options: dict[str, str], command: list[str]) -> None:
    place.require_root()
    root = place.cluster_dir(options["--name"])
    pid = place.need_init_pid(options["--name"])
    who = identity(root, options["--user"])
    sys.stdout.flush()
    argv = inside_argv(pid, who, options["--cwd"] or who.home, command)
    os.execvpe(argv[0], argv, environment(root, who))  # noqa: S606 - no shell is wanted: the caller's argv as it is
