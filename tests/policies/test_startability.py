"""Slurm's reasons, read as squeue prints them on four releases."""

from __future__ import annotations

import pytest

from policies.startability import Startability, read_reason


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("", Startability.STARTABLE),
        ("None", Startability.STARTABLE),
        ("Priority", Startability.STARTABLE),
        ("Resources", Startability.STARTABLE),
        ("(Resources)", Startability.STARTABLE),
        ("ReqNodeNotAvail, UnavailableNodes:node04", Startability.STARTABLE),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            Startability.STARTABLE,
        ),
        ("ReqNodeNotAvail, Reserved for maintenance", Startability.RESERVATION),
        ("JobHeldUser", Startability.HELD),
        ("JobHeldAdmin", Startability.HELD),
        ("job requeued in held state", Startability.HELD),
        ("job_requeued_in_held_state", Startability.HELD),
        ("launch failed requeued held", Startability.HELD),
        ("Dependency", Startability.DEPENDENCY),
        ("DependencyNeverSatisfied", Startability.DEPENDENCY),
        ("BeginTime", Startability.DELAYED),
        ("JobArrayTaskLimit", Startability.OVER_LIMIT),
        ("QOSGrpGRES", Startability.OVER_LIMIT),
        ("QOSMaxGRESPerJob", Startability.OVER_LIMIT),
        ("AssocGrpCpuLimit", Startability.OVER_LIMIT),
        ("MaxJobsPerAccount", Startability.OVER_LIMIT),
        ("GrpNodeLimit", Startability.OVER_LIMIT),
        ("PartitionTimeLimit", Startability.OVER_LIMIT),
        ("PartitionDown", Startability.PARTITION_DOWN),
        ("PartitionInactive", Startability.PARTITION_DOWN),
        ("Reservation", Startability.RESERVATION),
        ("Licenses", Startability.LICENCES),
        ("BurstBufferStageIn", Startability.STAGING),
        ("BadConstraints", Startability.BAD_CONSTRAINTS),
        ("InvalidQOS", Startability.INVALID),
        ("InvalidAccount", Startability.INVALID),
        ("QOSNotAllowed", Startability.INVALID),
    ],
)
def test_reason_is_known_and_means(reason: str, expected: Startability) -> None:
    reading = read_reason(reason)
    assert (reading.startability, reading.is_known) == (expected, True)
    assert reading.words


def test_of_several_reasons_the_first_blocking_one_counts() -> None:
    assert read_reason("Priority,BeginTime").startability is Startability.DELAYED
    assert read_reason("JobArrayTaskLimit,BeginTime").startability is Startability.OVER_LIMIT


def test_unknown_reason_counts_as_startable_and_says_so() -> None:
    reading = read_reason("Phase of the moon")
    assert (reading.startability, reading.is_known) == (Startability.STARTABLE, False)
    assert "Phase_of_the_moon" in reading.words


def test_unknown_part_beside_a_known_one_is_reported() -> None:
    reading = read_reason("JobHeldUser,Moon")
    assert (reading.startability, reading.is_known) == (Startability.HELD, False)
