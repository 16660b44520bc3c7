"""What must change in slurmdbd, exactly: present state against the goal, in an order that is safe to be cut anywhere.

First the QOSes (nobody may use them yet), then their Preempt lists (borrow ones first: slurmdbd 22.05 may have a wrong
one in memory and then refuses those that name its QOS), then who may use them, then what associations no
longer get. Priorities of borrow QOSes and Preempt lists move while the rebalancer runs; it writes them, not ``apply``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from policies.quota.layout import HIGHEST_BORROW_PRIORITY, LOWEST_BORROW_PRIORITY
from policies.quota.names import Band
from slurm_plugin.bands.changes import Change, ChangeAssoc, CreateQos, ModifyQos
from slurm_plugin.bands.journal import FormerAssoc

if TYPE_CHECKING:
    from policies.records import JobRecord
    from slurm_plugin.bands.accounting import Accounting, AssocRow, QosRow
    from slurm_plugin.bands.desired import AssocGoal, Desired, QosSpec
    from slurm_plugin.bands.journal import BandJournal


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What ``apply`` has to do.

    Attributes
    ----------
    changes : tuple of Change
        In order.
    retired : tuple of str
        QOSes of ours that no agent has any more: deleted once unused.
    closed : tuple of str
        QOSes that stay, although nobody may use them: jobs that wait in them are moved.
    running, waiting : mapping of str to int
        Jobs that hold resources in those QOSes, and jobs that wait in them.
    """

    changes: tuple[Change, ...]
    retired: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    running: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)

    @property
    def to_delete(self) -> tuple[str, ...]:
        """Retired QOSes that ``apply`` can empty and delete: those that only run jobs stay until these have ended."""
        return tuple(name for name in self.retired if not self.running.get(name))

    @property
    def to_empty(self) -> tuple[str, ...]:
        """QOSes that remain, but whose waiting jobs ``apply`` moves elsewhere."""
        remaining = (*self.closed, *(name for name in self.retired if self.running.get(name)))
        return tuple(name for name in remaining if self.waiting.get(name))

    @property
    def is_empty(self) -> bool:
        """Whether slurmdbd is as the site file wants it, but for what running jobs keep."""
        return not (self.changes or self.to_delete or self.to_empty)


def compute_difference(
    desired: Desired,
    accounting: Accounting,
    journal: BandJournal,
    *,
    jobs: Iterable[JobRecord] = (),
    is_steered: bool = False,
) -> Difference:
    """Return the difference.

    Parameters
    ----------
    desired : Desired
        Empty to remove everything of ours.
    jobs : iterable of JobRecord
        All jobs of the cluster.
    is_steered : bool
        A rebalancer runs: ranks within their range and shortened Preempt lists are its doing, no difference.
    """
    present = {row.name: row for row in accounting.qos}
    wanted = {spec.name for spec in desired.qos}
    ours = frozenset(wanted | journal.created)
    seen = tuple(jobs)
    return Difference(
        changes=(
            *_created(desired.qos, present),
            *_modified(desired.qos, present, is_steered=is_steered),
            *_associations(desired, accounting, journal, ours),
        ),
        retired=tuple(sorted(name for name in journal.created - wanted - desired.closed if name in present)),
        closed=tuple(sorted(desired.closed)),
        running=_count(job for job in seen if not job.state.is_pending),
        waiting=_count(job for job in seen if job.state.is_pending),
    )


def _count(jobs: Iterable[JobRecord]) -> Counter[str]:
    return Counter(name for job in jobs for name in job.qos.split(","))


def former_values(row: AssocRow, ours: frozenset[str]) -> FormerAssoc:
    """Return what was on an association before us; a QOS of ours there is none of the site's."""
    return FormerAssoc(
        own_qos=tuple(word for word in row.own_qos if word.lstrip("+-") not in ours),
        own_default="" if row.own_default in ours else row.own_default,
    )


def _created(specs: tuple[QosSpec, ...], present: Mapping[str, QosRow]) -> list[Change]:
    new = [
        CreateQos(name=spec.name, fields={word: text for word, text in spec.fields.items() if word != "preempt"})
        for spec in specs
        if spec.name not in present
    ]
    # Equal ones side by side: they can be made by one command.
    return [*sorted(new, key=lambda change: (sorted(change.fields.items()), change.name))]


def _modified(specs: tuple[QosSpec, ...], present: Mapping[str, QosRow], *, is_steered: bool) -> list[Change]:
    others: list[Change] = []
    preempt: list[ModifyQos] = []
    steered = frozenset(spec.name for spec in specs) if is_steered else None
    is_borrow = {spec.name: spec.band is Band.BORROW for spec in specs}
    for spec in specs:
        row = present.get(spec.name)
        fields = {"preempt": ("", spec.fields["preempt"])} if row is None else _field_changes(spec, row, steered)
        if row is None and not spec.fields["preempt"]:
            fields = {}
        if "preempt" in fields:
            preempt.append(ModifyQos(name=spec.name, fields={"preempt": fields.pop("preempt")}))
        if fields:
            others.append(ModifyQos(name=spec.name, fields=fields))
    preempt.sort(key=lambda change: (not is_borrow[change.name], change.fields["preempt"][1], change.name))
    return [*others, *preempt]


def _field_changes(spec: QosSpec, row: QosRow, steered: frozenset[str] | None) -> dict[str, tuple[str, str]]:
    return {
        word: (row.fields[word], wanted)
        for word, wanted in sorted(spec.fields.items())
        if word in row.fields
        and row.fields[word] != wanted
        and not (steered is not None and _is_rebalancers(spec, word, row.fields[word], steered))
    }


def _is_rebalancers(spec: QosSpec, word: str, found: str, steered: frozenset[str]) -> bool:
    """Whether a difference is the rebalancer's doing; in lists it moves the bands of the agents alone."""
    if word == "priority" and spec.band is Band.BORROW:
        return LOWEST_BORROW_PRIORITY <= int(found or 0) <= HIGHEST_BORROW_PRIORITY
    if word == "preempt" and spec.band is not Band.OPPORTUNISTIC:
        wanted = set(spec.fields["preempt"].split(","))
        return wanted - steered <= set(filter(None, found.split(","))) <= wanted
    return False


def _associations(desired: Desired, accounting: Accounting, journal: BandJournal, ours: frozenset[str]) -> list[Change]:
    goals = {goal.key: goal for goal in desired.associations}
    known = frozenset(row.name for row in accounting.qos) | {spec.name for spec in desired.qos}
    shared = {row.key[:2] for row in accounting.associations if row.key.partition}
    found: list[ChangeAssoc] = []
    for row in accounting.associations:
        change = _assoc_change(row, goals.get(row.key), ours, journal.former.get(row.key))
        change = _without_lost_default(change, known)
        if change is not None:
            is_shared = bool(row.key.user) and row.key[:2] in shared
            found.append(replace(change, assoc_id=row.assoc_id) if is_shared else change)
    return _in_order(found)


def _in_order(changes: list[ChangeAssoc]) -> list[Change]:
    """Lists grow before defaults move, and shrink after that; defaults and losses begin with the users.

    Slurm refuses a default that somebody below may not use, and the loss of a QOS that is somebody's default.
    """
    grow = [_part(change, "add") for change in changes if change.add]
    switch = [_part(change, "default") for change in changes if change.default is not None]
    shrink = [_part(change, "remove", "is_cleared") for change in changes if change.remove or change.is_cleared]
    return [*grow, *_users_first(switch), *_users_first(shrink)]


def _users_first(changes: list[ChangeAssoc]) -> list[ChangeAssoc]:
    return sorted(changes, key=lambda change: not change.key.user)


def _part(change: ChangeAssoc, *kept: str) -> ChangeAssoc:
    nothing: dict[str, Any] = {"add": (), "remove": (), "is_cleared": False, "default": None}
    return replace(change, **{name: value for name, value in nothing.items() if name not in kept})


def _assoc_change(
    row: AssocRow, goal: AssocGoal | None, ours: frozenset[str], former: FormerAssoc | None
) -> ChangeAssoc | None:
    own = {word.lstrip("+") for word in row.own_qos if not word.startswith("-")}
    wanted = frozenset(goal.qos) if goal is not None else frozenset()
    barred = {word[1:] for word in row.own_qos if word.startswith("-")}
    inherited = set(goal.inherited) - barred if goal is not None and row.is_inheriting else set()
    add = tuple(sorted(wanted - own - inherited))
    remove = tuple(sorted((own & ours) - wanted))
    rest = [word for word in row.own_qos if word.lstrip("+-") not in ours]
    is_cleared = not wanted and not rest and bool(row.own_qos)
    default = _default_change(row, goal, ours, former)
    if not (add or remove or is_cleared or default is not None):
        return None
    return ChangeAssoc(
        key=row.key,
        own_qos=row.own_qos,
        own_default=row.own_default,
        add=add,
        remove=() if is_cleared else remove,
        is_cleared=is_cleared,
        default=default,
    )


def _default_change(
    row: AssocRow, goal: AssocGoal | None, ours: frozenset[str], former: FormerAssoc | None
) -> str | None:
    if goal is not None and goal.default is not None:
        is_right = row.own_default == goal.default or (bool(row.key.user) and not row.own_default)
        return None if is_right else goal.default
    if row.own_default not in ours:
        return None
    return former.own_default if former is not None else ""


def _without_lost_default(change: ChangeAssoc | None, known: frozenset[str]) -> ChangeAssoc | None:
    """A former default QOS that was deleted since cannot come back."""
    if change is None or not change.default or change.default in known:
        return change
    return replace(change, default="")
