"""Priority of the guaranteed QOSes, and the band-order rule (DESIGN section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from policies.quota.layout import HIGHEST_BORROW_PRIORITY

RAISED_PRIORITY: Final = 100
"""Of the guaranteed QOSes where the site's own priorities leave no room below their maximum."""

_LEAST_ROOM: Final = 2 * HIGHEST_BORROW_PRIORITY


@dataclass(frozen=True, slots=True, kw_only=True)
class BandOrder:
    """Whether a guaranteed job always goes before a borrowed one.

    Attributes
    ----------
    guaranteed, borrow, highest : int
        QOS priorities: guaranteed, the highest of a borrow QOS, the highest of all QOSes.
    weight : int
        PriorityWeightQOS.
    others : int
        Largest sum of the other factors, the site factor's scale included.
    """

    guaranteed: int
    borrow: int
    highest: int
    weight: int
    others: int

    @property
    def gap(self) -> int:
        """Points between the bands: ``weight * (guaranteed - borrow) / highest``, rounded down."""
        return self.weight * (self.guaranteed - self.borrow) // max(1, self.highest)

    @property
    def holds(self) -> bool:
        """Whether the other factors together cannot cross the gap."""
        return self.others < self.gap

    @property
    def needed_weight(self) -> int:
        """Smallest PriorityWeightQOS with which the rule holds; 0 if none does."""
        span = self.guaranteed - self.borrow
        return ((self.others + 1) * self.highest + span - 1) // span if span > 0 else 0

    @property
    def text(self) -> str:
        """The rule with its numbers."""
        sign = "<" if self.holds else ">="
        return (
            f"site factor and other factors {self.others} {sign} {self.gap} = "
            f"PriorityWeightQOS {self.weight} x ({self.guaranteed} - {self.borrow}) / {self.highest}"
        )


def guaranteed_priority(site_maximum: int) -> int:
    """Return the priority of our guaranteed QOSes.

    Parameters
    ----------
    site_maximum : int
        Highest priority among QOSes that are not ours.

    Notes
    -----
    One below the site's maximum, so that no other QOS's share of PriorityWeightQOS shrinks; where that is too low to
    tell the bands apart, ``RAISED_PRIORITY``.
    """
    below = site_maximum - 1
    return below if below >= _LEAST_ROOM else RAISED_PRIORITY
