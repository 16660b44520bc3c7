from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.records import AccountName, AgentName, PartitionName
from policies.site_policy import AgentPolicy, SitePolicy
from policies.submission.decision import (
    AgentDirectory,
    AgentSource,
    Identity,
    SubmissionDecision,
    SubmissionRequest,
    Verdict,
    decide_submission,
    decide_with_tags,
)
from policies.submission.tags import Tags, parse_tags


def agent(
    name: str, *, accounts: tuple[str, ...], users: tuple[str, ...] = (), groups: tuple[str, ...] = ()
) -> AgentPolicy:
    names = tuple(AccountName(account) for account in accounts)
    return AgentPolicy(name=AgentName(name), accounts=names, users=users, groups=groups, base_weight=Fraction(1))


SITE = SitePolicy(
    cluster="c",
    partitions=(PartitionName("gpu"), PartitionName("gpu2")),
    agents=(
        agent("rec", accounts=("rec", "Rec_Batch")),
        agent("risk", accounts=("risk",), users=("bob",), groups=("fraud",)),
        agent("vision", accounts=("vision",), users=("carol",)),
    ),
)


def decide(
    text: str = "",
    *,
    account: str = "rec",
    partitions: tuple[str, ...] = ("gpu",),
    user: str | None = "alice",
    groups: frozenset[str] | None = frozenset(),
) -> SubmissionDecision:
    who = Identity(user=user, groups=groups)
    request = SubmissionRequest(identity=who, account=account, partitions=partitions, text=text)
    return decide_submission(request, SITE)


ACCEPTED = {
    "no tag: the account's agent": (decide(), "rec", AgentSource.ACCOUNT),
    "sacctmgr lower-cases accounts": (decide(account="rec_batch"), "rec", AgentSource.ACCOUNT),
    "an account in another case": (decide(account="RISK"), "risk", AgentSource.ACCOUNT),
    "the tag of the account's own agent": (decide("agent=rec"), "rec", AgentSource.TAG),
    "a user of the agent": (decide("agent=risk", user="bob"), "risk", AgentSource.TAG),
    "a group of the agent": (decide("agent=risk", groups=frozenset({"x", "fraud"})), "risk", AgentSource.TAG),
    "a user from an account of no agent": (
        decide("agent=risk", user="bob", account="other"),
        "risk",
        AgentSource.TAG,
    ),
    "several managed partitions": (decide(partitions=("gpu", "gpu2")), "rec", AgentSource.ACCOUNT),
    "groups unknown: the account's agent": (decide("agent=risk", groups=None), "rec", AgentSource.ACCOUNT),
    "user unknown: the account's agent": (
        decide("agent=vision", user=None, groups=None),
        "rec",
        AgentSource.ACCOUNT,
    ),
    "groups unknown, the user suffices": (
        decide("agent=risk", user="bob", groups=None),
        "risk",
        AgentSource.TAG,
    ),
    "default partition unknown, account of an agent": (decide(partitions=()), "rec", AgentSource.ACCOUNT),
}


@pytest.mark.parametrize(("got", "name", "source"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted(got: SubmissionDecision, name: str, source: AgentSource) -> None:
    assert (got.verdict, got.agent, got.source) == (Verdict.ACCEPT, name, source)


UNMANAGED = {
    "another partition": decide("agent=risk", partitions=("cpu",)),
    "one of several partitions is not managed": decide(partitions=("gpu", "cpu")),
    "an account of no agent": decide(account="other"),
    "no account": decide(account=""),
    "default partition unknown, account of no agent": decide("agent=risk", account="x", partitions=()),
    "groups unknown, account of no agent": decide("agent=risk", account="x", groups=None),
}


@pytest.mark.parametrize("got", UNMANAGED.values(), ids=UNMANAGED.keys())
def test_unmanaged(got: SubmissionDecision) -> None:
    want = (Verdict.UNMANAGED, None, AgentSource.NONE, "")
    assert (got.verdict, got.agent, got.source, got.message) == want
    assert got.reason


REJECTED = {
    "a tag of another agent": (
        decide("agent=risk"),
        "rec",
        (
            "FairGPU: User alice with account rec may not use tag agent=risk. "
            "alice may use here: rec. "
            "Use one of these or leave the agent tag out to run as agent rec."
        ),
    ),
    "a tag that only a user could have": (
        decide("agent=vision", groups=None),
        "rec",
        (
            "FairGPU: User alice with account rec may not use tag agent=vision. "
            "alice may use here: rec. "
            "Use one of these or leave the agent tag out to run as agent rec."
        ),
    ),
    "no agent at all": (
        decide("agent=rec", account=""),
        None,
        (
            "FairGPU: User alice with account (none) may not use tag agent=rec. "
            "alice may use no agent tag here. Leave the agent tag out."
        ),
    ),
    "an unknown agent": (
        decide("agent=rsk", user="bob"),
        "rec",
        (
            "FairGPU: Unknown agent in tag agent=rsk. Agents: rec, risk, vision. "
            "bob may use here: rec, risk. "
            "Use one of these or leave the agent tag out to run as agent rec."
        ),
    ),
    "an unknown agent from an unknown user": (
        decide("agent=rsk", user=None, groups=None),
        "rec",
        (
            "FairGPU: Unknown agent in tag agent=rsk. Agents: rec, risk, vision. "
            "(unknown) may use here: rec. "
            "Use one of these or leave the agent tag out to run as agent rec."
        ),
    ),
    "two agents": (
        decide("agent=rec agent=risk"),
        "rec",
        (
            "FairGPU: Unusable tag agent= (written twice with different values). "
            "alice may use here: rec. "
            "Use one of these or leave the agent tag out to run as agent rec."
        ),
    ),
}


@pytest.mark.parametrize(("got", "home", "message"), REJECTED.values(), ids=REJECTED.keys())
def test_rejected_with_a_message_that_helps(got: SubmissionDecision, home: str | None, message: str) -> None:
    assert (got.verdict, got.agent, got.message) == (Verdict.REJECT, home, message)


def test_an_accepted_job_hears_which_tags_were_not_understood() -> None:
    got = decide("agent=rec sla=soon")
    assert got.message == "FairGPU ignores: sla: not a duration such as 200ms, 30s, 5min, 2h or 1d"


def test_long_lists_of_agents_are_cut() -> None:
    many = tuple(agent(f"a{n:02}", accounts=(f"acc{n}",)) for n in range(15))
    site = SitePolicy(cluster="c", partitions=(PartitionName("gpu"),), agents=many)
    who = Identity(user="alice", groups=frozenset())
    request = SubmissionRequest(identity=who, account="acc1", partitions=("gpu",), text="agent=x")
    assert "a10, a11 and 3 more." in decide_submission(request, site).message


def test_an_account_of_two_agents_belongs_to_the_first_by_name() -> None:
    both = (agent("b", accounts=("shared",)), agent("a", accounts=("shared",)))
    site = SitePolicy(cluster="c", partitions=(PartitionName("gpu"),), agents=both)
    who = Identity(user="alice", groups=frozenset())
    request = SubmissionRequest(identity=who, account="shared", partitions=("gpu",), text="")
    assert decide_submission(request, site).agent == "a"


@given(
    words=st.lists(
        st.sampled_from(["agent=rec", "agent=risk", "agent=x", "agent=?", "sla=soon", "stage=a"]), max_size=4
    ),
    account=st.sampled_from(["rec", "risk", "other", ""]),
    user=st.sampled_from(["alice", "bob", None]),
)
def test_the_decision_reads_nothing_of_the_tags_but_the_claim(words: list[str], account: str, user: str | None) -> None:
    whole = parse_tags(" ".join(words))
    agent, is_agent_unclear, problems = whole.claim
    claim = Tags(agent=agent, is_agent_unclear=is_agent_unclear, problems=problems)
    request = SubmissionRequest(
        identity=Identity(user=user, groups=frozenset()),
        account=account,
        partitions=(PartitionName("gpu"),),
        text=" ".join(words),
    )
    directory = AgentDirectory.from_policy(SITE)
    assert replace(decide_with_tags(request, claim, directory), tags=whole) == decide_submission(request, SITE)
