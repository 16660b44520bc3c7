"""Rows of ``squeue`` turned into job records.

One ``squeue -O`` call gives every column without a width limit, so all of a job's values are from one
moment. Split array tasks are rows of their own (see ``array_rows``) and ``SLURM_BITSTR_LEN=0`` keeps long task
lists whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from policies.quota.amounts import MAX_AMOUNT
from policies.records import AccountName, JobId, JobRecord, JobState, PartitionName
from slurm_plugin import translate
from slurm_plugin.client.gpu_requests import ResourceCells, SettledTres, settle_tres
from slurm_plugin.client.job_columns import CELL_PARSERS, JobRow

if TYPE_CHECKING:
    from slurm_plugin.client.table import Table

_UNKNOWN_UID: Final = 4294967294
"""``NO_VAL``: no Unix user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReading:
    """What one answer of ``squeue`` said.

    Attributes
    ----------
    jobs : tuple of JobRecord
        Sorted by numeric job id.
    update_ids : mapping of JobId to str
        For array meta records whose array is partly split: the id with its tasks that reaches only this
        record.
    """

    jobs: tuple[JobRecord, ...]
    update_ids: Mapping[JobId, str]


class _Identity(NamedTuple):
    order: tuple[int, int]
    job_id: JobId
    array_job_id: str = ""
    array_task_id: str = ""
    het_job_id: str = ""
    n_tasks: int = 1
    expression: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gathered:
    jobs: list[tuple[tuple[int, int], JobRecord]] = field(default_factory=list)
    expressions: dict[JobId, str] = field(default_factory=dict)
    n_array_records: Counter[str] = field(default_factory=Counter)


def read_jobs(table: Table, site_factors: Mapping[str, int], problems: Counter[str]) -> JobReading:
    """Job records of an answer; what could not be understood is added to ``problems``.

    Parameters
    ----------
    table : Table
        Rows in the order of ``JOB_COLUMNS``.
    site_factors : mapping
        ``sprio``'s SITE by plain numeric job id.
    problems : Counter
        Grows by what made no sense. A cell that cannot be read counts as absent; a row is left out only if
        its id or submit time cannot be read.
    """
    gathered = _Gathered()
    for cells in table.rows:
        row = JobRow._make(cells)
        try:
            identity = _identify(row, problems)
            record = _read_row(row, identity, site_factors.get(row.raw_id), problems)
        except ValueError:
            problems["squeue row without a readable id or submit time"] += 1
            continue
        if record.state is JobState.UNKNOWN:
            problems[f"job state {_short(row.state)}"] += 1
        gathered.jobs.append((identity.order, record))
        if identity.array_job_id:
            gathered.n_array_records[identity.array_job_id] += 1
        if identity.expression:
            gathered.expressions[identity.job_id] = identity.expression
    if table.n_malformed:
        problems["squeue row with the wrong number of columns"] += table.n_malformed
    for name in table.missing:
        problems[f"squeue does not know the field {name}"] += 1
    return JobReading(
        jobs=tuple(record for _, record in sorted(gathered.jobs, key=itemgetter(0))),
        update_ids=_update_ids(gathered),
    )


def _identify(row: JobRow, problems: Counter[str]) -> _Identity:
    """Which record a row is; ``ValueError`` if its numbers are none."""
    if row.het_job_id.isdecimal() and row.het_job_id != "0":
        order = (_number(row.het_job_id), _number(row.het_offset))
        return _Identity(order, JobId(f"{row.het_job_id}+{row.het_offset}"), het_job_id=row.het_job_id)
    task = row.array_task_id
    if not translate.parse_text(task):
        return _Identity((_number(row.raw_id), -1), JobId(row.raw_id))
    array_number = _number(row.array_job_id)
    if task.isdecimal():
        job_id = JobId(f"{row.array_job_id}_{task}")
        return _Identity((array_number, _number(task)), job_id, row.array_job_id, task)
    n_tasks = translate.count_tasks(task)
    if n_tasks is None:
        problems["array whose task list is not readable, counted as one task"] += 1
    return _Identity(
        (array_number, -1),
        JobId(row.array_job_id),
        row.array_job_id,
        n_tasks=n_tasks or 1,
        expression=task,
    )


def _number(raw: str) -> int:
    if not (raw.isascii() and raw.isdecimal()):
        raise ValueError(f"no job number: {raw!r}")
    return int(raw)


def _read_row(row: JobRow, identity: _Identity, site_factor: int | None, problems: Counter[str]) -> JobRecord:
    try:
        return _read_job(row, identity, site_factor, problems)
    except ValueError:
        return _read_job(_repair(row, problems), identity, site_factor, problems)


def _repair(row: JobRow, problems: Counter[str]) -> JobRow:
    """Row with each unreadable cell made absent and counted by its column, so that the job is not lost."""
    absent: dict[str, str] = {}
    for name, parse in CELL_PARSERS.items():
        try:
            parse(getattr(row, name))
        except ValueError:
            absent[name] = ""
            problems[f"squeue {name} not understood"] += 1
    return row._replace(**absent)


def _read_job(row: JobRow, identity: _Identity, site_factor: int | None, problems: Counter[str]) -> JobRecord:
    state = translate.parse_job_state(row.state)
    settled = _settle(row, state, problems)
    return JobRecord(
        job_id=identity.job_id,
        array_job_id=identity.array_job_id,
        array_task_id=identity.array_task_id,
        het_job_id=identity.het_job_id,
        n_tasks=identity.n_tasks,
        name=translate.parse_text(row.name),
        user=row.user,
        uid=_UNKNOWN_UID if (uid := translate.parse_count(row.uid)) is None else uid,
        account=AccountName(translate.parse_text(row.account)),
        qos=translate.parse_text(row.qos),
        partitions=_partitions(row.partition),
        state=state,
        reason="" if row.reason == "None" else row.reason,
        tres=settled.tres,
        requested_types=settled.requested_types,
        n_nodes=translate.parse_count(row.n_nodes) or 1,
        is_batch=row.batch_flag == "1",
        is_requeueable=row.requeue == "1",
        nice=translate.parse_count(row.nice) or 0,
        priority=translate.parse_count(row.priority) or 0,
        site_factor=site_factor,
        submit_s=_submit_s(row),
        eligible_s=translate.parse_time_s(row.eligible),
        start_s=translate.parse_time_s(row.start),
        time_limit_s=translate.parse_duration_s(row.time_limit),
        restarts=translate.parse_count(row.restarts) or 0,
        nodes=translate.parse_text(row.nodes),
        reservation=translate.parse_text(row.reservation),
        wckey=translate.parse_text(row.wckey),
        comment=translate.parse_text(row.comment),
    )


@lru_cache(maxsize=1024)
def _partitions(raw: str) -> tuple[PartitionName, ...]:
    return tuple(PartitionName(name) for name in raw.split(","))


def _settle(row: JobRow, state: JobState, problems: Counter[str]) -> SettledTres:
    settled = settle_tres(ResourceCells(state.is_pending, *row.tres_cells))
    if settled.is_capped:
        problems[f"job that asks for less than 0 or more than {MAX_AMOUNT} of something, counted as that much"] += 1
    if settled.is_estimate:
        problems["GPUs counted from the request: gres/gpu is not in AccountingStorageTRES"] += 1
    return settled


def _submit_s(row: JobRow) -> int:
    submit_s = translate.parse_time_s(row.submit)
    if submit_s is None:
        raise ValueError(f"no submit time: {row.submit!r}")
    return submit_s


def _update_ids(gathered: _Gathered) -> dict[JobId, str]:
    split = [job_id for job_id in gathered.expressions if gathered.n_array_records[job_id] > 1]
    tasks = {job_id: translate.expand_steps(gathered.expressions[job_id]) for job_id in split}
    return {job_id: f"{job_id}_[{expression}]" for job_id, expression in tasks.items() if expression}


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
