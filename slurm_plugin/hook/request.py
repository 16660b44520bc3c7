"""What a submission asks for, read from the fields that the shim sends.

The amounts serve to move the agent's standing until the next cycle, so they follow Slurm's spelling rules but
not its defaults (memory without a request, cores per GPU, ...): the next observation corrects them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from policies.quota.amounts import MAX_AMOUNT
from policies.submission.band_request import NO_BAND, BandRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_VAL16: Final = 0xFFFE
_NO_VAL: Final = 0xFFFFFFFE
_MAX_ARRAY_TASKS: Final = 4_000_001
_MAX_ARRAY_TEXT: Final = 65_536

_ANSWERS: Final = {"1": True, "0": False}

_GRES: Final = re.compile(r"(?:gres[:/])?(gpu)(?::([A-Za-z][A-Za-z0-9_.-]{0,63}))?(?:[:=]([0-9]{1,9}))?", re.ASCII)
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?", re.ASCII)


def requested_tres(fields: Mapping[str, str]) -> dict[str, int]:
    """TRES that one task of an array (or the job) asks for.

    Parameters
    ----------
    fields : mapping of str to str
        As slurmctld's Lua gives them, unset ones left out or ``NO_VAL``.

    Returns
    -------
    dict of str to int
        ``cpu`` in CPUs, ``mem`` in MiB (0 if not asked), ``gres/gpu`` and typed GPUs that the user named, in
        pieces.

    Notes
    -----
    ``--gpus`` is a total; per-node, per-task and per-socket requests are multiplied by nodes, tasks and nodes
    times sockets per node. Of several spellings the total wins, then the first of node, task, socket.

    Examples
    --------
    >>> requested_tres({"tres_per_node": "gres/gpu:a100:2", "min_nodes": "2", "min_cpus": "4"})
    {'cpu': 4, 'mem': 0, 'gres/gpu': 4, 'gres/gpu:a100': 4}
    """
    nodes = _number(fields, "min_nodes", _NO_VAL) or 1
    tasks = _number(fields, "num_tasks", _NO_VAL) or nodes
    per_task = _number(fields, "cpus_per_task", _NO_VAL16) or 1
    cpus = max(_number(fields, "min_cpus", _NO_VAL) or 0, tasks * per_task)
    sockets = _number(fields, "sockets_per_node", _NO_VAL16) or 1
    per_node_mem, per_cpu_mem = _number(fields, "min_mem_per_node"), _number(fields, "min_mem_per_cpu")
    tres = {"cpu": cpus, "mem": (per_node_mem or 0) * nodes or (per_cpu_mem or 0) * cpus}
    spellings = (
        ("tres_per_job", 1),
        ("tres_per_node", nodes),
        ("tres_per_task", tasks),
        ("tres_per_socket", nodes * sockets),
    )
    for name, count in spellings:
        gpus = parse_gpus(fields.get(name, ""))
        if gpus:
            return tres | {axis: amount * count for axis, amount in gpus.items()}
    return tres


def parse_gpus(text: str) -> dict[str, int]:
    """GPUs in a ``tres_per_*`` field, old (``gres:gpu:a100:2``) and new (``gres/gpu:a100:2``) spelling.

    ``gres/gpu`` counts all of them, a typed axis those that were asked by type. Other GRES are left out.

    Examples
    --------
    >>> parse_gpus("gres:gpu:a100:2,license/x:1"), parse_gpus("gres/gpu")
    ({'gres/gpu': 2, 'gres/gpu:a100': 2}, {'gres/gpu': 1})
    """
    gpus: dict[str, int] = {}
    if "gpu" not in text:
        return gpus
    for part in text.split(","):
        match = _GRES.fullmatch(part)
        if match is None:
            continue
        count = 1 if match[3] is None else int(match[3])
        gpus["gres/gpu"] = gpus.get("gres/gpu", 0) + count
        if match[2]:
            axis = f"gres/gpu:{match[2]}"
            gpus[axis] = gpus.get(axis, 0) + count
    return gpus


def count_array_tasks(array_inx: str) -> int:
    """Tasks of an array expression (``0-9:3,17%2``), 1 without one or with one that cannot be read.

    Examples
    --------
    >>> count_array_tasks("0-9:3,17%2"), count_array_tasks("")
    (5, 1)
    """
    total = 0
    for part in array_inx[:_MAX_ARRAY_TEXT].partition("%")[0].strip("[]").split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return 1
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        total += max(0, last - first) // max(step, 1) + 1
    return max(1, min(total, _MAX_ARRAY_TASKS))


def is_startable(fields: Mapping[str, str], now_s: float) -> bool:
    """Whether the job waits for resources only: not held, not delayed, without a dependency."""
    begin = _number(fields, "begin_time", _NO_VAL)
    return not fields.get("dependency") and fields.get("priority") != "0" and (begin is None or begin <= now_s)


def read_band(fields: Mapping[str, str], *, default: bool | None) -> BandRequest:
    """QOS that was asked for, with what it takes to survive there; the shim sends these fields together or none.

    A job that is moved to no QOS goes to its account's default.

    Parameters
    ----------
    default : bool or None
        Whether a job that does not say may be requeued; ``None`` if that is not known.

    Examples
    --------
    >>> read_band({"qos": "fg_c_risk_borrow", "requeue": "0", "batch": "1"}, default=True).is_requeueable
    False
    """
    is_move = fields.get("moved") == "1"
    if "qos" not in fields and not is_move:
        return NO_BAND
    return BandRequest(
        qos=fields.get("qos", ""),
        is_batch=_ANSWERS.get(fields.get("batch", ""), True),
        is_requeueable=_ANSWERS.get(fields.get("requeue", ""), default),
        is_move=is_move,
    )


def _number(fields: Mapping[str, str], name: str, no_val: int = MAX_AMOUNT) -> int | None:
    # NO_VAL and INFINITE of the field's width, and anything that is no plain number, mean "not asked".
    text = fields.get(name)
    if text is None or len(text) > 20 or not (text.isascii() and text.isdigit()):
        return None
    value = int(text)
    return value if value < no_val else None
