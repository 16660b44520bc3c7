import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.fairness.share import standing_tag
from policies.fairness.site_factor import compute_site_factor
from slurm_plugin.errors import StaleStateError
from slurm_plugin.hook.standings import MAX_AGE_S, StandingsBook, parse_standings

FILE = {
    "version": 1,
    "at_s": 1000.0,
    "interval_s": 5.0,
    "mode": "enforce",
    "tres": ["cpu", "gres/gpu"],
    "capacity": [100, 10],
    "policy": "wdrf",
    "scale": 40_000,
    "agents": {"risk": {"weight": "1/2", "next": [0, 0]}, "idle": {"weight": "0", "next": [1, 0]}},
}


def book_at(**changes: object) -> StandingsBook:
    book = StandingsBook()
    book.offer(parse_standings(json.dumps(FILE | changes).encode()))
    return book


def test_standings_are_read() -> None:
    standings = parse_standings(json.dumps(FILE).encode())
    assert standings.weights["risk"] == Fraction(1, 2)
    assert standings.next_amounts["idle"] == (1, 0)


def test_qoses_are_read_where_the_file_has_them() -> None:
    agents = {"risk": {"weight": "1/2", "next": [0, 0], "qos": "fg_c_risk"}, "idle": {"weight": "0", "next": [1, 0]}}
    book = book_at(agents=agents)
    asked = [("risk", "fg_c_risk", 1000.0), ("risk", "fg_d_risk", 1000.0), ("idle", "fg_c_idle", 1000.0)]
    assert [book.has_qos(*one) for one in asked] == [True, False, False]
    assert not book.has_qos("risk", "fg_c_risk", 1000.1 + MAX_AGE_S)
    assert not StandingsBook().has_qos("risk", "fg_c_risk", 1000.0)


DAMAGED = {
    "no JSON": b"{",
    "not a mapping": b"[]",
    "another version": json.dumps(FILE | {"version": 2}).encode(),
    "an axis too few": json.dumps(FILE | {"tres": ["cpu"]}).encode(),
    "a weight that is none": json.dumps(FILE | {"agents": {"a": {"weight": "1/0", "next": [0, 0]}}}).encode(),
    "no agents": json.dumps({key: value for key, value in FILE.items() if key != "agents"}).encode(),
}


@pytest.mark.parametrize("raw", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_standings_are_refused(raw: bytes) -> None:
    with pytest.raises(StaleStateError):
        parse_standings(raw)


def test_without_standings_there_is_no_factor() -> None:
    assert StandingsBook().site_factor("risk", 1000.0) is None


def test_an_unknown_agent_has_no_factor() -> None:
    assert book_at().site_factor("vision", 1000.0) is None


def test_old_standings_set_no_factor() -> None:
    book = book_at()
    assert book.site_factor("risk", 1000.0 + MAX_AGE_S) == 40_000
    assert book.site_factor("risk", 1000.1 + MAX_AGE_S) is None


def test_weight_zero_with_something_held_sorts_last() -> None:
    assert book_at().site_factor("idle", 1000.0) == 1


def test_each_submission_lowers_the_next_factor() -> None:
    book = book_at()
    factors = []
    for _ in range(3):
        factors.append(book.site_factor("risk", 1000.0))
        book.advance("risk", {"cpu": 1, "gres/gpu": 1}, 1, 1000.0)
    # Tags 0, (1/10)/(1/2) = 0.2 and 0.4: 40000, 40000/1.2, 40000/1.4.
    assert factors == [40_000, 33_333, 28_571]


def test_an_array_counts_each_task() -> None:
    book = book_at()
    book.site_factor("risk", 1000.0)
    book.advance("risk", {"gres/gpu": 1}, 5, 1000.0)
    # 5 of 10 GPUs over weight 1/2: tag 1.
    assert book.site_factor("risk", 1000.0) == 20_000


def test_a_job_that_cannot_start_moves_nothing() -> None:
    book = book_at()
    book.site_factor("risk", 1000.0)
    book.advance("risk", {"gres/gpu": 11}, 1, 1000.0)
    assert book.site_factor("risk", 1000.0) == 40_000


def test_new_standings_replace_what_they_saw_and_keep_what_came_after() -> None:
    book = book_at()
    book.site_factor("risk", 1000.0)
    book.advance("risk", {"gres/gpu": 1}, 1, 1001.0)  # a test-only submission: the next cycle does not see a job
    book.advance("risk", {"gres/gpu": 1}, 1, 1006.0)  # after the next cycle looked
    book.offer(parse_standings(json.dumps(FILE | {"at_s": 1005.0}).encode()))
    assert book.site_factor("risk", 1006.0) == 33_333


def test_what_was_submitted_before_the_clock_was_set_back_counts_once() -> None:
    book = book_at()
    book.site_factor("risk", 1000.0)
    book.advance("risk", {"gres/gpu": 1}, 1, 1010.0)
    book.offer(parse_standings(json.dumps(FILE | {"at_s": 1000.0 - 3600}).encode()))
    book.site_factor("risk", 1001.0 - 3600)
    book.advance("risk", {"gres/gpu": 1}, 1, 1001.0 - 3600)
    once = book.site_factor("risk", 1002.0 - 3600)
    book.offer(parse_standings(json.dumps(FILE | {"at_s": 1005.0 - 3600}).encode()))
    assert book.site_factor("risk", 1006.0 - 3600) == book_at().site_factor("risk", 1000.0) != once


def test_other_axes_drop_what_came_between() -> None:
    book = book_at()
    book.site_factor("risk", 1000.0)
    book.advance("risk", {"gres/gpu": 1}, 1, 1006.0)
    changed = FILE | {"at_s": 1005.0, "tres": ["cpu", "mem"]}
    book.offer(parse_standings(json.dumps(changed).encode()))
    assert book.site_factor("risk", 1006.0) == 40_000


def test_the_hook_follows_the_rebalancers_policy() -> None:
    assert book_at(policy="constant").site_factor("risk", 1000.0) == 20_000


def test_standings_of_an_unknown_policy_are_refused() -> None:
    with pytest.raises(StaleStateError, match="magic"):
        parse_standings(json.dumps(FILE | {"policy": "magic"}).encode())


jobs = st.tuples(st.sampled_from(["risk", "idle"]), st.integers(0, 100), st.integers(0, 10), st.integers(1, 3))


@given(
    steps=st.lists(st.one_of(jobs, st.none()), max_size=12), start=st.tuples(st.integers(0, 500), st.integers(0, 50))
)
def test_the_factor_is_always_the_cores_factor_of_the_standing(
    steps: list[tuple[str, int, int, int] | None], start: tuple[int, int]
) -> None:
    agents = {"risk": {"weight": "3/7", "next": list(start)}, "idle": {"weight": "0", "next": [0, 0]}}
    book = book_at(agents=agents)
    capacity, weights = (100, 10), {"risk": Fraction(3, 7), "idle": Fraction(0)}
    standing = {"risk": start, "idle": (0, 0)}
    for step in steps:
        for agent, weight in weights.items():
            expected = compute_site_factor(standing_tag(standing[agent], capacity, weight), 40_000)
            assert book.site_factor(agent, 1000.0) == expected
        if step is None:  # the next cycle, which saw everything
            entries = {name: {"weight": str(weights[name]), "next": list(standing[name])} for name in weights}
            book.offer(parse_standings(json.dumps(FILE | {"agents": entries}).encode()))
        else:
            agent, cpus, gpus, n_tasks = step
            book.advance(agent, {"cpu": cpus, "gres/gpu": gpus}, n_tasks, 1000.0)
            standing[agent] = (standing[agent][0] + cpus * n_tasks, standing[agent][1] + gpus * n_tasks)
