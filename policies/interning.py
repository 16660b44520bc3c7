"""Distinct values and codes: how work is done once per value and spread over many jobs."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

Key = TypeVar("Key")


class Interned(Generic[Key]):
    """A column of keys as distinct values, in order of first appearance, and one code per row.

    Examples
    --------
    >>> column = Interned(["b", "a", "b"])
    >>> column.values, column.codes.tolist()
    (('b', 'a'), [0, 1, 0])
    >>> column.spread(ord).tolist()
    [98, 97, 98]
    """

    __slots__ = ("codes", "values")

    def __init__(self, keys: Iterable[Key]) -> None:
        index: defaultdict[Key, int] = defaultdict(count().__next__)
        self.codes: NDArray[np.int64] = np.fromiter(map(index.__getitem__, keys), dtype=np.int64)
        self.values: tuple[Key, ...] = tuple(index)

    def spread(self, compute: Callable[[Key], int]) -> NDArray[np.int64]:
        """``compute`` of each row's value, called once per distinct value, (n,) int64."""
        return np.array([compute(value) for value in self.values], dtype=np.int64)[self.codes]

    def counts(self) -> list[int]:
        """Rows per distinct value."""
        counts: list[int] = np.bincount(self.codes, minlength=len(self.values)).tolist()
        return counts
