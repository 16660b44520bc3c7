"""Make the changes, one command each: former values go to the journal first, so that a kill at any point loses none."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies.quota.names import Band, loan_band, own_prefix
from slurm_plugin.bands.accounting import TIMEOUT_S
from slurm_plugin.bands.changes import ChangeAssoc, DeleteQos, ModifyQos, command_for, describe, merge_equal
from slurm_plugin.bands.diff import former_values
from slurm_plugin.bands.journal import BandJournal
from slurm_plugin.client.command import Command, Runner, check
from slurm_plugin.errors import SlurmError, SlurmRejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_plugin.bands.accounting import Accounting
    from slurm_plugin.bands.changes import Change


_DONE: Final = ("Modified", "Adding", "Deleting")
"""What sacctmgr says when it did something."""

_LOOP: Final = "preemption loop detected"
_WAY_OUT: Final = (
    "slurmdbd keeps a wrong Preempt list in memory (22.05 does so once a list was emptied). "
    "Restart slurmdbd, then run 'fairgpu apply' again: what was done so far stays"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What the changes are made with.

    Attributes
    ----------
    runner : Runner
        Runs sacctmgr.
    say : callable
        Told about each change before it is made.
    """

    runner: Runner
    journal: BandJournal
    cluster: str
    say: Callable[[str], None]


def apply_changes(changes: Sequence[Change], accounting: Accounting, hands: Hands) -> None:
    """Make all changes in order; run it again after a failure or a kill, with a difference computed anew.

    Parameters
    ----------
    accounting : Accounting
        The state that the changes were computed from; its values are what the journal keeps.

    Raises
    ------
    SlurmError
        A command was refused; what was done so far stays.

    Notes
    -----
    Where slurmdbd reports a loop of Preempt lists, the borrow QOSes' lists are written anew, which mends what it has in
    memory, and the command is tried once more.
    """
    rows = {row.key: row for row in accounting.associations}
    ours = frozenset(hands.journal.created | {name for change in changes for name in _names_in(change)})
    for change in merge_equal(changes):
        if isinstance(change, ChangeAssoc):
            if change.add or change.default:
                hands.journal.note_assoc(change.key, former_values(rows[change.key], ours), at_s=time.time())
        elif not isinstance(change, DeleteQos):
            for name in change.name.split(","):
                hands.journal.note_qos(name, at_s=time.time())
        for line in describe(change):
            hands.say(line)
        try:
            _run(hands.runner, command_for(change, hands.cluster))
        except SlurmError as err:
            if _LOOP not in str(err).lower():
                raise
            _mend(change, _borrow_lists(changes, accounting), hands)


def _borrow_lists(changes: Sequence[Change], accounting: Accounting) -> tuple[Change, ...]:
    """Changes that write the borrow QOSes' lists as they are to be, changed or not; an empty list mends nothing."""
    prefix = own_prefix(accounting.cluster)
    lists = {row.name: row.fields["preempt"] for row in accounting.qos if row.name.startswith(prefix)}
    for change in changes:
        if isinstance(change, ModifyQos) and "preempt" in change.fields:
            lists[change.name] = change.fields["preempt"][1]
    borrow = [(names, name) for name, names in lists.items() if names and loan_band(name) is Band.BORROW]
    return merge_equal([ModifyQos(name=name, fields={"preempt": ("", names)}) for names, name in sorted(borrow)])


def _mend(change: Change, lists: Sequence[Change], hands: Hands) -> None:
    hands.say("slurmdbd reports a loop of Preempt lists: the borrow QOSes' lists are written anew")
    try:
        for one in (*lists, change):
            _run(hands.runner, command_for(one, hands.cluster))
    except SlurmError as err:
        raise SlurmRejected(f"{err} {_WAY_OUT}") from err


def _run(runner: Runner, argv: tuple[str, ...]) -> None:
    result = runner(Command(argv=argv, timeout_s=TIMEOUT_S))
    # sacctmgr exits with 0 where slurmdbd refuses a default QOS that somebody below may not use.
    if not any(word in check(result, argv) for word in _DONE):
        text = " ".join((result.stderr or result.stdout).split())
        raise SlurmRejected(f"{' '.join(argv)}: nothing was changed. {text}")


def _names_in(change: Change) -> tuple[str, ...]:
    if isinstance(change, ChangeAssoc):
        return change.add
    return tuple(change.name.split(","))
