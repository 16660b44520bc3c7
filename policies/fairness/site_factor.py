"""From a share tag to Slurm's integer site factor (ADR 0004)."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

QUANTUM: Final = 10_000
"""Tags are rounded down to 1/QUANTUM. At that quantum 0 of 3,000 simulated orders differed (facts/bands.md)."""

LOWEST_FACTOR: Final = 1
"""Factor of a job that sorts last; 0 means that nobody set one."""


def quantise_tag(tag: Fraction) -> Fraction:
    """The tag rounded down to 1/10000.

    Examples
    --------
    >>> quantise_tag(Fraction(2, 3))
    Fraction(3333, 5000)
    """
    return Fraction(tag.numerator * QUANTUM // tag.denominator, QUANTUM)


def compute_site_factor(tag: Fraction | None, scale: int) -> int:
    """``scale / (1 + tag)`` in whole numbers: falls as the tag rises, for tags without a bound.

    Parameters
    ----------
    tag : Fraction or None
        Share tag >= 0; ``None`` sorts last.
    scale : int
        Factor of a job with tag 0, >= 1.

    Returns
    -------
    int
        In [1, scale].

    Examples
    --------
    >>> compute_site_factor(Fraction(0), 40_000), compute_site_factor(Fraction(1), 40_000)
    (40000, 20000)
    >>> compute_site_factor(None, 40_000)
    1
    """
    if tag is None:
        return LOWEST_FACTOR
    return max(LOWEST_FACTOR, scale * QUANTUM // (QUANTUM + tag.numerator * QUANTUM // tag.denominator))
