"""How much each factor of Slurm's priority can add to a job at most."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_WEIGHTS: Final = {
    "age": "PriorityWeightAge",
    "association": "PriorityWeightAssoc",
    "fair-share": "PriorityWeightFairShare",
    "job size": "PriorityWeightJobSize",
    "partition": "PriorityWeightPartition",
    "qos": "PriorityWeightQOS",
}
_NUMBER: Final = re.compile(r"\s*(\d+)")


def factor_maxima(config: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Return the largest contribution of each of the site's priority factors, in Slurm's order.

    Each factor of priority/multifactor lies in 0..1 before its weight, unless a ``NO_NORMAL_`` flag is set.

    Parameters
    ----------
    config : mapping of str to str
        ``scontrol show config``.
    """
    maxima = [(name, _number(config.get(key, ""))) for name, key in _WEIGHTS.items()]
    for part in config.get("PriorityWeightTRES", "").split(","):
        name, equals, weight = part.strip().partition("=")
        if equals:
            maxima.append((f"tres {name}", _number(weight)))
    return tuple(maxima)


def _number(text: str) -> int:
    match = _NUMBER.match(text)
    return int(match[1]) if match else 0
