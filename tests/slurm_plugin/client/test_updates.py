"""Messages of ``scontrol`` as 22.05.8 printed them, with and without readline's echo."""

from __future__ import annotations

import pytest

from policies.records import JobId
from slurm_plugin.client import UpdateOutcome, UpdateStatus
from slurm_plugin.client.updates import are_all_denied, outcome, place_replies

ECHOED = """\
scontrol: update jobid=999 SiteFactor=1
Invalid job id specified for job 999
scontrol: update jobid=23 SiteFactor=100
scontrol: update jobid=18_[2-500] SiteFactor=9
18_2-9: No error
18_10-500: Invalid job id specified
scontrol: update jobid=18_77 SiteFactor=12
18_77: Invalid job id specified
scontrol: update jobid=25 SiteFactor=7
Job update not available right now, the DB index is being set, try again in a bit for job 25
scontrol:\x20
"""


def test_each_message_finds_its_job() -> None:
    replies = place_replies(ECHOED, ["999", "23", "18_[2-500]", "18_77", "25"])
    assert replies.unplaced == []
    assert replies.by_id["999"] == ["Invalid job id specified"]
    assert replies.by_id["23"] == []
    assert replies.by_id["18_[2-500]"] == ["No error", "Invalid job id specified"]
    assert replies.by_id["18_77"] == ["Invalid job id specified"]


def test_messages_name_their_job_without_an_echo() -> None:
    text = "scontrol: scontrol: Invalid job id specified for job 999\n18_77: Invalid job id specified\nscontrol: "
    replies = place_replies(text, ["23", "999", "18_77"])
    assert replies.by_id == {"23": [], "999": ["Invalid job id specified"], "18_77": ["Invalid job id specified"]}


def test_a_message_without_a_job_belongs_to_the_command_above() -> None:
    text = "scontrol: update jobid=29 SiteFactor=7\nslurm_update error: Job violates something\n"
    assert place_replies(text, ["23", "29"]).by_id["29"] == ["slurm_update error: Job violates something"]


def test_a_message_that_cannot_be_placed_is_said_so() -> None:
    replies = place_replies("slurm_update error: odd\n", ["23", "29"])
    assert replies.unplaced == ["slurm_update error: odd"]
    assert replies.by_id == {"23": [], "29": []}


@pytest.mark.parametrize(
    ("replies", "want"),
    [
        ([], UpdateStatus.OK),
        (["No error"], UpdateStatus.OK),
        (["No error", "Invalid job id specified"], UpdateStatus.OK),
        (["Invalid job id specified"], UpdateStatus.GONE),
        (["Job has already finished"], UpdateStatus.GONE),
        (["Access/permission denied"], UpdateStatus.REJECTED),
        (["No error", "Access/permission denied"], UpdateStatus.REJECTED),
    ],
)
def test_what_messages_mean(replies: list[str], want: UpdateStatus) -> None:
    assert outcome(JobId("18"), replies).status is want


def refused(text: str, status: UpdateStatus = UpdateStatus.REJECTED) -> UpdateOutcome:
    return UpdateOutcome(job_id=JobId("1"), status=status, text=text)


def test_denied_means_all_live_jobs_were_denied() -> None:
    denied, gone = refused("Access/permission denied"), refused("", UpdateStatus.GONE)
    assert are_all_denied([denied, gone])
    assert not are_all_denied([denied, refused("", UpdateStatus.OK)])
    assert not are_all_denied([denied, refused("Job is on fire")])
    assert not are_all_denied([gone])
    assert not are_all_denied([])


def test_the_echo_of_a_move_onto_borrowed_quota_is_known() -> None:
    # 22.05.8, seen: the message that names no job stands below its command
    text = "scontrol: update jobid=2 QOS=fg_c_a_opp Requeue=1\nJob is no longer pending execution\n"
    replies = place_replies(text, ["1", "2"])
    assert (replies.unplaced, replies.by_id["2"]) == ([], ["Job is no longer pending execution"])
