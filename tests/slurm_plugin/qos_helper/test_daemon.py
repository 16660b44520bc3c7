"""The helper as a process: it answers the state directory's owner, runs sacctmgr, and ends on SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from slurm_plugin.errors import ConfigError
from slurm_plugin.qos_helper.client import HelperUnavailableError, SocketQosHelper, helper_socket
from slurm_plugin.qos_helper.daemon import run_qos_helper
from slurm_plugin.qos_helper.request import QosChange, Setting, Verdict
from tests.slurm_plugin.rebalancer.world import make_site

if TYPE_CHECKING:
    from pathlib import Path

CHANGE = QosChange(names=("fg_fake_risk_borrow",), setting=Setting.PRIORITY, value="4")


def test_a_site_without_bands_needs_no_helper(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no bands"):
        run_qos_helper(make_site(tmp_path))


def test_a_missing_state_directory_is_named(tmp_path: Path) -> None:
    site = make_site(tmp_path, more="bands: {}\n")
    (tmp_path / "site.yaml").unlink()
    tmp_path.rmdir()
    with pytest.raises(ConfigError, match="its owner is who may ask"):
        run_qos_helper(site)


def test_it_serves_until_sigterm(tmp_path: Path) -> None:
    home = tmp_path / "state"
    home.mkdir()
    site = make_site(home, more="bands: {}\n")
    sacctmgr = tmp_path / "sacctmgr"
    sacctmgr.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/ran\n')
    sacctmgr.chmod(0o755)
    argv = [sys.executable, "-c", "from slurm_plugin.cli.main import main; main()", "qos-helper"]
    process = subprocess.Popen(
        [*argv, "--site", str(site.path), "--slurm-bin-dir", str(tmp_path)], stderr=subprocess.PIPE, text=True
    )
    try:
        helper = SocketQosHelper(path=helper_socket(site))
        _wait_for(helper)
        assert [one.verdict for one in helper.apply([CHANGE])] == [Verdict.DONE]
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
    assert process.returncode == 0
    assert (tmp_path / "ran").read_text() == "-i modify qos fg_fake_risk_borrow set Priority=4\n"
    assert "event=change qos=fg_fake_risk_borrow setting=priority value=4 verdict=done" in log
    assert not helper_socket(site).exists()
    assert os.fspath(helper_socket(site)).endswith("state-qos/helper.sock")


def _wait_for(helper: SocketQosHelper) -> None:
    until_s = time.monotonic() + 20
    while True:
        try:
            helper.ping()
        except HelperUnavailableError:
            assert time.monotonic() < until_s
            time.sleep(0.05)
        else:
            return
