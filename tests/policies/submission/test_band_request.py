"""Who may ask for which band by name, and what is said to the others."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from policies.records import AccountName, AgentName, PartitionName
from policies.site_policy import AgentPolicy, BandPolicy, Quota, QuotaKind, SitePolicy
from policies.submission.band_request import BandNames, BandRequest
from policies.submission.decision import (
    Identity,
    SubmissionDecision,
    SubmissionRequest,
    Verdict,
    decide_submission,
)


def agent(name: str, quota: Quota = Quota()) -> AgentPolicy:  # noqa: B008 - a frozen value
    return AgentPolicy(name=AgentName(name), accounts=(AccountName(name),), base_weight=Fraction(1), quota=quota)


SITE = SitePolicy(
    cluster="C",
    partitions=(PartitionName("gpu"),),
    agents=(agent("rec"), agent("risk"), agent("vision", Quota(kind=QuotaKind.NONE))),
    bands=BandPolicy(),
)
ALICE = Identity(user="alice", groups=frozenset())
BATCH = BandRequest()


def decide(
    band: BandRequest, *, account: str = "rec", partition: str = "gpu", text: str = "", site: SitePolicy = SITE
) -> SubmissionDecision:
    request = SubmissionRequest(identity=ALICE, account=account, partitions=(partition,), text=text, band=band)
    return decide_submission(request, site)


ACCEPTED = {
    "no QOS": "",
    "the agent's own quota": "fg_c_rec",
    "its own borrow band, by a job that survives": "fg_c_rec_borrow",
    "its own opportunistic band in capitals": "FG_C_REC_OPP",
    "a QOS of the site": "long",
    "a QOS of another cluster": "fg_d_risk_borrow",
    "what would be the QOS of an agent without quota": "fg_c_vision",
    "a list of own bands": "fg_c_rec,fg_c_rec_borrow",
}


@pytest.mark.parametrize("qos", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted(qos: str) -> None:
    assert decide(replace(BATCH, qos=qos)).verdict is Verdict.ACCEPT


MAY_GO = "may be taken back at any time, and"
REFUSED = {
    "srun": (
        replace(BATCH, qos="fg_c_rec_borrow", is_batch=False),
        (
            f"FairGPU: Jobs in QOS fg_c_rec_borrow {MAY_GO} srun and salloc die of it: only batch jobs that may be "
            "requeued borrow. Use sbatch, or ask for qos=fg_c_rec."
        ),
    ),
    "no requeue": (
        replace(BATCH, qos="fg_c_rec_opp", is_requeueable=False),
        (
            f"FairGPU: Jobs in QOS fg_c_rec_opp {MAY_GO} a job that may not be requeued dies of it. Leave out "
            "--no-requeue, or ask for qos=fg_c_rec."
        ),
    ),
    "requeue unknown": (
        replace(BATCH, qos="fg_c_rec_borrow", is_requeueable=None),
        (
            f"FairGPU: Jobs in QOS fg_c_rec_borrow {MAY_GO} whether this job may be requeued is not known here. "
            "Leave the QOS as it is, since waiting jobs are moved by FairGPU, say requeue=1 in the same command, or "
            "ask for qos=fg_c_rec."
        ),
    ),
    "the quota of another agent": (
        replace(BATCH, qos="fg_c_risk"),
        (
            "FairGPU: QOS fg_c_risk belongs to agent risk, and this job counts for agent rec. Leave the QOS out, rec's "
            "quota is the default, or ask for qos=fg_c_rec."
        ),
    ),
}


@pytest.mark.parametrize(("band", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_with_the_next_step(band: BandRequest, message: str) -> None:
    got = decide(band)
    assert (got.verdict, got.agent, got.message) == (Verdict.REJECT, "rec", message)


SET = {
    "a managed QOS": ("rec", "", "normal", "fg_c_rec"),
    "in capitals": ("rec", "", "NORMAL", "fg_c_rec"),
    "in a list with a band": ("rec", "", "normal, fg_c_rec", "fg_c_rec"),
    "the account's agent without a QOS": ("rec", "", "", ""),
    "an account of no agent without a QOS": ("other", "agent=rec", "", "fg_c_rec"),
    "an account of another agent without a QOS": ("risk", "agent=rec", "", "fg_c_rec"),
    "a band by name from another account": ("other", "agent=rec", "fg_c_rec_borrow", ""),
    "a QOS of the site": ("rec", "", "long", ""),
    "a QOS of the site in a list": ("rec", "", "normal,long", ""),
    "an agent without quota": ("vision", "", "normal", ""),
    "nobody's job": ("other", "", "normal", ""),
}


@pytest.mark.parametrize(("account", "text", "qos", "want"), SET.values(), ids=SET.keys())
def test_the_qos_that_a_new_job_is_to_have(account: str, text: str, qos: str, want: str) -> None:
    site = replace(SITE, agents=(replace(SITE.agents[0], users=("alice",)), *SITE.agents[1:]))
    got = decide(replace(BATCH, qos=qos), account=account, text=text, site=site)
    assert (got.verdict is not Verdict.REJECT, got.qos) == (True, want)


def test_without_bands_no_qos_is_set() -> None:
    assert decide(replace(BATCH, qos="normal"), site=replace(SITE, bands=None)).qos == ""


def test_a_job_is_not_moved_into_a_qos_without_quota() -> None:
    got = decide(replace(BATCH, qos="Normal", is_move=True))
    assert (got.verdict, got.qos, got.message) == (
        Verdict.REJECT,
        "",
        (
            "FairGPU: QOS normal has no quota of agent rec: nobody could take back what this job holds there. Leave "
            "the QOS as it is, or ask for qos=fg_c_rec."
        ),
    )


def test_a_tagged_job_is_not_moved_to_its_accounts_default() -> None:
    site = replace(SITE, agents=(replace(SITE.agents[0], users=("alice",)), *SITE.agents[1:]))
    move = replace(BATCH, is_move=True)
    got = decide(move, account="risk", text="agent=rec", site=site)
    assert got.verdict is Verdict.REJECT
    assert "The default QOS of the account has no quota of agent rec" in got.message
    assert decide(move, account="rec", text="agent=rec", site=site).verdict is Verdict.ACCEPT


MOVES_ALLOWED = {"a QOS of the site": ("rec", "long"), "no quota": ("vision", "normal"), "no agent": ("x", "normal")}


@pytest.mark.parametrize(("account", "qos"), MOVES_ALLOWED.values(), ids=MOVES_ALLOWED.keys())
def test_other_moves_pass(account: str, qos: str) -> None:
    assert decide(replace(BATCH, qos=qos, is_move=True), account=account).verdict is not Verdict.REJECT


def test_one_wrong_band_in_a_list_is_enough() -> None:
    assert decide(replace(BATCH, qos="fg_c_rec, fg_c_risk_borrow")).verdict is Verdict.REJECT


def test_a_job_that_is_no_agents_is_only_kept_from_dying() -> None:
    assert decide(replace(BATCH, qos="fg_c_risk_borrow"), partition="cpu").verdict is Verdict.UNMANAGED
    got = decide(replace(BATCH, qos="fg_c_risk_borrow", is_batch=False), partition="cpu")
    assert (got.verdict, got.agent) == (Verdict.REJECT, None)


def test_a_refused_tag_is_told_first() -> None:
    assert "may not use tag" in decide(replace(BATCH, qos="fg_c_risk"), text="agent=risk").message


def test_without_bands_no_qos_is_ours() -> None:
    site = replace(SITE, bands=None)
    assert decide(replace(BATCH, qos="fg_c_risk_borrow", is_batch=False), site=site).verdict is Verdict.ACCEPT
    assert not BandNames.from_policy(site).by_qos
