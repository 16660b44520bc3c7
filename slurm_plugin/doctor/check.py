"""What a check is and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from slurm_plugin.doctor.facts import Facts

NO_ANSWER: Final = "Slurm did not answer"


class Status(StrEnum):
    """Outcome of a check; only ``fail`` makes ``fairgpu doctor`` exit with 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a check says about the facts.

    Attributes
    ----------
    found : str
        What is there, short.
    why : str
        What follows from it; empty for ``ok``.
    fix : str
        The exact line to add or the command to run; empty where there is none.
    """

    status: Status
    found: str
    why: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A verdict with the name of its check."""

    name: str
    status: Status
    found: str
    why: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRule:
    """One check.

    Attributes
    ----------
    name : str
        Stable, shown and documented.
    judge : callable
        Facts to verdict; pure.
    needs : tuple of str
        Facts that must be known (not ``None``, not empty); else the check is ``unknown``.
    """

    name: str
    judge: Callable[[Facts], Verdict]
    needs: tuple[str, ...] = ()

    def run(self, facts: Facts) -> Check:
        """Return the verdict under this check's name; ``unknown`` where a needed fact is missing."""
        for need in self.needs:
            value = getattr(facts, need)
            if value is None or value == {}:
                # The reason why Slurm does not answer is told once, by the check that is about it.
                why = NO_ANSWER if need == "config" else facts.missing.get(need, NO_ANSWER)
                return Check(name=self.name, status=Status.UNKNOWN, found="not known", why=why)
        verdict = self.judge(facts)
        return Check(name=self.name, status=verdict.status, found=verdict.found, why=verdict.why, fix=verdict.fix)


def ok(found: str) -> Verdict:
    """Return a verdict without complaint."""
    return Verdict(status=Status.OK, found=found)


def warn(found: str, why: str, fix: str = "") -> Verdict:
    """Return a verdict that something is worse than it could be."""
    return Verdict(status=Status.WARN, found=found, why=why, fix=fix)


def fail(found: str, why: str, fix: str = "") -> Verdict:
    """Return a verdict that a promise cannot be kept."""
    return Verdict(status=Status.FAIL, found=found, why=why, fix=fix)


def unknown(found: str, why: str, fix: str = "") -> Verdict:
    """Return a verdict that this user or host cannot tell."""
    return Verdict(status=Status.UNKNOWN, found=found, why=why, fix=fix)
