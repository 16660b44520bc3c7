from __future__ import annotations

import contextlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.site.yaml_tree import MAX_DEPTH, YamlError, read_tree


def test_numbers_keep_their_digits_and_yaml_surprises_stay_text() -> None:
    tree = read_tree("a: 0.6\nb: 010\nc: no\nd: 12:30\ne: '7'\nf: 1e400\ng: true\nh: ~\ni: 2026-01-01\n")
    assert tree.value == {
        "a": Decimal("0.6"),
        "b": 10,
        "c": "no",
        "d": "12:30",
        "e": "7",
        "f": Decimal("1e400"),
        "g": True,
        "h": None,
        "i": "2026-01-01",
    }


def test_every_value_knows_its_line() -> None:
    tree = read_tree("a:\n  b:\n    - x\n    - y\n")
    assert tree.line_of(("a", "b", 1)) == 4
    assert tree.line_of(("a", "b", "nowhere", 3)) == 2


def test_a_path_that_the_file_lacks_has_no_value() -> None:
    tree = read_tree("a: [1]\n")
    assert (tree.get(("a", 0)), tree.get(("a", 5)), tree.get(("x", "y"))) == (1, None, None)


def test_a_key_given_twice_is_a_problem_and_the_first_value_stays() -> None:
    tree = read_tree("a: 1\nb: 2\na: 3\n")
    assert tree.value["a"] == 1
    assert [(one.line, one.text) for one in tree.problems] == [(3, "key 'a' is given twice, first on line 1")]


def test_a_list_as_key_is_a_problem() -> None:
    assert "must be plain text" in read_tree("? [a, b]\n: 1\n").problems[0].text


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a: &x 1\nb: *x\n", "line 1: anchors"),
        ("a: !!python/object/apply:os.system [ls]\n", "line 1: tags"),
        ("a: !!float 1\n", "line 1: tags"),
        ("a: 1\n---\nb: 2\n", "line 2: a site file is one YAML document"),
        ("[" * (MAX_DEPTH + 1), "nested deeper"),
        ("a: 1\n\tb: 2\n", "line 2: "),
        ("a:\n\tb: 1\n", "a tab? YAML is indented with blanks"),
        ("a: [1\n", "line 2: "),
        ("a: \x07\n", "not readable as YAML"),
    ],
)
def test_what_a_site_file_may_not_contain_is_refused_with_its_line(text: str, want: str) -> None:
    with pytest.raises(YamlError) as caught:
        read_tree(text)
    assert want in str(caught.value)


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40))]
    with pytest.raises(YamlError, match="line 1: anchors"):
        read_tree("\n".join(lines))


@given(st.text(max_size=200))
def test_any_text_gives_a_tree_or_a_named_error(text: str) -> None:
    with contextlib.suppress(YamlError):
        assert read_tree(text).line_of(()) == 1
