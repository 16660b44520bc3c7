"""Process 1 of a container: makes what is missing, starts this machine's daemons, then reaps until it is stopped.

It runs as root in the image, with the capabilities that Docker gives by default. Everything that must survive
``docker restart`` is in the cluster's directory, which every container of the cluster has at the same path.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from mini_slurm import daemons, layout, place
from mini_slurm.cluster import installed_version
from mini_slurm.machines import ACCOUNTING, CONTROLLER, DATABASE, SERVICES, addresses
from mini_slurm.place import MiniError
from mini_slurm.processes import can_connect, wait_until
from mini_slurm.releases import release_for
from mini_slurm.slurm_files import CONTAINER_GPUS, CTLD_PORT, DB_PORT, DBD_PORT, munge_folder
from mini_slurm.spec import ClusterSpec

if TYPE_CHECKING:
    from types import FrameType

_NULL_DEVICE: Final = os.makedev(1, 3)
_START_TIMEOUT_S: Final = 90
_STOP_TIMEOUT_S: Final = 8
"""Docker kills a container that is not gone 10 s after SIGTERM."""


def main() -> NoReturn:
    """Be the machine that the environment names."""
    signal.signal(signal.SIGTERM, _end)  # process 1 ignores what it does not handle
    root, machine = Path(os.environ[place.ROOT_VARIABLE]), os.environ[place.MACHINE_VARIABLE]
    try:
        spec = ClusterSpec.from_json(os.environ[place.SPEC_VARIABLE])
        _prepare(spec, root)
        _become(spec, root, machine)
        _start(spec, root, machine)
    except MiniError as err:
        sys.stderr.write(f"mini-slurm: {machine}: {err}\n")
        sys.exit(1)
    sys.stderr.write(f"mini-slurm: {machine} runs\n")
    _reap_until_stopped()


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def _prepare(spec: ClusterSpec, root: Path) -> None:
    """Write the cluster's files and secrets, once; all containers start together and one of them does it."""
    root.mkdir(mode=0o755, parents=True, exist_ok=True)
    (root / place.CONTAINERS_MARK).touch()
    with (root / ".prepare").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (root / "prepared").exists():
            return
        layout.write_files(spec, root, release_for(installed_version()))
        daemons.make_secrets(spec, root)
        if spec.is_compiled:
            daemons.build_hook(root)
        (root / "prepared").touch()


def _become(spec: ClusterSpec, root: Path, machine: str) -> None:
    """Give this container the cluster's people, hosts and configuration, munge's directory and its GPUs."""
    for name in ("passwd", "group", "hosts"):
        Path("/etc", name).write_text((root / "etc" / name).read_text())
    slurm = Path("/etc/slurm")
    if not slurm.is_symlink():
        shutil.rmtree(slurm, ignore_errors=True)
        slurm.symlink_to(root / "etc")
    munge = munge_folder(spec, root)
    shutil.rmtree(munge, ignore_errors=True)
    munge.mkdir(mode=0o755)
    shutil.chown(munge, "munge", "munge")
    if any(group.gpu_type and machine in group.names for group in spec.groups()):
        for index in range(spec.gpus_per_node):
            path = f"{CONTAINER_GPUS}{index}"
            if not Path(path).exists():
                os.mknod(path, 0o020666, _NULL_DEVICE)
                Path(path).chmod(0o666)


def _start(spec: ClusterSpec, root: Path, machine: str) -> None:
    """Start this machine's daemons once those that they need answer."""
    if machine == DATABASE:
        daemons.start_database(spec, root)
        (root / "var/database-made").touch()
        return
    daemons.start_munge(spec, root, machine)
    if machine == ACCOUNTING:
        wait_until((root / "var/database-made").exists, _START_TIMEOUT_S, "the database is made")
        _wait_for(spec, DATABASE, DB_PORT)
        daemons.start_slurmdbd(root)
    elif machine == CONTROLLER:
        _wait_for(spec, ACCOUNTING, DBD_PORT)
        _load_accounts_once(spec, root)
        daemons.start_slurmctld(root)
    elif machine in spec.node_names():
        _forget_steps(root / "var/slurmd" / machine, machine)
        _wait_for(spec, CONTROLLER, CTLD_PORT)
        daemons.start_slurmd(root, machine)
    else:
        msg = f"no such machine; there are {', '.join((*SERVICES, *spec.node_names()))}"
        raise MiniError(msg)


def _forget_steps(spool: Path, node: str) -> None:
    """Remove the sockets of job steps that ended with the container, or slurmd takes the jobs for running."""
    for socket in spool.glob(f"{node}_*"):
        socket.unlink()


def _wait_for(spec: ClusterSpec, machine: str, port: int) -> None:
    address = addresses(spec)[machine]
    wait_until(lambda: can_connect(address, port), _START_TIMEOUT_S, f"{machine} listens on port {port}")


def _load_accounts_once(spec: ClusterSpec, root: Path) -> None:
    done = root / "var/accounts-loaded"
    if not done.exists():
        daemons.load_accounts(root, spec.name)
        done.touch()


def _reap_until_stopped() -> NoReturn:
    """Reap orphans until SIGTERM, then end every process of the container in order."""
    signals = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    while _reap_all() and signal.sigwait(signals) == signal.SIGCHLD:
        pass
    os.kill(-1, signal.SIGTERM)
    deadline_s = time.monotonic() + _STOP_TIMEOUT_S
    while _others() and time.monotonic() < deadline_s:
        _reap_all()
        time.sleep(0.05)
    sys.exit(0)


def _reap_all() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    return True


def _others() -> list[str]:
    """Return the processes beside this one."""
    return [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and entry.name != "1"]


if __name__ == "__main__":
    main()
