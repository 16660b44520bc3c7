"""The token bucket."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.rebalancer.rate_limit import TokenBucket


def test_a_full_bucket_grants_one_interval_at_once() -> None:
    granted, bucket = TokenBucket.full(rate_per_s=20, interval_s=5, now_s=0).take(1000, now_s=0)
    assert granted == 100
    assert bucket.take(1, now_s=0)[0] == 0


def test_tokens_come_back_with_time() -> None:
    _, bucket = TokenBucket.full(rate_per_s=20, interval_s=5, now_s=0).take(100, now_s=0)
    assert bucket.take(1000, now_s=2)[0] == 40


def test_a_slow_rate_still_lets_one_through() -> None:
    assert TokenBucket.full(rate_per_s=0.1, interval_s=1, now_s=0).take(5, now_s=0)[0] == 1


def test_a_clock_that_steps_back_gives_nothing() -> None:
    _, bucket = TokenBucket.full(rate_per_s=1, interval_s=5, now_s=100).take(5, now_s=100)
    assert bucket.take(5, now_s=50)[0] == 0


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 500)), max_size=30))
def test_never_more_than_the_burst_plus_the_rate(asks: list[tuple[float, int]]) -> None:
    bucket, now_s, total = TokenBucket.full(rate_per_s=20, interval_s=5, now_s=0), 0.0, 0
    for pause_s, wanted in asks:
        now_s += pause_s
        granted, bucket = bucket.take(wanted, now_s=now_s)
        total += granted
    assert total <= 100 + 20 * now_s + 1e-6
