"""The jobs: a seeded mix of three agents, submitted one after the other, again when slurmctld does not answer."""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.reclaims.queue import QUOTA, USERS
from tests.soak.stage import now

if TYPE_CHECKING:
    from tests.soak.stage import Stage

SHAPES: Final = {"batch": 8, "no requeue": 2, "srun": 1, "array": 2, "held": 1}
"""Kinds of submissions and their weights."""

PHASE_S: Final = 20.0
"""How long an agent is quiet, usual or busy."""

MAX_PENDING: Final = 25
"""Per agent; above it submits nothing, so that the queue can be drained."""

SAVE_MAX_WAIT_S: Final = 5.0
"""slurmctld saves its job state at most this often (``SAVE_MAX_WAIT`` in its state_save.c): what it accepted since is
gone when it is killed."""

_TASKS: Final = 3
_HELD_S: Final = 3.0


@dataclass(slots=True, kw_only=True)
class Submission:
    """One job or array.

    Attributes
    ----------
    name : str
        Its job name with the number of its GPUs: unique, and what it is known by, since a slurmctld that forgot
        jobs gives their ids again.
    accepted_s : float or None
        When sbatch said so.
    forgotten_s : float or None
        When a slurmctld was killed that did not know it after its restart.
    """

    name: str
    agent: str
    shape: str
    argv: tuple[str, ...]
    n_tasks: int = 1
    n_refused: int = 0
    accepted_s: float | None = None
    forgotten_s: float | None = None


def draw(rng: random.Random, agent: str, number: int, *, longest_s: int) -> Submission:
    """Draw one submission of an agent; its jobs run for up to ``longest_s`` seconds."""
    (shape,) = rng.choices(tuple(SHAPES), tuple(SHAPES.values()))
    n_gpus = rng.choices((1, 2, 3, 4), (6, 3, 1, 1))[0]
    name = f"{agent}-{number:05d}-{n_gpus}"
    options = ["--partition=main", f"--account={agent}", f"--job-name={name}", f"--gpus={n_gpus}", "--time=1"]
    if rng.random() < 0.5:
        options.append(f"--comment=agent={agent} stage={rng.choice(('train', 'serve', 'preprocess'))}")
    if rng.random() < 0.7:
        options.append("--nodes=1")
    options += {
        "no requeue": ["--no-requeue"],
        "array": [f"--array=0-{_TASKS - 1}"],
        "held": ["--hold"],
    }.get(shape, [])
    seconds = rng.randint(1, longest_s)
    if shape == "srun":
        argv = ("srun", "--quiet", *options, "sleep", str(seconds))
    else:
        argv = ("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap=sleep {seconds}")
    return Submission(name=name, agent=agent, shape=shape, argv=argv, n_tasks=_TASKS if shape == "array" else 1)


class Submitter:
    """Submits for one agent in a thread of its own until :meth:`stop`."""

    def __init__(self, stage: Stage, agent: str, *, seed: int, rate: float, longest_s: int) -> None:
        self.made: list[Submission] = []
        self.n_pending = 0
        self._stage, self._agent, self._rate, self._longest_s = stage, agent, rate, longest_s
        self._rng = random.Random(f"{seed}-{agent}")  # noqa: S311 - a workload, no secret
        self._held: list[tuple[float, str]] = []
        self._sruns: list[subprocess.Popen[bytes]] = []
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"submit-{agent}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Submit nothing more; returns when the last submission is decided."""
        self._is_stopping.set()
        self._thread.join(120)

    def reap(self) -> None:
        """End what is left of the sruns."""
        for srun in self._sruns:
            if srun.poll() is None:
                srun.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                srun.wait(20)

    def release(self, *, everything: bool) -> None:
        """Release jobs that were held long enough; what slurmctld does not take is tried again."""
        until_s = time.monotonic() - (0 if everything else _HELD_S)
        for at_s, job_id in list(self._held):
            if at_s <= until_s and self._run_as("scontrol", "release", job_id).returncode == 0:
                self._held.remove((at_s, job_id))

    def _run(self) -> None:
        number, phase_until_s, pace = 0, 0.0, 1.0
        while not self._is_stopping.is_set():
            if time.monotonic() >= phase_until_s:
                phase_until_s, pace = time.monotonic() + PHASE_S, self._rng.choice((0.15, 1.0, 4.0))
            self._is_stopping.wait(self._rng.expovariate(self._rate * QUOTA[self._agent] / 16 * pace))
            self.release(everything=False)
            if self.n_pending < MAX_PENDING and not self._is_stopping.is_set():
                number += 1
                self._submit(draw(self._rng, self._agent, number, longest_s=self._longest_s))

    def _submit(self, one: Submission) -> None:
        self.made.append(one)
        if one.shape == "srun":
            self._sruns.append(self._stage.cluster.popen(USERS[self._agent], *one.argv, stdout=subprocess.DEVNULL))
            return
        while True:
            done = self._run_as(*one.argv)
            job_id = done.stdout.strip() if done.returncode == 0 else self._find(one.name)
            if job_id:
                one.accepted_s = now()
                if one.shape == "held":
                    self._held.append((time.monotonic(), job_id))
                return
            one.n_refused += 1
            if self._is_stopping.wait(1.0):
                self.made.remove(one)  # never accepted
                return

    def _find(self, name: str) -> str:
        """Id of a job that Slurm has although sbatch got no answer, or nothing; waits until slurmctld says."""
        while True:
            done = self._run_as("squeue", "--noheader", "--states=all", f"--name={name}", "--format=%A")
            if done.returncode == 0:
                return done.stdout.strip()
            time.sleep(0.5)

    def _run_as(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return self._stage.cluster.run(USERS[self._agent], "timeout", "60", *argv, check=False)
