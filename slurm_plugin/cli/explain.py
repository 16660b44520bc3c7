"""``fairgpu explain JOBID``: why a job waits where it waits, digit for digit, in one screen."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from policies.errors import UnknownJobError
from policies.explanation import JobExplanation, QueuePlace, WeightArithmetic, explain_job
from policies.quota.names import Band
from policies.startability import Startability
from slurm_plugin.cli._fresh import Looked, look, snapshot_option
from slurm_plugin.cli._health import describe_write, is_surely_off
from slurm_plugin.cli._history import history_path, history_readers, published_reclaims
from slurm_plugin.cli._numbers import amount, decimal, duration, exact, moment
from slurm_plugin.cli._options import EXIT_FAILED, json_option, site_option, slurm_bin_dir_option
from slurm_plugin.cli._output import echo_json, print_line, print_table, talk
from slurm_plugin.cli._status_rows import describe_reading
from slurm_plugin.rebalancer.own_qos import OwnQos
from slurm_plugin.rebalancer.store import HistoryError, HistoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from policies.plan import BandStanding
    from policies.records import JobRecord, Tres
    from slurm_plugin.site import SiteFile

_N_ROWS: Final = 5

Rows = Sequence[Mapping[str, Any]]


class Past(NamedTuple):
    """What the history knows of a job: its rows, the last decisions about it, when it was taken back.

    ``unread`` says why the history could not be asked, ``readers`` who may; ``reclaims`` are the published ones then.
    """

    jobs: Rows = ()
    decisions: Rows = ()
    moves: Rows = ()
    reclaims: Rows = ()
    unread: str = ""
    readers: str = ""

    def rows(self) -> dict[str, Rows]:
        """Return the rows by table, for JSON."""
        return {"jobs": self.jobs, "decisions": self.decisions, "moves": self.moves, "reclaims": self.reclaims}


@click.command("explain")
@click.argument("job_id", metavar="JOBID")
@site_option
@json_option
@slurm_bin_dir_option
@snapshot_option
def explain_command(
    job_id: str, site_path: Path | None, as_json: bool, slurm_bin_dir: Path | None, snapshot_path: Path | None
) -> None:
    """Explain why a job waits where it waits: its agent, the weight, the share tag, the site factor, its place.

    A task of an array that has not started shares its array's record and place; a het job is told component by
    component (4711+0, 4711+1). A job that Slurm does not show any more is looked up in the history.

    \b
    Examples:
      fairgpu explain 4711
      fairgpu explain 4711_3 --json
      fairgpu explain 4711 --snapshot cycle.json.gz

    Exit codes: 0 done, 1 job unknown, 2 site file, 3 Slurm unreachable.
    """
    looked = look(site_path, slurm_bin_dir, snapshot_path)
    past = _fetch_past(looked.site, job_id)
    snapshot = looked.snapshot
    try:
        explanation = explain_job(
            snapshot.observation,
            snapshot.site_policy,
            snapshot.sla_memory,
            job_id,
            band_memory=snapshot.band_memory,
            now=snapshot.now_s,
        )
    except UnknownJobError:
        _tell_past(job_id, past, as_json=as_json)
        return
    if as_json:
        echo_json({"explanation": explanation, "history": past.rows()})
    else:
        _print_explanation(explanation, looked)
        _print_unseen_reclaims(explanation.job, past, looked)
        _print_past(past)


def _tell_past(job_id: str, past: Past, *, as_json: bool) -> None:
    if as_json:
        echo_json({"explanation": None, "history": past.rows()})
    if not any(past.rows().values()):
        history = past.unread or "the history does not know it"
        talk(f"fairgpu: job {job_id} is not in the queue ('squeue' shows the ids that are); {history}")
        sys.exit(EXIT_FAILED)
    if as_json:
        return
    if not past.jobs:
        print_line(f"Job {job_id} is not in Slurm's queue any more; {past.unread or 'the history has no row of it'}.")
        _print_past(past)
        return
    print_line(f"Job {job_id} is not in Slurm's queue any more. The history says:")
    print_table("", tuple(_past_cells(past.jobs[0])), [tuple(_past_cells(row).values()) for row in past.jobs])
    _print_past(past)


def _past_cells(row: Mapping[str, Any]) -> dict[str, object]:
    """Return a job of the history by heading; it was seen last when its row changed, and missed at its end."""
    start_s, end_s = row["start_s"], row["end_s"]
    names = ("job_id", "agent", "source", "user", "account")
    is_over = end_s is not None
    return {
        **{name.replace("_", " "): row[name] for name in names},
        "state": f"ended (last seen before {moment(end_s)})" if is_over else row["state"],
        "submitted": moment(row["submit_s"]),
        "started": moment(start_s),
        "ran": duration(max(0.0, end_s - start_s)) if is_over and start_s else None,
        "site factor": row["site_factor"],
    }


def _fetch_past(site: SiteFile | None, job_id: str) -> Past:
    if site is None:
        return Past(unread="a snapshot has no history")
    try:
        path = history_path(site)
        if path is None:
            return _public_past(site, job_id, "there is no history yet")
        with HistoryStore(path) as store:
            jobs = store.query("SELECT * FROM jobs WHERE job_id = ? ORDER BY submit_s", (job_id,))
            decisions, moves, reclaims = (
                _latest(store, table, job_id) for table in ("decisions", "band_decisions", "reclaims")
            )
    except PermissionError:
        # The usual case of a researcher where the site keeps the history to itself: no reason to complain each time.
        return _public_past(site, job_id, "the history is not readable for this user")
    except (HistoryError, OSError) as err:
        talk(f"fairgpu: the history cannot be read: {err}")
        return _public_past(site, job_id, "the history cannot be read")
    return Past(jobs=jobs, decisions=decisions, moves=moves, reclaims=reclaims)


def _public_past(site: SiteFile, job_id: str, unread: str) -> Past:
    rows = [row for row in published_reclaims(site) if row["job_id"] == job_id][-_N_ROWS:]
    return Past(reclaims=rows, unread=unread, readers=history_readers(site))


def _latest(store: HistoryStore, table: str, job_id: str) -> Rows:
    sql = f"SELECT * FROM {table} WHERE job_id = ? ORDER BY at_s DESC LIMIT ?"  # noqa: S608 - a table of ours
    return store.query(sql, (job_id, _N_ROWS))[::-1]


def _print_explanation(told: JobExplanation, looked: Looked) -> None:
    job, submission = told.job, told.submission
    partitions = ",".join(job.partitions)
    tasks = f", {job.n_tasks} array tasks" if job.n_tasks > 1 else ""
    print_line(
        f"Job {job.job_id} of {job.user} (account {job.account}, partition {partitions}): {job.state.value}{tasks}"
    )
    print_line(_waits(told))
    if told.next_step:
        print_line(f"Next step {told.next_step.replace('JOBID', job.job_id)}")
    if submission.agent is None:
        print_line(f"Agent     none, FairGPU leaves this job alone: {submission.reason}")
    else:
        print_line(f"Agent     {submission.agent} (named by its {submission.source.value}: {submission.reason})")
    if submission.message:
        print_line(f"Tags      {submission.message}")
    _print_band(told, looked)
    if told.weight is not None:
        _print_weight(told.weight)
    if told.place is not None:
        _print_place(told.place, told, looked)


def _print_band(told: JobExplanation, looked: Looked) -> None:
    bands = told.bands
    if bands is None:
        return
    standings = {one.agent: one.bands for one in looked.snapshot.plan.standings}
    agent = told.submission.agent
    shown = "none" if bands.band is None else _describe_band(bands.band, standings[agent] if agent else None)
    print_line(f"Band      {shown} (QOS {told.job.qos or '(none)'})")
    wanted = "" if bands.wanted in {None, bands.band} else f"should wait in {bands.wanted}: "
    print_line(f"          {wanted}{bands.reason}")
    if bands.may_not_borrow:
        print_line(f"          it may not borrow: {bands.may_not_borrow}")
    if bands.reclaimed_s:
        print_line(f"          taken back {len(bands.reclaimed_s)} time(s) within the window")
    if bands.ending:
        whom = "where it is to run" if bands.n_claims_before else "for it"
        print_line(f"          {_jobs_are(len(bands.ending))} ending {whom} now: {', '.join(bands.ending)}")
    if bands.takes_back:
        besides = " besides" if bands.ending else ""
        print_line(f"          Slurm is expected to take back for it{besides}: {', '.join(bands.takes_back)}")
    if bands.takes_back and bands.n_claims_before:
        print_line(
            f"          {bands.n_claims_before} claim(s) wait before it: Slurm ends one job per node at a time, "
            "so each may hold it up for KillWait"
        )


def _jobs_are(n_jobs: int) -> str:
    return "1 job is" if n_jobs == 1 else f"{n_jobs} jobs are"


def _describe_band(band: Band, standing: BandStanding | None) -> str:
    if standing is None:
        return band.value
    used, limit = {
        Band.GUARANTEED: (standing.guaranteed, standing.nominal),
        Band.BORROW: (standing.borrow, standing.borrow_cap),
        Band.OPPORTUNISTIC: (standing.opportunistic, ()),
    }[band]
    return f"{band.value}: {_with_units(used)} in use" + (f" of {_with_units(limit)}" if limit else "")


def _with_units(tres: Tres) -> str:
    return ",".join(f"{name}={amount(name, held)}" for name, held in tres) or "nothing"


def _waits(told: JobExplanation) -> str:
    if told.startability is None:
        return "Waits     for nothing"
    counted = "" if told.startability is Startability.STARTABLE else "; not counted for its agent's share tags"
    return f"Waits     {told.job.reason or 'no reason given'}: {told.waits_because}{counted}"


def _print_weight(weight: WeightArithmetic) -> None:
    print_line(f"Weight    {weight.base_weight} (base) x {weight.sla_factor} (SLA factor) = {exact(weight.weight)}")
    for reading in weight.readings:
        print_line(f"          {describe_reading(reading)}")


def _print_place(place: QueuePlace, told: JobExplanation, looked: Looked) -> None:
    asks = "task asks" if told.job.n_tasks > 1 else "job asks"
    columns = ("tres", "agent has", "+ queued", "of capacity", "= share", asks)
    rows = [
        (
            axis.tres,
            amount(axis.tres, axis.held),
            amount(axis.tres, axis.queued_before),
            amount(axis.tres, axis.capacity),
            exact(axis.share) if axis.share is not None else None,
            amount(axis.tres, axis.request),
        )
        for axis in place.axes
    ]
    print_table("", columns, rows)
    weight = told.weight.weight if told.weight is not None else None
    if place.tag is None:
        print_line("Tag       none: an agent of weight 0 comes after all others; site factor 1")
    else:
        largest = place.dominant_tres or "nothing held or queued"
        print_line(f"Tag       largest share {place.dominant_share} ({largest}) / weight {weight} = {exact(place.tag)}")
    if told.policy == "wdrf" and place.quantised_tag is not None:
        tag, scale = decimal(place.quantised_tag), looked.snapshot.site_policy.factor_scale
        print_line(f"Factor    {scale} / (1 + {tag}) = {place.site_factor} (rounded down, ties kept apart)")
    else:
        print_line(f"Factor    {place.site_factor} (policy {told.policy})")
    shown = "nothing (held or not yet eligible)" if place.shown_factor is None else place.shown_factor
    is_off = looked.site is not None and is_surely_off(looked.site)
    fate = "" if place.change is None else f"; {describe_write(looked.snapshot.site_policy, is_off=is_off)}"
    print_line(f"          Slurm shows {shown}{fate}")
    _print_queue(place, is_startable=told.startability is Startability.STARTABLE)


def _print_queue(place: QueuePlace, *, is_startable: bool) -> None:
    if is_startable:
        print_line(f"Place     {place.position} of {place.n_startable} startable jobs")
    else:
        print_line(f"Place     behind {place.position - 1} of {place.n_startable} startable jobs, once it can start")
    rows = [(one.job_id, one.agent, exact(one.tag), one.site_factor) for one in place.before]
    if rows:
        print_table("Just before it", ("job", "agent", "tag", "site factor"), rows)


def _print_unseen_reclaims(job: JobRecord, past: Past, looked: Looked) -> None:
    """Say of a restart that nobody tells this user about what Slurm shows anybody."""
    own = OwnQos.from_policy(looked.snapshot.site_policy)
    may_be_reclaim = own.is_borrowed(job.qos) or (job.qos in own.bands and job.state.is_pending)
    if not job.restarts or not may_be_reclaim or not past.readers or past.reclaims:
        return
    times = "once" if job.restarts == 1 else f"{job.restarts} times"
    print_line(
        f"Restarted {times}; on borrowed quota a restart is usually a reclaim. Its history is readable by "
        f"{past.readers} only: ask them, or ask your admin to make you a member of that group"
    )


def _print_past(past: Past) -> None:
    for row in past.reclaims:
        after = f"after {duration(row['ran_s'])} on {row.get('nodes') or 'its nodes'}"
        print_line(f"Taken back from you because {row['reason']} (restart {row['restarts']}, {after}).")
    names = ("cycle_id", "old", "new", "outcome", "reason")
    if past.moves:
        columns = ("cycle", "what", "from", "to", "outcome", "reason")
        keys = ("cycle_id", "kind", *names[1:])
        print_table("Last moves between bands", columns, [[row[key] for key in keys] for row in past.moves])
    if past.decisions:
        print_table("Last decisions", ("cycle", *names[1:]), [[row[name] for name in names] for row in past.decisions])
