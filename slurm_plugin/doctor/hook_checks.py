"""Whether slurmctld asks us when a job is submitted, and whether we answer in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurm_plugin.doctor.access_checks import slurm_user
from slurm_plugin.doctor.check import CheckRule, Verdict, fail, ok, unknown, warn
from slurm_plugin.doctor.shim_script import differing_options, has_code_after_return, shim_lines, without_comments
from slurm_plugin.hook.plugin_file import PLUGIN_NAME, SETTINGS_NAME, differing_settings, release_of

if TYPE_CHECKING:
    from slurm_plugin.doctor.facts import Facts

_MODULE: Final = "fairgpu"
_LUA_MS_AT_10K: Final = (5, 13)
"""Measured: what rebuilding Lua's job table adds to a submission at 10,000 jobs (facts of the project)."""

_NO_SCRIPT: Final = (
    "first job_submit.lua beside slurm.conf (slurmctld does not start without it), if there is none:\n"
    "slurm_plugin/hook/lua/job_submit.lua is one that loads fairgpu; then"
)
_MUCH_MS: Final = 5.0
_MIN_JOB_AGE_S: Final = 60
"""How long slurmctld should remember a finished job, seconds; 0 is for ever."""


def _job_submit(facts: Facts) -> Verdict:
    plugins = facts.setting_list("JobSubmitPlugins")
    found = ",".join(plugins) or "none"
    if "lua" in plugins or "fairgpu" in plugins:
        return ok(found)
    line = f"slurm.conf: JobSubmitPlugins={','.join((*plugins, 'lua'))}"
    return warn(
        found,
        "jobs are not placed at submission and wrong tags not refused; the rebalancer adopts jobs later",
        line if facts.host.script is not None else f"{_NO_SCRIPT}\n{line}",
    )


def _script(facts: Facts) -> Verdict:
    if "lua" not in facts.setting_list("JobSubmitPlugins"):
        return ok("no Lua script in use")
    script = facts.host.script
    if script is None:
        return unknown("not readable here", "job_submit.lua lies beside slurm.conf on the controller")
    code = without_comments(script)
    if has_code_after_return(code):
        return fail(
            "code after the final return",
            "Lua refuses the script: slurmctld keeps the one before, and does not start with this one",
            "job_submit.lua: move what follows the last 'return slurm.SUCCESS' before it; luac -p FILE tests a script",
        )
    return _loading(code, facts)


def _loading(code: str, facts: Facts) -> Verdict:
    fix = shim_lines(facts)
    if _MODULE not in code:
        if "fairgpu" in facts.setting_list("JobSubmitPlugins"):
            return ok("the site's own; the compiled plugin asks us")
        return warn("does not load fairgpu", "slurmctld runs the script but never asks us", fix)
    if facts.release >= (26, 5) and "pcall" not in code:
        return warn("loads fairgpu without pcall", "from Slurm 26.05 a Lua error refuses the job", fix)
    differing = differing_options(code, facts)
    if differing:
        return warn(f"differs from the site file: {', '.join(differing)}", "the script's values count", fix)
    return ok("loads fairgpu with the site file's values")


def _compiled(facts: Facts) -> Verdict:
    if "fairgpu" not in facts.setting_list("JobSubmitPlugins"):
        return ok("not in use")
    plugin = facts.host.plugin
    if plugin is None:
        return fail(
            f"no {PLUGIN_NAME} in {facts.setting('PluginDir')}",
            "slurmctld does not start without it (only the controller needs the file)",
            "sudo fairgpu hook build",
        )
    if release_of(plugin.built_for) != f"{facts.release[0]}.{facts.release[1]:02}":
        return warn(
            f"{plugin.path} is for Slurm {plugin.built_for or 'unknown'}",
            f"under Slurm {facts.version} it passes all jobs unchanged",
            "sudo fairgpu hook build, then restart slurmctld",
        )
    differing = differing_settings(plugin.settings, facts.site.hook)
    if differing:
        why = f"what {SETTINGS_NAME} beside it says counts"
        return warn(f"differs from the site file: {', '.join(differing)}", why, "sudo fairgpu hook build")
    if "lua" in facts.setting_list("JobSubmitPlugins") and _MODULE in without_comments(facts.host.script or ""):
        fix = "take fairgpu out of job_submit.lua"
        return warn("job_submit.lua loads fairgpu, too", "each job is asked about twice", fix)
    return ok(f"{plugin.path}, for Slurm {plugin.built_for}")


def _socket(facts: Facts) -> Verdict:
    ping, path = facts.host.ping, facts.site.hook.socket
    if ping.is_refused:
        why = "only the users in hook.peers may talk to it"
        return unknown(f"{path} does not talk to this user", why, "sudo fairgpu doctor")
    if ping.latency_s is None:
        return warn(
            f"{path}: {ping.error}",
            "submissions are accepted unchanged and adopted by the rebalancer later",
            f"start it: sudo -u {facts.host.service_user} fairgpu hook-server",
        )
    found = f"answers in {ping.latency_s * 1000:.2f} ms ({ping.state})"
    if ping.latency_s <= facts.site.hook.deadline_s:
        return ok(found)
    return warn(
        found,
        f"slower than the deadline of {facts.site.hook.deadline_s * 1000:g} ms: submissions pass unchanged",
        "give the hook server a CPU of its own (CPUAffinity= in its unit)",
    )


def _peers(facts: Facts) -> Verdict:
    peers, user = facts.site.hook.peers, slurm_user(facts)
    if user and user not in peers:
        return fail(
            f"{', '.join(peers)}; slurmctld runs as {user}",
            "the hook server would refuse slurmctld",
            f"site file: hook: {{peers: [{', '.join((*peers, user))}]}}",
        )
    if facts.host.unknown_peers:
        absent = facts.host.unknown_peers
        return warn(
            f"unknown on this host: {', '.join(absent)}",
            "a name that does not resolve lets nobody in",
            f"site file: hook: {{peers: [{', '.join(name for name in peers if name not in absent)}]}}",
        )
    return ok(", ".join(peers))


def lua_cost_ms(n_jobs: int) -> tuple[float, float]:
    """Return an estimate (low, high) of what Lua's job table adds to a submission, milliseconds.

    Linear in the number of jobs, through the values measured at 10,000 on four Slurm releases. It is paid by the
    first submission after a change of the job table, at most once a second, script or no script.
    """
    low, high = _LUA_MS_AT_10K
    return n_jobs * low / 10_000, n_jobs * high / 10_000


def _lua_cost(facts: Facts) -> Verdict:
    if "lua" not in facts.setting_list("JobSubmitPlugins"):
        return ok("no Lua")
    n_jobs = facts.n_jobs or 0
    low, high = lua_cost_ms(n_jobs)
    found = f"estimate {low:.1f}-{high:.1f} ms per submission at {n_jobs} jobs"
    if high <= _MUCH_MS:
        return ok(found)
    return warn(
        found,
        "Slurm rebuilds Lua's table of all jobs, at most once a second (5-13 ms at 10,000 jobs, measured)",
        _fewer_jobs(facts),
    )


def _fewer_jobs(facts: Facts) -> str:
    if not 0 < facts.number("MinJobAge") <= _MIN_JOB_AGE_S:
        return f"slurm.conf: MinJobAge={_MIN_JOB_AGE_S}  # finished jobs leave the table sooner"
    return "tell users with many jobs: sbatch --array=...  # the waiting tasks of an array are one record"


CHECKS: Final = (
    CheckRule(name="job-submit", judge=_job_submit, needs=("config",)),
    CheckRule(name="lua-script", judge=_script, needs=("config",)),
    CheckRule(name="compiled-hook", judge=_compiled, needs=("config",)),
    CheckRule(name="hook-server", judge=_socket),
    CheckRule(name="hook-peers", judge=_peers, needs=("config",)),
    CheckRule(name="lua-cost", judge=_lua_cost, needs=("config", "n_jobs")),
)
