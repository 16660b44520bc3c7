from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.cycle import decide
from policies.quota.amounts import MAX_AMOUNT
from policies.records import JobId, JobState
from slurm_plugin.client.job_columns import JOB_COLUMNS, JobRow
from slurm_plugin.client.jobs import JobReading, read_jobs
from slurm_plugin.client.table import Separators, Table, parse_table
from slurm_plugin.snapshot import Snapshot, parse_snapshot, snapshot_bytes
from tests.slurm_plugin.client.recordings import native
from tests.strategies import NOW, make_observation, make_site

RECORDED = Separators(cell="_recordedc", row="_recordedr")

PLAIN = JobRow(
    raw_id="12",
    array_job_id="12",
    array_task_id="N/A",
    het_job_id="N/A",
    het_offset="N/A",
    state="PENDING",
    user="alice",
    uid="2001",
    account="rec",
    qos="normal",
    partition="main,alt",
    name="job",
    priority="100",
    reason="Resources",
    comment="(null)",
    tres_alloc="cpu=2,mem=2000M,node=1,billing=2,gres/gpu=2",
    tres_per_job="N/A",
    tres_per_node="gres:gpu:2",
    tres_per_socket="N/A",
    tres_per_task="N/A",
    n_nodes="1",
    n_tasks="1",
    nodes="",
    submit="1796049921",
    eligible="1796049921",
    start="N/A",
    time_limit="2:00:00",
    nice="0",
    restarts="0",
    batch_flag="1",
    requeue="1",
    reservation="(null)",
    wckey="(null)",
)


def read(*rows: JobRow, problems: Counter[str] | None = None) -> JobReading:
    table = Table(rows=[tuple(row) for row in rows], n_malformed=0, missing=())
    return read_jobs(table, {"12": 7}, Counter() if problems is None else problems)


def test_columns_and_cells_are_in_the_same_order() -> None:
    assert len(JOB_COLUMNS) == len(JobRow._fields)
    assert PLAIN._fields[15] == "tres_alloc"
    assert JOB_COLUMNS[15].field == "tres-alloc"


def test_a_plain_job() -> None:
    (job,) = read(PLAIN).jobs
    assert (job.job_id, job.array_job_id, job.het_job_id, job.n_tasks) == ("12", "", "", 1)
    assert (job.site_factor, job.partitions, job.comment, job.start_s) == (7, ("main", "alt"), "", None)


@pytest.mark.parametrize(("batch", "requeue"), [("1", "0"), ("0", "1"), ("1", "1"), ("", "N/A")])
def test_only_a_plain_yes_makes_a_job_batch_or_requeueable(batch: str, requeue: str) -> None:
    (job,) = read(PLAIN._replace(batch_flag=batch, requeue=requeue)).jobs
    assert (job.is_batch, job.is_requeueable) == (batch == "1", requeue == "1")


def test_an_unknown_state_is_kept_and_counted() -> None:
    problems: Counter[str] = Counter()
    (job,) = read(PLAIN._replace(state="FROBNICATED"), problems=problems).jobs
    assert job.state is JobState.UNKNOWN
    assert problems == {"job state FROBNICATED": 1}


def test_an_unreadable_number_costs_the_number_not_the_job() -> None:
    problems: Counter[str] = Counter()
    (job,) = read(PLAIN._replace(time_limit="soon", nice="?"), problems=problems).jobs
    assert (job.time_limit_s, job.nice) == (None, 0)
    assert problems == {"squeue time_limit not understood": 1, "squeue nice not understood": 1}


@pytest.mark.parametrize("bad", [{"raw_id": "x"}, {"submit": "N/A"}, {"submit": "?"}])
def test_a_row_without_id_or_submit_time_is_counted(bad: dict[str, str]) -> None:
    problems: Counter[str] = Counter()
    assert read(PLAIN._replace(**bad), problems=problems).jobs == ()
    assert problems == {"squeue row without a readable id or submit time": 1}


def test_malformed_rows_and_missing_fields_are_counted() -> None:
    problems: Counter[str] = Counter()
    read_jobs(Table(rows=[], n_malformed=3, missing=("wckey",)), {}, problems)
    assert problems == {"squeue row with the wrong number of columns": 3, "squeue does not know the field wckey": 1}


def test_a_task_list_that_is_cut_short_is_counted_as_one_task() -> None:
    problems: Counter[str] = Counter()
    (job,) = read(PLAIN._replace(array_task_id="1,4,9,..."), problems=problems).jobs
    assert job.n_tasks == 1
    assert problems == {"array whose task list is not readable, counted as one task": 1}


def test_an_array_of_which_nothing_started_is_addressed_by_its_number() -> None:
    assert read(PLAIN._replace(array_task_id="0-9%2")).update_ids == {}


def test_a_partly_started_array_is_addressed_with_its_waiting_tasks() -> None:
    meta = PLAIN._replace(array_task_id="2-9%2")
    task = PLAIN._replace(raw_id="13", array_task_id="0", state="RUNNING")
    reading = read(task, meta)
    assert [(job.job_id, job.n_tasks) for job in reading.jobs] == [("12", 8), ("12_0", 1)]
    assert reading.update_ids == {"12": "12_[2-9]"}


def test_a_requeued_job_drops_types_that_the_user_did_not_name() -> None:
    stale = PLAIN._replace(tres_alloc="cpu=2,gres/gpu=2,gres/gpu:h100=2", restarts="1")
    assert read(stale).jobs[0].tres == (("cpu", 2), ("gres/gpu", 2))


def test_a_named_type_that_slurm_does_not_account_is_added() -> None:
    typed = PLAIN._replace(tres_per_node="gres/gpu:a100:2", n_nodes="3", tres_alloc="cpu=3,gres/gpu=6")
    assert read(typed).jobs[0].tres == (("cpu", 3), ("gres/gpu", 6), ("gres/gpu:a100", 6))


@pytest.mark.parametrize(
    ("cells", "gpus"),
    [
        ({"tres_per_job": "gres:gpu:6"}, 6),
        ({"tres_per_node": "gres/gpu:2", "n_nodes": "3"}, 6),
        ({"tres_per_task": "cpu=4,gres/gpu=1", "n_tasks": "4"}, 4),
        ({"tres_per_socket": "gres:gpu:2"}, 2),
        ({"tres_per_node": "gres/gpu:a100:1,gres/gpu:h100:1", "n_nodes": "2"}, 4),
    ],
)
def test_gpus_that_slurm_does_not_account_are_counted_from_the_request(cells: dict[str, str], gpus: int) -> None:
    problems: Counter[str] = Counter()
    (job,) = read(PLAIN._replace(tres_alloc="cpu=2", tres_per_node="N/A")._replace(**cells), problems=problems).jobs
    assert dict(job.tres)["gres/gpu"] == gpus
    assert problems == {"GPUs counted from the request: gres/gpu is not in AccountingStorageTRES": 1}


def test_the_native_recording_is_understood() -> None:
    problems: Counter[str] = Counter()
    reading = read_jobs(parse_table(native("squeue.txt"), JOB_COLUMNS, RECORDED), {}, problems)
    jobs = {str(job.job_id): job for job in reading.jobs}
    assert problems == {}
    assert jobs["17"].comment == "x|y\nJOBID 99 \x1b[31m \\xff\\xfe"
    assert (jobs["3"].n_tasks, jobs["35"].n_tasks) == (5000, 98)
    assert jobs["24+1"].het_job_id == "24"
    assert jobs["30_3"].state is JobState.RUNNING
    assert reading.update_ids[JobId("18")] == "18_[3-9]"


ABSURD = PLAIN._replace(
    tres_alloc="cpu=4000000,mem=4000000G,node=1,billing=4000000,gres/gpu=3999999996000000",
    tres_per_node="N/A",
    tres_per_task="gres:gpu:999999999",
    n_nodes="125000",
    n_tasks="4000000",
)
"""``sbatch -n 4000000 --gpus-per-task=999999999``, as 22.05.8 takes and shows it."""


def test_an_absurd_request_is_counted_as_the_most_that_a_snapshot_takes() -> None:
    problems: Counter[str] = Counter()
    job, _ = read(ABSURD, PLAIN._replace(raw_id="13"), problems=problems).jobs
    assert dict(job.tres) == {"cpu": 4_000_000, "mem": 4_096_000_000, "gres/gpu": MAX_AMOUNT}
    assert problems == {
        f"job that asks for less than 0 or more than {MAX_AMOUNT} of something, counted as that much": 1
    }


@given(
    gpus=st.integers(-(2**80), 2**80),
    n_tasks=st.integers(1, 2**40),
    cpus=st.integers(0, 2**80),
    states=st.sampled_from(["PENDING", "RUNNING"]),
)
def test_a_snapshot_with_any_request_can_be_read_again(gpus: int, n_tasks: int, cpus: int, states: str) -> None:
    row = ABSURD._replace(
        tres_alloc=f"cpu={cpus},gres/gpu={gpus}",
        tres_per_task=f"gres:gpu:{max(0, gpus)}",
        n_tasks=str(n_tasks),
        state=states,
        partition="gpu",
        array_task_id="0-4000000",
    )
    rows = [row._replace(raw_id=str(n), array_job_id=str(n)) for n in range(12, 16)]
    seen = make_observation(read(*rows).jobs)
    site = make_site({"rec": 1})
    plan = decide(seen, site, (), (), now=NOW)
    raw = snapshot_bytes(
        Snapshot(cycle_id="c", now_s=NOW, observation=seen, site_policy=site, sla_memory=(), plan=plan)
    )
    assert parse_snapshot(raw).observation == seen
