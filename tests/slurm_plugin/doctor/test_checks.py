"""Every check on a site where it is content, and on one where it is not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slurm_plugin.doctor import ALL_CHECKS, Check, Facts, PathFact, PingFact, Status, run_checks
from slurm_plugin.doctor.hook_checks import lua_cost_ms
from slurm_plugin.hook.plugin_file import PluginFile
from tests.slurm_plugin.doctor.band_cases import BAND_COMPLAINTS, BAND_CONTENT
from tests.slurm_plugin.doctor.conftest import LUA, SITE, changed, good_facts, recorded_config

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[..., Check]

REPOSITORY = Path(__file__).parents[3]
DOMINANT = SITE.replace("mode: blend", "mode: dominant")
ENFORCE = SITE + "mode: enforce\n"
STATE = PathFact(path=Path("/var/lib/fairgpu"), exists=True, owner="fairgpu", mode=0o40755, filesystem="ext4")
RUN = PathFact(path=Path("/run/fairgpu"), exists=True, owner="fairgpu", mode=0o40755)
SITE_FILE = PathFact(path=Path("/etc/fairgpu/site.yaml"), exists=True, owner="root", mode=0o100666)


def test_every_check_is_content_with_a_good_site() -> None:
    complaints = [check for check in run_checks(good_facts()) if check.status is not Status.OK]
    assert complaints == []


def plugin(*, built_for: str = "25.11.7", settings: str | None = None) -> PluginFile:
    return PluginFile(path=Path("/usr/local/lib/slurm/job_submit_fairgpu.so"), built_for=built_for, settings=settings)


COMPLAINTS: dict[str, tuple[str, dict[str, Any], Status, str, str]] = {
    **BAND_COMPLAINTS,
    "no answer": (
        "slurm-reachable",
        {"missing": {"config": "scontrol: Connection refused"}},
        Status.FAIL,
        "no answer",
        "scontrol ping",
    ),
    "another cluster": (
        "cluster-name",
        {"config": {"ClusterName": "other"}},
        Status.FAIL,
        "other, the site file says fg",
        "site file: cluster: other",
    ),
    "too old": ("slurm-version", {"version": "21.08.8"}, Status.FAIL, "21.08.8", "upgrade Slurm"),
    "too new": ("slurm-version", {"version": "26.11.0"}, Status.WARN, "26.11.0", ""),
    "gpus not counted": (
        "gpu-accounting",
        {"config": {"AccountingStorageTRES": "cpu,mem,energy,node,billing"}},
        Status.FAIL,
        "no GPU",
        "AccountingStorageTRES=gres/gpu ",
    ),
    "gpus not counted beside others": (
        "gpu-accounting",
        {"config": {"AccountingStorageTRES": "cpu,mem,energy,node,billing,license/ansys"}},
        Status.FAIL,
        "no GPU",
        "AccountingStorageTRES=license/ansys,gres/gpu ",
    ),
    "select linear": (
        "select-type",
        {"config": {"SelectType": "select/linear"}},
        Status.FAIL,
        "select/linear",
        "SelectType=select/cons_tres",
    ),
    "limits not enforced": (
        "partition-limits",
        {"config": {"EnforcePartLimits": "NO"}},
        Status.WARN,
        "NO",
        "EnforcePartLimits=ALL",
    ),
    "slow requeue, new release": (
        "requeue-delay",
        {"config": {"SchedulerParameters": "bf_interval=2"}},
        Status.WARN,
        "121 s",
        "slurm.conf: SchedulerParameters=bf_interval=2,requeue_delay=5",
    ),
    "slow requeue, old release": (
        "requeue-delay",
        {"version": "24.11.5", "config": {"AuthInfo": "socket=/run/m"}},
        Status.WARN,
        "121 s",
        "slurm.conf: AuthInfo=socket=/run/m,cred_expire=5",
    ),
    "slow requeue by choice": (
        "requeue-delay",
        {"version": "24.11.5", "config": {"AuthInfo": "cred_expire=600,socket=/run/m"}},
        Status.WARN,
        "601 s",
        "slurm.conf: AuthInfo=socket=/run/m,cred_expire=5",
    ),
    "no backfill": (
        "scheduler",
        {"config": {"SchedulerType": "sched/builtin"}},
        Status.WARN,
        "sched/builtin",
        "SchedulerType=sched/backfill",
    ),
    "backfill seldom": (
        "scheduler",
        {"config": {"SchedulerParameters": "bf_interval=300,bf_window=1440"}},
        Status.WARN,
        "bf_interval=300",
        "SchedulerParameters=bf_window=1440,bf_interval=30",
    ),
    "backfill not deep": ("scheduler", {"n_jobs": 5_000}, Status.WARN, "bf_max_job_test=500", "bf_continue"),
    "two controllers": (
        "controllers",
        {"config": {"SlurmctldHost[1]": "ctl2(10.0.0.2)"}},
        Status.WARN,
        "ctl2",
        "on each of them",
    ),
    "clocks differ": ("clock", {"controller_s": 1_090.0}, Status.FAIL, "+90 s", "set-ntp"),
    "priority basic": (
        "priority-type",
        {"config": {"PriorityType": "priority/basic"}},
        Status.FAIL,
        "priority/basic",
        "PriorityType=priority/multifactor",
    ),
    "site factor plugin": (
        "site-factor-plugin",
        {"config": {"PrioritySiteFactorPlugin": "site_factor/own"}},
        Status.WARN,
        "site_factor/own",
        "remove the line",
    ),
    "site factor plugin while enforcing": (
        "site-factor-plugin",
        {"site": ENFORCE, "config": {"PrioritySiteFactorPlugin": "site_factor/own"}},
        Status.FAIL,
        "site_factor/own",
        "remove the line",
    ),
    # The recording has fair-share 1000 and qos 100000: 40000 does not exceed 101000.
    "not dominant": (
        "factor-scale",
        {"site": DOMINANT},
        Status.FAIL,
        "scale 40000 against 101000 (fair-share 1000, qos 100000)",
        "scale: 101001",
    ),
    "drowned": (
        "factor-scale",
        {"config": {"PriorityWeightTRES": "CPU=1000,GRES/gpu=5000000"}},
        Status.WARN,
        "against 5102000 (fair-share 1000, qos 100000, tres CPU 1000, tres GRES/gpu 5000000)",
        "scale: 5102000",
    ),
    "only upwards": (
        "priority-flags",
        {"config": {"PriorityFlags": "CALCULATE_RUNNING,INCR_ONLY"}},
        Status.FAIL,
        "INCR_ONLY",
        "remove INCR_ONLY",
    ),
    "not bounded": (
        "priority-flags",
        {"site": DOMINANT, "config": {"PriorityFlags": "NO_NORMAL_QOS"}},
        Status.WARN,
        "NO_NORMAL_QOS",
        "remove the NO_NORMAL_",
    ),
    "tiers differ": (
        "partition-tiers",
        {"site": SITE.replace("[main]", "[main, a100]")},
        Status.WARN,
        "a100=2, main=1",
        "PriorityTier",
    ),
    "no operator": (
        "operator",
        {"admin_level": "None"},
        Status.FAIL,
        "fairgpu: None",
        "sacctmgr -i modify user fairgpu set adminlevel=operator",
    ),
    "unknown to slurmdbd": (
        "operator",
        {"admin_level": ""},
        Status.FAIL,
        "unknown to slurmdbd",
        "sacctmgr -i add user fairgpu account=root adminlevel=operator",
    ),
    "level not known": ("operator", {"admin_level": None}, Status.UNKNOWN, "not known", ""),
    "partition missing": (
        "partitions",
        {"site": SITE.replace("[main]", "[main, gpu]")},
        Status.FAIL,
        "unknown: gpu",
        "partitions: [a100, main]",
    ),
    "account missing": (
        "accounts",
        {"site": SITE.replace("accounts: [rec]", "accounts: [ads]")},
        Status.WARN,
        "unknown: ads",
        "sacctmgr -i add account ads",
    ),
    "accounts not enforced": (
        "account-enforcement",
        {"config": {"AccountingStorageEnforce": "none"}},
        Status.FAIL,
        "none",
        "AccountingStorageEnforce=associations,limits,qos",
    ),
    "users without association": (
        "associations",
        {"queue_users": frozenset({"alice", "mallory"})},
        Status.WARN,
        "1 users without one: mallory",
        "sacctmgr -i add user mallory",
    ),
    "no submit plugin": (
        "job-submit",
        {"config": {"JobSubmitPlugins": "require_timelimit"}},
        Status.WARN,
        "require_timelimit",
        "JobSubmitPlugins=require_timelimit,lua",
    ),
    "script without us": (
        "lua-script",
        {"script": "-- fairgpu comes later\nreturn 0"},
        Status.WARN,
        "does not load fairgpu",
        'pcall(fairgpu.wrap, {socket = "/run/fairgpu/hook.sock", deadline_ms = 20, failures = 3, pause_s = 10,',
    ),
    "script without pcall": (
        "lua-script",
        {"version": "26.05.5", "script": 'require("fairgpu").wrap({})'},
        Status.WARN,
        "without pcall",
        "pcall(require",
    ),
    "script with another socket": (
        "lua-script",
        {"script": LUA.replace("/run/fairgpu/hook.sock", "/tmp/h")},
        Status.WARN,
        'socket "/tmp/h", not "/run/fairgpu/hook.sock"',
        "pcall(require",
    ),
    "script with another deadline": (
        "lua-script",
        {"site": SITE + "hook: {deadline: 15ms}\n"},
        Status.WARN,
        "deadline_ms 20, not 15",
        "deadline_ms = 15",
    ),
    "script broken by appending": (
        "lua-script",
        {"script": LUA + 'local ok, fairgpu = pcall(require, "fairgpu")\n'},
        Status.FAIL,
        "code after the final return",
        "luac -p",
    ),
    "compiled hook missing": (
        "compiled-hook",
        {"config": {"JobSubmitPlugins": "lua,fairgpu"}},
        Status.FAIL,
        "no job_submit_fairgpu.so in /opt/slurm/lib/slurm:/usr/local/lib/slurm",
        "fairgpu hook build",
    ),
    "compiled hook for another release": (
        "compiled-hook",
        {"config": {"JobSubmitPlugins": "fairgpu"}, "plugin": plugin(built_for="24.11.5")},
        Status.WARN,
        "is for Slurm 24.11.5",
        "restart slurmctld",
    ),
    "compiled hook of unknown origin": (
        "compiled-hook",
        {"config": {"JobSubmitPlugins": "fairgpu"}, "plugin": plugin(built_for="")},
        Status.WARN,
        "is for Slurm unknown",
        "fairgpu hook build",
    ),
    "compiled hook with other settings": (
        "compiled-hook",
        {"config": {"JobSubmitPlugins": "fairgpu"}, "plugin": plugin(settings="socket = /tmp/h # ours\n")},
        Status.WARN,
        "socket /tmp/h, not /run/fairgpu/hook.sock",
        "fairgpu hook build",
    ),
    "asked twice": (
        "compiled-hook",
        {"config": {"JobSubmitPlugins": "lua,fairgpu"}, "plugin": plugin()},
        Status.WARN,
        "job_submit.lua loads fairgpu, too",
        "take fairgpu out of job_submit.lua",
    ),
    "script elsewhere": ("lua-script", {"script": None}, Status.UNKNOWN, "not readable here", ""),
    "no hook server": (
        "hook-server",
        {"ping": PingFact(error="there is no such socket")},
        Status.WARN,
        "no such socket",
        "fairgpu hook-server",
    ),
    "hook server refuses us": (
        "hook-server",
        {"ping": PingFact(is_refused=True)},
        Status.UNKNOWN,
        "does not talk to this user",
        "sudo fairgpu doctor",
    ),
    "hook server slow": (
        "hook-server",
        {"ping": PingFact(latency_s=0.05, state="enforce")},
        Status.WARN,
        "answers in 50.00 ms",
        "CPUAffinity",
    ),
    "slurmctld is no peer": (
        "hook-peers",
        {"config": {"SlurmUser": "batch(1001)"}},
        Status.FAIL,
        "slurmctld runs as batch",
        "peers: [root, slurm, batch]",
    ),
    "peer unknown": (
        "hook-peers",
        {"unknown_peers": ("slurm",)},
        Status.WARN,
        "unknown on this host: slurm",
        "peers: [root]",
    ),
    "Lua is dear": (
        "lua-cost",
        {"n_jobs": 10_000, "config": {"MinJobAge": "300 sec"}},
        Status.WARN,
        "estimate 5.0-13.0 ms",
        "slurm.conf: MinJobAge=60",
    ),
    "Lua is dear for ever": (
        "lua-cost",
        {"n_jobs": 10_000, "config": {"MinJobAge": "0 sec"}},
        Status.WARN,
        "estimate 5.0-13.0 ms",
        "slurm.conf: MinJobAge=60",
    ),
    "Lua is dear although finished jobs leave soon": (
        "lua-cost",
        {"n_jobs": 10_000, "config": {"MinJobAge": "60 sec"}},
        Status.WARN,
        "estimate 5.0-13.0 ms",
        "sbatch --array",
    ),
    "site file open": ("site-file", {"site_file": SITE_FILE}, Status.FAIL, "writable by everybody", "chmod o-w"),
    "switched off": ("mode", {"is_off": True}, Status.WARN, "switched off", "sudo -u fairgpu fairgpu on"),
    "no state directory": (
        "mode",
        {"is_off": True, "is_switch_visible": False, "state_dir": PathFact(path=Path("/x"), exists=False)},
        Status.WARN,
        "/x is missing",
        "install -d -o fairgpu -m 0755 /x",
    ),
    "switch not visible": (
        "mode",
        {"is_off": True, "is_switch_visible": False},
        Status.UNKNOWN,
        "not known",
        "",
    ),
    "no user yet": (
        "state-dir",
        {"state_dir": PathFact(path=Path("/x"), exists=False), "service_uid": None},
        Status.FAIL,
        "missing",
        "useradd --system",
    ),
    "no submit plugin and no script": (
        "job-submit",
        {"config": {"JobSubmitPlugins": ""}, "script": None},
        Status.WARN,
        "none",
        "slurmctld does not start without it",
    ),
    "no state": (
        "state-dir",
        {"state_dir": PathFact(path=Path("/x"), exists=False)},
        Status.FAIL,
        "missing",
        "install -d -o fairgpu",
    ),
    "state open": (
        "state-dir",
        {"state_dir": dataclasses.replace(STATE, mode=0o41777)},
        Status.FAIL,
        "writable by everybody",
        "chmod o-w",
    ),
    "state on nfs": (
        "state-dir",
        {"state_dir": dataclasses.replace(STATE, filesystem="nfs4")},
        Status.FAIL,
        "on nfs4",
        "a local disk",
    ),
    "state read-only": (
        "state-dir",
        {"state_dir": dataclasses.replace(STATE, mode=0o40555)},
        Status.FAIL,
        "read-only",
        "chmod u+w",
    ),
    "no run": (
        "run-dir",
        {"run_dir": PathFact(path=Path("/x"), exists=False)},
        Status.WARN,
        "missing",
        "install -d -o fairgpu",
    ),
    "run open": (
        "run-dir",
        {"run_dir": dataclasses.replace(RUN, mode=0o40777)},
        Status.FAIL,
        "writable by everybody",
        "chmod o-w",
    ),
    "no cycle": ("rebalancer", {"standings_age_s": None}, Status.WARN, "no cycle seen", "fairgpu rebalance"),
    "old cycle": ("rebalancer", {"standings_age_s": 900.0}, Status.WARN, "900 s ago", "fairgpu rebalance"),
    "shadowed": (
        "packages",
        {"shadowing": ("other-dist (policies)",)},
        Status.FAIL,
        "other-dist (policies)",
        "python3 -m venv",
    ),
    "unsafe path": ("import-path", {"is_path_safe": False}, Status.WARN, "is searched", "python -P"),
}


@pytest.mark.parametrize("case", COMPLAINTS)
def test_a_check_names_what_is_wrong_and_the_line_to_add(judge: Judge, case: str) -> None:
    name, changes, status, found, fix = COMPLAINTS[case]
    if name == "slurm-reachable":
        check = {one.name: one for one in run_checks(silent(changes))}[name]
    else:
        check = judge(name, **changes)
    assert (check.status, found in check.found, fix in check.fix) == (status, True, True), check
    assert check.why


def silent(changes: dict[str, Any]) -> Facts:
    return Facts(site=good_facts().site, host=good_facts().host, **changes)


def test_every_check_has_a_case_where_it_complains() -> None:
    assert {rule.name for rule in ALL_CHECKS} == {case[0] for case in COMPLAINTS.values()}


CONTENT: dict[str, tuple[str, dict[str, Any]]] = {
    **BAND_CONTENT,
    "scale above the others": ("factor-scale", {"site": DOMINANT.replace("40000", "101001")}),
    "unbounded flags do not matter in blend": ("priority-flags", {"config": {"PriorityFlags": "NO_NORMAL_QOS"}}),
    "root needs no level": ("operator", {"service_user": "root", "admin_level": None}),
    "SlurmUser needs no level": (
        "operator",
        {"service_user": "slurm", "admin_level": None, "config": {"SlurmUser": "slurm(64030)"}},
    ),
    "short requeue on an old release": (
        "requeue-delay",
        {"version": "22.05.8", "config": {"AuthInfo": "cred_expire=5"}},
    ),
    "deep backfill": ("scheduler", {"n_jobs": 5_000, "config": {"SchedulerParameters": "bf_continue"}}),
    "the compiled hook": ("compiled-hook", {"config": {"JobSubmitPlugins": "fairgpu"}, "plugin": plugin()}),
    "the compiled hook of another micro release, beside the site's own Lua": (
        "compiled-hook",
        {"config": {"JobSubmitPlugins": "lua,fairgpu"}, "plugin": plugin(built_for="25.11.0"), "script": "return 0"},
    ),
    "the site's own Lua beside the compiled hook": (
        "lua-script",
        {"config": {"JobSubmitPlugins": "lua,fairgpu"}, "script": "return 0"},
    ),
    "no Lua, no script": ("lua-script", {"script": None, "config": {"JobSubmitPlugins": "fairgpu"}}),
    "no Lua, no cost": ("lua-cost", {"n_jobs": 50_000, "config": {"JobSubmitPlugins": "(null)"}}),
    "limits of any partition": ("partition-limits", {"config": {"EnforcePartLimits": "ANY"}}),
}


@pytest.mark.parametrize("case", CONTENT)
def test_a_check_is_content_where_nothing_is_wrong(judge: Judge, case: str) -> None:
    name, changes = CONTENT[case]
    assert judge(name, **changes).status is Status.OK


def test_a_silent_slurm_fails_once_and_leaves_the_rest_unknown() -> None:
    checks = run_checks(silent({"missing": {"config": "refused"}}))
    assert [check.name for check in checks if check.status is Status.FAIL] == ["slurm-reachable"]
    assert all(check.status in Status for check in checks)
    assert {check.why for check in checks if check.name == "cluster-name"} == {"Slurm did not answer"}


@pytest.mark.parametrize("release", ["22.05.8", "24.11.5", "25.11.7", "26.05.5"])
def test_each_recorded_configuration_is_understood(release: str) -> None:
    facts = changed(good_facts(), version=release, config=recorded_config(release))
    wanted = {"job-submit", "requeue-delay", "partition-limits"}
    assert {check.name for check in run_checks(facts) if check.status is not Status.OK} == wanted


def test_the_cost_of_lua_grows_with_the_queue() -> None:
    assert lua_cost_ms(0) == (0.0, 0.0)
    assert lua_cost_ms(20_000) == (10.0, 26.0)


def test_every_check_is_documented() -> None:
    page = (REPOSITORY / "docs" / "reference" / "doctor.md").read_text()
    assert [rule.name for rule in ALL_CHECKS if f"| `{rule.name}` |" not in page] == []
