"""The daemon's state machine, event by event."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.rebalancer.daemon_state import (
    MAX_BACKOFF_S,
    MAX_DENIED_PAUSE_S,
    CycleEnded,
    DaemonState,
    Event,
    Exit,
    Look,
    Looked,
    Outcome,
    Phase,
    ReloadAsked,
    Reloaded,
    ReloadSite,
    ResetEnded,
    ResetFactors,
    RunCycle,
    Sleep,
    StopAsked,
    Woke,
    step,
)

START = DaemonState(interval_s=5.0)
ON = Looked(off_stamp=None, is_primary=True)
OFF = Looked(off_stamp=(7, 7), is_primary=True)


def test_on_and_primary_runs_a_cycle_after_each_wake() -> None:
    state, instruction = step(START, Woke())
    assert instruction == Look()
    assert step(state, ON)[1] == RunCycle()


def test_sleep_is_what_the_cycle_left_of_the_interval() -> None:
    assert step(START, CycleEnded(outcome=Outcome.OK, elapsed_s=1.5))[1] == Sleep(seconds=3.5)


def test_a_cycle_slower_than_its_interval_still_pauses() -> None:
    assert step(START, CycleEnded(outcome=Outcome.OK, elapsed_s=60.0))[1] == Sleep(seconds=0.5)


def test_unreachable_slurm_is_asked_less_and_less_often_and_at_once_normal_again() -> None:
    state, pauses = START, []
    for _ in range(4):
        state, instruction = step(state, CycleEnded(outcome=Outcome.UNAVAILABLE))
        assert isinstance(instruction, Sleep)
        pauses.append(instruction.seconds)
    assert pauses == [5.0, 10.0, 20.0, 30.0]
    assert step(state, CycleEnded(outcome=Outcome.OK))[0].failures == 0


def test_a_refused_permission_waits_up_to_a_minute() -> None:
    state, pauses = START, []
    for _ in range(6):
        state, instruction = step(state, CycleEnded(outcome=Outcome.DENIED))
        assert isinstance(instruction, Sleep)
        pauses.append(instruction.seconds)
    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_a_doubtful_observation_is_no_failure() -> None:
    state, instruction = step(START, CycleEnded(outcome=Outcome.STALE))
    assert (state.failures, instruction) == (0, Sleep(seconds=5.0))


def test_off_resets_until_two_in_a_row_found_nothing_then_idles() -> None:
    state = START
    for n_touched in (3, 0, 1, 0):
        state, instruction = step(state, OFF)
        assert instruction == ResetFactors()
        state, _ = step(state, ResetEnded(outcome=Outcome.OK, n_touched=n_touched))
        assert state.phase is Phase.RESETTING
    state, _ = step(state, ResetEnded(outcome=Outcome.OK, n_touched=0))
    assert state.phase is Phase.OFF
    assert step(state, OFF) == (state, Sleep(seconds=5.0))


def test_on_and_off_between_two_looks_resets_again() -> None:
    # The hook was at work in between, unseen: what it set is in the queue.
    done = replace(START, phase=Phase.OFF, clean_resets=2, off_stamp=(7, 7))
    assert step(done, OFF) == (done, Sleep(seconds=5.0))
    state, instruction = step(done, Looked(off_stamp=(8, 8), is_primary=True))
    assert (state.phase, state.clean_resets, instruction) == (Phase.RESETTING, 0, ResetFactors())


def test_a_failed_reset_is_tried_again() -> None:
    state, _ = step(START, OFF)
    state, _ = step(state, ResetEnded(outcome=Outcome.UNAVAILABLE))
    assert step(state, OFF)[1] == ResetFactors()


def test_on_resumes_from_off() -> None:
    assert step(replace(START, phase=Phase.OFF), ON) == (START, RunCycle())


def test_a_backup_controller_only_waits_even_when_off() -> None:
    state, instruction = step(START, Looked(off_stamp=(7, 7), is_primary=False))
    assert (state.phase, instruction) == (Phase.STANDBY, Sleep(seconds=5.0))


def test_a_new_primary_takes_over() -> None:
    assert step(replace(START, phase=Phase.STANDBY), ON)[1] == RunCycle()


def test_reload_keeps_the_phase_and_takes_the_new_interval() -> None:
    off = replace(START, phase=Phase.OFF)
    assert step(off, ReloadAsked()) == (off, ReloadSite())
    assert step(off, Reloaded(interval_s=2.0)) == (replace(off, interval_s=2.0), Look())


@pytest.mark.parametrize("phase", Phase)
def test_stop_ends_from_every_phase(phase: Phase) -> None:
    state, instruction = step(replace(START, phase=phase), StopAsked())
    assert instruction == Exit()
    assert step(state, Woke())[1] == Exit()


EVENTS = st.one_of(
    st.just(Woke()),
    st.builds(Looked, off_stamp=st.sampled_from([None, (7, 7), (8, 8)]), is_primary=st.booleans()),
    st.builds(CycleEnded, outcome=st.sampled_from(Outcome), elapsed_s=st.floats(0, 1e6)),
    st.builds(ResetEnded, outcome=st.sampled_from(Outcome), n_touched=st.integers(0, 9)),
    st.just(ReloadAsked()),
    st.builds(Reloaded, interval_s=st.floats(0.1, 60)),
)


@given(st.lists(EVENTS, max_size=30))
def test_whatever_happens_the_pause_is_positive_and_bounded(events: list[Event]) -> None:
    state = START
    for event in events:
        state, instruction = step(state, event)
        if isinstance(instruction, Sleep):
            assert 0 < instruction.seconds <= max(MAX_BACKOFF_S, MAX_DENIED_PAUSE_S, state.interval_s)


@given(st.lists(EVENTS, max_size=30))
def test_a_cycle_runs_only_right_after_a_look_that_saw_on_and_primary(events: list[Event]) -> None:
    state = START
    for event in events:
        state, instruction = step(state, event)
        assert (instruction == RunCycle()) == (event == ON)
