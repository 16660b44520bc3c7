"""The standings file: where each agent stands, for the submit hook, replaced as a whole each cycle."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from policies.plan import Plan
    from policies.site_policy import SitePolicy

FILE_NAME: Final = "standings.json"
VERSION: Final = 1


def standings_bytes(plan: Plan, policy: SitePolicy, *, interval_s: float) -> bytes:
    """Return the file's content; ``next`` is where an agent's next job starts: what it holds and waits for."""
    agents = {
        standing.agent: {
            "weight": f"{standing.weight.numerator}/{standing.weight.denominator}",
            "next": [held + queued for held, queued in zip(standing.allocation, standing.queued, strict=True)],
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
    }
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def write_standings(run_dir: Path, content: bytes) -> None:
    """Replace the standings file, readable by all; a reader sees the old or the new one, never a part."""
    descriptor, temporary = tempfile.mkstemp(dir=run_dir, prefix=f".{FILE_NAME}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(content)
        Path(temporary).replace(run_dir / FILE_NAME)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
