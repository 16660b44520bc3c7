"""One log line as ``key=value`` pairs: one line whatever the values hold."""

from __future__ import annotations

import json


def key_values(**pairs: object) -> str:
    """Return ``key=value`` pairs joined by blanks; text that is not one plain word is quoted as JSON.

    Examples
    --------
    >>> key_values(event="cycle", took_s=0.25, text="not found")
    'event=cycle took_s=0.25 text="not found"'
    """
    return " ".join(f"{key}={_value(value)}" for key, value in pairs.items())


def _value(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    is_plain = text.isascii() and text.isprintable() and not set(text) & set(' "=')
    return text if text and is_plain else json.dumps(text)
