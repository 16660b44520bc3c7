"""The systemd units call verbs and options that exist, and never leave out what the design asks of them."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.cli.main import cli

if TYPE_CHECKING:
    import click

UNITS = Path(__file__).resolve().parents[1] / "packaging/systemd"
SERVICES = sorted(UNITS.glob("*.service"))


def read(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    parser.read_string(path.read_text(encoding="utf-8"))
    return parser


def test_there_is_a_unit_for_each_daemon_and_a_watchdog() -> None:
    names = {path.stem.removeprefix("fairgpu-") for path in SERVICES}
    assert names == {"rebalancer", "hook", "qos-helper", "watchdog"}


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_a_service_starts_a_verb_that_exists_with_options_that_it_takes(path: Path) -> None:
    service = read(path)["Service"]
    python, safe, program, verb, *options = shlex.split(service["ExecStart"])
    assert (python, safe, program) == ("/opt/fairgpu/bin/python", "-P", "/opt/fairgpu/bin/fairgpu")
    assert service["WorkingDirectory"] == "/"
    command: click.Command | None = cli.get_command(
        cli.make_context("fairgpu", ["--help"], resilient_parsing=True), verb
    )
    assert command is not None
    known = {name for parameter in command.params for name in parameter.opts}
    assert {option for option in options if option.startswith("-")} <= known


def test_the_helper_runs_as_slurm_user_and_everything_else_does_not() -> None:
    users = {path.stem: read(path)["Service"]["User"] for path in SERVICES}
    assert users.pop("fairgpu-qos-helper") == "slurm"
    assert set(users.values()) == {"fairgpu"}


def test_a_daemon_is_started_again_however_often_it_dies() -> None:
    daemons = [read(path) for path in SERVICES if path.stem != "fairgpu-watchdog"]
    assert {unit["Service"]["Restart"] for unit in daemons} == {"always"}
    assert {unit["Unit"]["StartLimitIntervalSec"] for unit in daemons} == {"0"}


def test_the_watchdog_has_a_timer() -> None:
    timer = read(UNITS / "fairgpu-watchdog.timer")
    assert int(timer["Timer"]["OnUnitActiveSec"]) <= 60
