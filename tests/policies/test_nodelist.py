"""Folded node lists."""

from __future__ import annotations

import pytest

from policies.nodelist import expand_nodes


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("n1", ("n1",)),
        ("n1,m2", ("n1", "m2")),
        ("gpu[01-03]", ("gpu01", "gpu02", "gpu03")),
        ("gpu[1,3-4],cpu1", ("gpu1", "gpu3", "gpu4", "cpu1")),
        ("r[1-2]n[08-09]-ib", ("r1n08-ib", "r1n09-ib", "r2n08-ib", "r2n09-ib")),
        ("gpu[a,b]", ("gpua", "gpub")),
        ("gpu[3-1]", ()),
    ],
)
def test_names(text: str, names: tuple[str, ...]) -> None:
    assert expand_nodes(text) == names


@pytest.mark.parametrize("text", ["n[0-99999999999]", "n[0-9999]m[0-9999]"])
def test_absurd_list_counts_as_empty(text: str) -> None:
    assert expand_nodes(text) == ()
