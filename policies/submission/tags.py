"""The tags that a researcher writes beside a job: ``agent=risk stage=preprocess sla=200ms``.

Tags are ``key=value`` tokens in the comment (or the wckey), separated by ``,``, ``;`` or blanks. Everything
else in the text belongs to the user and is ignored. The text is untrusted: parsing never fails, takes bounded
time, and says in :attr:`Tags.problems` what it could not use. Reference: ``docs/reference/tags.md``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

SCAN_LIMIT: Final = 16_384
"""Characters of the text that are looked at (about 0.3 ms of work at most); tags behind them are not seen."""

MAX_VALUE_LENGTH: Final = 64
"""Longest value of a tag, characters."""

REMEMBERED: Final = 32_768
"""Short texts whose tags are remembered: more than the jobs of a large queue, at most about 20 MiB."""

_SHORT: Final = 256
_KEYS: Final = ("agent", "stage", "model", "precision", "sla", "deadline", "checkpoint", "needs")
_TOKEN: Final = re.compile(rf"(?<![^\s,;])({'|'.join(_KEYS)})=([^\s,;]*)", re.ASCII)
_WORD: Final = re.compile(r"(?<![^\s,;])([A-Za-z_-]{2,12})=(?=[^\s,;=])", re.ASCII)
_MAX_NEAR_MISSES: Final = 3
_LONG_KEY: Final = 6
"""Keys of at least this length may be off by two letters, shorter ones by one."""

_ORDINARY: Final = frozenset({"mode", "seeds", "state"})
"""Words of one's own that happen to be one letter away from a key."""

_SEPARATORS: Final = " \t\n\r\f\v,;"
_SAFE: Final = re.compile(rf"[A-Za-z0-9_.:@/+-]{{1,{MAX_VALUE_LENGTH}}}", re.ASCII)
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|min|m|h|d)", re.ASCII)
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_TRUTH: Final = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """What the text asks for; ``None`` (or empty) where it says nothing usable.

    Attributes
    ----------
    agent : str or None
        The agent's name as written; nothing says yet that it exists or that the user may use it.
    sla_s, deadline_s : float or None
        Durations in seconds, > 0; ``deadline_s`` counts from the submission.
    checkpoint : bool or None
        Whether the job can continue after it was stopped.
    needs : tuple of str
        Parts of ``needs=net:10+nvlink``, in the order written.
    is_agent_unclear : bool
        The text names an agent in a way that cannot be one name: two different ones, or unsafe characters.
        ``agent`` is ``None`` then.
    problems : tuple of str
        One line per tag that could not be used, safe to print; a key that looks mistyped is one.
    """

    agent: str | None = None
    stage: str | None = None
    model: str | None = None
    precision: str | None = None
    sla_s: float | None = None
    deadline_s: float | None = None
    checkpoint: bool | None = None
    needs: tuple[str, ...] = ()
    is_agent_unclear: bool = False
    problems: tuple[str, ...] = ()

    @property
    def claim(self) -> tuple[str | None, bool, tuple[str, ...]]:
        """All that the submission decision reads: ``agent``, ``is_agent_unclear``, ``problems``."""
        return self.agent, self.is_agent_unclear, self.problems


NO_TAGS: Final = Tags()


def parse_tags(text: str) -> Tags:
    """Tags of a comment.

    Parameters
    ----------
    text : str
        Untrusted, of any length; only the first ``SCAN_LIMIT`` characters are read.

    Returns
    -------
    Tags
        Never raises. A key that appears twice with different values is a problem and counts as absent.

    Notes
    -----
    Keys are lower case and exact; ``my-agent=x`` and ``"agent=x"`` are free text. A free key that is one letter (two
    in keys of six and more) from ours, or ours in capitals, is kept as free text and reported. Values consist of
    letters, digits and ``_.:@/+-``. Short texts are remembered, since a user's comments repeat.

    Examples
    --------
    >>> tags = parse_tags("nightly run; agent=risk,sla=200ms deadline=2h")
    >>> tags.agent, tags.sla_s, tags.deadline_s
    ('risk', 0.2, 7200.0)
    >>> parse_tags("agent=risk agent=vision").problems
    ('agent: written twice with different values',)
    """
    if "=" not in text:
        return NO_TAGS
    return _parse_short(text) if len(text) <= _SHORT else _parse(text)


def _parse(text: str) -> Tags:
    problems: list[str] = []
    if len(text) > SCAN_LIMIT:
        text = _head_of(text, problems)
    pairs = _TOKEN.findall(text)
    problems.extend(_near_misses(text))
    if not pairs:
        return NO_TAGS if not problems else Tags(problems=tuple(problems))
    values = _unique_values(pairs, problems)
    is_agent_unclear = "agent" not in values and any(key == "agent" for key, _ in pairs)
    return Tags(
        agent=values.get("agent"),
        stage=values.get("stage"),
        model=values.get("model"),
        precision=values.get("precision"),
        sla_s=_duration(values, "sla", problems) if "sla" in values else None,
        deadline_s=_duration(values, "deadline", problems) if "deadline" in values else None,
        checkpoint=_truth(values["checkpoint"], problems) if "checkpoint" in values else None,
        needs=tuple(filter(None, values["needs"].split("+"))) if "needs" in values else (),
        is_agent_unclear=is_agent_unclear,
        problems=tuple(problems),
    )


def _near_misses(text: str) -> list[str]:
    keys = {word: key for word in _WORD.findall(text) if (key := _meant_key(word))}
    return [
        f"{word}: no tag of FairGPU, kept as free text; did you mean {key}=...?"
        for word, key in list(keys.items())[:_MAX_NEAR_MISSES]
    ]


@lru_cache(maxsize=4_096)
def _meant_key(word: str) -> str:
    """Return the key that a word is probably a typing error of, empty for none."""
    lower = word.lower()
    if word in _KEYS or lower in _ORDINARY:
        return ""
    near = ((_edit_distance(lower, key), key) for key in _KEYS)
    distance, key = min(near)
    return key if distance <= (2 if len(key) >= _LONG_KEY else 1) else ""


def _edit_distance(one: str, other: str) -> int:
    """Return how many letters were added, left out, replaced or swapped with their neighbour."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        earlier, before, row = before, row, [i]
        for j, wanted in enumerate(other, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and (letter, one[i - 2]) == (other[j - 2], wanted):
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
    return row[-1]


_parse_short = lru_cache(maxsize=REMEMBERED)(_parse)


def _head_of(text: str, problems: list[str]) -> str:
    # Cut at a separator, so that no token is read in part.
    problems.append(f"text: tags after the first {SCAN_LIMIT} characters are not read")
    end = max(text.rfind(separator, 0, SCAN_LIMIT) for separator in _SEPARATORS)
    return text[: max(end, 0)]


def _unique_values(pairs: list[tuple[str, str]], problems: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    refused: set[str] = set()
    for key, value in pairs:
        if key in refused:
            continue
        known = values.setdefault(key, value)
        if known != value:
            problem = "written twice with different values"
        elif _SAFE.fullmatch(value):
            continue
        elif not value:
            problem = "no value"
        else:
            problem = f"more than {MAX_VALUE_LENGTH} characters, or others than letters, digits and _.:@/+-"
        problems.append(f"{key}: {problem}")
        refused.add(key)
        del values[key]
    return values


def _duration(values: dict[str, str], key: str, problems: list[str]) -> float | None:
    match = _DURATION.fullmatch(values[key])
    seconds = float(match[1]) * _UNIT_S[match[2]] if match else 0.0
    if seconds > 0:
        return seconds
    problems.append(f"{key}: not a duration such as 200ms, 30s, 5min, 2h or 1d")
    return None


def _truth(value: str, problems: list[str]) -> bool | None:
    if value in _TRUTH:
        return _TRUTH[value]
    problems.append("checkpoint: neither yes nor no")
    return None
