from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.client.table import Column, Separators, long_format, parse_table, short_format
from slurm_plugin.errors import SlurmParseError

SEPARATORS = Separators(cell="_7fc", row="_7fr")
COLUMNS = (
    Column(field="JobID", header="JOBID"),
    Column(field="Comment", header="COMMENT"),
    Column(field="wckey", header="WCKEY", default="?"),
)


def answer(*rows: tuple[str, ...], headers: tuple[str, ...] = ("JOBID", "COMMENT", "WCKEY")) -> str:
    return "".join("_7fc".join(row) + "_7fr\n" for row in (headers, *rows))


def test_formats_carry_the_separators() -> None:
    assert long_format(COLUMNS, SEPARATORS) == "JobID:_7fc,Comment:_7fc,wckey:_7fr"
    assert short_format(COLUMNS[:2], SEPARATORS) == "%JobID_7fc%Comment_7fr"


def test_separators_differ_between_calls() -> None:
    assert Separators.random() != Separators.random()


def test_columns_are_found_by_name() -> None:
    text = answer(("c", "k", "1"), headers=("COMMENT", "WCKEY", "JOBID"))
    assert parse_table(text, COLUMNS, SEPARATORS).rows == [("1", "c", "k")]


def test_a_missing_optional_column_has_its_default() -> None:
    table = parse_table(answer(("1", "c"), headers=("JOBID", "COMMENT")), COLUMNS, SEPARATORS)
    assert table.rows == [("1", "c", "?")]
    assert table.missing == ("wckey",)


def test_a_missing_needed_column_is_named() -> None:
    with pytest.raises(SlurmParseError) as caught:
        parse_table(answer(("1", "k"), headers=("JOBID", "WCKEY")), COLUMNS, SEPARATORS)
    assert caught.value.field == "Comment"


@pytest.mark.parametrize("text", ["", "\n", "garbage", "JOBID|COMMENT|WCKEY\n1|c|k\n"])
def test_an_answer_without_our_header_is_an_error(text: str) -> None:
    with pytest.raises(SlurmParseError):
        parse_table(text, COLUMNS, SEPARATORS)


def test_rows_that_make_no_sense_are_counted() -> None:
    text = answer(("1", "c", "k"), ("2", "c")) + "cut sho"
    table = parse_table(text, COLUMNS, SEPARATORS)
    assert (table.rows, table.n_malformed) == ([("1", "c", "k")], 2)


def test_no_rows_are_no_problem() -> None:
    table = parse_table(answer(), COLUMNS, SEPARATORS)
    assert (table.rows, table.n_malformed) == ([], 0)


@given(st.lists(st.tuples(st.text(), st.text(), st.text())))
def test_no_text_can_forge_a_cell_or_a_row(rows: list[tuple[str, str, str]]) -> None:
    separators = Separators.random()
    lines = [("JOBID", "COMMENT", "WCKEY"), *rows]
    text = "".join(separators.cell.join(row) + separators.row + "\n" for row in lines)
    assert parse_table(text, COLUMNS, separators).rows == rows
