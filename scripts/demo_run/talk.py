"""What both acts say and how."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from rich.console import Console

REPO: Final = Path(__file__).resolve().parents[2]

Checks = dict[str, bool]
"""What was claimed, and whether it held."""

console: Final = Console(highlight=False, width=None if sys.stdout.isatty() else 150, soft_wrap=not sys.stdout.isatty())


def tell_picture(path: Path) -> None:
    """Say where a picture is."""
    path = path.resolve()
    console.print(f"   picture: {path.relative_to(REPO) if path.is_relative_to(REPO) else path}")
