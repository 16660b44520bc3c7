"""Slurm's folded node lists (``gpu[01-03,7],login1``) as single names."""

from __future__ import annotations

import re
from itertools import product
from typing import Final

_PIECE: Final = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_PART: Final = re.compile(r"\[([^\]]*)\]|([^\[\]]+)")
MAX_NODES: Final = 1_000_000
"""A list that unfolds to more names than this is not a node list; it counts as empty."""


def expand_nodes(text: str) -> tuple[str, ...]:
    """Names in a folded node list, in the order written.

    Parameters
    ----------
    text : str
        As ``squeue`` and ``scontrol`` print it; several bracket groups per name are allowed.

    Returns
    -------
    tuple of str
        Empty for an empty text and for one that unfolds to more than ``MAX_NODES`` names.

    Examples
    --------
    >>> expand_nodes("gpu[09-10,12],login1")
    ('gpu09', 'gpu10', 'gpu12', 'login1')
    >>> expand_nodes("r[1-2]n[1-2]")
    ('r1n1', 'r1n2', 'r2n1', 'r2n2')
    """
    names: list[str] = []
    for piece in _PIECE.findall(text):
        parts = [_unfold(group) if group else (plain,) for group, plain in _PART.findall(piece)]
        size = 1
        for part in parts:
            size *= len(part)
        if len(names) + size > MAX_NODES:
            return ()
        names.extend("".join(choice) for choice in product(*parts))
    return tuple(names)


def _unfold(group: str) -> tuple[str, ...]:
    numbers: list[str] = []
    for piece in group.split(","):
        first, _, last = piece.partition("-")
        if not (first.isdecimal() and last.isdecimal()):
            numbers.append(piece)
        elif int(last) - int(first) >= MAX_NODES:
            return ("",) * (MAX_NODES + 1)
        else:
            numbers.extend(f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
    return tuple(numbers)
