"""Start the daemons of a cluster in order, and restart single ones."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from mini_slurm import place
from mini_slurm.machines import CONTROLLER, machine_of
from mini_slurm.place import MiniError
from mini_slurm.processes import find_daemon, is_listening, members, run_inside, wait_until
from mini_slurm.site_files import accounts_text
from mini_slurm.slurm_files import CTLD_PORT, DB_NAME, DBD_PORT, munge_folder, munge_socket, slurmdbd_conf

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from mini_slurm.spec import ClusterSpec

RESTARTABLE: Final = ("slurmctld", "slurmdbd")


class DaemonError(MiniError):
    """A daemon did not start; carries the name of the log that tells why."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


def must_run(root: Path, argv: list[str], *, log: str, user: str = "root", machine: str = CONTROLLER) -> str:
    """Run `argv` inside and return its output; raise `DaemonError` pointing at `log` when it fails."""
    return _checked(run_inside(root, argv, user=user, machine=machine), argv[0], log)


def _checked(done: subprocess.CompletedProcess[str], program: str, log: str) -> str:
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-10:])
        msg = f"{program} failed with exit code {done.returncode}\n{tail}"
        raise DaemonError(msg, log)
    return done.stdout


def make_secrets(spec: ClusterSpec, root: Path) -> None:
    """Make a munge key and a database password of this cluster's own."""
    key = root / "var/munge/munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    shutil.chown(key, "munge", "munge")
    _write_dbd_conf(spec, root, secrets.token_hex(16))


def start_munge(spec: ClusterSpec, root: Path, machine: str = "") -> None:
    """Start munged on a socket of its own; where each machine has one, `machine` names its log and seed."""
    run, name = munge_folder(spec, root), ".".join(filter(None, ("munged", machine)))
    argv = ["munged", f"--key-file={root}/var/munge/munge.key", f"--socket={munge_socket(spec, root)}"]
    argv += [f"--pid-file={run}/munged.pid", f"--log-file={root}/log/{name}.log"]
    argv += [f"--seed-file={root}/var/munge/{name}.seed", "--num-threads=4"]
    must_run(root, argv, log=name, user="munge")


def build_hook(root: Path) -> None:
    """Compile FairGPU's submit plugin into the cluster's own plugin directory."""
    site = root / "etc/fairgpu-site.yaml"
    argv = ["fairgpu", "hook", "build", "--offline", f"--into={root}/lib", f"--site={site}"]
    must_run(root, argv, log="init")


def start_database(spec: ClusterSpec, root: Path) -> None:
    """Make the data directory unless there is one, start MariaDB on a private socket, see to slurmdbd's database.

    The database is made here because slurmdbd with libmariadb 3.4.10 dies right after making it itself.
    """
    options = f"--defaults-file={root}/etc/my.cnf"
    if not (root / "var/mariadb/mysql").exists():
        install = ["mariadb-install-db", options, "--user=mysql", "--skip-test-db"]
        must_run(root, [*install, "--auth-root-authentication-method=socket"], log="mariadb")
    socket = root / "run/mariadb/mariadb.sock"
    socket.unlink(missing_ok=True)
    must_run(root, ["setsid", "--fork", "mariadbd", options], log="mariadb", user="mysql")
    _wait(lambda: _alive(root, "mariadbd") and socket.exists(), "mariadb", "MariaDB listens")
    user = f"'slurm'@'{'%' if spec.subnet else 'localhost'}'"
    statements = (
        f"create database if not exists {DB_NAME}; "
        f"create user if not exists {user} identified by '{_password(root)}'; grant all on {DB_NAME}.* to {user};"
    )
    _checked(run_inside(root, ["mariadb", options, "--batch"], stdin=statements), "mariadb", "mariadb")


def _password(root: Path) -> str:
    lines = (root / "etc/slurmdbd.conf").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("StoragePass="))


def _write_dbd_conf(spec: ClusterSpec, root: Path, password: str) -> None:
    path = root / "etc/slurmdbd.conf"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(slurmdbd_conf(spec, root, password))
    shutil.chown(path, "slurm", "slurm")


def start_slurmdbd(root: Path, machine: str = CONTROLLER) -> None:
    """Start slurmdbd and wait for its port."""
    must_run(root, ["slurmdbd"], log="slurmdbd", user="slurm", machine=machine)
    _wait(
        lambda: _alive(root, "slurmdbd", machine) and is_listening(root, DBD_PORT, machine),
        "slurmdbd",
        "slurmdbd listens",
    )


def load_accounts(root: Path, name: str) -> None:
    """Create the cluster's record, accounts, users and associations in slurmdbd."""
    path = root / "etc/accounts.cfg"
    path.write_text(accounts_text(name))
    must_run(root, ["sacctmgr", "--immediate", "load", f"file={path}"], log="slurmdbd")


def start_slurmctld(root: Path) -> None:
    """Start slurmctld and wait for its port."""
    must_run(root, ["slurmctld"], log="slurmctld", user="slurm")
    _wait(lambda: _alive(root, "slurmctld") and is_listening(root, CTLD_PORT), "slurmctld", "slurmctld listens")


def start_slurmds(root: Path, spec: ClusterSpec) -> None:
    """Start one slurmd per node, a few at a time, and wait until every node is idle."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(lambda node: start_slurmd(root, node), spec.node_names()))
    wait_for_nodes(root, spec)


def start_slurmd(root: Path, node: str) -> None:
    """Start the slurmd of one node."""
    must_run(root, ["slurmd", "-N", node], log=f"slurmd.{node}")


def wait_for_nodes(root: Path, spec: ClusterSpec) -> None:
    """Wait until every node is idle."""
    names = spec.node_names()
    _wait(lambda: not _not_idle(root, names), f"slurmd.{names[0]}", "all nodes are idle", 60)


def _not_idle(root: Path, names: tuple[str, ...]) -> set[str]:
    states = _states(root)
    return {name for name in names if states.get(name) != "idle"}


def _states(root: Path) -> dict[str, str]:
    """Return node name -> state as sinfo prints it (``idle``, ``unknown``, ``unknown*`` ...)."""
    answer = run_inside(root, ["sinfo", "--noheader", "--Node", "--format=%N %T"]).stdout
    return dict(line.split(" ", 1) for line in answer.splitlines() if line.count(" ") == 1)


def _alive(root: Path, daemon: str, machine: str = CONTROLLER) -> bool:
    """Return True, or raise `DaemonError` at once when no process of that name is left to wait for."""
    if any(process.name == daemon for process in members(root, machine)):
        return True
    msg = f"{daemon} ended while it was starting"
    raise DaemonError(msg, daemon.removesuffix("d") if daemon == "mariadbd" else daemon)


def _wait(predicate: Callable[[], bool], log: str, what: str, timeout_s: float = 30) -> None:
    try:
        wait_until(predicate, timeout_s, what)
    except DaemonError:
        raise
    except MiniError as err:
        raise DaemonError(str(err), log) from err


def restart(root: Path, daemon: str) -> None:
    """Stop slurmctld or slurmdbd with SIGTERM, start it again and wait until it answers."""
    if daemon not in RESTARTABLE:
        msg = f"cannot restart {daemon!r}, only {' and '.join(RESTARTABLE)}"
        raise MiniError(msg)
    machine = machine_of(daemon, in_containers=place.has_containers(root))
    running = find_daemon(root, f"{daemon}.pid", machine)
    if running is not None:
        os.kill(running.pid, signal.SIGTERM)
        gone = place.start_ticks(running.pid)
        wait_until(lambda: place.start_ticks(running.pid) != gone, 30, f"{daemon} stops")
    if daemon == "slurmdbd":
        start_slurmdbd(root, machine)
    else:
        start_slurmctld(root)
        _wait(lambda: run_inside(root, ["scontrol", "ping"]).returncode == 0, daemon, "slurmctld answers")
        _wait(lambda: "unknown" not in _states(root).values(), daemon, "every slurmd has registered again")
