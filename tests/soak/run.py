"""One soak from start to verdict."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurm_plugin.rebalancer.journal import GONE_AFTER_S
from tests.reclaims.queue import USERS
from tests.soak.killer import Killer
from tests.soak.stage import Stage
from tests.soak.tell import Result
from tests.soak.verdict import (
    account,
    drain,
    find_history_faults,
    find_orphans,
    find_traces,
    find_unplanned,
    note_cycles,
    query,
)
from tests.soak.watch import Watch, limits_of
from tests.soak.workload import Submission, Submitter

if TYPE_CHECKING:
    from collections.abc import Callable

SAY_EVERY_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to do.

    Attributes
    ----------
    rate : float
        Submissions per second of all agents together, in usual weather.
    longest_s : int
        Longest run time of a job, seconds.
    register_every_s : float
        How often nodes are asked at the end what runs on them.
    forget_s : float
        How long the queue is empty at the end; after ``GONE_AFTER_S`` the journals of the undo must be empty.
    """

    seconds: float = 1200.0
    kills: int = 300
    seed: int = 1
    rate: float = 0.8
    longest_s: int = 20
    register_every_s: float = 15.0
    forget_s: float = GONE_AFTER_S + 10
    is_kept: bool = False


def soak(settings: Settings, say: Callable[[str], None]) -> Result:
    """Run it; ``say`` gets a line every few seconds."""
    name = f"soak{os.getpid()}"
    began_s = time.monotonic()
    stage = Stage(name)
    try:
        stage.up()
        say(f"cluster {name} is up after {time.monotonic() - began_s:.0f} s")
        return _soak(stage, settings, say)
    finally:
        if not settings.is_kept:
            stage.down()


def _soak(stage: Stage, settings: Settings, say: Callable[[str], None]) -> Result:
    submitters = {agent: _submitter(stage, agent, settings) for agent in sorted(USERS)}

    def submissions() -> list[Submission]:
        return [one for submitter in submitters.values() for one in list(submitter.made)]

    watch = Watch(stage, submitters)
    watch.start()
    killer = Killer(stage, submissions, n_kills=settings.kills, seconds=settings.seconds, seed=settings.seed)
    began_s = time.monotonic()
    killer.run(_progress(killer, watch, submissions, say))
    seconds = time.monotonic() - began_s
    say("killing is over")
    stage.wait_all()
    faults = {"every process came back": [kill.kind for kill in killer.kills if kill.back_s is None]}
    for submitter in submitters.values():
        submitter.stop()
    unplanned = find_unplanned(stage)
    say("draining the queue")
    left = drain(stage, register_every_s=settings.register_every_s)
    for submitter in submitters.values():
        submitter.reap()
    watch.stop()
    time.sleep(settings.forget_s)
    codes = stage.stop_ours()
    say("checking")
    accounts = account(stage, submissions())
    faults["every accepted job is in sacct exactly once, and ended"] = left + accounts.wrong
    faults["no quota or cap was exceeded"] = watch.exceeded
    faults["pending jobs on borrowed quota have a reason"] = unplanned
    faults["a clean stop ends well"] = [f"{kind}: {code}" for kind, code in codes.items() if code != 0]
    faults["no orphaned change of a QOS"] = find_orphans(stage)
    faults["the history is whole"] = find_history_faults(stage, is_forgotten=settings.forget_s > GONE_AFTER_S)
    note_cycles(stage, killer.kills)
    counts = {table: query(stage, f"SELECT count(*) AS n FROM {table}")[0]["n"] for table in ("cycles", "reclaims")}  # noqa: S608 - names of ours
    faults["apply --remove leaves slurmdbd as it was"] = find_traces(stage)
    return Result(
        seed=settings.seed,
        seconds=seconds,
        kills=killer.kills,
        accounts=accounts,
        samples=watch.n_samples,
        unanswered=watch.n_unanswered,
        peak=dict(watch.peak),
        uncounted=len(watch.uncounted),
        beyond=watch.n_beyond,
        resumed=watch.n_resumed,
        limits=limits_of(stage.cluster.name),
        cycles=counts["cycles"],
        reclaims=counts["reclaims"],
        faults=faults,
    )


def _submitter(stage: Stage, agent: str, settings: Settings) -> Submitter:
    return Submitter(stage, agent, seed=settings.seed, rate=settings.rate, longest_s=settings.longest_s)


def _progress(
    killer: Killer, watch: Watch, submissions: Callable[[], list[Submission]], say: Callable[[str], None]
) -> Callable[[], None]:
    said_s = [float("-inf")]

    def tell() -> None:
        if time.monotonic() - said_s[0] < SAY_EVERY_S:
            return
        said_s[0] = time.monotonic()
        made = submissions()
        rows = watch.last
        say(
            f"{len(killer.kills)}/{killer.n_kills} kills, {len(made)} submissions, "
            f"{sum(row.state == 'RUNNING' for row in rows)} running, {sum(row.state == 'PENDING' for row in rows)} "
            f"pending, {sum(one.n_refused for one in made)} refusals, "
            f"{sum(one.forgotten_s is not None for one in made)} forgotten, over quota {len(watch.exceeded)}"
        )

    return tell
