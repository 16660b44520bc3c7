"""How ``squeue`` is asked not to fold split array tasks into one row, and the rows put back together.

A pending array is one record in Slurm until tasks are started or changed; those become records of their own. Plain
``squeue`` prints all pending ones as if they were one record. ``--array-unique`` prints each record once; Slurm 24.11
no longer has it. ``--array``, which every release has, prints one row per task, with the record's own number in each:
rows of one number are one record.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from slurm_plugin import translate
from slurm_plugin.client.job_columns import JobRow

if TYPE_CHECKING:
    from slurm_plugin.client.table import Table

RECORD_ROWS: Final = "--array-unique"
TASK_ROWS: Final = "--array"
UNKNOWN_OPTION: Final = f"unrecognized option '{RECORD_ROWS}'"
"""What ``getopt`` says where the option is gone."""

_RAW_ID: Final = JobRow._fields.index("raw_id")
_TASK: Final = JobRow._fields.index("array_task_id")


def fold_tasks(table: Table) -> Table:
    """One row per record: of the rows with one job number the first, with all their tasks as one expression.

    Parameters
    ----------
    table : Table
        Rows in the order of ``JOB_COLUMNS``, as ``--array`` gives them; linear in their number.
    """
    tasks: defaultdict[str, list[int]] = defaultdict(list)
    for row in table.rows:
        if row[_TASK].isascii() and row[_TASK].isdecimal():
            tasks[row[_RAW_ID]].append(int(row[_TASK]))
    folded: dict[int | str, tuple[str, ...]] = {}
    for position, row in enumerate(table.rows):
        of_record = tasks.get(row[_RAW_ID], ())
        if len(of_record) < 2:
            folded[position] = row
        elif row[_RAW_ID] not in folded:
            folded[row[_RAW_ID]] = (*row[:_TASK], translate.task_expression(of_record), *row[_TASK + 1 :])
    return replace(table, rows=list(folded.values()))
