"""The benchmark page shows what the result files say, and nothing else."""

from __future__ import annotations

import pytest

from benchmarks.page import PAGE, load_results, render


def test_the_page_is_made_from_the_result_files() -> None:
    assert PAGE.read_text(encoding="ascii") == render(load_results())


def test_there_is_a_result_of_each_kind() -> None:
    assert set(load_results()) == {"core", "hook", "storm"}


@pytest.mark.parametrize("name", ["core", "hook", "storm"])
def test_a_result_says_where_it_comes_from(name: str) -> None:
    result = load_results()[name]
    assert {"commit", "at", "machine", "load"} <= set(result["run"])
    assert result["rows"]


def test_no_submission_of_the_recorded_storms_was_lost_or_mistagged() -> None:
    for row in load_results()["storm"]["rows"]:
        assert row["problems"] == []
        assert row["jobs_found"] == row["submissions"] == 2_000


def test_the_page_names_what_went_wrong() -> None:
    results = load_results()
    results["storm"]["rows"][0]["problems"] = ["lost: a job"]
    assert "| lost, doubled or mis-tagged | 1 | 0 | 0 |" in render(results)
