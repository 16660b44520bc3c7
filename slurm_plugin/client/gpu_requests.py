"""What a job asked for in GRES, in whichever of Slurm's spellings, and what that makes of its TRES.

``tres-alloc`` of ``squeue`` is the base: what a pending job requests, what a running one holds. Two things
are put right here. After a requeue it keeps the types of the earlier run (``gres/gpu:h100`` of a job that
asked for any GPU); for a pending job only types that the user named count. And where the site does not
track a GRES in ``AccountingStorageTRES``, ``tres-alloc`` is silent about it; then it is counted from the
request.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from slurm_plugin import translate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policies.records import Tres


class GpuRequest(NamedTuple):
    """The four ``tres-per-*`` texts of a job, verbatim: what ``--gpus``, ``--gres`` and so on became."""

    per_job: str
    per_node: str
    per_socket: str
    per_task: str


class SettledTres(NamedTuple):
    """TRES of one task of a job; ``is_estimate`` where a GRES had to be counted from the request."""

    tres: Tres
    is_estimate: bool


@lru_cache(maxsize=4096)
def requested_types(request: GpuRequest) -> tuple[str, ...]:
    """Typed TRES that the user named, sorted: ``("gres/gpu:a100",)`` for ``--gpus=a100:6``."""
    return tuple(sorted({gres.typed_tres for text in request for gres in translate.parse_gres(text) if gres.type}))


def settle_gpus(tres: Tres, request: GpuRequest, *, is_pending: bool, n_nodes: int, n_tasks: int) -> SettledTres:
    """TRES of a job with its GRES as the request says.

    Parameters
    ----------
    tres : Tres
        Slurm's ``tres-alloc``.
    n_nodes, n_tasks : int
        Multipliers of per-node and per-task requests; a per-socket request is taken as one socket per node.
    """
    named = requested_types(request)
    amounts = {name: amount for name, amount in tres if not is_pending or ":" not in name or name in named}
    is_estimate = False
    for name, amount in _asked(request, n_nodes, n_tasks).items():
        if name not in amounts:
            amounts[name] = amount
            is_estimate = is_estimate or ":" not in name
    return SettledTres(tuple(sorted(amounts.items())), is_estimate)


@lru_cache(maxsize=4096)
def _asked(request: GpuRequest, n_nodes: int, n_tasks: int) -> Mapping[str, int]:
    """Sum up the request by TRES name; where several scopes name one GRES, the largest counts."""
    amounts: dict[str, int] = {}
    for text, factor in zip(request, (1, n_nodes, n_nodes, n_tasks), strict=True):
        scope: dict[str, int] = {}
        for gres in translate.parse_gres(text):
            for name in filter(None, (gres.tres, gres.typed_tres)):
                scope[name] = scope.get(name, 0) + gres.amount * factor
        for name, amount in scope.items():
            amounts[name] = max(amounts.get(name, 0), amount)
    return {name: amount for name, amount in amounts.items() if amount}
