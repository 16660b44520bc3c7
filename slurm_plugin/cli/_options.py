"""Options that several verbs share, spelled and explained once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

_Command = TypeVar("_Command", bound="Callable[..., Any]")

EXIT_FAILED: Final = 1


def site_option(function: _Command) -> _Command:
    """Add ``--site FILE`` (parameter ``site_path``): which site file to read."""
    return click.option(
        "--site",
        "site_path",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        metavar="FILE",
        help="Site file; default: $FAIRGPU_SITE, else /etc/fairgpu/site.yaml.",
    )(function)


def json_option(function: _Command) -> _Command:
    """Add ``--json`` (parameter ``as_json``): print canonical JSON instead of a table."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(function)


def slurm_bin_dir_option(function: _Command) -> _Command:
    """Add ``--slurm-bin-dir DIR`` (parameter ``slurm_bin_dir``): where Slurm's commands are."""
    return click.option(
        "--slurm-bin-dir",
        type=click.Path(path_type=Path, file_okay=False),
        default=None,
        metavar="DIR",
        help="Directory of scontrol, squeue, ...; default: searched in PATH.",
    )(function)
