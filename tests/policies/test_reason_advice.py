"""Each reason is told in words that say whose limit it is, and what to do."""

from __future__ import annotations

import pytest

from policies.quota.names import Band
from policies.reason_advice import _STEPS, advise
from policies.startability import _WORDS, read_reason
from tests.strategies import make_job

LIMITS = {
    "QOSGrpGRES": "all jobs of its QOS together use the GPUs (or another GRES) that they may (QOSGrpGRES)",
    "QOSGrpCpuLimit": "all jobs of its QOS together use the CPUs that they may (QOSGrpCpuLimit)",
    "AssocGrpCPUMinutesLimit": "all jobs of its account or association together use the CPUs x minutes that they may "
    "(AssocGrpCPUMinutesLimit)",
    "AssocGrpGRESRunMinutes": "all jobs of its account or association together use the GPUs (or another GRES) x "
    "minutes that they may (AssocGrpGRESRunMinutes)",
    "AssocGrpJobsLimit": "all jobs of its account or association together use the running jobs that they may "
    "(AssocGrpJobsLimit)",
    "QOSMaxGRESPerJob": "asks for more GPUs (or another GRES) than its QOS allows per job (QOSMaxGRESPerJob)",
    "AssocMaxCpuPerJobLimit": "asks for more CPUs than its account or association allows per job "
    "(AssocMaxCpuPerJobLimit)",
    "QOSMaxMemoryPerNode": "asks for more memory than its QOS allows per node (QOSMaxMemoryPerNode)",
    "QOSMaxWallDurationPerJobLimit": "asks for more run time than its QOS allows per job "
    "(QOSMaxWallDurationPerJobLimit)",
    "QOSMaxGRESPerUser": "the GPUs (or another GRES) that its QOS allows per user are in use (QOSMaxGRESPerUser)",
    "MaxGRESPerAccount": "the GPUs (or another GRES) that its QOS or account allows per account are in use "
    "(MaxGRESPerAccount)",
    "QOSMaxJobsPerUserLimit": "the running jobs that its QOS allows per user are in use (QOSMaxJobsPerUserLimit)",
    "AssocMaxJobsLimit": "the running jobs that its account or association allows per user or account are in use "
    "(AssocMaxJobsLimit)",
    "QOSMaxSubmitJobPerUserLimit": "the waiting and running jobs that its QOS allows per user are in use "
    "(QOSMaxSubmitJobPerUserLimit)",
}


@pytest.mark.parametrize(("reason", "words"), LIMITS.items())
def test_a_limit_is_read_part_by_part(reason: str, words: str) -> None:
    told = advise(make_job("1", reason=reason), None)
    assert told.words == words
    assert told.step


def test_a_job_over_its_own_limit_never_starts_as_it_is() -> None:
    assert "never starts as it is" in advise(make_job("1", reason="QOSMaxCpuPerJobLimit"), None).step
    assert "when one of them ends" in advise(make_job("1", reason="QOSGrpCpuLimit"), None).step


BANDS = {
    "quota in use": ("QOSGrpGRES", Band.GUARANTEED, "its agent's quota is in use (QOSGrpGRES)"),
    "cap in use": ("QOSGrpGRES", Band.BORROW, "what its agent may borrow is in use (QOSGrpGRES)"),
    "too many nodes to borrow": ("QOSMaxNodePerJobLimit", Band.BORROW, "is larger than one job may borrow"),
    "a limit of the template": ("QOSMaxNodePerJobLimit", Band.GUARANTEED, "asks for more nodes than its QOS allows"),
    "no right to preempt": ("Priority", Band.GUARANTEED, "all that could make room for it is not on loan"),
    "behind others": ("Priority", Band.BORROW, "jobs before it in Slurm's order wait too"),
    "an account's limit": ("AssocGrpGRES", Band.GUARANTEED, "all jobs of its account or association"),
    "a begin time": ("BeginTime", Band.BORROW, "may not start before its begin time"),
}


@pytest.mark.parametrize(("reason", "band", "words"), BANDS.values(), ids=BANDS.keys())
def test_in_a_band_the_quota_is_named(reason: str, band: Band, words: str) -> None:
    assert words in advise(make_job("1", reason=reason), band).words


def test_a_begin_time_after_a_requeue_is_slurms_and_not_the_users() -> None:
    job = make_job("1", reason="BeginTime", restarts=1)
    assert "Slurm holds a requeued job back" in advise(job, None).words
    assert "FairGPU lifts the delay" in advise(job, Band.BORROW).step


def test_a_reason_in_no_table_is_told_verbatim() -> None:
    told = advise(make_job("1", reason="Phase of the moon"), None)
    assert "Phase_of_the_moon" in told.words
    assert "ask your admin" in told.step


def test_of_several_reasons_the_one_that_counts_gets_the_step() -> None:
    assert advise(make_job("1", reason="Priority,JobHeldUser"), None).step == "scontrol release JOBID"


def test_every_step_belongs_to_a_reason_of_the_table() -> None:
    assert set(_STEPS) <= set(_WORDS)
    assert read_reason("InvalidQOS").part == "InvalidQOS"
