"""The columns that we ask ``squeue`` for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from slurm_plugin import translate
from slurm_plugin.client.table import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

JOB_COLUMNS: Final = (
    Column(field="JobID", header="JOBID"),
    Column(field="ArrayJobID", header="ARRAY_JOB_ID"),
    Column(field="ArrayTaskID", header="ARRAY_TASK_ID"),
    Column(field="HetJobID", header="HET_JOB_ID", default=""),
    Column(field="HetJobOffset", header="HET_JOB_OFFSET", default=""),
    Column(field="State", header="STATE"),
    Column(field="UserName", header="USER"),
    Column(field="UserID", header="UID"),
    Column(field="Account", header="ACCOUNT"),
    Column(field="QOS", header="QOS", default=""),
    Column(field="Partition", header="PARTITION"),
    Column(field="Name", header="NAME", default=""),
    Column(field="PriorityLong", header="PRIORITY"),
    Column(field="Reason", header="REASON"),
    Column(field="Comment", header="COMMENT"),
    Column(field="tres-alloc", header="TRES_ALLOC"),
    Column(field="tres-per-job", header="TRES_PER_JOB"),
    Column(field="tres-per-node", header="TRES_PER_NODE"),
    Column(field="tres-per-socket", header="TRES_PER_SOCKET"),
    Column(field="tres-per-task", header="TRES_PER_TASK"),
    Column(field="NumNodes", header="NODES"),
    Column(field="NumTasks", header="TASKS", default="1"),
    Column(field="NodeList", header="NODELIST", default=""),
    Column(field="SubmitTime", header="SUBMIT_TIME"),
    Column(field="EligibleTime", header="ELIGIBLE_TIME"),
    Column(field="StartTime", header="START_TIME"),
    Column(field="TimeLimit", header="TIME_LIMIT"),
    Column(field="Nice", header="NICE"),
    Column(field="RestartCnt", header="RESTART_COUNT"),
    Column(field="BatchFlag", header="BATCH_FLAG", default="0"),
    Column(field="Requeue", header="REQUEUE", default="0"),
    Column(field="Reservation", header="RESERVATION", default=""),
    Column(field="wckey", header="WCKEY", default=""),
)
"""What we ask ``squeue`` for; the fields of ``JobRow`` in the same order.

Where a release cannot say whether a job is batch and requeueable, it counts as neither: then it never borrows.
"""


class JobRow(NamedTuple):
    """Cells of one row, verbatim."""

    raw_id: str
    array_job_id: str
    array_task_id: str
    het_job_id: str
    het_offset: str
    state: str
    user: str
    uid: str
    account: str
    qos: str
    partition: str
    name: str
    priority: str
    reason: str
    comment: str
    tres_alloc: str
    tres_per_job: str
    tres_per_node: str
    tres_per_socket: str
    tres_per_task: str
    n_nodes: str
    n_tasks: str
    nodes: str
    submit: str
    eligible: str
    start: str
    time_limit: str
    nice: str
    restarts: str
    batch_flag: str
    requeue: str
    reservation: str
    wckey: str

    @property
    def tres_cells(self) -> tuple[str, ...]:
        """Cells from ``tres_alloc`` to ``n_tasks``: what the job gets."""
        return self[15:22]


CELL_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "uid": translate.parse_count,
    "tres_alloc": translate.parse_tres,
    "tres_per_job": translate.parse_gres,
    "tres_per_node": translate.parse_gres,
    "tres_per_socket": translate.parse_gres,
    "tres_per_task": translate.parse_gres,
    "n_nodes": translate.parse_count,
    "n_tasks": translate.parse_count,
    "priority": translate.parse_count,
    "nice": translate.parse_count,
    "eligible": translate.parse_time_s,
    "start": translate.parse_time_s,
    "time_limit": translate.parse_duration_s,
    "restarts": translate.parse_count,
}
"""What reads the cells that may be absent; a cell that its parser refuses is made absent."""
