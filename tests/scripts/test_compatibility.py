"""The table of releases says what the runs said."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT: Final = Path(__file__).resolve().parents[2] / "scripts/compatibility"
VERSIONS: Final = {"slurm": "1.2.3", "debian": "9", "python": "3", "mariadb": "4", "commit": "abc", "day": "2030-01-01"}
JUNIT: Final = """<testsuites><testsuite>
<testcase classname="tests.e2e.test_hook" name="a"/>
<testcase classname="tests.e2e.test_hook" name="b[x]"><failure>no</failure></testcase>
<testcase classname="tests.e2e.test_apply" name="c"><error>no</error></testcase>
<testcase classname="tests.e2e.test_apply" name="d"><skipped/></testcase>
</testsuite></testsuites>"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("compatibility", str(SCRIPT))
    spec = importlib.util.spec_from_loader("compatibility", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_errors_and_skips_count_as_failed(script: ModuleType) -> None:
    record = script.record_of("1.2", JUNIT, VERSIONS)
    assert record["files"] == {"test_apply": [0, 2], "test_hook": [1, 1]}
    assert record["failed"] == ["test_apply::c", "test_apply::d", "test_hook::b[x]"]


def test_the_table_names_versions_counts_and_failures(script: ModuleType) -> None:
    text = script.page_text([script.record_of("1.2", JUNIT, VERSIONS)])
    assert "| 1.2.3 | 9 | 3 | 4 | 2 files | 1 | 3 | abc | 2030-01-01 |" in text
    assert "| `test_hook` | 1 passed, 1 failed |" in text
    assert "- 1.2.3: `test_hook::b[x]`" in text


def test_the_page_is_what_the_records_say(script: ModuleType) -> None:
    assert script.main(["page", "--check"]) == 0
