from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slurm_plugin.site import SiteFile, parse_site

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MINIMAL = """\
cluster: shop
partitions: [gpu]
agents:
  risk: {accounts: [risk], base_weight: 0.6}
  rec: {accounts: [rec], base_weight: 0.4}
"""


@pytest.fixture
def minimal() -> str:
    return MINIMAL


@pytest.fixture
def make_site(tmp_path: Path) -> Callable[..., SiteFile]:
    def make(**paths: Any) -> SiteFile:
        where = {"state_dir": tmp_path, "run_dir": tmp_path, **paths}
        return parse_site(f"{MINIMAL}paths: {{state_dir: {where['state_dir']}, run_dir: {where['run_dir']}}}\n")

    return make
