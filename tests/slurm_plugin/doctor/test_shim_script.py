from __future__ import annotations

import re
from pathlib import Path

import pytest

from slurm_plugin.doctor.shim_script import (
    SHIM_DEFAULTS,
    differing_options,
    has_code_after_return,
    shim_lines,
    without_comments,
)
from tests.slurm_plugin.doctor.conftest import changed, good_facts

SHIM = Path(__file__).parents[3] / "slurm_plugin" / "hook" / "lua" / "fairgpu.lua"


def test_our_defaults_are_those_of_the_shim() -> None:
    block = SHIM.read_text().partition("local DEFAULTS = {")[2].partition("\n}")[0]
    found = dict(re.findall(r'(\w+) = ("[^"]*"|\d+),', block))
    assert {name: found[name] for name in SHIM_DEFAULTS} == SHIM_DEFAULTS


def test_the_lines_we_propose_say_what_the_site_file_says() -> None:
    facts = changed(good_facts(), config={"SlurmUser": "slurm(64030)"})
    lines = shim_lines(facts)
    assert "uids = {990, 64030}" in lines
    assert differing_options(lines, facts) == ()


@pytest.mark.parametrize("call", ["fairgpu.wrap{%s}", "fairgpu.wrap({%s})", "pcall(fairgpu.wrap, {uids = {1}, %s})"])
def test_every_way_to_call_is_read(call: str) -> None:
    code = 'local ok, fairgpu = pcall(require, "fairgpu")\n' + call % 'socket="/x", deadline_ms=20'
    assert differing_options(code, good_facts()) == ('socket "/x", not "/run/fairgpu/hook.sock"',)


def test_comments_do_not_count() -> None:
    assert without_comments('a -- require "fairgpu"\nb') == "a \nb"


@pytest.mark.parametrize(
    ("script", "is_broken"),
    [
        ("return slurm.SUCCESS\n", False),
        ("function f()\nreturn 0\nend\nreturn slurm.SUCCESS\n\n-- the end\n", False),
        ("if a then\nreturn 1\nelse\nreturn 2\nend", False),
        ("function f() return 0 end\nlocal x = 1", False),
        ("  return 0\nlocal x = 1", False),
        ("return slurm.SUCCESS\nlocal ok = 1", True),
        ("return\nlocal ok = 1", True),
    ],
)
def test_code_after_the_final_return_is_seen(script: str, is_broken: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert has_code_after_return(without_comments(script)) is is_broken
