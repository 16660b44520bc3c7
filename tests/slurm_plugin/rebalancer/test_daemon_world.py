"""Any order of events and faults: the switch and the mode are obeyed, and calm brings the planned state."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from policies.cycle import decide
from slurm_plugin.rebalancer.daemon import Daemon, Signals
from slurm_plugin.rebalancer.daemon_state import DaemonState, Event, Look, Phase, Sleep, Woke, step
from slurm_plugin.rebalancer.observe import GroupCache, observe
from slurm_plugin.site.switch import is_off, turn_off, turn_on
from tests.slurm_plugin.rebalancer.band_world import FULL_RISK, RISK, BandWorld
from tests.slurm_plugin.rebalancer.world import SCALE, World, make_job

if TYPE_CHECKING:
    from policies.records import JobId

SUBMITTED = "normal"
"""QOS of every job at its submission."""

FOREIGN = st.sampled_from([0, 0, 0, -7, SCALE + 5, 123])


class DaemonMachine(RuleBasedStateMachine):
    """A daemon over FakeSlurm; updates get lost or late, the controller goes away, the daemon is killed."""

    WORLD: ClassVar[type[World]] = World

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.world = self.WORLD(Path(self._directory.name))
        self.former: dict[JobId, int] = {}
        self.hooked: dict[JobId, int] = {}
        self.number = 0
        self._start()

    def teardown(self) -> None:
        self.world.rebalancer.history.close()
        self._directory.cleanup()

    def _start(self) -> None:
        self.daemon = Daemon(rebalancer=self.world.rebalancer, signals=Signals(), wait=self.world.advance)
        self.state, self.event = DaemonState(interval_s=5.0), self._woke()

    @staticmethod
    def _woke() -> Event:
        return Woke()

    @initialize(mode=st.sampled_from(["enforce", "enforce", "enforce", "observe"]), factor=FOREIGN)
    def choose_mode(self, mode: str, factor: int) -> None:
        self.world.rebalancer.history.close()
        self.world = self.WORLD(Path(self._directory.name), mode=mode)
        self._start()
        self.submit([("risk", factor), ("rec", 0)])

    @rule(jobs=st.lists(st.tuples(st.sampled_from(["risk", "rec"]), FOREIGN), min_size=1, max_size=4))
    def submit(self, jobs: list[tuple[str, int]]) -> None:
        for account, wanted in jobs:
            self.number += 1
            # A value in our range stands for the hook's; while off the hook sets none.
            factor = 0 if 1 <= wanted <= SCALE and is_off(self.world.site) else wanted
            now_s = int(self.world.now_s)
            job = make_job(self.number, account, site_factor=factor, submit_s=now_s, eligible_s=now_s, qos=SUBMITTED)
            self.world.slurm.add_job(job)
            self.former[job.job_id] = 0 if 1 <= factor <= SCALE else factor
            self.hooked[job.job_id] = factor

    @rule(what=st.sampled_from(["start", "start", "finish", "requeue"]), choice=st.integers(0, 10))
    def move_job(self, what: str, choice: int) -> None:
        job_id = self._choose(choice, is_pending=what == "start")
        if job_id is None:
            return
        if what == "start":
            self.world.slurm.start_job(job_id, nodes="node01")
        elif what == "requeue":
            self.world.slurm.requeue_job(job_id, delay_s=0)
        else:
            self.world.slurm.finish_job(job_id)
            del self.former[job_id]

    @rule(what=st.sampled_from(["lose", "delay", "away"]), number=st.integers(1, 4))
    def go_wrong(self, what: str, number: int) -> None:
        slurm = self.world.slurm
        {"lose": slurm.lose_updates, "delay": slurm.delay_updates, "away": slurm.be_unavailable}[what](number)

    @rule()
    def switch(self) -> None:
        if is_off(self.world.site):
            turn_on(self.world.site)
        else:
            turn_off(self.world.site)

    @rule()
    def kill(self) -> None:
        self.world.rebalancer.history.close()
        self.world.restart()
        self._start()

    @rule(n_steps=st.integers(1, 6))
    def run(self, n_steps: int) -> None:
        for _ in range(n_steps):
            self._step()

    @rule()
    def calm(self) -> None:
        """No more faults: after a few cycles the world is as it should be."""
        slurm = self.world.slurm
        slurm.lose_updates(0)
        slurm.delay_updates(0)
        slurm.be_unavailable(0)
        for _ in range(12):
            self._cycle()
        if is_off(self.world.site):
            self._check_restored()
        elif self.world.site.policy.mode.value == "enforce":
            self._check_planned()

    @invariant()
    def observe_mode_never_writes(self) -> None:
        if self.world.site.policy.mode.value == "observe":
            assert all(value == self.former.get(job_id, 0) for job_id, value in self.world.slurm.written)
            assert all(qos == SUBMITTED for _, qos in self.world.slurm.moved)

    def _step(self) -> None:
        before, was_off = len(self.world.slurm.written), is_off(self.world.site)
        n_moved = len(self.world.slurm.moved)
        self.state, instruction = step(self.state, self.event)
        self.event = self.daemon.perform(instruction)
        news = self.world.slurm.written[before:]
        if was_off:
            assert all(value == self.former[job_id] for job_id, value in news)
            assert all(qos == SUBMITTED for _, qos in self.world.slurm.moved[n_moved:])
        if isinstance(instruction, Look | Sleep):
            assert not news
            assert len(self.world.slurm.moved) == n_moved

    def _cycle(self) -> None:
        self._step()
        while not isinstance(step(self.state, self.event)[1], Look):
            self._step()

    def _check_restored(self) -> None:
        assert self.state.phase is Phase.OFF
        for job in self.world.slurm.observe().jobs:
            # A job that started before any cycle saw it shows the hook's factor only when it is requeued; off or not,
            # nobody looks then.
            may_show = {None, self.former[job.job_id], self.hooked[job.job_id] if job.restarts else None}
            assert job.site_factor in may_show
        # What ran on borrowed quota when off came keeps its QOS, also when it is requeued later.
        waiting = [job for job in self.world.slurm.observe().jobs if job.state.is_pending and not job.restarts]
        assert {job.qos for job in waiting} <= {SUBMITTED}

    def _check_planned(self) -> None:
        rebalancer = self.world.rebalancer
        seen = observe(self.world.slurm, self.world.site, GroupCache())
        plan = decide(seen, self.world.site.policy, rebalancer.sla_memory, rebalancer.band_memory, now=seen.at_s)
        assert plan.decisions == ()

    def _choose(self, choice: int, *, is_pending: bool) -> JobId | None:
        jobs = [job.job_id for job in self.world.slurm._jobs.values() if job.state.is_pending == is_pending]
        return jobs[choice % len(jobs)] if jobs else None


class BandMachine(DaemonMachine):
    """The same with bands: jobs are moved between QOSes, Preempt lists are steered, the helper comes and goes."""

    WORLD: ClassVar[type[World]] = BandWorld

    @rule(is_away=st.booleans())
    def lose_helper(self, is_away: bool) -> None:  # noqa: FBT001 - a rule's argument
        assert isinstance(self.world, BandWorld)
        self.world.helper.is_away = is_away

    @rule()
    def calm(self) -> None:
        """Nothing is wrong any more: besides, the lists are full while off."""
        assert isinstance(self.world, BandWorld)
        self.world.helper.is_away = False
        super().calm()
        if is_off(self.world.site):
            assert self.world.slurm.qos(RISK).preempt == FULL_RISK


DaemonMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
BandMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestDaemonInAnyOrder = DaemonMachine.TestCase
TestBandsInAnyOrder = BandMachine.TestCase
