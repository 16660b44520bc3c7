"""The soak's own verdicts: they find what is lost, doubled or never ends."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.soak.tell import spread
from tests.soak.verdict import Accounts, account_one
from tests.soak.watch import Row, Watch
from tests.soak.workload import Submission, draw


def submission(**changes: Any) -> Submission:
    fields: dict[str, Any] = {"name": "risk-00001-2", "agent": "risk", "shape": "batch", "argv": (), "accepted_s": 1.0}
    return Submission(**(fields | changes))


@pytest.mark.parametrize(
    ("rows", "is_good"),
    [
        ({"7": ["COMPLETED"]}, True),
        ({"7": ["NODE_FAIL"]}, True),
        ({}, False),
        ({"7": ["RUNNING"]}, False),
        ({"7": ["COMPLETED"], "8": ["COMPLETED"]}, False),
        ({"7": ["REQUEUED", "COMPLETED"]}, True),
        ({"7": ["RUNNING", "COMPLETED"]}, False),
        ({"7": ["COMPLETED", "REQUEUED"]}, False),
    ],
    ids=[
        "ended",
        "ended badly",
        "lost",
        "never ends",
        "two jobs",
        "restarted",
        "an incarnation never ends",
        "waits again",
    ],
)
def test_an_accepted_job_must_be_there_once_and_ended(rows: dict[str, list[str]], *, is_good: bool) -> None:
    found = Accounts()
    account_one(submission(), rows, found)
    assert (found.accepted, found.wrong == []) == (1, is_good)


def test_a_job_that_slurmctld_forgot_is_counted_apart() -> None:
    found = Accounts()
    account_one(submission(forgotten_s=5.0), {}, found)
    assert (found.accepted, found.forgotten, found.wrong) == (0, 1, [])


def test_every_task_of_an_array_counts() -> None:
    found = Accounts()
    account_one(submission(shape="array", n_tasks=3), {"7_0": ["COMPLETED"], "7_1": ["COMPLETED"]}, found)
    assert len(found.wrong) == 1


def test_a_qos_beyond_its_limit_is_noted() -> None:
    watch = Watch(None, {})  # type: ignore[arg-type]  # no cluster is asked
    rows = tuple(Row(str(n), f"rec-0000{n}-3", "fg_c_rec", "RUNNING", "None", 3, 3) for n in (1, 2))
    watch.count(rows[:1], {"fg_c_rec": 4})
    assert watch.exceeded == []
    watch.count(rows, {"fg_c_rec": 4})
    assert len(watch.exceeded) == 1


def test_the_same_seed_draws_the_same_jobs() -> None:
    first, second = (
        [draw(random.Random(4), "rec", number, longest_s=9).argv for number in range(20)]  # noqa: S311 - a workload
        for _ in range(2)
    )
    assert first == second


def test_one_that_never_came_back_shows_in_the_maximum() -> None:
    assert spread([1.0, 2.0, 3.0]) == ("2.0", "3.0", "3.0")
    assert spread([1.0, None])[2] == "never"
