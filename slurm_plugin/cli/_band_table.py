"""The bands as ``fairgpu status`` shows them: one row per agent, in the TRES that its quota limits first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_plugin.cli._numbers import amount
from slurm_plugin.cli._output import print_line, print_table

if TYPE_CHECKING:
    from policies.plan import AgentStanding, BandStanding, Plan
    from policies.records import Tres

_GPU = "gres/gpu"
_COLUMNS = (
    *("agent", "tres", "quota", "guaranteed", "borrowed", "of cap", "opportunistic", "no band"),
    *("lent", "above quota", "claims", "moved out", "full on"),
)


def print_bands(plan: Plan) -> None:
    """Print the table, nothing where no agent has bands."""
    rows = [_row(standing, standing.bands) for standing in plan.standings if standing.bands is not None]
    if not rows:
        return
    print_table("Bands", _COLUMNS, rows)
    print_line("lent: what others use of an agent's quota; claims: what it is owed and waits for.")


def _row(standing: AgentStanding, bands: BandStanding) -> tuple[object, ...]:
    tres = _shown_tres(bands)
    return (
        standing.agent,
        tres,
        _of(bands.nominal, tres, absent="unlimited"),
        _of(bands.guaranteed, tres),
        _of(bands.borrow, tres),
        _of(bands.borrow_cap, tres, absent="unlimited"),
        _of(bands.opportunistic, tres),
        _of(bands.outside, tres),
        _of(bands.lent, tres),
        _of(bands.over, tres),
        _of(bands.claim, tres),
        bands.n_moved_out,
        ", ".join(_full_on(bands)) or None,
    )


def _shown_tres(bands: BandStanding) -> str:
    names = [name for name, _ in bands.nominal]
    return _GPU if _GPU in names or not names else names[0]


def _of(amounts: Tres, tres: str, *, absent: str = "0") -> str:
    found = dict(amounts).get(tres)
    return absent if found is None else amount(tres, found)


def _full_on(bands: BandStanding) -> list[str]:
    used = dict(bands.guaranteed)
    return [name for name, limit in bands.nominal if used.get(name, 0) >= limit]
