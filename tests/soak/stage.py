"""The stage: a mini-Slurm with bands whose every daemon, Slurm's and ours, runs under a supervisor."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurm_plugin.rebalancer.lease import lease_holder
from tests.e2e.mini_cluster import MiniCluster, accepts, members, wait_for
from tests.reclaims.queue import SITE
from tests.soak.supervise import Supervised

if TYPE_CHECKING:
    from collections.abc import Callable

CAP: Final = {"risk": 4, "rec": 2, "vision": 2}
KINDS: Final = ("hook server", "rebalancer", "QOS helper", "slurmctld", "slurmdbd", "MariaDB", "slurmd")
OURS: Final = ("rebalancer", "QOS helper", "hook server")
"""In the order in which they are stopped: the rebalancer's last act needs the helper."""

_UP_S: Final = 60.0
_FLUSH: Final = "innodb_flush_log_at_trx_commit"
_SLURM: Final = ("slurmd", "slurmctld", "slurmdbd", "mariadbd")


class Stage:
    """A cluster, up after :meth:`up`, with ``parts`` by kind; several for slurmd."""

    def __init__(self, name: str) -> None:
        self.cluster = MiniCluster(name)
        self.parts: dict[str, list[Supervised]] = {kind: [] for kind in KINDS}
        self.dump_before = ""

    def up(self) -> None:
        """Start everything and wait until it serves."""
        MiniCluster.up(self.cluster.name, "--hook", "--hook-deadline-ms", "150")
        root = self.cluster.root
        (root / "etc/fairgpu-site.yaml").write_text(SITE.format(name=self.cluster.name, root=root, more="grace: 2s"))
        self.dump_before = self.dump()
        self.cluster.run("root", "fairgpu", "apply", "--yes")
        self._take_over_slurm()
        self._start_ours()

    def down(self) -> None:
        """Stop every supervisor, then the cluster."""
        for part in self.all_parts():
            part.stop()
        self.cluster.down()

    def all_parts(self) -> list[Supervised]:
        """Every supervised process."""
        return [part for parts in self.parts.values() for part in parts]

    def wait_all(self, timeout_s: float = _UP_S) -> None:
        """Wait until every process serves."""
        for part in self.all_parts():
            part.wait(timeout_s)

    def stop_ours(self) -> dict[str, int | None]:
        """Stop our three processes cleanly; exit codes by kind."""
        return {kind: part.stop() for kind in OURS for part in self.parts[kind]}

    def dump(self) -> str:
        """Everything that slurmdbd says about this cluster's associations and about QOSes."""
        run, name = self.cluster.run, self.cluster.name
        return "".join(
            run("root", *argv).stdout
            for argv in (
                ("sacctmgr", "dump", name, "file=/dev/stdout"),
                ("sacctmgr", "-P", "show", "assoc", f"cluster={name}"),
                ("sacctmgr", "-P", "show", "qos"),
            )
        )

    def ask(self, *argv: str) -> str | None:
        """Output of a command inside as root, ``None`` if it failed."""
        done = self.cluster.run("root", "timeout", "20", *argv, check=False)
        return done.stdout if done.returncode == 0 else None

    def _start_ours(self) -> None:
        run = self.cluster.root / "run"
        state_dir = self.cluster.root / "var/fairgpu"
        self._add("QOS helper", ("fairgpu", "qos-helper"), "slurm", lambda: accepts(run / "fairgpu-qos/helper.sock"))
        self._add("rebalancer", ("fairgpu", "rebalance"), "fairgpu", lambda: lease_holder(state_dir) is not None)
        self._add("hook server", ("fairgpu", "hook-server"), "fairgpu", lambda: accepts(run / "fairgpu/hook.sock"))
        self.wait_all()
        wait_for((run / "fairgpu/standings.json").exists, timeout_s=_UP_S, what="the first cycle")

    def _take_over_slurm(self) -> None:
        """End the daemons that ``mini-slurm up`` started and start them again, supervised and in the foreground."""
        ports, root = _node_ports(self.cluster), self.cluster.root
        for pid in _slurm_daemons(root):
            os.kill(pid, signal.SIGTERM)
        # As a site's MariaDB: what is committed survives its process. mini-slurm saves that, its data are thrown away.
        options = root / "etc/my.cnf"
        options.write_text(options.read_text().replace(f"{_FLUSH}=0", f"{_FLUSH}=2"))
        wait_for(lambda: not _slurm_daemons(root), timeout_s=_UP_S, what="the first daemons end", every_s=0.3)
        greeting = root / "run/mariadb/mariadb.sock"
        mariadbd = ("env", "mariadbd", f"--defaults-file={root}/etc/my.cnf", "--user=mysql")
        slurmdbd = ("env", "--", f"MYSQL_UNIX_PORT={greeting}", "slurmdbd", "-D")
        self._add("MariaDB", mariadbd, "root", lambda: _greets(greeting))
        show, list_mine = ("sacctmgr", "--noheader", "show", "cluster"), ("squeue", "--noheader", "--me")
        self._add("slurmdbd", slurmdbd, "slurm", lambda: self.ask(*show) is not None)
        self._add("slurmctld", ("slurmctld", "-D"), "slurm", lambda: self.ask(*list_mine) is not None)
        for node, port in ports.items():
            self._add("slurmd", ("env", "slurmd", "-D", "-N", node), "root", _listens(root, port))

    def _add(self, kind: str, argv: tuple[str, ...], user: str, answers: Callable[[], bool]) -> None:
        part = Supervised(self.cluster, kind, argv, user=user, answers=answers)
        self.parts[kind].append(part)
        part.wait(_UP_S)


def _slurm_daemons(root: Path) -> list[int]:
    """Host pids of Slurm's and MariaDB's daemons in the cluster."""
    found = []
    for pid in members(root):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() in _SLURM:
                found.append(pid)
    return found


def _node_ports(cluster: MiniCluster) -> dict[str, int]:
    shown = cluster.run("root", "scontrol", "show", "node", "-o").stdout
    return {node: int(port) for node, port in re.findall(r"NodeName=(\S+) .*?\bPort=(\d+)", shown)}


def _greets(path: Path) -> bool:
    """Whether MariaDB sends its greeting."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1.0)
        try:
            client.connect(str(path))
            return bool(client.recv(1))
        except OSError:
            return False


def _listens(root: Path, port: int) -> Callable[[], bool]:
    """Check in the cluster's network namespace, without a connection, that somebody listens on a TCP port."""
    init = (root / "init.pid").read_text().split()[0]

    def look() -> bool:
        rows = [line.split() for line in Path(f"/proc/{init}/net/tcp").read_text().splitlines()[1:]]
        return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)

    return look


def now() -> float:
    """Wall clock, as the history's time stamps; seconds since the epoch."""
    return time.time()
