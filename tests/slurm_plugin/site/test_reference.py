from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from slurm_plugin.site import load_site
from slurm_plugin.site.reference import export_schema, iter_sections, list_settings, render_reference

REPOSITORY = Path(__file__).parents[3]
REFERENCE = REPOSITORY / "docs" / "reference"


def test_the_committed_reference_page_is_the_generated_one() -> None:
    assert (REFERENCE / "site-file.md").read_text() == render_reference()


def test_the_committed_schema_is_the_generated_one() -> None:
    assert json.loads((REFERENCE / "site.schema.json").read_text()) == export_schema()


def test_every_setting_has_a_meaning_and_a_row() -> None:
    page = render_reference()
    for _, model in iter_sections():
        for setting in list_settings(model):
            assert setting.meaning.endswith("."), setting.key
            assert f"| `{setting.key}` |" in page


def test_the_schema_refuses_unknown_keys_and_spells_defaults_as_the_file_does() -> None:
    schema = export_schema()
    objects = [schema, *(node for node in schema["$defs"].values() if node["type"] == "object")]
    assert all(node["additionalProperties"] is False for node in objects)
    hook = schema["$defs"]["HookSettings"]["properties"]
    assert hook["deadline"]["default"] == "20ms"
    assert "<= 200ms" in hook["deadline"]["description"]
    assert schema["$defs"]["SlaSettings"]["properties"]["bound"]["minimum"] == 1


def keys_of(value: Any) -> set[str]:
    if not isinstance(value, dict):
        return set()
    return set(value) | {key for item in value.values() for key in keys_of(item)}


def test_the_example_uses_every_setting_that_the_schema_knows() -> None:
    text = (REPOSITORY / "examples" / "ecommerce.yaml").read_text()
    settings = load_site(REPOSITORY / "examples" / "ecommerce.yaml").settings
    known = keys_of(settings.model_dump(mode="json", by_alias=True)) - {"smoothing", "hysteresis", "max_age"}
    assert {key for key in known if f"{key}:" not in text} == set()
