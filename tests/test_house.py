"""Habits of the house that no linter knows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurm_plugin.cli.main import cli

REPO = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def _tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=REPO, capture_output=True, check=True)
    return [REPO / name for name in listed.stdout.decode().split("\0") if name]


def test_readme_is_short() -> None:
    assert len((REPO / "README.md").read_text(encoding="utf-8").splitlines()) < 150


@pytest.mark.parametrize("page", _tracked("*.md"), ids=lambda page: str(page.relative_to(REPO)))
def test_links_resolve(page: Path) -> None:
    links = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize(
    "page", _tracked("docs/reference/*.md", "docs/how-to/*.md", "docs/explanation/*.md"), ids=lambda page: page.stem
)
def test_every_page_is_in_the_map(page: Path) -> None:
    assert str(page.relative_to(REPO / "docs")) in (REPO / "docs" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", sorted(cli.list_commands(None)))  # type: ignore[arg-type]  # the group ignores it
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    result = CliRunner().invoke(cli, [verb, "--help"])
    assert result.exit_code == 0
    assert re.search(rf"(?m)^\s+(sudo (-u \w+ )?)?fairgpu {verb}\b", result.output), "no example in --help"


@pytest.mark.parametrize("source", _tracked("*.py"), ids=lambda path: str(path.relative_to(REPO)))
def test_no_file_is_too_long(source: Path) -> None:
    limit = 600 if source.is_relative_to(REPO / "tests") else 400
    assert len(source.read_text(encoding="utf-8").splitlines()) <= limit
