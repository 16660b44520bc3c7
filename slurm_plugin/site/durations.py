"""Durations as the site file writes them (``20ms``, ``5s``, ``2h``, ``1d``), as seconds and back."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_UNIT_S: Final[dict[str, Fraction]] = {
    "us": Fraction(1, 1_000_000),
    "ms": Fraction(1, 1_000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3_600),
    "d": Fraction(86_400),
}
_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(us|ms|s|m|h|d)", re.ASCII)


def parse_duration_s(text: str) -> float:
    """Return the seconds that a text like ``20ms`` or ``1.5h`` stands for.

    Parameters
    ----------
    text : str
        A number followed by one of the units us, ms, s, m, h, d.

    Returns
    -------
    float
        Seconds, >= 0, correctly rounded.

    Raises
    ------
    ValueError
        The text is no duration; the message says what is expected.

    Examples
    --------
    >>> parse_duration_s("20ms"), parse_duration_s("2h")
    (0.02, 7200.0)
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"must be a duration such as 20ms, 5s, 2h or 1d, got {text[:40]!r}")
    return float(Fraction(match.group(1)) * _UNIT_S[match.group(2)])


def format_duration(seconds: float) -> str:
    """Return the text in the largest fitting unit that :func:`parse_duration_s` reads back as ``seconds``.

    Examples
    --------
    >>> format_duration(0.02), format_duration(90.0), format_duration(7200.0), format_duration(0.0)
    ('20ms', '90s', '2h', '0s')
    """
    exact = Fraction(str(seconds))
    if exact == 0:
        return "0s"
    for unit in ("d", "h", "m", "s", "ms"):
        count = exact / _UNIT_S[unit]
        if count.denominator == 1:
            return f"{count.numerator}{unit}"
    return f"{float(exact * 1_000_000):.9g}us"
