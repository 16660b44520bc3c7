"""What a job asked for in GRES, in whichever of Slurm's spellings, and what that makes of its TRES.

``tres-alloc`` of ``squeue`` is the base: what a pending job requests, what a running one holds. Two things are
put right here. After a requeue it keeps the types of the earlier run (``gres/gpu:h100`` of a job that asked for
any GPU); for a pending job only types that the user named count. And where the site does not track a GRES in
``AccountingStorageTRES``, ``tres-alloc`` is silent about it; then it is counted from the request.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from policies.quota.amounts import MAX_AMOUNT
from slurm_plugin import translate

if TYPE_CHECKING:
    from policies.records import Tres


class ResourceCells(NamedTuple):
    """Cells of one ``squeue`` row that say what the job gets, verbatim.

    ``per_job`` is what ``--gpus`` became, ``per_node`` comes from ``--gres`` or ``--gpus-per-node``, and so on.
    ``n_nodes`` and ``n_tasks`` multiply per-node and per-task requests.
    """

    is_pending: bool
    tres_alloc: str
    per_job: str
    per_node: str
    per_socket: str
    per_task: str
    n_nodes: str
    n_tasks: str


class SettledTres(NamedTuple):
    """TRES of one task of a job, the typed TRES that its user named, and whether any is estimated or cut."""

    tres: Tres
    requested_types: tuple[str, ...]
    is_estimate: bool
    is_capped: bool


@lru_cache(maxsize=16384)
def settle_tres(cells: ResourceCells) -> SettledTres:
    """TRES of a job with its GRES as the request says.

    Raises
    ------
    ValueError
        If a cell cannot be read.

    Notes
    -----
    A per-socket request that Slurm does not account is taken as one socket per node.
    """
    asked = _asked(cells)
    named = tuple(sorted(name for name in asked if ":" in name))
    amounts = {
        name: amount
        for name, amount in translate.parse_tres(cells.tres_alloc)
        if not cells.is_pending or ":" not in name or name in named
    }
    is_estimate = False
    for name, amount in asked.items():
        if amount and name not in amounts:
            amounts[name] = amount
            is_estimate = is_estimate or ":" not in name
    capped = {name: min(max(amount, 0), MAX_AMOUNT) for name, amount in amounts.items()}
    return SettledTres(tuple(sorted(capped.items())), named, is_estimate, capped != amounts)


def _asked(cells: ResourceCells) -> dict[str, int]:
    """Sum up the request by TRES name; where several scopes name one GRES, the largest counts."""
    n_nodes, n_tasks = (translate.parse_count(raw) or 1 for raw in (cells.n_nodes, cells.n_tasks))
    amounts: dict[str, int] = {}
    for text, factor in (
        (cells.per_job, 1),
        (cells.per_node, n_nodes),
        (cells.per_socket, n_nodes),
        (cells.per_task, n_tasks),
    ):
        scope: dict[str, int] = {}
        for gres in translate.parse_gres(text):
            for name in filter(None, (gres.tres, gres.typed_tres)):
                scope[name] = scope.get(name, 0) + gres.amount * factor
        for name, amount in scope.items():
            amounts[name] = max(amounts.get(name, 0), amount)
    return amounts
