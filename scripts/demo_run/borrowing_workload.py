"""Act two's jobs: an agent floods the cluster with work that resumes from checkpoints, two lenders come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FLOODER: Final = "risk"
USERS: Final = {"rec": "bob", "risk": "alice", "vision": "carol"}

BANDS: Final = {
    "bands": {"grace": "3s"},
    # The band-order rule: 5000 + age 1000 + fairshare 1000 + job size 100 < 10000 x (100 - 9) / 100.
    "site_factor": {"mode": "blend", "scale": 5000},
}
"""Settings of the site file: all defaults (quotas by base weight, cap 20 %) but for a short grace."""

SCRIPT: Final = """\
#!/bin/sh
# Works for $1 seconds and counts them in a file: started again, it goes on where it was.
checkpoint=$HOME/checkpoint-$SLURM_JOB_ID
done_s=$(cat "$checkpoint" 2>/dev/null || echo 0)
while [ "$done_s" -lt "$1" ]; do
    sleep 1
    done_s=$((done_s + 1))
    echo "$done_s" >"$checkpoint"
done
"""

FLOOD: Final = ((22, 50), (10, 40), (4, 6))
"""Jobs of the flood in order: how many, and seconds of work. The last 4 find no GPU and only wait.

Each job that gets a GPU works longer than everything up to the claims takes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lender:
    """An agent that comes for its quota.

    ``is_one_job``: one job for the whole quota, else a job for each GPU. ``seconds``: their work; the first lender's
    lasts longer than the second may wait, so that nobody is served by what ends meanwhile.
    """

    agent: str
    is_one_job: bool
    seconds: int

    def commands(self, script: str, n_gpus: int) -> list[str]:
        """The sbatch commands that ask for ``n_gpus``."""
        if self.is_one_job:
            return [sbatch(self.agent, script, self.seconds, f"--gpus={n_gpus}", "--nodes=1")]
        return [sbatch(self.agent, script, self.seconds)] * n_gpus


LENDERS: Final = (Lender(agent="rec", is_one_job=False, seconds=26), Lender(agent="vision", is_one_job=True, seconds=8))


def flood(script: str) -> list[str]:
    """The sbatch commands of the agent that floods."""
    return [command for n_jobs, seconds in FLOOD for command in [sbatch(FLOODER, script, seconds)] * n_jobs]


def sbatch(agent: str, script: str, seconds: int, *size: str) -> str:
    """One sbatch command as the agent's researcher types it."""
    options = [f"--comment=agent={agent}", f"--job-name={agent}", *(size or ("--gpus=1",)), "--mem=4G"]
    return " ".join(["sbatch", "--parsable", *options, "--output=/dev/null", "--time=5", script, str(seconds)])
