"""Killed, unanswered or heard twice at any write: the queue becomes as planned, and everything can be taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from policies.cycle import decide
from policies.records import JobId
from slurm_plugin.errors import SlurmUnavailable
from slurm_plugin.qos_helper.client import HelperUnavailableError
from slurm_plugin.rebalancer.daemon import recent_memory
from slurm_plugin.rebalancer.journal import GONE_AFTER_S
from slurm_plugin.rebalancer.observe import GroupCache, observe
from slurm_plugin.rebalancer.reset import reset_effects
from tests.slurm_plugin.rebalancer.band_world import FULL_RISK, REC, RISK, BandWorld
from tests.slurm_plugin.rebalancer.world import make_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CALM_CYCLES: Final = 6
WRITES: Final = ("set_site_factors", "set_job_qos", "start_now")


class Killed(BaseException):
    """SIGKILL: nothing of ours catches it."""


class Faulty:
    """Lets the n-th write to Slurm or to a QOS go wrong."""

    def __init__(self, world: BandWorld, at: int, what: str, patch: pytest.MonkeyPatch) -> None:
        self.n_writes, self._at, self._what = 0, at, what
        for name in WRITES:
            patch.setattr(world.slurm, name, self._wrap(getattr(world.slurm, name), SlurmUnavailable("timed out")))
        # One change of the group that the helper is asked for.
        silence = HelperUnavailableError("no answer")
        patch.setattr(world.helper, "_apply", self._wrap(world.helper._apply, silence))

    def _wrap(self, write: Callable[..., Any], silence: Exception) -> Callable[..., Any]:
        def call(*args: object) -> object:
            self.n_writes += 1
            if self.n_writes != self._at:
                return write(*args)
            if self._what == "killed before it":
                raise Killed
            write(*args)
            if self._what == "killed after it":
                raise Killed
            if self._what == "no answer":
                raise silence
            return write(*args)

        return call


def gpus(number: int, account: str, n_gpus: int, **changes: object) -> Any:
    tres = (("cpu", n_gpus), ("gres/gpu", n_gpus), ("mem", 1024))
    return make_job(number, account, tres=tres, **{"qos": f"fg_fake_{account}", **changes})


def make_world(path: Path) -> BandWorld:
    """Rec holds its quota and has loans and waiting jobs, one of them with a factor and a QOS of the site's own."""
    path.mkdir()
    jobs = [gpus(1, "rec", 4), gpus(2, "rec", 2), gpus(3, "rec", 1, qos=f"{REC}_opp")]
    waiting = [gpus(number, "rec", 1, reason="QOSGrpGRES") for number in range(4, 9)]
    own = gpus(9, "rec", 1, qos="normal", site_factor=-7)
    world = BandWorld(path, *jobs, *waiting, own, gpus(10, "risk", 2, qos="normal"))
    for number in (1, 2, 3):
        world.slurm.start_job(JobId(str(number)), nodes=f"node0{number}")
    world.slurm.requeue_job(JobId("3"))
    return world


def shown(world: BandWorld) -> dict[str, tuple[int | None, str]]:
    return {job.job_id: (world.factor(job.job_id), job.qos) for job in world.slurm.observe().jobs}


def cycles(world: BandWorld, patch: pytest.MonkeyPatch) -> None:
    for _ in range(CALM_CYCLES):
        try:
            world.cycle()
        except Killed:
            patch.undo()
            world.restart()


@pytest.mark.parametrize("what", ["killed before it", "killed after it", "no answer", "done twice"])
def test_whatever_happens_to_a_write_the_plan_is_reached_and_can_be_undone(tmp_path: Path, what: str) -> None:
    n_writes = count_writes(tmp_path / "0")
    assert n_writes >= 5
    for number in range(1, n_writes + 1):
        world = make_world(tmp_path / str(number))
        before = shown(world)
        with pytest.MonkeyPatch.context() as patch:
            Faulty(world, number, what, patch)
            cycles(world, patch)
        assert_planned(world)
        report = reset_effects(world.site, world.slurm, helper=world.helper, history=world.rebalancer.history)
        assert not report.failed
        after = shown(world) | {"3": before["3"]}  # it waited in a band of ours before we came
        assert after == before
        assert world.slurm.qos(RISK).preempt == FULL_RISK
        world.rebalancer.history.close()


def count_writes(path: Path) -> int:
    world = make_world(path)
    with pytest.MonkeyPatch.context() as patch:
        faulty = Faulty(world, 0, "", patch)
        cycles(world, patch)
    assert_planned(world)
    return faulty.n_writes


def assert_planned(world: BandWorld) -> None:
    rebalancer = world.rebalancer
    seen = observe(world.slurm, world.site, GroupCache())
    assert decide(seen, world.site.policy, (), rebalancer.band_memory, now=seen.at_s).decisions == ()


def test_a_job_that_slurm_shows_again_keeps_its_former_values(tmp_path: Path) -> None:
    world = BandWorld(tmp_path, make_job(1, "rec", qos="normal", site_factor=-7))
    world.cycle()
    job = world.slurm.job(JobId("1"))
    world.slurm.finish_job(job.job_id)
    world.cycle(GONE_AFTER_S / 2)
    world.slurm.add_job(job)  # slurmctld was killed before it had saved that the job ended
    world.cycle(GONE_AFTER_S)
    reset_effects(world.site, world.slurm, helper=world.helper, history=world.rebalancer.history)
    assert shown(world) == {"1": (-7, "normal")}


def test_a_reclaim_while_nobody_runs_is_told_by_the_successor(tmp_path: Path) -> None:
    world = BandWorld(tmp_path, gpus(1, "rec", 1, qos=f"{REC}_borrow"))
    world.slurm.start_job(JobId("1"), nodes="node01")
    world.cycle()
    world.slurm.requeue_job(JobId("1"))
    world.restart()
    world.reporter.before = recent_memory(world.site, now_s=world.now_s).seen
    world.cycle()
    (row,) = world.rebalancer.history.query("SELECT job_id, agent FROM reclaims")
    assert row == {"job_id": "1", "agent": "rec"}


def test_a_cycle_that_died_before_its_report_loses_no_former_value(tmp_path: Path) -> None:
    world = BandWorld(tmp_path, make_job(1, "rec", qos="normal", site_factor=-7))
    world.advance(5.0)
    world.rebalancer.run_cycle()
    world.restart()
    world.cycle()
    reset_effects(world.site, world.slurm, helper=world.helper, history=world.rebalancer.history)
    assert shown(world) == {"1": (-7, "normal")}
