"""What is Lua's alone; what both shims promise is in test_shims.py."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.hook.wire import encode_frame
from tests.slurm_plugin.hook.hostile import Hostile, replies
from tests.slurm_plugin.hook.shims import LUA_SHIM, run_lua

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slurm_plugin.hook.conftest import Start

pytestmark = pytest.mark.skipif(shutil.which("lua5.1") is None, reason="needs lua5.1 and lua-socket")


def test_a_nul_in_a_comment_changes_no_other_field(start: Start) -> None:
    running = start()
    (call,) = run_lua(running.path, r"wrap() submit(job{comment='agent=rec \0'})")
    assert (call.rc, call.changed) == ("0", "site_factor=40000")
    assert running.records()[0].request.account == "rec"


def test_the_sites_refusal_stands_and_ours_is_not_asked(start: Start) -> None:
    running = start()
    (call,) = run_lua(running.path, "function slurm_job_submit() return 2015 end wrap() submit(job{})")
    assert call.rc == "2015"
    assert running.records() == []


def test_ours_runs_after_the_sites_function(start: Start) -> None:
    script = "function slurm_job_submit(j) j.qos = 'x' return slurm.SUCCESS end wrap() submit(job{})"
    (call,) = run_lua(start().path, script)
    assert (call.rc, call.changed) == ("0", "qos=x site_factor=40000")


def test_an_error_in_ours_passes_the_job(start: Start) -> None:
    script = "wrap() submit(setmetatable({}, {__index = function() error('boom') end}))"
    (call,) = run_lua(start().path, script)
    assert (call.rc, call.changed) == ("0", "")
    assert "boom" in call.logged


def test_without_a_qos_the_script_is_not_looked_at(tmp_path: Path) -> None:
    script = (
        "wrap() submit(setmetatable({}, {__index = function(_, name) if name == 'script' then error('x') end end}))"
    )
    with Hostile(tmp_path / "s", replies(encode_frame("R", {"verdict": "accept"}))):
        (call,) = run_lua(tmp_path / "s", script)
    assert (call.rc, call.logged) == ("0", "")


def test_our_minimal_script_loads_and_accepts(tmp_path: Path) -> None:
    record = "{user_id=1000, account='rec', partition='gpu', comment='agent=rec'}"
    script = f"dofile('{LUA_SHIM}/job_submit.lua') submit(job{{}}) modify({{comment='x'}}, {record}, 1000)"
    calls = run_lua(tmp_path / "unused", script)
    assert [call.rc for call in calls] == ["0", "0"]
