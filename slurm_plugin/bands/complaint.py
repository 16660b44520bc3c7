"""What is wrong with a Slurm for the bands, why it matters, and the line to add."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """One thing: what is, what follows, and the line to add (empty if there is none)."""

    what: str
    why: str
    fix: str = ""
