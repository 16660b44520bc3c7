"""How much reclaims cost: GPUs taken from borrowed jobs for each GPU that the claims asked for (DESIGN promise 5).

Slurm takes whole jobs, so a claim of one GPU may end a job of eight. For our own moves the ratio is bounded; Slurm's
preemptions are measured against the same bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policies.records import JobId

BOUND: Final = Fraction(2)
"""GPUs moved for one GPU asked for."""


class TakenBack(NamedTuple):
    """One reclaim: GPUs that the victim held, and the claim with the GPUs that it asks for, if it was seen."""

    n_gpus: int
    claim: JobId | None
    n_claimed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disruption:
    """Sums over reclaims.

    Attributes
    ----------
    n_reclaims : int
        Jobs taken back, those without a known claim included.
    n_unattributed : int
        Jobs taken back for which no claim was seen; their GPUs are not in the ratio.
    n_taken, n_asked : int
        GPUs that victims held, and that their claims asked for; each claim counts once.
    """

    n_reclaims: int
    n_unattributed: int
    n_taken: int
    n_asked: int

    @property
    def ratio(self) -> Fraction | None:
        """GPUs taken for one GPU asked for; ``None`` without a claim of GPUs."""
        return Fraction(self.n_taken, self.n_asked) if self.n_asked else None

    @property
    def is_within_bound(self) -> bool:
        """Whether the ratio is at most :data:`BOUND`."""
        return self.ratio is None or self.ratio <= BOUND


def measure_disruption(reclaims: Iterable[TakenBack]) -> Disruption:
    """Sum up reclaims.

    Examples
    --------
    A claim of 4 GPUs that takes one job of 2 and one of 4:

    >>> found = measure_disruption([TakenBack(2, "7", 4), TakenBack(4, "7", 4)])
    >>> found.ratio
    Fraction(3, 2)
    """
    n_reclaims = n_unattributed = n_taken = 0
    asked: dict[JobId, int] = {}
    for reclaim in reclaims:
        n_reclaims += 1
        if reclaim.claim is None or not reclaim.n_claimed:
            n_unattributed += 1
        else:
            n_taken += reclaim.n_gpus
            asked[reclaim.claim] = reclaim.n_claimed
    return Disruption(
        n_reclaims=n_reclaims, n_unattributed=n_unattributed, n_taken=n_taken, n_asked=sum(asked.values())
    )
