"""The result in words: the table of recoveries, the verdict, the page in the documentation."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.soak.killer import Kill
from tests.soak.stage import KINDS
from tests.soak.verdict import Accounts

if TYPE_CHECKING:
    from collections.abc import Sequence


PAGE: Final = "docs/explanation/soak.md"


@dataclass(slots=True, kw_only=True)
class Result:
    """Everything that one soak found; ``faults`` by check, all empty when it held."""

    seed: int
    seconds: float
    kills: list[Kill]
    accounts: Accounts
    samples: int
    unanswered: int
    peak: dict[str, int]
    uncounted: int
    beyond: int
    resumed: int
    limits: dict[str, int]
    cycles: int
    reclaims: int
    faults: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether every check held."""
        return not any(self.faults.values())


def spread(values: Sequence[float | None]) -> tuple[str, str, str]:
    """Median, 95th percentile and maximum in seconds."""
    known = sorted(value for value in values if value is not None)
    if not known or len(known) < len(values):
        return ("never", "never", "never") if not known else (*spread(known)[:2], "never")
    p95 = known[min(len(known) - 1, int(0.95 * len(known)))]
    return f"{statistics.median(known):.1f}", f"{p95:.1f}", f"{known[-1]:.1f}"


def recovery_table(kills: Sequence[Kill]) -> list[str]:
    """Markdown table of the times to recover by kind of process."""
    lines = [
        "| killed | times | serves again: median | P95 | max | next good cycle: median | P95 | max |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        mine = [kill for kill in kills if kill.kind == kind]
        cells = (*spread([kill.back_s for kill in mine]), *spread([kill.cycle_s for kill in mine]))
        lines.append(f"| {kind} | {len(mine)} | {' | '.join(cells)} |")
    return lines


def report(result: Result) -> str:
    """Everything in Markdown, as it is printed."""
    found = result.accounts
    table = "\n".join(recovery_table(result.kills))
    states = ", ".join(f"{count} {state}" for state, count in found.states.most_common())
    shapes = ", ".join(f"{count} {shape}" for shape, count in found.shapes.most_common())
    peak = ", ".join(
        f"{name.partition('_')[2].partition('_')[2]} {result.peak.get(name, 0)} of {limit}"
        for name, limit in result.limits.items()
    )
    text = f"""\
{len(result.kills)} kills in {result.seconds / 60:.1f} minutes, seed {result.seed};
{result.cycles} cycles of the rebalancer, {result.reclaims} reclaims.

Seconds from SIGKILL, the supervisor's pause of 1 s included:

{table}

* Jobs: {found.accepted} submissions accepted ({shapes}): {found.tasks} jobs and array tasks,
  {found.incarnations} rows in sacct with restarts. They ended as {states}.
* sbatch got no job {found.refusals} times because slurmctld was away, and was run again.
* {found.forgotten} submissions more were accepted and forgotten by Slurm itself: slurmctld saves its state at most
  every 5 s and was killed before.
* {found.repaired} jobs were closed by `sacctmgr show runawayjobs`: slurmctld was killed before slurmdbd knew
  of their end.
* GPUs running in {result.samples} samples ({result.unanswered} without an answer), most seen of the limit:
  {peak}.
* {result.uncounted} jobs ran without that Slurm counted their GPUs: a slurmctld that has just started may start a job
  before its nodes have registered. With what these had asked for, a limit was exceeded in {result.beyond} samples.
* Nodes were resumed {result.resumed} times: a slurmctld that was killed gives the ids of forgotten jobs again, and a
  node that still runs the old one is drained by Slurm for "Duplicate jobid".

| check | result |
|---|---|"""
    lines = text.splitlines()
    for check, faults in result.faults.items():
        lines.append(f"| {check} | {'holds' if not faults else f'{len(faults)} faults'} |")
    lines += [f"  {check}: {fault}" for check, faults in result.faults.items() for fault in faults[:20]]
    return "\n".join(lines)


def as_json(result: Result) -> dict[str, Any]:
    """Return the result as plain values."""
    return {
        "seed": result.seed,
        "seconds": round(result.seconds, 1),
        "kills": [
            {"kind": kill.kind, "at_s": round(kill.at_s, 2), "back_s": kill.back_s, "cycle_s": kill.cycle_s}
            for kill in result.kills
        ],
        "accepted": result.accounts.accepted,
        "tasks": result.accounts.tasks,
        "incarnations": result.accounts.incarnations,
        "refusals": result.accounts.refusals,
        "forgotten": result.accounts.forgotten,
        "repaired": result.accounts.repaired,
        "states": dict(result.accounts.states),
        "samples": result.samples,
        "peak": result.peak,
        "uncounted": result.uncounted,
        "beyond": result.beyond,
        "resumed": result.resumed,
        "cycles": result.cycles,
        "reclaims": result.reclaims,
        "faults": result.faults,
    }


def page(result: Result) -> str:
    """Return the page of the documentation."""
    return f"""# What random kills cost

`python -m tests.soak` (root) starts a mini-Slurm with bands, submits a seeded mix of short jobs of three agents (batch,
arrays, held, `--no-requeue`, srun; with and without tags) and kills a random one of seven processes with SIGKILL every
few seconds: hook server, rebalancer, QOS helper, slurmctld, slurmdbd, MariaDB, one of five slurmds. A supervisor starts
what died after one second, as the systemd units do after one or five. Afterwards it compares every submission with
sacct, the QOSes with the site file, and takes the bands out again. Exit code 0 means that every check held. A small
version is an end-to-end test.

## The run in this release

{report(result)}

## How to read it

* *Serves again*: the socket accepts, the lease is held, `squeue` or `sacctmgr` gets an answer. *Next good cycle*: the
  end of the first cycle with outcome ok that began after the kill. Other processes die meanwhile, so a time may hold
  the recovery of a neighbour; the rebalancer doubles its pause after each failure in a row. A command under way when
  its daemon dies waits for up to 10 s: `scontrol` for MessageTimeout, the helper for its `sacctmgr`.
* A quota is checked against the jobs that squeue shows as running, once per second.
* What Slurm itself loses when slurmctld is killed is counted apart. A submission counts as forgotten only if it was
  accepted within the time between two saves of the job state; anything older must be there.
* `scontrol` shows no Preempt list on any release; the lists are compared in slurmdbd, priorities and limits in both.

This page is written by `python -m tests.soak --page {PAGE}`.
"""
