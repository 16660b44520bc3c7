"""Process 1 of a cluster: prepares the namespaces, then only reaps orphans until it is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import NoReturn

from mini_slurm.machines import CONTROLLER, ONLY_ADDRESS
from mini_slurm.place import REPO, read_text

_PRIVATE_FILES = ("passwd", "group", "hosts")


def run_init(root: Path, gpus_per_node: int) -> NoReturn:
    """Prepare network, host name, mounts and GPU devices, create ``ready``, then reap orphans for ever."""
    socket.sethostname(CONTROLLER)
    _call("ip", "link", "set", "lo", "up")
    # glibc ignores a host that has nothing but 127.0.0.1 (AI_ADDRCONFIG).
    _call("ip", "addr", "add", f"{ONLY_ADDRESS}/24", "dev", "lo")
    _make_gpus(root / "dev", gpus_per_node)
    for name in _PRIVATE_FILES:
        _call("mount", "--bind", str(root / "etc" / name), f"/etc/{name}")
    if Path("/etc/slurm").is_dir():
        _call("mount", "--bind", str(root / "etc"), "/etc/slurm")
    _open_up([root, REPO, *python_prefixes(REPO / ".venv")])
    (root / "ready").touch()
    _reap_for_ever()


def _call(*argv: str, pass_fds: tuple[int, ...] = ()) -> None:
    subprocess.run(argv, check=True, pass_fds=pass_fds)


def _make_gpus(directory: Path, count: int) -> None:
    """Make null devices named like GPUs, on a tmpfs in case the base directory is mounted ``nodev``."""
    _call("mount", "-t", "tmpfs", "-o", "mode=0755,size=64k", "mini-slurm-dev", str(directory))
    for index in range(count):
        path = directory / f"gpu{index}"
        os.mknod(path, 0o020666, os.makedev(1, 3))
        path.chmod(0o666)


def python_prefixes(venv: Path) -> list[Path]:
    """Return the installations that the environment's interpreter needs, through each of its names."""
    python = venv / "bin/python"
    homes = [python.resolve().parent]
    if python.is_symlink():
        homes.append((python.parent / python.readlink()).absolute().parent)
    for line in read_text(venv / "pyvenv.cfg").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home":
            homes.append(Path(value.strip()))
    return sorted({home.parent for home in homes if home.is_dir()})


def _open_up(needed: list[Path]) -> None:
    """Make `needed` reachable for ordinary users although an ancestor such as /root forbids it.

    Each closed ancestor is covered, in this mount namespace only, by an empty directory that holds
    nothing but the needed paths, bound to their own names.
    """
    closed: dict[Path, list[Path]] = {}
    for path in needed:
        for ancestor in reversed(path.parents):
            if not ancestor.stat().st_mode & 0o001:
                closed.setdefault(ancestor, []).append(path)
                break
    for ancestor, paths in closed.items():
        held = [(path, os.open(path, os.O_PATH)) for path in sorted(paths)]
        _call("mount", "-t", "tmpfs", "-o", "mode=0755,size=1m", "mini-slurm-open", str(ancestor))
        for path, fd in held:
            path.mkdir(parents=True, exist_ok=True)
            _call("mount", "--no-canonicalize", "--rbind", f"/proc/self/fd/{fd}", str(path), pass_fds=(fd,))
            os.close(fd)


def _reap_for_ever() -> NoReturn:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})
