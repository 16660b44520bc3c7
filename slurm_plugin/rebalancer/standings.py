"""The standings file: where each agent stands, for the submit hook, replaced as a whole each cycle."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

from policies.plan import SlaMemory
from policies.quota.names import Band, band_qos
from policies.records import AgentName

if TYPE_CHECKING:
    from policies.plan import Plan
    from policies.site_policy import SitePolicy
    from slurm_plugin.rebalancer.update_budget import UpdateBudget

FILE_NAME: Final = "standings.json"
VERSION: Final = 1


def standings_bytes(plan: Plan, policy: SitePolicy, *, interval_s: float, budget: UpdateBudget) -> bytes:
    """Return the file's content; ``next`` is where an agent's next job starts: what it holds and waits for.

    ``qos`` is the guaranteed QOS of an agent whose bands slurmctld shows.
    ``updates`` is the cycle's :class:`~slurm_plugin.rebalancer.update_budget.UpdateBudget`.
    """
    agents = {
        standing.agent: {
            "weight": f"{standing.weight.numerator}/{standing.weight.denominator}",
            "next": [held + queued for held, queued in zip(standing.allocation, standing.queued, strict=True)],
            **({} if standing.bands is None else {"qos": band_qos(policy.cluster, standing.agent, Band.GUARANTEED)}),
        }
        for standing in plan.standings
    }
    body = {
        "version": VERSION,
        "at_s": plan.at_s,
        "interval_s": interval_s,
        "mode": policy.mode.value,
        "policy": policy.policy,
        "tres": list(plan.tres),
        "capacity": list(plan.capacity),
        "scale": policy.factor_scale,
        "agents": agents,
        "updates": asdict(budget),
        "sla_memory": [
            {"agent": one.agent, "smoothed": one.smoothed, "factor": str(one.factor), "at_s": one.at_s}
            for one in plan.sla_memory
        ],
    }
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def read_sla_memory(run_dir: Path, *, now_s: float, max_age_s: float) -> tuple[SlaMemory, ...]:
    """Return what the rebalancer's SLA weights remember, for users who may not read its snapshots.

    Empty if there are no standings, or they are older than ``max_age_s``, or damaged.
    """
    try:
        tree = json.loads((run_dir / FILE_NAME).read_bytes())
        if not 0 <= now_s - float(tree["at_s"]) <= max_age_s:
            return ()
        return tuple(
            SlaMemory(
                agent=AgentName(one["agent"]),
                smoothed=float(one["smoothed"]),
                factor=Fraction(one["factor"]),
                at_s=float(one["at_s"]),
            )
            for one in tree["sla_memory"]
        )
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return ()


def read_standings_age_s(run_dir: Path, now_s: float) -> float | None:
    """Return the age of the rebalancer's last finished cycle, seconds; ``None`` if there is no trace of one."""
    try:
        return max(0.0, now_s - float(json.loads((run_dir / FILE_NAME).read_bytes())["at_s"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_standings(run_dir: Path, content: bytes) -> None:
    """Replace the standings file; see :func:`write_public`."""
    write_public(run_dir / FILE_NAME, content)


def write_public(path: Path, content: bytes) -> None:
    """Replace a file, readable by all; a reader sees the old or the new one, never a part.

    Raises
    ------
    OSError
        It could not be written; the old one stays.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
