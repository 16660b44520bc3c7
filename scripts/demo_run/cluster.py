"""Drive the demo's mini-Slurm: start it, submit as a researcher would, read who holds which GPU, take it down."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml
from workload import CPUS_PER_NODE, GPUS_PER_NODE, MEM_PER_NODE_MIB, NODES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workload import DemoAgent

REPO: Final = Path(__file__).resolve().parents[2]
_MINI: Final = str(REPO / "scripts" / "mini-slurm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Who ran what at one moment: GPU owners by (node, index), running job ids by agent."""

    at_s: float
    owner_by_gpu: dict[tuple[str, int], str]
    running: dict[str, tuple[str, ...]]


class DemoCluster:
    """A mini-Slurm of its own name, with the two FairGPU daemons inside it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.root = Path()

    def up(self) -> None:
        """Start Slurm; packages that are missing are installed first."""
        shape = {
            "--nodes": NODES,
            "--gpus-per-node": GPUS_PER_NODE,
            "--cpus-per-node": CPUS_PER_NODE,
            "--mem-per-node": MEM_PER_NODE_MIB,
            "--types": "a100,h100",
            "--cpu-nodes": 0,
        }
        options = [str(part) for pair in shape.items() for part in pair]
        subprocess.run([_MINI, "up", "--name", self.name, "--hook", *options], check=True)
        answer = subprocess.run([_MINI, "status", "--name", self.name, "--json"], check=True, capture_output=True)
        self.root = Path(json.loads(answer.stdout)["directory"])

    def down(self) -> None:
        """Stop the daemons, then everything in the namespace."""
        self.stop_daemons()
        subprocess.run([_MINI, "down", "--name", self.name], check=False, stdout=subprocess.DEVNULL)

    def run(self, user: str, *argv: str, stdin: str = "") -> str:
        """Run a command inside as ``user`` and return its output; a failure shows what it said."""
        done = subprocess.run(
            [_MINI, "exec", "--name", self.name, "--user", user, "--", *argv],
            input=stdin,
            text=True,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            msg = f"{' '.join(argv[:3])} as {user} failed with {done.returncode}: {done.stderr.strip()[-2000:]}"
            raise RuntimeError(msg)
        return done.stdout

    def start_daemons(self, policy: str) -> Path:
        """Write a site file with ``policy`` and start the hook server and the rebalancer; return the site file."""
        site = yaml.safe_load((self.root / "etc" / "fairgpu-site.yaml").read_text(encoding="utf-8"))
        site["policy"] = policy
        site["mode"] = "enforce"
        site["rebalancer"]["interval"] = "500ms"
        site["partitions"] = ["main"]
        path = self.root / "etc" / f"site-{policy}.yaml"
        path.write_text(yaml.safe_dump(site, sort_keys=False), encoding="utf-8")
        path.chmod(0o644)
        for verb in ("hook-server", "rebalance"):
            log = (self.root / "log" / f"{verb}-{policy}.log").open("wb")
            argv = [
                _MINI,
                "exec",
                "--name",
                self.name,
                "--user",
                "fairgpu",
                "--",
                "fairgpu",
                verb,
                "--site",
                str(path),
            ]
            self._daemons.append(subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
        self._wait_for(self.root / "run" / "fairgpu" / "standings.json")
        self._wait_for(self.root / "run" / "fairgpu" / "hook.sock")
        return path

    def stop_daemons(self) -> None:
        """Ask both daemons to stop and wait for them; in a pid namespace of its own, no other fairgpu is in sight."""
        if self._daemons:
            self.run("root", "pkill", "--signal", "TERM", "--uid", "fairgpu")
        for daemon in self._daemons:
            daemon.wait(timeout=20)
        self._daemons.clear()
        for name in ("standings.json", "hook.sock"):
            (self.root / "run" / "fairgpu" / name).unlink(missing_ok=True)

    def submit(self, agent: DemoAgent, n_jobs: int) -> None:
        """Submit ``n_jobs`` as the agent's researcher, with real sbatch commands."""
        durations = itertools.cycle(agent.seconds)
        lines = [_sbatch_line(agent, next(durations)) for _ in range(n_jobs)]
        self.run(agent.user, "bash", "-e", "-s", stdin="\n".join(["cd /tmp", *lines]))

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
        running: dict[str, list[str]] = {}
        for line in text.splitlines():
            job = _RUNNING.search(line)
            if job is None:
                continue
            running.setdefault(job["name"], []).append(job["id"])
            for held in _HELD.finditer(line):
                owners.update({(held["node"], index): job["name"] for index in _indices(held["idx"])})
        return Sample(at_s=at_s, owner_by_gpu=owners, running={k: tuple(v) for k, v in sorted(running.items())})

    def _wait_for(self, path: Path) -> None:
        deadline = time.monotonic() + 30
        while not path.exists():
            dead = [daemon for daemon in self._daemons if daemon.poll() is not None]
            if dead or time.monotonic() > deadline:
                logs = "\n".join(log.read_text(errors="replace")[-1500:] for log in (self.root / "log").glob("*-*.log"))
                msg = f"a FairGPU daemon did not come up ({path.name} is missing):\n{logs}"
                raise RuntimeError(msg)
            time.sleep(0.1)


_RUNNING: Final = re.compile(r"^JobId=(?P<id>\d+) .*?JobName=(?P<name>\w+) .*?JobState=RUNNING ")
_HELD: Final = re.compile(r"Nodes=(?P<node>[\w-]+) CPU_IDs=\S+ Mem=\d+ GRES=gpu:\w+:\d+\(IDX:(?P<idx>[\d,-]+)\)")


def _sbatch_line(agent: DemoAgent, seconds: int) -> str:
    minutes = seconds // 60 + 1
    return " ".join(
        [
            "sbatch",
            "--parsable",
            f"--time={minutes}",
            *agent.sbatch_args,
            f"--wrap='sleep {seconds}'",
            ">/dev/null",
        ]
    )


def _indices(text: str) -> Sequence[int]:
    """``"0,2-3"`` -> ``[0, 2, 3]``."""
    found: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        found.extend(range(int(low), int(high or low) + 1))
    return found
