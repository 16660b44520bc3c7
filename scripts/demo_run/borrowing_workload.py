"""Act two's jobs: an agent floods the cluster with work that resumes from checkpoints, two lenders come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FLOODER: Final = "risk"
USERS: Final = {"rec": "bob", "risk": "alice", "vision": "carol"}

WEIGHTS: Final = {"rec": 0.25, "risk": 0.6, "vision": 0.15}
"""Base weights: of 32 GPUs risk is owed 19, rec 8, vision 5."""

BANDS: Final = {
    "agents": {agent: {"accounts": [agent], "base_weight": weight} for agent, weight in WEIGHTS.items()},
    "bands": {"grace": "10s"},
    # The band-order rule: 5000 + age 1000 + fairshare 1000 + job size 100 < 10000 x (100 - 9) / 100.
    "site_factor": {"mode": "blend", "scale": 5000},
}
"""Settings of the site file: defaults (quotas by base weight, a cap of 20 %) but for a short grace."""

SCRIPT: Final = """\
#!/bin/sh
# Works for $1 seconds and counts them in a file: started again, it goes on where it was. With $2 it does not end before
# that file is there.
checkpoint=$HOME/checkpoint-$SLURM_JOB_ID
done_s=$(cat "$checkpoint" 2>/dev/null || echo 0)
while [ "$done_s" -lt "$1" ] || { [ -n "$2" ] && [ ! -e "$2" ]; }; do
    sleep 1
    done_s=$((done_s + 1))
    echo "$done_s" >"$checkpoint"
done
"""

FLOOD: Final = ((19, 52), (3, 46), (10, 34), (4, 6))
"""Jobs of the flood in order: how many, and seconds of work. The last 4 find no GPU and only wait.

None ends before the lenders have been served, however slow the machine is: whoever gets a GPU took it from somebody.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lender:
    """An agent that comes for its quota with one job on one node; ``seconds`` is its work.

    One job, because several small claims at once may race for the same victim, and Slurm lets the loser wait for
    KillWait + MessageTimeout.
    """

    agent: str
    seconds: int

    def command(self, script: str, n_gpus: int) -> str:
        """The sbatch command that asks for ``n_gpus``."""
        return sbatch(self.agent, script, self.seconds, f"--gpus={n_gpus}")


LENDERS: Final = (Lender(agent="rec", seconds=24), Lender(agent="vision", seconds=8))


def flood(script: str, served: str) -> list[str]:
    """The sbatch commands of the agent that floods; no job ends before the file ``served`` is there."""
    return [f"{sbatch(FLOODER, script, seconds)} {served}" for n_jobs, seconds in FLOOD for _ in range(n_jobs)]


def sbatch(agent: str, script: str, seconds: int, size: str = "--gpus=1") -> str:
    """One sbatch command as the agent's researcher types it."""
    options = [f"--comment=agent={agent}", f"--job-name={agent}", size, "--nodes=1", "--mem=4G"]
    return " ".join(["sbatch", "--parsable", *options, "--output=/dev/null", "--time=10", script, str(seconds)])
