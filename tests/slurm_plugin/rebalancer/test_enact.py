"""When a plan is not acted on at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from policies.cycle import decide
from slurm_plugin.errors import SlurmRejected, StaleStateError
from slurm_plugin.rebalancer.cycle import outcome_of
from slurm_plugin.rebalancer.daemon_state import Outcome
from slurm_plugin.rebalancer.enact import check_fresh, min_job_age_s
from tests.slurm_plugin.rebalancer.world import START_S, make_job, make_site, make_slurm

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("changes", "age_s", "message"),
    [
        ({}, 61.0, "61.0 s old"),
        ({}, -61.0, "-61.0 s old"),
        ({"nodes": ()}, 0.0, "no node at all"),
        ({"problems": (("no site factors: priority/basic", 1),)}, 0.0, "could not be read"),
        ({"at_s": START_S + 1}, 0.0, "of another observation"),
    ],
    ids=["old", "from the future", "no nodes", "blind", "another observation"],
)
def test_a_doubtful_observation_is_refused(
    tmp_path: Path, changes: dict[str, object], age_s: float, message: str
) -> None:
    seen = make_slurm(make_job(1)).observe()
    plan = decide(seen, make_site(tmp_path).policy, now=seen.at_s)
    doubtful = replace(seen, **changes)  # type: ignore[arg-type]  # each case names its own field
    with pytest.raises(StaleStateError, match=message):
        check_fresh(plan, doubtful, now_s=seen.at_s + age_s)


@pytest.mark.parametrize(
    ("release", "age_s"), [("22.05.8", 5), ("24.05.4", 5), ("24.11.0", 0), ("26.05.5", 0), ("", 5), ("slurm", 5)]
)
def test_old_and_unknown_releases_let_a_job_rest_first(release: str, age_s: int) -> None:
    assert min_job_age_s(release) == age_s


def test_any_other_error_counts_as_a_crash() -> None:
    assert outcome_of(SlurmRejected("x")) is Outcome.CRASHED
    assert outcome_of(StaleStateError("x")) is Outcome.STALE
