"""TRES amounts as Slurm holds them against a QOS's limits: by name, so that typed GPUs and nodes can be limited too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from policies.records import Tres

GPU: Final = "gres/gpu"

MAX_AMOUNT: Final = 2**50
"""Of one TRES, in its unit (memory in MiB). Slurm takes a job that asks for more; it can never run, and beyond this no
snapshot and no 64-bit sum holds it."""


def add_tres(total: dict[str, int], tres: Tres, times: int = 1) -> None:
    """Add ``times`` the amounts to ``total``."""
    for name, amount in tres:
        total[name] = total.get(name, 0) + amount * times


def as_tres(amounts: Mapping[str, int]) -> Tres:
    """Sorted by name, without zeros."""
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def n_fitting(limits: Tres, used: Mapping[str, int], request: Tres, at_most: int) -> int:
    """How many such requests, up to ``at_most``, Slurm admits under a group limit.

    A TRES without a limit is unlimited; one that is not asked for is not looked at, even where it is overdrawn.
    """
    asked = dict(request)
    for name, limit in limits:
        if asked.get(name):
            at_most = min(at_most, max(0, limit - used.get(name, 0)) // asked[name])
    return at_most


def exceeded(limits: Tres, request: Tres) -> tuple[str, ...]:
    """TRES of which one request asks for more than the limit itself."""
    asked = dict(request)
    return tuple(name for name, limit in limits if asked.get(name, 0) > limit)


def describe_beyond(limits: Tres, request: Tres) -> str:
    """``12 gres/gpu of 8`` for each TRES of which one request asks for more than the limit itself; empty if none."""
    allowed, asked = dict(limits), dict(request)
    return ", ".join(f"{asked[name]} {name} of {allowed[name]}" for name in exceeded(limits, request))


def excess(limits: Tres, used: Mapping[str, int]) -> dict[str, int]:
    """By how much ``used`` is above the limit, for the TRES where it is."""
    return {name: used[name] - limit for name, limit in limits if used.get(name, 0) > limit}


def format_tres(tres: Iterable[tuple[str, int]]) -> str:
    """``gres/gpu=4,mem=100``; ``nothing`` if there is none."""
    return ",".join(f"{name}={amount}" for name, amount in tres) or "nothing"
