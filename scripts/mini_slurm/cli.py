"""Command line of mini-slurm, except ``exec``, which has a short cut of its own."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Final

from mini_slurm import cluster, daemons, engine, place, report
from mini_slurm.place import UsageError
from mini_slurm.releases import DEBIAN
from mini_slurm.spec import DEFAULT_TYPES, HOOKS, ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - typeshed has no other name

_DEFAULT_RELEASE: Final = "24.11"

_EPILOG: Final = """\
examples:
  mini-slurm up --hook                          16 GPUs on 4 nodes, one CPU-only node
  mini-slurm up --name big --nodes 8 --gpus-per-node 8 --types h100
  mini-slurm exec --user alice -- sbatch --gres=gpu:2 --wrap 'sleep 60'
  mini-slurm exec -- squeue
  mini-slurm logs slurmctld
  mini-slurm up --docker --release 26.05 --name sid
  mini-slurm down

users inside: alice (account risk), bob (rec, group mlteam), carol (vision), dave (guest, group
mlteam), mallory (guest), and fairgpu, Slurm operator; alice, bob and carol are in guest, too.
Clusters live under $FAIRGPU_MINI_DIR (default /var/tmp/fairgpu-mini), each in network, mount,
process and host-name namespaces of its own. Nothing of the host's Slurm, munge or MariaDB is touched.
exit codes: 0 done, 1 failed, 2 wrong usage; exec returns the command's.
"""


def run(argv: Sequence[str]) -> int:
    """Parse `argv` and run the command it names."""
    options = _parser().parse_args(argv)
    code: int = options.run(options)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mini-slurm",
        description="Throw-away Slurm clusters with fake GPUs on one machine.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_up(verbs)
    _verb(verbs, "down", "stop a cluster and remove it", _down)
    status = _verb(verbs, "status", "show one cluster; exits 1 when it is not up", _status)
    status.add_argument("--json", action="store_true", help="machine-readable")
    # Only for the help text: main.py hands exec over before argparse is loaded.
    verbs.add_parser("exec", help="run a command inside: exec [--user U] [--cwd D] -- CMD", add_help=False)
    listing = verbs.add_parser("list", help="show all clusters")
    listing.set_defaults(run=_list)
    logs = _verb(verbs, "logs", "show a daemon's log, or which logs there are", _logs)
    logs.add_argument("daemon", nargs="?", help="e.g. slurmctld, slurmdbd, slurmd.node01")
    logs.add_argument("-n", "--lines", type=int, default=100, help="how many lines (default 100)")
    restart = _verb(verbs, "restart", "restart slurmctld or slurmdbd", _restart)
    restart.add_argument("daemon", choices=daemons.RESTARTABLE)
    return parser


def _verb(
    verbs: Verbs, name: str, help_text: str, run_verb: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=help_text, description=help_text)
    parser.add_argument("--name", default=place.DEFAULT_NAME, help="which cluster (default %(default)s)")
    parser.set_defaults(run=run_verb)
    return parser


def _add_up(verbs: Verbs) -> None:
    up = _verb(verbs, "up", "start a cluster and wait until all nodes are idle", _up)
    up.add_argument("--nodes", type=int, default=4, help="GPU nodes (default %(default)s)")
    up.add_argument("--gpus-per-node", type=int, default=4, metavar="G", help="(default %(default)s)")
    up.add_argument("--types", help="GPU types, spread over the nodes (default a100,h100; with one node a100)")
    up.add_argument("--cpus-per-node", type=int, default=32, metavar="C", help="(default %(default)s)")
    up.add_argument("--mem-per-node", type=int, default=262144, metavar="MIB", help="MiB (default %(default)s)")
    up.add_argument("--cpu-nodes", type=int, default=1, metavar="N", help="nodes without GPUs (default %(default)s)")
    up.add_argument(
        "--hook",
        nargs="?",
        const="lua",
        default="",
        choices=HOOKS,
        help="the submit hook: lua (default; JobSubmitPlugins=lua with FairGPU's line in the script), compiled "
        "(JobSubmitPlugins=fairgpu), or both (lua,fairgpu: the site's own script, and the compiled hook after it)",
    )
    up.add_argument("--hook-deadline-ms", type=int, default=20, help="the shim's deadline (default %(default)s)")
    up.add_argument(
        "--install",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="install missing Debian packages (default: yes, if a program is missing)",
    )
    _add_docker(up)


def _add_docker(up: argparse.ArgumentParser) -> None:
    up.add_argument(
        "--docker", action="store_true", help="in containers, one for each machine, instead of on this host"
    )
    up.add_argument(
        "--release",
        choices=sorted(DEBIAN),
        help=f"which Slurm, with --docker (default {_DEFAULT_RELEASE}); its image is built first unless it is there",
    )
    up.add_argument("--start-daemon", action="store_true", help="start dockerd when no Docker daemon answers")


def _types(options: argparse.Namespace) -> tuple[str, ...]:
    if options.types is None:
        return DEFAULT_TYPES[: max(1, options.nodes)]
    return tuple(options.types.split(","))


def _release(options: argparse.Namespace) -> str:
    """Return the release for containers, or "" for host mode, whose release is the one installed."""
    if (options.release or options.start_daemon) and not options.docker:
        msg = "--release and --start-daemon need --docker; without it the Slurm of this host's Debian runs"
        raise UsageError(msg)
    return (options.release or _DEFAULT_RELEASE) if options.docker else ""


def _up(options: argparse.Namespace) -> int:
    spec = ClusterSpec(
        name=options.name,
        nodes=options.nodes,
        gpus_per_node=options.gpus_per_node,
        types=_types(options),
        cpus_per_node=options.cpus_per_node,
        mem_per_node_mib=options.mem_per_node,
        cpu_nodes=options.cpu_nodes,
        hook=options.hook,
        hook_deadline_ms=options.hook_deadline_ms,
        release=_release(options),
    )
    if spec.release:
        engine.need_daemon(start=options.start_daemon)
    started_s = time.monotonic()
    if not cluster.up(spec, install=options.install):
        sys.stderr.write(f"mini-slurm: cluster {spec.name!r} is up already, left as it is\n")
    else:
        sys.stderr.write(f"mini-slurm: cluster {spec.name!r} is up after {time.monotonic() - started_s:.1f} s\n")
    sys.stdout.write(report.text_of(report.describe(spec.name)))
    return 0


def _down(options: argparse.Namespace) -> int:
    text = "is down" if cluster.down(options.name) else "was not there"
    sys.stderr.write(f"mini-slurm: cluster {options.name!r} {text}\n")
    return 0


def _status(options: argparse.Namespace) -> int:
    found = report.describe(options.name)
    sys.stdout.write(json.dumps(found, indent=1) + "\n" if options.json else report.text_of(found))
    return 0 if found["state"] == "up" else 1


def _list(_options: argparse.Namespace) -> int:
    sys.stdout.write(report.list_text(cluster.names()))
    return 0


def _logs(options: argparse.Namespace) -> int:
    sys.stdout.write(report.log_text(options.name, options.daemon, options.lines))
    return 0


def _restart(options: argparse.Namespace) -> int:
    took_s = cluster.restart(options.name, options.daemon)
    sys.stderr.write(f"mini-slurm: {options.daemon} of cluster {options.name!r} restarted in {took_s:.1f} s\n")
    return 0
