"""The one decision about a submission that hook and rebalancer share: whose job it is, and whether it may be.

The agent comes from the tag where the user may use it, else from the job's account. A tag is a claim: it
counts only if the site file lets the job's account, the user or one of the user's groups use it (DESIGN.md,
promise 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policies.records import AgentName
from policies.site_policy import AgentPolicy
from policies.submission.band_request import NO_BAND, BandNames, BandRequest
from policies.submission.tags import Tags, parse_tags

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policies.site_policy import SitePolicy

MAX_NAMES_IN_MESSAGE: Final = 12
"""A message lists this many agents; the rest are counted."""


class Verdict(StrEnum):
    """What becomes of the submission."""

    ACCEPT = "accept"
    REJECT = "reject"
    UNMANAGED = "unmanaged"


class AgentSource(StrEnum):
    """What named the agent."""

    TAG = "tag"
    ACCOUNT = "account"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who submits, by the uid that slurmctld reports, never by a claim in the text.

    Attributes
    ----------
    user : str or None
        Unix name; ``None`` where only the uid is known (yet).
    groups : frozenset of str or None
        Unix groups by name; ``None`` where they are not known (yet), which is not the same as none.
    """

    user: str | None
    groups: frozenset[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionRequest:
    """What the decision reads of a job.

    Attributes
    ----------
    account : str
        The job's account (or the user's default account), any case; empty if unknown.
    partitions : tuple of str
        The asked partitions; empty if the default partition applies and is not known.
    text : str
        The text that carries the tags: the comment, the wckey, or empty (``tag_source``).
    band : BandRequest
        The QOS that the user asks for by name, if any.
    """

    identity: Identity
    account: str
    partitions: tuple[str, ...]
    text: str
    band: BandRequest = NO_BAND


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionDecision:
    """The outcome.

    Attributes
    ----------
    agent : AgentName or None
        Whose job it is. On ``REJECT`` the account's agent, as which a job that bypassed the hook counts.
    message : str
        For the user: on ``REJECT`` the tag, the user, the agents that this user may use and the next step; on
        ``ACCEPT`` and ``UNMANAGED`` what was not understood, else empty.
    reason : str
        For the operator: the rule that decided.
    qos : str
        Guaranteed QOS that a new job is to have, if it exists; empty if the job may keep what it asks for.
    """

    verdict: Verdict
    agent: AgentName | None
    source: AgentSource
    tags: Tags
    message: str
    reason: str
    qos: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class AgentDirectory:
    """Look-ups of one site policy, built once, so that a decision takes microseconds.

    Attributes
    ----------
    by_name : mapping of str to AgentPolicy
    by_account : mapping of str to AgentPolicy
        Keys in lower case, as sacctmgr stores accounts. An account listed by two agents belongs to the first
        by name.
    partitions : frozenset of str
        The managed ones.
    bands : BandNames
        Our QOSes by name.
    """

    by_name: Mapping[str, AgentPolicy]
    by_account: Mapping[str, AgentPolicy]
    partitions: frozenset[str]
    bands: BandNames
    _account_names: Mapping[AgentName, frozenset[str]]
    _users: Mapping[AgentName, frozenset[str]]
    _groups: Mapping[AgentName, frozenset[str]]

    @classmethod
    def from_policy(cls, policy: SitePolicy) -> AgentDirectory:
        """Directory of a site policy."""
        agents = sorted(policy.agents, key=lambda agent: agent.name)
        by_account: dict[str, AgentPolicy] = {}
        for agent in agents:
            for account in agent.accounts:
                by_account.setdefault(account.lower(), agent)
        return cls(
            by_name=MappingProxyType({str(agent.name): agent for agent in agents}),
            by_account=MappingProxyType(by_account),
            partitions=frozenset(policy.partitions),
            bands=BandNames.from_policy(policy),
            _account_names={a.name: frozenset(name.lower() for name in a.accounts) for a in agents},
            _users={a.name: frozenset(a.users) for a in agents},
            _groups={a.name: frozenset(a.groups) for a in agents},
        )

    def is_managed(self, partitions: Iterable[str]) -> bool:
        """Whether all these partitions are managed."""
        return self.partitions.issuperset(partitions)

    def may_use(self, agent: AgentName, identity: Identity, account: str) -> bool | None:
        """Whether this job may carry the agent's tag; ``None`` if only what is unknown can tell."""
        if account.lower() in self._account_names[agent] or identity.user in self._users[agent]:
            return True
        if identity.groups is not None and not self._groups[agent].isdisjoint(identity.groups):
            return True
        is_user_open = identity.user is None and bool(self._users[agent])
        is_group_open = identity.groups is None and bool(self._groups[agent])
        return None if is_user_open or is_group_open else False

    def allowed_agents(self, identity: Identity, account: str) -> tuple[AgentName, ...]:
        """Names of the agents whose tag this job may carry for certain, sorted."""
        return tuple(a.name for a in self.by_name.values() if self.may_use(a.name, identity, account))


def decide_submission(request: SubmissionRequest, policy: SitePolicy) -> SubmissionDecision:
    """Whose job this is under ``policy``; :func:`decide_with_directory` suits many requests.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from policies.site_policy import AgentPolicy, SitePolicy
    >>> risk = AgentPolicy(name="risk", accounts=("risk",), base_weight=Fraction(3, 5))
    >>> site = SitePolicy(cluster="c", partitions=("gpu",), agents=(risk,))
    >>> who = Identity(user="alice", groups=frozenset())
    >>> job = SubmissionRequest(identity=who, account="risk", partitions=("gpu",), text="")
    >>> decide_submission(job, site).agent
    'risk'
    """
    return decide_with_directory(request, AgentDirectory.from_policy(policy))


def decide_with_directory(request: SubmissionRequest, directory: AgentDirectory) -> SubmissionDecision:
    """Whose job this is; the tags are read from the request's text."""
    return decide_with_tags(request, parse_tags(request.text), directory)


def decide_with_tags(request: SubmissionRequest, tags: Tags, directory: AgentDirectory) -> SubmissionDecision:
    """Whose job this is, given the tags in its text.

    Notes
    -----
    Of the tags only :attr:`Tags.claim` counts: jobs with the same claim, identity, account and partitions are
    decided alike, whatever else their texts say.

    In this order: a partition that is not managed leaves the job alone; with the default partition unknown
    the job is managed if its account is an agent's. An unclear or unknown agent name is a rejection. A tag
    counts if the user may use it. Without a tag the account decides; an account of no agent leaves the job alone.
    At last a QOS of ours that was asked for by name must be the agent's, and the job must survive its band; nobody
    moves a job that counts for an agent with bands into a managed QOS.
    """
    decision = _decide_agent(request, tags, directory)
    if decision.verdict is Verdict.REJECT:
        return decision
    account = directory.by_account.get(request.account.lower())
    home = account.name if account else None
    problem = directory.bands.why_refused(request.band, decision.agent, home=home) if request.band != NO_BAND else ""
    if not problem:
        return _with_qos(decision, request.band, home=home, directory=directory)
    return replace(decision, verdict=Verdict.REJECT, message=f"FairGPU: {problem}", reason=problem)


def _with_qos(
    decision: SubmissionDecision, band: BandRequest, *, home: AgentName | None, directory: AgentDirectory
) -> SubmissionDecision:
    if decision.agent is None:
        return decision
    qos = directory.bands.qos_to_set(band, decision.agent, home=home)
    return replace(decision, qos=qos) if qos else decision


def _decide_agent(request: SubmissionRequest, tags: Tags, directory: AgentDirectory) -> SubmissionDecision:
    home = directory.by_account.get(request.account.lower())
    if request.partitions:
        if not directory.is_managed(request.partitions):
            return _unmanaged("a partition is not managed", tags, message="")
    elif home is None:
        return _unmanaged("default partition unknown, account of no agent", tags, message="")
    if tags.is_agent_unclear:
        problem = next(line for line in tags.problems if line.startswith("agent:"))
        return _reject(request, directory, tags, f"Unusable tag agent= ({problem[7:]}).")
    if tags.agent is None:
        return _by_account(home, tags, "no agent tag")
    if tags.agent not in directory.by_name:
        text = f"Unknown agent in tag agent={tags.agent}. Agents: {_listing(directory.by_name)}."
        return _reject(request, directory, tags, text)
    return _by_tag(request, directory, home, tags)


def _by_tag(
    request: SubmissionRequest, directory: AgentDirectory, home: AgentPolicy | None, tags: Tags
) -> SubmissionDecision:
    agent = directory.by_name[tags.agent or ""].name
    allowed = directory.may_use(agent, request.identity, request.account)
    if allowed:
        return SubmissionDecision(
            verdict=Verdict.ACCEPT,
            agent=agent,
            source=AgentSource.TAG,
            tags=tags,
            message=_notes(tags),
            reason="tag allowed",
        )
    if allowed is None:
        return _by_account(home, tags, "user or groups unknown, only they could allow the tag")
    account = request.account or "(none)"
    text = f"User {_name_of(request.identity)} with account {account} may not use tag agent={agent}."
    return _reject(request, directory, tags, text)


def _by_account(home: AgentPolicy | None, tags: Tags, reason: str) -> SubmissionDecision:
    if home is None:
        return _unmanaged(f"{reason}, account of no agent", tags, message=_notes(tags))
    return SubmissionDecision(
        verdict=Verdict.ACCEPT,
        agent=home.name,
        source=AgentSource.ACCOUNT,
        tags=tags,
        message=_notes(tags),
        reason=f"{reason}, by account",
    )


def _unmanaged(reason: str, tags: Tags, *, message: str) -> SubmissionDecision:
    return SubmissionDecision(
        verdict=Verdict.UNMANAGED, agent=None, source=AgentSource.NONE, tags=tags, message=message, reason=reason
    )


def _reject(request: SubmissionRequest, directory: AgentDirectory, tags: Tags, what: str) -> SubmissionDecision:
    home = directory.by_account.get(request.account.lower())
    allowed = directory.allowed_agents(request.identity, request.account)
    who = _name_of(request.identity)
    can = f"{who} may use here: {_listing(allowed)}." if allowed else f"{who} may use no agent tag here."
    fallback = f" to run as agent {home.name}" if home else ""
    step = (
        f"Use one of these or leave the agent tag out{fallback}." if allowed else f"Leave the agent tag out{fallback}."
    )
    return SubmissionDecision(
        verdict=Verdict.REJECT,
        agent=home.name if home else None,
        source=AgentSource.ACCOUNT if home else AgentSource.NONE,
        tags=tags,
        message=f"FairGPU: {what} {can} {step}",
        reason=what,
    )


def _name_of(identity: Identity) -> str:
    return "(unknown)" if identity.user is None else identity.user


def _notes(tags: Tags) -> str:
    return "FairGPU ignores: " + "; ".join(tags.problems) if tags.problems else ""


def _listing(names: Iterable[str]) -> str:
    ordered = list(names)
    shown = ", ".join(ordered[:MAX_NAMES_IN_MESSAGE])
    hidden = len(ordered) - MAX_NAMES_IN_MESSAGE
    return f"{shown} and {hidden} more" if hidden > 0 else shown
