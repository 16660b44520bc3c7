"""Whose job each record is: the submission decision, taken once per distinct (user, account, partitions, text)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from policies.plan import Finding
from policies.site_policy import TagSource
from policies.submission.decision import (
    AgentDirectory,
    Identity,
    SubmissionDecision,
    SubmissionRequest,
    Verdict,
    decide_with_directory,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.records import AccountName, JobRecord, Observation, PartitionName
    from policies.site_policy import SitePolicy

OwnerKey = tuple[str, "AccountName", "tuple[PartitionName, ...]", str]
"""User, account, partitions, text: all that the decision depends on."""

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

    def keys(self, jobs: Sequence[JobRecord]) -> list[OwnerKey]:
        """The decision's input of each job."""
        return list(map(_KEY_OF[self.site.tag_source], jobs))

    def decide(self, key: OwnerKey) -> SubmissionDecision:
        """The decision for one distinct input."""
        user, account, partitions, text = key
        request = SubmissionRequest(
            identity=Identity(user=user, groups=self.groups.get(user)),
            account=account,
            partitions=partitions,
            text="" if self.site.tag_source is TagSource.ACCOUNT else text,
        )
        return decide_with_directory(request, self.directory)


def decide_all(resolver: Resolver, keys: Sequence[OwnerKey]) -> dict[OwnerKey, SubmissionDecision]:
    """The decision for each distinct key, in order of first appearance."""
    return {key: resolver.decide(key) for key in dict.fromkeys(keys)}


def refusal_findings(
    decisions: Mapping[OwnerKey, SubmissionDecision], keys: Sequence[OwnerKey]
) -> list[Finding]:
    """One finding per refused tag: the job bypassed the hook and counts as its account's agent (or as foreign)."""
    refused = {key for key, decision in decisions.items() if decision.verdict is Verdict.REJECT}
    if not refused:
        return []
    counts = Counter(key for key in keys if key in refused)
    return [_refusal(key, decisions[key], n_jobs) for key, n_jobs in counts.items()]


def _refusal(key: OwnerKey, decision: SubmissionDecision, n_jobs: int) -> Finding:
    counted = f"counted as agent {decision.agent}" if decision.agent else "counted as foreign use"
    return Finding(
        kind="refused_tag",
        subject=f"user {key[0]}",
        text=f"{n_jobs} pending job(s) bypassed the submit hook and are {counted}: {decision.reason}",
    )
