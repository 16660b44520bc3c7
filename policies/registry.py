"""Scheduling policies by their short name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from policies import constant, wdrf
from policies.errors import UnknownPolicyError
from policies.factor_plan import FactorTargets
from policies.job_queue import JobQueue
from policies.site_policy import SitePolicy

if TYPE_CHECKING:
    from policies.factor_plan import PolicyParams
    from policies.plan import Plan
    from policies.state import ClusterState


class Policy(Protocol):
    """A scheduling policy: a pure function; :func:`policies.check.check_policy` is its contract."""

    def __call__(self, state: ClusterState, params: PolicyParams, *, now: float) -> Plan:
        """Plan for this state at this time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredPolicy:
    """A policy with the rules behind its numbers, which explanations and the submit hook use too."""

    name: str
    decide: Policy
    compute_targets: Callable[[JobQueue, SitePolicy], FactorTargets]
    factor_at_submission: Callable[[Fraction | None, int], int]


POLICIES: Final[Mapping[str, RegisteredPolicy]] = MappingProxyType(
    {
        module.NAME: RegisteredPolicy(
            name=module.NAME,
            decide=module.decide,
            compute_targets=module.compute_targets,
            factor_at_submission=module.factor_at_submission,
        )
        for module in (wdrf, constant)
    }
)
"""Every registered policy."""


def get_policy(name: str) -> RegisteredPolicy:
    """The policy of that name.

    Raises
    ------
    UnknownPolicyError
        No such policy; the message lists those that exist.
    """
    try:
        return POLICIES[name]
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise UnknownPolicyError(f"no scheduling policy is called {name!r}; there are: {known}") from None
