"""The other files of a cluster: database, accounts, hosts, submit script, FairGPU's site file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mini_slurm.machines import addresses
from mini_slurm.people import ACCOUNTS, PEOPLE, SERVICE_USER, uid_of
from mini_slurm.place import REPO

if TYPE_CHECKING:
    from pathlib import Path

    from mini_slurm.spec import ClusterSpec

_MARIADB: Final = """\
[mariadbd]
datadir={root}/var/mariadb
socket={root}/run/mariadb/mariadb.sock
pid-file={root}/run/mariadb/mariadb.pid
log-error={root}/log/mariadb.log
tmpdir={root}/var/mariadb-tmp
{networking}
skip-name-resolve
skip-log-bin
# Throw-away data: nothing is synced, buffers are small.
innodb_buffer_pool_size=64M
innodb_log_file_size=16M
innodb_log_buffer_size=2M
innodb_data_file_path=ibdata1:4M:autoextend
innodb_flush_log_at_trx_commit=0
innodb_doublewrite=0
innodb_flush_method=nosync
innodb_lock_wait_timeout=900
key_buffer_size=1M
aria_pagecache_buffer_size=8M
performance_schema=OFF
# Newer servers default to ON, which slurmdbd reports as an error; older ones do not know it.
loose-innodb_snapshot_isolation=OFF

[client]
socket={root}/run/mariadb/mariadb.sock
"""

_SUBMIT_LUA: Final = """\
-- A site's own minimal submit script; its last line is all that FairGPU asks a site to add.
package.path = "{repo}/slurm_plugin/hook/lua/?.lua;" .. package.path

function slurm_job_submit(job_desc, part_list, submit_uid)
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end

{activation}
"""

_ACTIVATION: Final = (
    'local ok, fairgpu = pcall(require, "fairgpu"); '
    'if ok then fairgpu.wrap{{socket="{root}/run/fairgpu/hook.sock", deadline_ms={deadline_ms}, uids={{{uid}}}}} end'
)

_SITES_OWN: Final = """\
-- Something of the site's own, so that a test sees that both plugins ran.
local submit = slurm_job_submit
function slurm_job_submit(job_desc, part_list, submit_uid)
    if job_desc.name == "refused-by-the-site" then
        slurm.log_user("the site says no")
        return slurm.ERROR
    end
    job_desc.admin_comment = "seen by the site"
    return submit(job_desc, part_list, submit_uid)
end
"""

_SITE_YAML: Final = """\
cluster: {name}
mode: enforce
partitions: [{partitions}]
agents:
  risk:
    accounts: [risk]
    base_weight: 0.6
  rec:
    accounts: [rec]
    groups: [mlteam]
    base_weight: 0.3
  vision:
    accounts: [vision]
    base_weight: 0.1
# Before "bands: {{}}" is added: mode blend and scale 5000, see docs/how-to/mini-slurm.md.
site_factor:
  mode: dominant
  scale: 1000000
rebalancer:
  interval: 1s
hook:
  socket: {root}/run/fairgpu/hook.sock
  deadline: {deadline_ms}ms
  peers: [root, slurm]
paths:
  state_dir: {root}/var/fairgpu
  run_dir: {root}/run/fairgpu
"""


def mariadb_cnf(spec: ClusterSpec, root: Path) -> str:
    """Return the database server's only option file."""
    return _MARIADB.format(root=root, networking="bind-address=0.0.0.0" if spec.subnet else "skip-networking")


def submit_lua(spec: ClusterSpec, root: Path) -> str:
    """Return job_submit.lua: accepts everything, then hands over to FairGPU's shim unless the compiled one is used."""
    activation = _ACTIVATION.format(root=root, deadline_ms=spec.hook_deadline_ms, uid=uid_of(SERVICE_USER))
    return _SUBMIT_LUA.format(repo=REPO, activation=_SITES_OWN if spec.is_compiled else activation)


def site_yaml(spec: ClusterSpec, root: Path) -> str:
    """Return a FairGPU site file for this cluster; partition `other` is left out on purpose."""
    partitions = "main, cpu" if spec.cpu_nodes else "main"
    return _SITE_YAML.format(root=root, name=spec.name, partitions=partitions, deadline_ms=spec.hook_deadline_ms)


def hosts_text(spec: ClusterSpec) -> str:
    """Return /etc/hosts of every machine."""
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses(spec).items())]
    return "\n".join(lines) + "\n"


def accounts_text(cluster: str) -> str:
    """Return what ``sacctmgr load`` needs to make the cluster, its accounts and its users in one go."""
    lines = [f"Cluster - '{cluster}':Fairshare=1", "Parent - 'root'"]
    lines.append("User - 'root':DefaultAccount='root':AdminLevel='Administrator'")
    lines += [f"Account - '{account}':Description='{account}':Organization='mini'" for account in ACCOUNTS]
    for account in ACCOUNTS:
        lines.append(f"Parent - '{account}'")
        for person in PEOPLE:
            if account in person.accounts:
                admin = ":AdminLevel='Operator'" if person.name == SERVICE_USER else ""
                lines.append(f"User - '{person.name}':DefaultAccount='{person.accounts[0]}'{admin}")
    return "\n".join(lines) + "\n"
