"""Make the changes, one command each: former values go to the journal first, so that a kill at any point loses none."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurm_plugin.bands.accounting import TIMEOUT_S
from slurm_plugin.bands.changes import ChangeAssoc, DeleteQos, command_for, describe, merge_equal
from slurm_plugin.bands.diff import former_values
from slurm_plugin.bands.journal import BandJournal
from slurm_plugin.client.command import Command, Runner, check
from slurm_plugin.errors import SlurmRejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm_plugin.bands.accounting import Accounting
    from slurm_plugin.bands.changes import Change


_DONE: Final = ("Modified", "Adding", "Deleting")
"""What sacctmgr says when it did something."""


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
        _run(hands.runner, command_for(change, hands.cluster))


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
