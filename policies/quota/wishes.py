"""Where each pending job should wait, as columns: which rule put it there, in which band.

The reason is put into words only for the few jobs that somebody looks at: a queue of 10,000 holds thousands of
different ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from policies.quota.names import Band

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

BANDS: Final = tuple(Band)
"""A band's code is its place here: 0 guaranteed, 1 borrow, 2 opportunistic."""

NO_BAND: Final = -1
"""Code of no band of one's own."""


class Rule(IntEnum):
    """What decided where a job waits."""

    HAS_ROOM = 0
    ROOM_BY_USE = 1
    STARTS_OUT = 2
    IDLE = 3
    PARKED = 4
    NOWHERE = 5
    WAITS_ON = 6


_ADMITTED: Final = (Rule.HAS_ROOM, Rule.ROOM_BY_USE, Rule.IDLE, Rule.WAITS_ON)

_WORDS: Final = {
    Rule.HAS_ROOM: "its guaranteed band has room for it",
    Rule.ROOM_BY_USE: "its guaranteed band has room, which an earlier job of the agent cannot use now",
    Rule.STARTS_OUT: "each job starts out in its guaranteed band",
}
_IDLE: Final = {
    Band.BORROW: "within the borrow cap, on resources that are idle",
    Band.OPPORTUNISTIC: "beyond the borrow cap, on resources that are idle",
}
_WAITS_ON: Final = {
    Band.BORROW: "it waits on within the borrow cap, nothing that it could borrow is idle now",
    Band.OPPORTUNISTIC: "it waits on beyond the borrow cap, nothing that it could borrow is idle now",
}
_NOWHERE: Final = "no other band has room for it now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Where one pending job should wait, and why; ``is_parked`` where it could not start there now."""

    band: Band
    reason: str
    is_parked: bool = False


class Wishes:
    """Wishes by pending row; a row without one is left alone.

    Attributes
    ----------
    band : (n,) int64
        Code of the band, ``NO_BAND`` where there is no wish.
    rule : (n,) int64
        Meaningless where there is no wish.
    why_full : callable
        Says of a row why its guaranteed band does not take it; asked once the pass is over.
    """

    __slots__ = ("band", "rule", "why_full")

    def __init__(self, n_rows: int, why_full: Callable[[int], str]) -> None:
        self.band: Ints = np.full(n_rows, NO_BAND, dtype=np.int64)
        self.rule: Ints = np.zeros(n_rows, dtype=np.int64)
        self.why_full = why_full

    def put(self, rows: int | Ints, rule: Rule, band: int | Ints = 0) -> None:
        """Wish for one row or several, in the band of that code."""
        self.rule[rows] = rule
        self.band[rows] = band

    @property
    def is_parked(self) -> NDArray[np.bool_]:
        """Rows that wait where they could not start now, (n,) bool."""
        result: NDArray[np.bool_] = (self.band != NO_BAND) & (self.rule == Rule.PARKED)
        return result

    @property
    def has_quota(self) -> NDArray[np.bool_]:
        """Rows for which the guaranteed band has room, (n,) bool."""
        result: NDArray[np.bool_] = (self.band == 0) & self.is_admitted
        return result

    @property
    def is_admitted(self) -> NDArray[np.bool_]:
        """Rows that the limits of the band that they should wait in admit now, (n,) bool."""
        result: NDArray[np.bool_] = (self.band != NO_BAND) & np.isin(self.rule, _ADMITTED)
        return result

    def get(self, row: int) -> Wish | None:
        """The wish of one row in words."""
        code = int(self.band[row])
        if code == NO_BAND:
            return None
        rule = Rule(int(self.rule[row]))
        return Wish(band=BANDS[code], reason=self._reason(row, rule, BANDS[code]), is_parked=rule is Rule.PARKED)

    def _reason(self, row: int, rule: Rule, band: Band) -> str:
        if rule in _WORDS:
            return _WORDS[rule]
        full = self.why_full(row)
        if rule is Rule.PARKED:
            return full
        rest = {Rule.IDLE: _IDLE, Rule.WAITS_ON: _WAITS_ON}.get(rule, {}).get(band, _NOWHERE)
        return f"{full}; {rest}"
