from __future__ import annotations

from slurm_plugin.client.array_rows import fold_tasks
from slurm_plugin.client.job_columns import JobRow
from slurm_plugin.client.table import Table


def row(number: int, task: str, **cells: str) -> JobRow:
    """Of array 21; what is not named is empty."""
    empty = dict.fromkeys(JobRow._fields, "")
    return JobRow(**empty | {"raw_id": str(number), "array_job_id": "21", "array_task_id": task} | cells)


def folded(*rows: JobRow) -> list[tuple[str, str, str]]:
    table = fold_tasks(Table(rows=list(rows), n_malformed=1, missing=("wckey",)))
    assert (table.n_malformed, table.missing) == (1, ("wckey",))
    found = [JobRow._make(cells) for cells in table.rows]
    return [(one.raw_id, one.array_task_id, one.nice) for one in found]


def test_tasks_of_one_record_become_one_row_and_split_ones_keep_theirs() -> None:
    # As Slurm 24.11 printed an array of six whose tasks 1, 2 and 3 had been given a nice value.
    assert folded(
        *(row(21, task, nice="0") for task in "045"),
        row(22, "2", nice="5"),
        row(23, "3", nice="5"),
        row(24, "1", nice="7"),
    ) == [("21", "0,4-5", "0"), ("22", "2", "5"), ("23", "3", "5"), ("24", "1", "7")]


def test_the_last_task_of_an_array_has_the_arrays_number_and_stays_a_task() -> None:
    assert folded(row(21, "5"), row(22, "4")) == [("21", "5", ""), ("22", "4", "")]


def test_jobs_that_are_no_array_are_left_alone() -> None:
    rows = (row(7, "N/A"), row(7, "N/A"), row(8, ""), row(9, "0-3%2"))
    assert folded(*rows) == [("7", "N/A", ""), ("7", "N/A", ""), ("8", "", ""), ("9", "0-3%2", "")]
