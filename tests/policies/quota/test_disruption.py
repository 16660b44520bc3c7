"""What reclaims take for what is claimed."""

from __future__ import annotations

from fractions import Fraction

from policies.quota.disruption import TakenBack, measure_disruption
from policies.records import JobId

CLAIM, OTHER = JobId("50"), JobId("51")


def test_a_claim_counts_once_however_many_jobs_it_takes() -> None:
    found = measure_disruption([TakenBack(2, CLAIM, 4), TakenBack(4, CLAIM, 4), TakenBack(8, OTHER, 1)])
    assert (found.n_reclaims, found.n_taken, found.n_asked) == (3, 14, 5)
    assert found.ratio == Fraction(14, 5)
    assert not found.is_within_bound


def test_a_job_without_a_claim_in_sight_is_counted_apart() -> None:
    found = measure_disruption([TakenBack(2, CLAIM, 1), TakenBack(4, None, None), TakenBack(1, OTHER, 0)])
    assert (found.n_unattributed, found.n_taken) == (2, 2)
    assert found.ratio == 2
    assert found.is_within_bound


def test_nothing_taken_is_within_the_bound() -> None:
    found = measure_disruption([])
    assert found.ratio is None
    assert found.is_within_bound
