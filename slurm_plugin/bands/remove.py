"""Take our QOSes out again without stranding a job: close them, move what waits, wait for what runs, then delete.

Slurm deletes a QOS that is in use without a word, and its pending jobs then wait for ever. So a QOS goes only when no
job has it. Preempt lists lose its name first: slurmdbd 22.05 that takes a deleted QOS out of a borrow QOS's list itself
keeps a wrong one in memory, and then refuses every list that names this QOS. A pending job whose association no longer
allows its QOS waits (``InvalidQOS``) until it is moved, which happens right after; a running one goes on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies.quota.names import Band, loan_band, own_prefix
from policies.records import JobId, JobRecord
from slurm_plugin.bands.accounting import AssocKey, read_accounting
from slurm_plugin.bands.apply import apply_changes
from slurm_plugin.bands.changes import DeleteQos, ModifyQos
from slurm_plugin.bands.desired import Desired
from slurm_plugin.bands.diff import compute_difference
from slurm_plugin.client.protocol import UpdateStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_plugin.bands.accounting import Accounting
    from slurm_plugin.bands.apply import Hands
    from slurm_plugin.client.protocol import SlurmClient

POLL_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """How to remove.

    Attributes
    ----------
    names : frozenset of str
        QOSes to remove.
    closed : frozenset of str
        Those of them that are emptied of waiting jobs, but not deleted.
    template_qos : str
        Where a job goes whose former QOS is not known and whose association has no default.
    recorded : callable
        QOS of a job before the rebalancer moved it, empty if it did not.
    is_waiting : bool
        Wait for running jobs; else leave them and their QOSes.
    """

    names: frozenset[str]
    template_qos: str
    recorded: Callable[[JobRecord], str]
    is_waiting: bool
    closed: frozenset[str] = frozenset()
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalReport:
    """What a removal did.

    Attributes
    ----------
    moved : tuple of (JobId, str)
        Pending jobs and the QOS that they have now.
    deleted : tuple of str
        QOSes that are gone.
    left : tuple of (str, tuple of JobId)
        QOSes that remain, with the jobs that keep them.
    refused : tuple of (JobId, str)
        Jobs that Slurm would not move, with its words.
    """

    moved: tuple[tuple[JobId, str], ...] = ()
    deleted: tuple[str, ...] = ()
    left: tuple[tuple[str, tuple[JobId, ...]], ...] = ()
    refused: tuple[tuple[JobId, str], ...] = ()


def remove_bands(removal: Removal, client: SlurmClient, hands: Hands) -> RemovalReport:
    """Restore every association, then retire our QOSes; safe to be cut anywhere and run again.

    Raises
    ------
    SlurmError
        Slurm or slurmdbd is away or refused a command; what was done so far stays.
    """
    journal = hands.journal
    journal.created.update(removal.names)
    accounting = read_accounting(hands.runner, hands.cluster)
    closing = compute_difference(Desired(qos=(), associations=()), accounting, journal)
    apply_changes(closing.changes, accounting, hands)
    report = retire(removal, client, hands)
    if not report.left:
        journal.close_restored(at_s=time.time())
    return report


def retire(removal: Removal, client: SlurmClient, hands: Hands) -> RemovalReport:
    """Delete QOSes that no association allows any more, each as soon as no job has it."""
    accounting = read_accounting(hands.runner, hands.cluster)
    present = {row.name for row in accounting.qos} & (removal.names - removal.closed)
    moved: list[tuple[JobId, str]] = []
    deleted: list[str] = []
    last_text = ""
    while True:
        refused = _move_pending(removal, client, accounting, moved)
        users = _users(client, present)
        unused = _delete(present - users.keys(), removal, hands)
        present -= unused
        deleted += sorted(unused)
        is_stuck = bool(refused) and not _has_running(client, present, refused)
        if not present or not removal.is_waiting or is_stuck:
            left = tuple((name, tuple(sorted(users.get(name, ())))) for name in sorted(present))
            return RemovalReport(moved=tuple(moved), deleted=tuple(deleted), left=left, refused=tuple(refused))
        text = "waiting for " + ", ".join(f"{len(jobs)} jobs in {name}" for name, jobs in sorted(users.items()))
        if text != last_text:
            hands.say(text)
        last_text = text
        removal.sleep(POLL_S)


def _delete(unused: set[str], removal: Removal, hands: Hands) -> set[str]:
    """Delete QOSes that no job has; those that were: one that a borrow list cannot do without waits for that QOS."""
    if not unused:
        return set()
    accounting = read_accounting(hands.runner, hands.cluster)
    prefix = own_prefix(hands.cluster)
    rows = [row for row in accounting.qos if row.name.startswith(prefix) and row.name not in unused]
    before = {row.name: row.fields["preempt"] for row in rows}
    after, needed = _lists_without(before, unused, removal.names)
    changes = [
        ModifyQos(name=name, fields={"preempt": (before[name], ",".join(sorted(names)))})
        for name, names in after.items()
        if names != _split(before[name])
    ]
    changes.sort(key=lambda change: (loan_band(change.name) is not Band.BORROW, change.fields["preempt"][1]))
    gone = unused - needed
    apply_changes([*changes, *(DeleteQos(name=name) for name in sorted(gone))], accounting, hands)
    return gone


def _lists_without(
    lists: Mapping[str, str], unused: set[str], names: frozenset[str]
) -> tuple[dict[str, set[str]], set[str]]:
    """Preempt lists without what goes, and what may not go yet.

    A borrow QOS's list is never emptied: another opportunistic QOS stands in, else one of its own list stays.
    """
    stand_in = [name for name in sorted(lists) if loan_band(name) is Band.OPPORTUNISTIC][:1]
    emptied = {
        name
        for name, text in lists.items()
        if loan_band(name) is Band.BORROW and text and _split(text) <= unused and (stand_in or name in names)
    }
    needed = set() if stand_in else {min(_split(lists[name])) for name in emptied}
    gone = unused - needed
    after = {name: _split(text) - gone for name, text in lists.items()}
    return {name: kept or set(stand_in if name in emptied else ()) for name, kept in after.items()}, needed


def _split(names: str) -> set[str]:
    return set(filter(None, names.split(",")))


def _move_pending(
    removal: Removal, client: SlurmClient, accounting: Accounting, moved: list[tuple[JobId, str]]
) -> list[tuple[JobId, str]]:
    waiting = [job for job in client.observe().jobs if job.state.is_pending and _has_one_of(job, removal.names)]
    if not waiting:
        return []
    targets = [(job.job_id, former_qos(job, removal, accounting)) for job in waiting]
    outcomes = client.set_job_qos(targets)
    wanted = dict(targets)
    moved += [(one.job_id, wanted[one.job_id]) for one in outcomes if one.status is UpdateStatus.OK]
    return [(one.job_id, one.text) for one in outcomes if one.status is UpdateStatus.REJECTED]


def former_qos(job: JobRecord, removal: Removal, accounting: Accounting) -> str:
    """Return where a pending job goes: its recorded QOS, its association's default, the template, or one it may use."""
    allowed, default = _association_of(job, accounting)
    usable = [name for name in allowed if name not in removal.names]
    for name in (removal.recorded(job), default, removal.template_qos):
        if name and name in usable:
            return name
    return usable[0] if usable else removal.template_qos


def _association_of(job: JobRecord, accounting: Accounting) -> tuple[Sequence[str], str]:
    by_key = {row.key: row for row in accounting.associations}
    keys = [AssocKey(job.account, job.user, name) for name in (*job.partitions[:1], "")]
    row = next((by_key[key] for key in keys if key in by_key), None)
    return ((), "") if row is None else (row.qos, row.default)


def _has_one_of(job: JobRecord, names: frozenset[str] | set[str]) -> bool:
    return not names.isdisjoint(job.qos.split(","))


def _users(client: SlurmClient, names: set[str]) -> dict[str, list[JobId]]:
    """Jobs by the QOS that they still have; read after the move, so that nothing pending is missed."""
    found: dict[str, list[JobId]] = {}
    for job in client.observe().jobs:
        for name in names & set(job.qos.split(",")):
            found.setdefault(name, []).append(job.job_id)
    return found


def _has_running(client: SlurmClient, names: set[str], refused: Sequence[tuple[JobId, str]]) -> bool:
    stuck = {job_id for job_id, _ in refused}
    counts = Counter(job.job_id in stuck for job in client.observe().jobs if _has_one_of(job, names))
    return counts[False] > 0
