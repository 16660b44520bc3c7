"""Numbers as an operator reads them: fractions with their decimals, TRES amounts, durations."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction


_LARGEST: Final = 10**300
"""Only a hostile snapshot holds more; a float could not."""


def decimal(value: Fraction | None, places: int = 4) -> str:
    """Return a fraction as a decimal, ``inf`` for the share of an agent with weight 0.

    Examples
    --------
    >>> from fractions import Fraction
    >>> decimal(Fraction(5, 48))
    '0.1042'
    """
    if value is None:
        return "inf"
    return f"{float(value):.{places}f}" if abs(value) <= _LARGEST else "over 1e300"


def exact(value: Fraction | None) -> str:
    """Return a fraction exactly and as a decimal: ``5/48 = 0.1042``; a whole number alone.

    Examples
    --------
    >>> from fractions import Fraction
    >>> exact(Fraction(5, 48)), exact(Fraction(2))
    ('5/48 = 0.1042', '2')
    """
    if value is None:
        return "inf"
    return str(value) if value.denominator == 1 else f"{value} = {decimal(value)}"


def amounts(tres: Sequence[str], values: Sequence[int]) -> str:
    """Return TRES amounts in one word, without zeros: ``cpu=8 mem=8192M gres/gpu=2``."""
    shown = ((name, value) for name, value in zip(tres, values, strict=True) if value)
    return " ".join(f"{name}={amount(name, value)}" for name, value in shown)


def amount(name: str, value: int) -> str:
    """Return one amount; memory is in MiB."""
    return f"{value}M" if name == "mem" else str(value)


def moment(at_s: float | None) -> str | None:
    """Return a time of day with its date, local: ``2026-11-30 20:15:02``; ``None`` stays so."""
    return None if at_s is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))


def duration(seconds: float) -> str:
    """Return seconds as people say it.

    Examples
    --------
    >>> duration(4.25), duration(75), duration(7_322), duration(90_000)
    ('4.2s', '1m15s', '2h02m', '1d01h')
    """
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    whole = int(seconds)
    for unit_s, part_s, unit, part in ((86_400, 3_600, "d", "h"), (3_600, 60, "h", "m"), (60, 1, "m", "s")):
        if whole >= unit_s:
            return f"{whole // unit_s}{unit}{whole % unit_s // part_s:02d}{part}"
    return f"{whole}s"
