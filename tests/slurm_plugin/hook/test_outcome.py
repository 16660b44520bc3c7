"""What is remembered of decisions is what would be decided anew."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from policies.records import AccountName, AgentName, PartitionName
from policies.site_policy import AgentPolicy, Mode, SitePolicy
from policies.submission.decision import AgentDirectory, Identity, SubmissionRequest, decide_with_directory
from policies.submission.tags import parse_tags
from slurm_plugin.hook.directory import UserDirectory
from slurm_plugin.hook.outcome import MAX_REMEMBERED_TEXT, HookRules, OutcomeMemory

if TYPE_CHECKING:
    from slurm_plugin.hook.outcome import Outcome

ALICE = Identity(user="alice", groups=frozenset({"fraud"}))
SITE = SitePolicy(
    cluster="c",
    mode=Mode.ENFORCE,
    partitions=(PartitionName("gpu"),),
    agents=(
        AgentPolicy(name=AgentName("rec"), accounts=(AccountName("rec"),), base_weight=Fraction(1)),
        AgentPolicy(
            name=AgentName("risk"), accounts=(AccountName("risk"),), groups=("fraud",), base_weight=Fraction(1)
        ),
    ),
)
RULES = HookRules.from_policy(SITE, is_off=False)
USERS = UserDirectory({1000: ALICE})
SHARED = OutcomeMemory(RULES, USERS)

words = st.sampled_from(["agent=rec", "agent=risk", "agent=no", "agent=r?", "sla=1s", "sla=x", "stage=train", "hello"])
texts = st.lists(words, max_size=4).map(" ".join)


def ask(memory: OutcomeMemory, text: str = "", *, uid: str = "1000", account: str = "rec") -> Outcome:
    return memory.outcome(uid, account, "gpu", parse_tags(text))


@given(
    uid=st.sampled_from(["1000", "7"]),
    account=st.sampled_from(["", "rec", "RISK", "x"]),
    partition=st.sampled_from(["", "gpu", "gpu,cpu", "gpu,"]),
    text=texts,
)
def test_a_remembered_decision_is_the_one_that_the_whole_text_gives(
    uid: str, account: str, partition: str, text: str
) -> None:
    tags = parse_tags(text)
    outcome = SHARED.outcome(uid, account, partition, tags)
    request = SubmissionRequest(
        identity=USERS.identity(int(uid)),
        account=account,
        partitions=tuple(filter(None, partition.split(","))),
        text=text,
    )
    expected = decide_with_directory(request, AgentDirectory.from_policy(SITE))
    assert replace(outcome.decision, tags=tags) == expected
    assert outcome.uid == int(uid)


def test_the_same_question_is_decided_once() -> None:
    memory = OutcomeMemory(RULES, USERS)
    assert ask(memory, "agent=rec stage=a") is ask(memory, "agent=rec stage=b")


def test_a_long_question_is_not_remembered() -> None:
    memory = OutcomeMemory(RULES, USERS)
    account = "x" * MAX_REMEMBERED_TEXT
    first, second = ask(memory, account=account), ask(memory, account=account)
    assert first == second
    assert first is not second


def test_other_rules_end_the_memory() -> None:
    memory = OutcomeMemory(RULES, USERS)
    assert memory.is_valid_for(RULES)
    assert not memory.is_valid_for(HookRules.from_policy(SITE, is_off=False))


def test_changed_identities_end_the_memory_and_unchanged_ones_do_not() -> None:
    users = UserDirectory({1000: ALICE})
    memory = OutcomeMemory(RULES, users)
    users.replace({1000: Identity(user="alice", groups=frozenset({"fraud"}))})
    assert memory.is_valid_for(RULES)
    users.replace({1000: Identity(user="alice", groups=frozenset())})
    assert not memory.is_valid_for(RULES)
