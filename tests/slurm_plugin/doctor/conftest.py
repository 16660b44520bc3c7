from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurm_plugin.bands.partitions import parse_partitions
from slurm_plugin.client.text_answers import parse_config
from slurm_plugin.doctor import Check, Facts, HostFacts, PathFact, PingFact, run_checks
from slurm_plugin.doctor.collect import parse_associations
from slurm_plugin.site import parse_site

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDINGS = Path(__file__).parents[2] / "data" / "doctor"
SITE = """\
cluster: fg
partitions: [main]
agents:
  risk: {accounts: [risk], base_weight: 0.6}
  rec: {accounts: [rec], base_weight: 0.4}
site_factor: {scale: 40000, mode: blend}
"""
LUA = """\
function slurm_job_submit(a, b, c) return 0 end
function slurm_job_modify(a, b, c, d) return 0 end
local ok, fairgpu = pcall(require, "fairgpu")
if ok then ok, fairgpu = pcall(fairgpu.wrap, {socket = "/run/fairgpu/hook.sock"}) end
return slurm.SUCCESS
"""
GOOD_SETTINGS = {
    "JobSubmitPlugins": "lua",
    "EnforcePartLimits": "ALL",
    "SchedulerParameters": "bf_interval=2,requeue_delay=5",
}


def recorded_config(release: str) -> dict[str, str]:
    return parse_config((RECORDINGS / f"config-{release}.txt").read_text())


def good_facts() -> Facts:
    accounts, users = parse_associations((RECORDINGS / "associations.txt").read_text())
    host = HostFacts(
        service_user="fairgpu",
        service_uid=990,
        now_s=1_000.0,
        site_file=PathFact(path=Path("/etc/fairgpu/site.yaml"), exists=True, owner="root", mode=0o100644),
        state_dir=PathFact(
            path=Path("/var/lib/fairgpu"), exists=True, owner="fairgpu", mode=0o40755, filesystem="ext4"
        ),
        run_dir=PathFact(path=Path("/run/fairgpu"), exists=True, owner="fairgpu", mode=0o40755),
        ping=PingFact(latency_s=0.0002, state="enforce"),
        script=LUA,
        standings_age_s=2.0,
    )
    return Facts(
        site=parse_site(SITE),
        host=host,
        version="25.11.7",
        config={**recorded_config("25.11.7"), **GOOD_SETTINGS},
        partitions=parse_partitions((RECORDINGS / "partitions.txt").read_text()),
        accounts=accounts,
        associated_users=users,
        admin_level="Operator",
        qos=(),
        nodes=(),
        qos_in_use=(),
        assoc_rows=(),
        queue_users=frozenset({"alice"}),
        n_jobs=20,
        controller_s=1_000.0,
        asked_s=1_000.0,
    )


def changed(facts: Facts, **changes: Any) -> Facts:
    """Facts with other values: ``config`` is merged, ``site`` is YAML text, names of the host's facts go there."""
    host_names = {field.name for field in dataclasses.fields(HostFacts)}
    host = {name: value for name, value in changes.items() if name in host_names}
    rest = {name: value for name, value in changes.items() if name not in host_names}
    if "config" in rest:
        rest["config"] = {**facts.config, **rest["config"]}
    if isinstance(rest.get("site"), str):
        rest["site"] = parse_site(rest["site"])
    return dataclasses.replace(facts, host=dataclasses.replace(facts.host, **host), **rest)


@pytest.fixture
def judge() -> Callable[..., Check]:
    """Answer of one check on the good facts with some of them changed."""

    def run(name: str, **changes: Any) -> Check:
        answers = {check.name: check for check in run_checks(changed(good_facts(), **changes))}
        return answers[name]

    return run
