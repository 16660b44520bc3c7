"""The forms of a job id that name one record: ``12``, ``12_3`` (array task), ``13+1`` (het component)."""

from __future__ import annotations

import re
from typing import Final

_JOB_ID: Final = re.compile(r"(\d+)(?:[_+](\d+))?", re.ASCII)


def is_job_id(text: str) -> bool:
    """Whether this names one record and may stand in a command."""
    return _JOB_ID.fullmatch(text) is not None


def job_order(job_id: str) -> tuple[int, int]:
    """Sort key of a job id: by number, an array's meta record before its tasks.

    Raises
    ------
    ValueError
        If it is no job id.

    Examples
    --------
    >>> sorted(["12_10", "9", "12_2", "12"], key=job_order)
    ['9', '12', '12_2', '12_10']
    """
    match = _JOB_ID.fullmatch(job_id)
    if match is None:
        raise ValueError(f"no job id: {job_id!r}")
    return int(match[1]), -1 if match[2] is None else int(match[2])
