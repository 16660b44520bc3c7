"""Whose job each record is: the submission decision, taken once per distinct (user, account, partitions, text)."""

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
    decide_with_directory,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from policies.records import AccountName, JobRecord, Observation, PartitionName

    OwnerKey = tuple[str, AccountName, tuple[PartitionName, ...], str]

_KEY_OF: Final = {
    TagSource.COMMENT: attrgetter("user", "account", "partitions", "comment"),
    TagSource.WCKEY: attrgetter("user", "account", "partitions", "wckey"),
    TagSource.ACCOUNT: attrgetter("user", "account", "partitions", "reservation"),
}
"""With tag source ``account`` no text is read; the last part of the key is then unused."""


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
        return self._decide(_KEY_OF[self.site.tag_source](job))

    def decide_all(self, jobs: Sequence[JobRecord]) -> Owners:
        """The decisions about many jobs."""
        column = Interned(map(_KEY_OF[self.site.tag_source], jobs))
        return Owners(column=column, decisions=tuple(map(self._decide, column.values)))

    def _decide(self, key: OwnerKey) -> SubmissionDecision:
        user, account, partitions, text = key
        request = SubmissionRequest(
            identity=Identity(user=user, groups=self.groups.get(user)),
            account=account,
            partitions=partitions,
            text="" if self.site.tag_source is TagSource.ACCOUNT else text,
        )
        return decide_with_directory(request, self.directory)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Owners:
    """Decisions about a column of jobs: one per distinct key of ``column``."""

    column: Interned[OwnerKey]
    decisions: tuple[SubmissionDecision, ...]

    def spread(self, compute: Callable[[SubmissionDecision], float], dtype: Any) -> NDArray[Any]:  # noqa: ANN401 - numpy's own type for dtypes
        """``compute`` of each job's decision, called once per distinct decision."""
        return np.array([compute(decision) for decision in self.decisions], dtype=dtype)[self.column.codes]

    def refusals(self) -> list[Finding]:
        """One finding per refused tag: the job bypassed the hook and counts as its account's agent, or as foreign."""
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
        text=f"{n_jobs} pending job(s) bypassed the submit hook and are {counted}: {decision.reason}",
    )
