"""Fixtures for the end-to-end tests: one real Slurm per session, our daemons per test."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e.mini_cluster import (
    Daemon,
    MiniCluster,
    remove_leftovers,
    start_hook_server,
    start_rebalancer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_HERE: Final = Path(__file__).resolve().parent
_PREFIX: Final = "e2e"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this directory, whoever wrote it."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def cluster() -> Iterator[MiniCluster]:
    """Yield a cluster with the submit hook (16 GPUs, one CPU-only node); it is down after the session."""
    remove_leftovers(_PREFIX)
    name = f"{_PREFIX}{os.getpid()}"
    try:
        # The submission passes unchanged when the answer is late, and on a busy machine 20 ms can be too short. What is
        # decided is tested here; that the deadline holds is tested in tests/slurm_plugin/hook/test_lua.py.
        yield MiniCluster.up(name, "--hook", "--hook-deadline-ms", "200")
    finally:
        MiniCluster(name).down()


@pytest.fixture(scope="session")
def compiled_cluster() -> Iterator[MiniCluster]:
    """Yield a cluster like ``cluster`` whose slurmctld asks through the compiled shim, without Lua."""
    name = f"{_PREFIX}{os.getpid()}-so"
    try:
        yield MiniCluster.up(name, "--hook", "compiled", "--hook-deadline-ms", "200")
    finally:
        MiniCluster(name).down()


@pytest.fixture
def hook_server(cluster: MiniCluster) -> Iterator[Daemon]:
    """Yield a running ``fairgpu hook-server``."""
    daemon = start_hook_server(cluster)
    yield daemon
    daemon.ensure_ended()


@pytest.fixture
def rebalancer(cluster: MiniCluster) -> Iterator[Daemon]:
    """Yield a running ``fairgpu rebalance`` that has finished its first cycle."""
    daemon = start_rebalancer(cluster)
    yield daemon
    daemon.ensure_ended()
