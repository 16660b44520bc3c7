"""The bands as ``fairgpu status`` and ``top`` show them: one row per agent, in the TRES that its quota limits first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policies.quota.amounts import GPU
from slurm_plugin.cli._numbers import amount
from slurm_plugin.cli._status_rows import Section

if TYPE_CHECKING:
    from policies.plan import AgentStanding, BandStanding, Plan
    from policies.records import Tres

LEGEND: Final = (
    "used: in the quota; opport.: opportunistic; other: in no band of ours; lent: what others use of the quota;",
    "over: use above the quota; claims: what it is owed and waits for; moved: jobs that wait in a borrowed band.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BandUse:
    """One agent's use in one TRES; ``quota`` is ``None`` where it is not limited."""

    tres: str
    quota: int | None
    guaranteed: int
    borrowed: int
    opportunistic: int
    outside: int

    @property
    def total(self) -> int:
        """Everything that the agent holds."""
        return self.guaranteed + self.borrowed + self.opportunistic + self.outside


def bands_section(plan: Plan) -> Section | None:
    """Return the table, ``None`` where no agent has bands."""
    rows = [band_cells(standing, standing.bands) for standing in plan.standings if standing.bands is not None]
    if not rows:
        return None
    return Section(title="Bands", columns=tuple(rows[0]), rows=tuple(tuple(row.values()) for row in rows))


def band_cells(standing: AgentStanding, bands: BandStanding) -> dict[str, object]:
    """Return an agent's row by heading."""
    tres = _shown_tres(bands)
    return {
        "agent": standing.agent,
        "tres": tres,
        "quota": _of(bands.nominal, tres, absent="unlimited"),
        "used": _of(bands.guaranteed, tres),
        "borrowed": _of(bands.borrow, tres),
        "of cap": _of(bands.borrow_cap, tres, absent="unlimited") if bands.has_borrow else None,
        "opport.": _of(bands.opportunistic, tres),
        "other": _of(bands.outside, tres),
        "lent": _of(bands.lent, tres),
        "over": _of(bands.over, tres),
        "claims": _of(bands.claim, tres),
        "moved": bands.n_moved_out,
        "full on": ", ".join(_full_on(bands)) or None,
    }


def band_use(standing: AgentStanding, tres: tuple[str, ...]) -> BandUse:
    """Return an agent's use in numbers; without bands in GPUs, or in what it holds most of, as use of no band.

    Parameters
    ----------
    tres : tuple of str
        The axes of ``standing.allocation``.
    """
    bands = standing.bands
    if bands is None:
        name = GPU if GPU in tres else standing.dominant_tres
        held = dict(zip(tres, standing.allocation, strict=True)).get(name, 0)
        return BandUse(tres=name, quota=None, guaranteed=0, borrowed=0, opportunistic=0, outside=held)
    name = _shown_tres(bands)
    return BandUse(
        tres=name,
        quota=dict(bands.nominal).get(name),
        guaranteed=dict(bands.guaranteed).get(name, 0),
        borrowed=dict(bands.borrow).get(name, 0),
        opportunistic=dict(bands.opportunistic).get(name, 0),
        outside=dict(bands.outside).get(name, 0),
    )


def _shown_tres(bands: BandStanding) -> str:
    names = [name for name, _ in bands.nominal]
    return GPU if GPU in names or not names else names[0]


def _of(amounts: Tres, tres: str, *, absent: str = "0") -> str:
    found = dict(amounts).get(tres)
    return absent if found is None else amount(tres, found)


def _full_on(bands: BandStanding) -> list[str]:
    used = dict(bands.guaranteed)
    return [name for name, limit in bands.nominal if used.get(name, 0) >= limit]
