"""What must hold at the end: jobs in sacct, no orphaned QOS change, a sound history, a removal without a trace."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.soak.watch import fetch_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.soak.killer import Kill
    from tests.soak.stage import Stage
    from tests.soak.workload import Submission

END_STATES: Final = frozenset(
    {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL"}
)
RESTARTED: Final = frozenset({"REQUEUED"})
DRAIN_S: Final = 300.0
SPOOL_S: Final = 60.0
SETTLE_S: Final = 60.0
_JOURNALS: Final = ("touched_jobs", "touched_qos")


@dataclass(slots=True)
class Accounts:
    """What became of the submissions.

    Attributes
    ----------
    wrong : list of str
        Submissions that are not in sacct exactly once and ended.
    repaired : int
        Jobs that ``sacctmgr show runawayjobs`` had to close: slurmctld was killed before slurmdbd had their end.
    """

    accepted: int = 0
    tasks: int = 0
    refusals: int = 0
    forgotten: int = 0
    incarnations: int = 0
    repaired: int = 0
    states: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def find_unplanned(stage: Stage) -> list[str]:
    """Wait until the queue is as the core wants it; then each job on borrowed quota must have a line in the journal."""
    until_s = time.monotonic() + SETTLE_S
    while True:
        status = stage.cluster.run("fairgpu", "fairgpu", "status", "--json", check=False)
        n_decisions = json.loads(status.stdout)["n_decisions"] if status.returncode == 0 else None
        if n_decisions == 0 or time.monotonic() > until_s:
            break
        time.sleep(0.5)
    wrong = [] if n_decisions == 0 else [f"the queue is not as planned after {SETTLE_S:g} s: {n_decisions} decisions"]
    noted = {row["job_id"] for row in query(stage, "SELECT job_id FROM touched_qos")}
    for row in fetch_rows(stage) or ():
        is_borrowed = row.qos.endswith(("_borrow", "_opp"))
        if row.state == "PENDING" and is_borrowed and not {row.job_id, row.job_id.partition("_")[0]} & noted:
            wrong.append(f"job {row.job_id} waits in {row.qos} and nobody noted why")
    return wrong


def drain(stage: Stage, *, register_every_s: float) -> list[str]:
    """Let every job end: held ones are released, delays after a requeue lifted. What remains is returned."""
    until_s = time.monotonic() + DRAIN_S
    register_s = time.monotonic() + register_every_s
    while True:
        rows = fetch_rows(stage)
        left = [row for row in rows or () if row.state.partition(" ")[0] not in END_STATES]
        if rows is not None and not left:
            return []
        if time.monotonic() > until_s:
            return [f"job {row.job_id} ({row.name}) still {row.state} {row.reason} in {row.qos}" for row in left]
        for row in left:
            if row.reason == "BeginTime":
                stage.ask("scontrol", "update", f"jobid={row.job_id}", "StartTime=now")
            if "held" in row.reason.lower():  # by us, or by Slurm after a failed launch
                stage.ask("scontrol", "release", row.job_id)
        if time.monotonic() >= register_s:  # nodes say what runs: jobs end that only a restarted slurmctld believes in
            register_s = time.monotonic() + register_every_s
            stage.ask("scontrol", "reconfigure")
        time.sleep(1.0)


def account(stage: Stage, submissions: Iterable[Submission]) -> Accounts:
    """Compare every accepted submission with sacct."""
    found = Accounts()
    wanted = list(submissions)
    rows = _sacct(stage)
    until_s = time.monotonic() + SPOOL_S
    while time.monotonic() < until_s and _has_open(rows):
        time.sleep(2.0)
        rows = _sacct(stage)
    if _has_open(rows):
        found.repaired = _repair(stage)
        rows = _sacct(stage)
    by_name: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for job_id, name, state in rows:
        by_name[name][job_id].append(state)
    found.incarnations = len(rows)
    for one in wanted:
        account_one(one, by_name.get(one.name, {}), found)
    known = {one.name for one in wanted}
    found.wrong += [f"{name}: nobody submitted it" for name in by_name.keys() - known]
    return found


def account_one(one: Submission, rows: dict[str, list[str]], found: Accounts) -> None:
    """Count one submission.

    Parameters
    ----------
    rows : dict of str to list of str
        State of each incarnation in sacct, in order, by job id; a task of an array has an id of its own.
    """
    found.refusals += one.n_refused
    if one.forgotten_s is not None:
        found.forgotten += 1
        return
    if one.shape == "srun" and not rows:
        return  # srun asks and waits in one: without a row it was refused
    if one.shape != "srun" and one.accepted_s is None:
        return
    found.accepted += 1
    found.shapes[one.shape] += 1
    found.tasks += one.n_tasks
    found.states.update(states[-1] for states in rows.values())
    has_ended = all(_has_ended(states) for states in rows.values())
    if len(rows) != one.n_tasks or not has_ended:
        found.wrong.append(f"{one.name} ({one.shape}): {dict(rows) or 'not in sacct'}")


def _has_ended(states: list[str]) -> bool:
    """Whether the last incarnation has ended and none before it still counts as alive."""
    return states[-1] in END_STATES and END_STATES.union(RESTARTED).issuperset(states)


def _has_open(rows: Iterable[tuple[str, str, str]]) -> bool:
    return any(state not in END_STATES | RESTARTED for _, _, state in rows)


def _sacct(stage: Stage) -> list[tuple[str, str, str]]:
    # Not the shown job id: a row whose slurmctld died in the middle of an array keeps the array's, 93_[1-2].
    fields = "--format=jobidraw,jobname,state"
    text = stage.ask("sacct", "-X", "-n", "-P", "--allusers", "--duplicates", "--starttime=now-1day", fields)
    assert text is not None, "sacct does not answer"
    rows = (line.split("|") for line in text.splitlines())
    return [(job, name, state.partition(" ")[0]) for job, name, state in rows]


def _repair(stage: Stage) -> int:
    """Let Slurm's own tool close what slurmdbd believes to run and slurmctld does not know."""
    done = stage.cluster.run("root", "sacctmgr", "show", "runawayjobs", "format=id", check=False, input="y\n")
    return len(re.findall(r"(?m)^\s*\d+\s*$", done.stdout))


def find_orphans(stage: Stage) -> list[str]:
    """After a clean stop: what of ours is left in slurmdbd or slurmctld that ``fairgpu plan`` does not want."""
    plan = stage.cluster.run("root", "fairgpu", "plan", "--exit-code", check=False)
    wrong = [] if plan.returncode == 0 else [f"fairgpu plan --exit-code gives {plan.returncode}: {plan.stdout.strip()}"]
    database, controller = _qos_of_slurmdbd(stage), _qos_of_slurmctld(stage)
    wrong += [
        f"{name}: slurmdbd says {values}, slurmctld {controller.get(name)}"
        for name, values in database.items()
        if controller.get(name) != values
    ]
    return wrong


def _qos_of_slurmdbd(stage: Stage) -> dict[str, tuple[str, str]]:
    text = stage.ask("sacctmgr", "-nP", "show", "qos", "format=name,priority,grptres") or ""
    rows = (line.split("|") for line in text.splitlines())
    return {name: (priority, tres.rpartition("gres/gpu=")[2]) for name, priority, tres in rows}


def _qos_of_slurmctld(stage: Stage) -> dict[str, tuple[str, str]]:
    text = stage.ask("scontrol", "-o", "show", "assoc_mgr", "flags=qos") or ""
    found = {}
    for line in filter(lambda line: line.startswith("QOS="), text.splitlines()):
        name = line[4:].partition("(")[0]
        priority = re.search(r" Priority=(\d+)", line)
        gpus = re.search(r" GrpTRES=\S*?gres/gpu=(\d+)\(", line)
        found[name] = (priority[1] if priority else "0", gpus[1] if gpus else "")
    return found


def find_history_faults(stage: Stage, *, is_forgotten: bool) -> list[str]:
    """What is wrong with the history once the queue is empty and no daemon writes.

    Parameters
    ----------
    is_forgotten : bool
        Whether the queue was empty long enough for the journals of the undo to be empty, too.
    """
    wrong = [
        f"integrity_check: {row}" for row in query(stage, "PRAGMA integrity_check") if list(row.values()) != ["ok"]
    ]
    for table in _JOURNALS if is_forgotten else ():
        (row,) = query(stage, f"SELECT count(*) AS n FROM {table}")  # noqa: S608 - names of ours
        if row["n"]:
            wrong.append(f"{table}: {row['n']} lines for jobs that are gone")
    (row,) = query(stage, "SELECT count(*) AS n FROM jobs WHERE end_s IS NULL")
    if row["n"]:
        wrong.append(f"jobs: {row['n']} rows without an end")
    return wrong


def find_traces(stage: Stage) -> list[str]:
    """Remove the bands; slurmdbd must then be as before them."""
    done = stage.cluster.run("root", "fairgpu", "apply", "--remove", "--yes", check=False)
    wrong = [] if done.returncode == 0 else [f"apply --remove gives {done.returncode}: {done.stderr.strip()}"]
    if stage.dump() != stage.dump_before:
        wrong.append("slurmdbd's dump differs from before")
    return wrong


def note_cycles(stage: Stage, kills: Iterable[Kill]) -> None:
    """Fill in when the first cycle ended well that had begun after each kill."""
    ends = query(stage, "SELECT at_s, at_s + duration_s AS end_s FROM cycles WHERE outcome = 'ok' ORDER BY at_s")
    for kill in kills:
        kill.cycle_s = next((row["end_s"] - kill.at_s for row in ends if row["at_s"] >= kill.at_s), None)


def query(stage: Stage, sql: str) -> list[dict[str, Any]]:
    """Rows of the history."""
    path = stage.cluster.root / "var/fairgpu/history.db"
    with contextlib.closing(sqlite3.connect(path, timeout=10.0)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(sql)]
