"""No silent skips: ``scripts/test`` sets FAIRGPU_NO_SKIPS, and then a skipped test counts as failed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure that says which component is missing."""
    report = yield
    if report.skipped and os.environ.get("FAIRGPU_NO_SKIPS") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although FAIRGPU_NO_SKIPS is set: {report.longrepr}"
    return report
