"""Drive the demo's mini-Slurm: start it, submit as a researcher would, read who holds which GPU, take it down."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from workload import CPUS_PER_NODE, GPUS_PER_NODE, MEM_PER_NODE_MIB, NODES

from policies.nodelist import expand_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_REPO: Final = Path(__file__).resolve().parents[2]
_MINI: Final = str(_REPO / "scripts" / "mini-slurm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Who ran what at one moment.

    Attributes
    ----------
    at_s : float
        Monotonic seconds.
    owner_by_gpu : dict
        Agent by (node, index of the GPU).
    running : dict
        Running job ids by agent.
    qos_by_gpu : dict
        QOS of the job that holds the GPU, by (node, index).
    restarts : dict
        How often each job that slurmctld remembers was started again, by job id; those never are left out.
    """

    at_s: float
    owner_by_gpu: dict[tuple[str, int], str]
    running: dict[str, tuple[str, ...]]
    qos_by_gpu: dict[tuple[str, int], str] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)

    @property
    def gpus_by_qos(self) -> Counter[str]:
        """GPUs in use by QOS."""
        return Counter(self.qos_by_gpu.values())


class DemoCluster:
    """A mini-Slurm of its own name, with FairGPU's daemons inside it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.root = Path()

    def up(self, release: str | None = None) -> None:
        """Start Slurm: this host's, whose packages are installed if they are missing, or `release` in containers."""
        shape = {
            "--nodes": NODES,
            "--gpus-per-node": GPUS_PER_NODE,
            "--cpus-per-node": CPUS_PER_NODE,
            "--mem-per-node": MEM_PER_NODE_MIB,
            "--types": "a100,h100",
            "--cpu-nodes": 0,
        }
        options = [str(part) for pair in shape.items() for part in pair]
        options += ["--docker", "--release", release] if release else []
        subprocess.run([_MINI, "up", "--name", self.name, "--hook", *options], check=True)
        answer = subprocess.run([_MINI, "status", "--name", self.name, "--json"], check=True, capture_output=True)
        self.root = Path(json.loads(answer.stdout)["directory"])

    def down(self) -> None:
        """End everything in the namespace, our daemons with it."""
        subprocess.run([_MINI, "down", "--name", self.name], check=False, stdout=subprocess.DEVNULL)
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()

    def prefix(self, user: str) -> tuple[str, ...]:
        """The start of a host command that runs the rest inside as ``user``, for a client of ours."""
        return (_MINI, "exec", "--name", self.name, "--user", user, "--")

    def run(self, user: str, *argv: str, stdin: str = "") -> str:
        """Run a command inside as ``user`` and return its output; a failure shows what it said."""
        done = subprocess.run(
            [*self.prefix(user), *argv],
            input=stdin,
            text=True,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            msg = f"{' '.join(argv[:3])} as {user} failed with {done.returncode}: {done.stderr.strip()[-2000:]}"
            raise RuntimeError(msg)
        return done.stdout

    def write_site(self, name: str, settings: Mapping[str, Any]) -> Path:
        """Write the site file ``name``: the mini-Slurm's own in mode enforce, with ``settings`` over it."""
        site = yaml.safe_load((self.root / "etc" / "fairgpu-site.yaml").read_text(encoding="utf-8"))
        site |= {"mode": "enforce", "partitions": ["main"], "rebalancer": {"interval": "500ms"}} | dict(settings)
        path = self.root / "etc" / f"site-{name}.yaml"
        path.write_text(yaml.safe_dump(site, sort_keys=False), encoding="utf-8")
        path.chmod(0o644)
        return path

    def start_daemons(self, site: Path, *, helper: bool = False) -> None:
        """Start the hook server and the rebalancer, and with ``helper`` the QOS helper before them."""
        if helper:
            self._start("slurm", "qos-helper", site)
            self._wait_for(self.root / "run" / "fairgpu-qos" / "helper.sock")
        for verb in ("hook-server", "rebalance"):
            self._start("fairgpu", verb, site)
        self._wait_for(self.root / "run" / "fairgpu" / "standings.json")
        self._wait_for(self.root / "run" / "fairgpu" / "hook.sock")

    def _start(self, user: str, verb: str, site: Path) -> None:
        inside = ["--user", user, "--cwd", "/", "--", "fairgpu", verb, "--site", str(site)]
        with (self.root / "log" / f"{verb}-{site.stem}.log").open("wb") as log:
            argv = [_MINI, "exec", "--name", self.name, *inside]
            self._daemons.append(subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL))

    def freeze(self, verb: str) -> None:
        """Stop one of our daemons as a hung process; no other fairgpu is in this pid namespace."""
        self.run("root", "pkill", "--signal", "STOP", "--full", f"bin/fairgpu {verb}")

    def thaw(self, verb: str) -> None:
        """Let it go on; nsenter outside stopped together with it."""
        self.run("root", "pkill", "--signal", "CONT", "--full", f"bin/fairgpu {verb}")
        for daemon in self._daemons:
            daemon.send_signal(signal.SIGCONT)

    def stop_daemons(self) -> None:
        """Ask all daemons to stop and wait for them."""
        if self._daemons:
            self.run("root", "pkill", "--signal", "TERM", "--full", "bin/fairgpu (hook-server|rebalance|qos-helper) ")
        for daemon in self._daemons:
            daemon.wait(timeout=20)
        self._daemons.clear()
        for name in ("standings.json", "hook.sock"):
            (self.root / "run" / "fairgpu" / name).unlink(missing_ok=True)

    def submit(self, user: str, commands: Sequence[str]) -> list[str]:
        """Run shell commands, each an ``sbatch --parsable``, as a researcher; return the job ids in order."""
        return self.run(user, "bash", "-e", "-s", stdin="\n".join(commands)).split()

    def clear(self) -> None:
        """Cancel every job and wait until the nodes are empty."""
        self.run("root", "scancel", "--state=PENDING", "--partition=main")
        self.run("root", "scancel", "--partition=main")
        deadline = time.monotonic() + 60
        while self.run("root", "squeue", "--noheader").strip():
            if time.monotonic() > deadline:
                msg = "jobs of the demo did not end within 60 s after scancel"
                raise RuntimeError(msg)
            time.sleep(0.3)

    def sample(self) -> Sample:
        """Read who runs now, with GPU indices, from ``scontrol show job -d``."""
        at_s = time.monotonic()
        text = self.run("root", "scontrol", "show", "job", "-d", "-o")
        owners: dict[tuple[str, int], str] = {}
        qos: dict[tuple[str, int], str] = {}
        running: dict[str, list[str]] = {}
        restarts: dict[str, int] = {}
        for line in text.splitlines():
            job = _JOB.search(line)
            if job is None:
                continue
            if job["restarts"] != "0":
                restarts[job["id"]] = int(job["restarts"])
            if job["state"] != "RUNNING":
                continue
            running.setdefault(job["name"], []).append(job["id"])
            held = [
                (node, index)
                for gpu in _HELD.finditer(line)
                for node in expand_nodes(gpu["nodes"])
                for index in _indices(gpu["idx"])
            ]
            owners |= dict.fromkeys(held, job["name"])
            qos |= dict.fromkeys(held, job["qos"])
        ids = {name: tuple(found) for name, found in sorted(running.items())}
        return Sample(at_s=at_s, owner_by_gpu=owners, running=ids, qos_by_gpu=qos, restarts=restarts)

    def _wait_for(self, path: Path) -> None:
        deadline = time.monotonic() + 30
        while not path.exists():
            dead = [daemon for daemon in self._daemons if daemon.poll() is not None]
            if dead or time.monotonic() > deadline:
                logs = "\n".join(log.read_text(errors="replace")[-1500:] for log in (self.root / "log").glob("*-*.log"))
                msg = f"a FairGPU daemon did not come up ({path.name} is missing):\n{logs}"
                raise RuntimeError(msg)
            time.sleep(0.1)


_JOB: Final = re.compile(
    r"^JobId=(?P<id>\d+) .*?JobName=(?P<name>\w+) .*? QOS=(?P<qos>\S+) .*?"
    r"JobState=(?P<state>\w+) .*? Restarts=(?P<restarts>\d+) "
)
_HELD: Final = re.compile(r"Nodes=(?P<nodes>[\w,\[\]-]+) CPU_IDs=\S+ Mem=\d+ GRES=gpu:\w+:\d+\(IDX:(?P<idx>[\d,-]+)\)")


def _indices(text: str) -> Sequence[int]:
    """``"0,2-3"`` -> ``[0, 2, 3]``."""
    found: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        found.extend(range(int(low), int(high or low) + 1))
    return found
