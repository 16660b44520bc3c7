"""Many states, many cycles, one tally."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies.cycle import decide
from policies.plan import SetPreemptList
from tests.harness.checks import Judge, Tally
from tests.harness.world import CYCLE_S, PASSES, START_S, enact, make_world, observe, submit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policies.plan import BandMemory
    from tests.harness.guards import Removal


def run_states(
    seeds: Iterable[int], n_cycles: int, *, removal: Removal | None = None, stop_at: str | None = None
) -> Tally:
    """Run each state for ``n_cycles``; with ``stop_at`` end after the first state that breaks that check."""
    tally = Tally()
    for seed in seeds:
        _run_one(seed, n_cycles, tally, removal)
        if stop_at is not None and tally.broken[stop_at]:
            break
    return tally


def _run_one(seed: int, n_cycles: int, tally: Tally, removal: Removal | None) -> None:
    world = make_world(seed)
    judge = Judge(world, tally)
    memory: tuple[BandMemory, ...] = ()
    for cycle in range(n_cycles):
        now = START_S + cycle * CYCLE_S
        world.slurm.finish(now)
        submit(world, now)
        inputs = (observe(world, now), world.site, memory)
        observation, site, told = inputs if removal is None else removal.inputs(inputs)
        plan = decide(observation, site, (), told, now=now)
        memory = plan.band_memory
        tally.list_writes += len({one.new for one in plan.decisions if isinstance(one, SetPreemptList)})
        enact(world, plan if removal is None else removal.plan(world, plan), now)
        judge.after_plan(now)
        for number in range(PASSES):
            at_s = now + (number + 0.5) * CYCLE_S / PASSES
            world.slurm.finish(at_s)
            world.slurm.run_pass(at_s, judge.on_start)
            judge.after_pass(at_s)
