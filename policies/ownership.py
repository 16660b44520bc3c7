"""Whose job each record is: the submission decision, taken once per distinct user, account, partitions and claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from policies.interning import Interned
from policies.plan import Finding
from policies.site_policy import SitePolicy, TagSource
from policies.submission.decision import (
    AgentDirectory,
    Identity,
    SubmissionDecision,
    SubmissionRequest,
    Verdict,
    decide_with_tags,
)
from policies.submission.tags import NO_TAGS, Tags, parse_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from policies.records import AccountName, JobRecord, Observation, PartitionName

    OwnerKey = tuple[str, AccountName, tuple[PartitionName, ...], str | None, bool, tuple[str, ...]]

_SUBMITTER: Final = attrgetter("user", "account", "partitions")
_TEXT_OF: Final = {TagSource.COMMENT: attrgetter("comment"), TagSource.WCKEY: attrgetter("wckey")}
"""With tag source ``account`` no text is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """Look-ups for one snapshot, built once."""

    site: SitePolicy
    directory: AgentDirectory
    groups: Mapping[str, frozenset[str]]

    @classmethod
    def from_observation(cls, observation: Observation, site: SitePolicy) -> Resolver:
        """Resolver for the users of an observation under a site policy."""
        groups = {user: frozenset(names) for user, names in observation.groups_by_user}
        return cls(site=site, directory=AgentDirectory.from_policy(site), groups=groups)

    def decide_one(self, job: JobRecord) -> SubmissionDecision:
        """The decision about one job."""
        tags = self._read_tags(job)
        return decide_with_tags(self._request(*_SUBMITTER(job)), tags, self.directory)

    def decide_all(self, jobs: Sequence[JobRecord]) -> Owners:
        """The decisions about many jobs."""
        tags = tuple(map(self._read_tags, jobs))
        column = Interned((*_SUBMITTER(job), *its.claim) for job, its in zip(jobs, tags, strict=True))
        return Owners(column=column, decisions=tuple(map(self._decide, column.values)), tags=tags)

    def _read_tags(self, job: JobRecord) -> Tags:
        text_of = _TEXT_OF.get(self.site.tag_source)
        return NO_TAGS if text_of is None else parse_tags(text_of(job))

    def _decide(self, key: OwnerKey) -> SubmissionDecision:
        user, account, partitions, agent, is_agent_unclear, problems = key
        claim = Tags(agent=agent, is_agent_unclear=is_agent_unclear, problems=problems)
        return decide_with_tags(self._request(user, account, partitions), claim, self.directory)

    def _request(self, user: str, account: AccountName, partitions: tuple[PartitionName, ...]) -> SubmissionRequest:
        identity = Identity(user=user, groups=self.groups.get(user))
        return SubmissionRequest(identity=identity, account=account, partitions=partitions, text="")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Owners:
    """Decisions about a column of jobs.

    Attributes
    ----------
    column : Interned
        Keys and each job's code.
    decisions : tuple of SubmissionDecision
        One per distinct key; their tags hold the claim only.
    tags : tuple of Tags
        One per job, whole.
    """

    column: Interned[OwnerKey]
    decisions: tuple[SubmissionDecision, ...]
    tags: tuple[Tags, ...]

    def spread(self, compute: Callable[[SubmissionDecision], float], dtype: Any) -> NDArray[Any]:  # noqa: ANN401 - numpy's own type for dtypes
        """``compute`` of each job's decision, called once per distinct decision."""
        return np.array([compute(decision) for decision in self.decisions], dtype=dtype)[self.column.codes]

    def refusals(self) -> list[Finding]:
        """One finding per refused tag: the job passed (no hook, or no mode enforce) as its account's or as foreign."""
        return [
            _refusal(key[0], decision, n_jobs)
            for key, decision, n_jobs in zip(self.column.values, self.decisions, self.column.counts(), strict=True)
            if decision.verdict is Verdict.REJECT
        ]


def _refusal(user: str, decision: SubmissionDecision, n_jobs: int) -> Finding:
    counted = f"counted as agent {decision.agent}" if decision.agent else "counted as foreign use"
    return Finding(
        kind="refused_tag",
        subject=f"user {user}",
        text=f"{n_jobs} pending job(s) not refused at submission, {counted}: {decision.reason}",
    )
