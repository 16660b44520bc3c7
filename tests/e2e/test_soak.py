"""A small soak: fourteen kills beside mixed jobs. The whole one is ``python -m tests.soak``."""

from __future__ import annotations

from tests.e2e.mini_cluster import remove_leftovers
from tests.soak.run import Settings, soak
from tests.soak.tell import report

SMALL = Settings(seconds=24.0, kills=14, seed=5, rate=0.7, longest_s=5, register_every_s=4.0, forget_s=2.0)


def test_jobs_quotas_and_qoses_survive_random_kills() -> None:
    remove_leftovers("soak")
    result = soak(SMALL, print)
    print(report(result))  # noqa: T201 - what the test is run for
    assert result.faults
    assert result.is_good, report(result)
    assert result.accounts.accepted >= 5
