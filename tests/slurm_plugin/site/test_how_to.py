from __future__ import annotations

import re
from pathlib import Path

from slurm_plugin.site import parse_site

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "configure.md"
HEAD = "cluster: c\npartitions: [p]\n"
AGENTS = "agents:\n  a: {accounts: [a], base_weight: 1}\n"


def snippets() -> list[str]:
    blocks = re.findall(r"^( *)```yaml\n(.*?)^ *```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [re.sub(f"^{indent}", "", text, flags=re.MULTILINE) for indent, text in blocks]


def test_every_yaml_snippet_of_the_page_is_right() -> None:
    found = snippets()
    assert len(found) == 3
    for text in found:
        whole = text if "cluster:" in text else HEAD + text
        assert parse_site(whole if "agents:" in whole else whole + AGENTS).policy.agents
