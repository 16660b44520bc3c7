"""What is looked at while processes die: GPUs in use by QOS each second, and which jobs slurmctld knows."""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.reclaims.queue import QUOTA
from tests.soak.stage import CAP, Stage, now
from tests.soak.workload import Submitter

SAMPLE_S: Final = 1.0
_COLUMNS: Final = "JobArrayID:.32|,Name:.40|,QOS:.60|,State:.16|,Reason:.40|,tres-alloc:.120"
_DRAINED: Final = frozenset({"Duplicate jobid", "batch job complete failure", "Kill task failed"})
_GPUS: Final = re.compile(r"gres/gpu=(\d+)")


@dataclass(frozen=True, slots=True)
class Row:
    """One job as squeue shows it.

    Attributes
    ----------
    asked : int
        GPUs that it asked for.
    gpus : int
        GPUs that Slurm counts for it: none for a job that a slurmctld starts before the nodes have registered.
    """

    job_id: str
    name: str
    qos: str
    state: str
    reason: str
    asked: int
    gpus: int


@dataclass(slots=True)
class Watch:
    """Samples until :meth:`stop`.

    Attributes
    ----------
    exceeded : list of str
        Each sample in which a QOS had more GPUs running than its limit, as Slurm counts them.
    uncounted : set of str
        Jobs that ran without that Slurm counted their GPUs.
    n_beyond : int
        Samples in which a QOS was beyond its limit with what those jobs had asked for.
    n_resumed : int
        How often nodes were resumed that Slurm had drained, as an operator would: a slurmctld that was killed gives
        the ids of forgotten jobs again, and a node that still runs the old one is drained for "Duplicate jobid".
    peak : Counter
        Most GPUs seen running by QOS.
    """

    stage: Stage
    submitters: dict[str, Submitter]
    n_samples: int = 0
    n_unanswered: int = 0
    n_beyond: int = 0
    n_resumed: int = 0
    exceeded: list[str] = field(default_factory=list)
    uncounted: set[str] = field(default_factory=set)
    peak: Counter[str] = field(default_factory=Counter)
    last: tuple[Row, ...] = ()
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take the last sample."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(60)

    def _run(self) -> None:
        limits = limits_of(self.stage.cluster.name)
        while not self._stop.wait(SAMPLE_S):
            rows = fetch_rows(self.stage)
            if rows is None:
                self.n_unanswered += 1
                continue
            self.last = rows
            self._resume()
            self.count(rows, limits)
            pending = Counter(row.name.partition("-")[0] for row in rows if row.state == "PENDING")
            for agent, submitter in self.submitters.items():
                submitter.n_pending = pending[agent]

    def _resume(self) -> None:
        drained = self.stage.ask("sinfo", "--noheader", "--list-reasons", "--format=%N|%E") or ""
        for line in drained.splitlines():
            nodes, _, reason = line.partition("|")
            if (
                reason.strip() in _DRAINED
                and self.stage.ask("scontrol", "update", f"nodename={nodes}", "state=resume") is not None
            ):
                self.n_resumed += 1

    def count(self, rows: tuple[Row, ...], limits: dict[str, int]) -> None:
        """Compare what runs with the limits."""
        self.n_samples += 1
        used: Counter[str] = Counter()
        asked: Counter[str] = Counter()
        for row in rows:
            if row.state == "RUNNING":
                used[row.qos] += row.gpus
                asked[row.qos] += row.asked
                self.uncounted |= {row.name} if row.gpus < row.asked else set()
        self.peak |= used
        self.n_beyond += any(asked[qos] > limit for qos, limit in limits.items())
        self.exceeded += [
            f"{now():.0f}: {qos} {used[qos]} of {limit}" for qos, limit in limits.items() if used[qos] > limit
        ]


def limits_of(cluster: str) -> dict[str, int]:
    """GPUs that each limited QOS may have running."""
    guaranteed = {f"fg_{cluster}_{agent}": n for agent, n in QUOTA.items()}
    return guaranteed | {f"fg_{cluster}_{agent}_borrow": n for agent, n in CAP.items()}


def fetch_rows(stage: Stage) -> tuple[Row, ...] | None:
    """Jobs that slurmctld knows, ended ones for a minute, too; ``None`` if it does not answer."""
    text = stage.ask("squeue", "--noheader", "--states=all", "-O", _COLUMNS)
    return None if text is None else tuple(map(_parse, filter(str.strip, text.splitlines())))


def _parse(line: str) -> Row:
    job_id, name, qos, state, reason, tres = (part.strip() for part in line.split("|"))
    match = _GPUS.search(tres)
    return Row(job_id, name, qos, state, reason, int(name.rpartition("-")[2]), int(match[1]) if match else 0)
