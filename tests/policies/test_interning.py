"""Work once per distinct value."""

from __future__ import annotations

from policies.interning import Interned


def test_values_codes_and_counts() -> None:
    column = Interned(["b", "a", "b"])
    assert (column.values, column.codes.tolist(), column.counts()) == (("b", "a"), [0, 1, 0], [2, 1])


def test_compute_is_called_once_per_distinct_value() -> None:
    calls: list[str] = []

    def compute(value: str) -> int:
        calls.append(value)
        return ord(value)

    assert Interned("abab").spread(compute).tolist() == [97, 98, 97, 98]
    assert calls == ["a", "b"]


def test_empty_column() -> None:
    column: Interned[str] = Interned([])
    assert (column.spread(ord).tolist(), column.counts()) == ([], [])
