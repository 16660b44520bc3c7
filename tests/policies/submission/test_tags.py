import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.submission.tags import MAX_VALUE_LENGTH, NO_TAGS, SCAN_LIMIT, Tags, parse_tags

READ = {
    "nothing": ("", Tags()),
    "free text": ("rerun of last night's job", Tags()),
    "an equals sign that is no tag": ("a=b x=1", Tags()),
    "one tag": ("agent=risk", Tags(agent="risk")),
    "commas, semicolons, blanks and newlines separate": (
        "agent=risk,stage=train;model=bert@3\nprecision=tf32\tdeadline=2h",
        Tags(agent="risk", stage="train", model="bert@3", precision="tf32", deadline_s=7200.0),
    ),
    "free text around the tokens": ("hello agent=risk world", Tags(agent="risk")),
    "the same value twice": ("agent=risk agent=risk", Tags(agent="risk")),
    "milliseconds": ("sla=200ms", Tags(sla_s=0.2)),
    "minutes, both spellings": ("sla=5m deadline=5min", Tags(sla_s=300.0, deadline_s=300.0)),
    "days with a fraction": ("deadline=1.5d", Tags(deadline_s=129_600.0)),
    "checkpoint yes": ("checkpoint=yes", Tags(checkpoint=True)),
    "checkpoint 0": ("checkpoint=0", Tags(checkpoint=False)),
    "needs in parts": ("needs=net:10+nvlink", Tags(needs=("net:10", "nvlink"))),
    "longer keys that end like ours": ("subagent=risk my-agent=risk", Tags()),
    "quoted tokens are free text": ('"agent=risk"', Tags()),
}


@pytest.mark.parametrize(("text", "want"), READ.values(), ids=READ.keys())
def test_tags_are_read(text: str, want: Tags) -> None:
    assert parse_tags(text) == want


REFUSED = {
    "two agents": ("agent=risk agent=vision", "agent: written twice with different values", True),
    "a third agent does not bring one back": (
        "agent=risk agent=vision agent=risk",
        "agent: written twice with different values",
        True,
    ),
    "no value": ("agent=", "agent: no value", True),
    "unsafe characters": ("agent=ri$k", "agent: more than 64 characters, or others than", True),
    "letters beyond ASCII": ("agent=rïsk", "agent: more than 64 characters, or others than", True),
    "a NUL": ("agent=risk\0", "agent: more than 64 characters, or others than", True),
    "too long": ("agent=" + "a" * (MAX_VALUE_LENGTH + 1), "agent: more than 64 characters", True),
    "no unit": ("sla=200", "sla: not a duration", False),
    "zero": ("deadline=0s", "deadline: not a duration", False),
    "negative": ("deadline=-5s", "deadline: not a duration", False),
    "a word for a truth": ("checkpoint=perhaps", "checkpoint: neither yes nor no", False),
    "two stages": ("stage=a stage=b", "stage: written twice with different values", False),
}


@pytest.mark.parametrize(("text", "problem", "is_agent_unclear"), REFUSED.values(), ids=REFUSED.keys())
def test_unusable_tags_are_reported_and_count_as_absent(text: str, problem: str, *, is_agent_unclear: bool) -> None:
    tags = parse_tags(text)
    assert len(tags.problems) == 1
    assert tags.problems[0].startswith(problem)
    assert tags == Tags(is_agent_unclear=is_agent_unclear, problems=tags.problems)


NEAR_MISSES = {
    "two letters swapped": ("agnet=risk", "agent"),
    "a letter too many": ("agents=risk", "agent"),
    "a letter too few": ("aget=risk", "agent"),
    "a letter replaced": ("stagr=train", "stage"),
    "capitals": ("Agent=risk", "agent"),
    "two letters off in a long key": ("precisoin_=tf32", "precision"),
    "in the middle of a text": ("run 7; checkpont_=yes, done", "checkpoint"),
}


@pytest.mark.parametrize(("text", "key"), NEAR_MISSES.values(), ids=NEAR_MISSES.keys())
def test_a_key_that_looks_mistyped_is_free_text_and_reported(text: str, key: str) -> None:
    tags = parse_tags(text)
    assert tags == Tags(problems=tags.problems)
    (problem,) = tags.problems
    assert problem.endswith(f"kept as free text; did you mean {key}=...?")


OWN_WORDS = {
    "words that are only near": "mode=fast seeds=1 state=done",
    "two letters off in a short key": "image=a.sif event=x page=3",
    "no key at all": "lr=0.1 batch_size=32 epochs=5",
    "no value": "agnet= agnet==x",
}


@pytest.mark.parametrize("text", OWN_WORDS.values(), ids=OWN_WORDS.keys())
def test_words_of_ones_own_are_not_commented(text: str) -> None:
    assert parse_tags(text) is NO_TAGS


def test_only_the_first_near_misses_are_reported() -> None:
    assert len(parse_tags("agnet=a agent_=b agents=c agentt=d").problems) == 3


def test_one_bad_tag_leaves_the_others() -> None:
    tags = parse_tags("agent=risk sla=soon stage=train")
    assert (tags.agent, tags.stage, tags.sla_s) == ("risk", "train", None)


def test_tags_behind_the_scan_limit_are_not_seen_and_that_is_said() -> None:
    tags = parse_tags("agent=risk " + "x" * SCAN_LIMIT + " stage=train")
    assert (tags.agent, tags.stage) == ("risk", None)
    assert tags.problems[0].startswith("text: tags after the first")


def test_a_token_across_the_scan_limit_is_not_read_in_part() -> None:
    # "agent=risky" cut after "risk" would be another agent's tag.
    text = " " * (SCAN_LIMIT - len("agent=risk")) + "agent=risky"
    assert parse_tags(text).agent is None


def test_a_long_text_without_a_separator_has_no_tags() -> None:
    assert parse_tags("=" * (SCAN_LIMIT + 1)).agent is None


def test_texts_without_tags_share_one_value() -> None:
    assert parse_tags("plain") is NO_TAGS
    assert parse_tags("a=1") is NO_TAGS


@given(st.text(alphabet=st.characters(codec=None), max_size=400))
def test_any_text_gives_safe_tags(text: str) -> None:
    tags = parse_tags(text)
    for value in (tags.agent, tags.stage, tags.model, tags.precision, *tags.needs):
        assert value is None or (value.isascii() and value.isprintable() and 1 <= len(value) <= 64)
    assert all(problem.isascii() and problem.isprintable() for problem in tags.problems)


@given(
    tokens=st.lists(
        st.sampled_from(["agent=risk", "agent=vision", "stage=a", "sla=1s", "free", "x=", "agent="]),
        max_size=12,
    ),
    separator=st.sampled_from([" ", ",", ";", " ; ", "\n"]),
)
def test_order_and_separator_do_not_matter(tokens: list[str], separator: str) -> None:
    tags = parse_tags(separator.join(tokens))
    backwards = parse_tags(" ".join(reversed(tokens)))
    assert (tags.agent, tags.is_agent_unclear) == (backwards.agent, backwards.is_agent_unclear)
    named = {token for token in tokens if token.startswith("agent=")}
    assert tags.is_agent_unclear == (len(named) > 1 or named == {"agent="})
