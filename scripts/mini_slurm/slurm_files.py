"""slurm.conf, slurmdbd.conf and gres.conf of one cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from mini_slurm.machines import CONTROLLER, DATABASE, accounting_host, addresses
from mini_slurm.packages import LUA_PLUGIN
from mini_slurm.spec import ClusterSpec, NodeGroup, fold

if TYPE_CHECKING:
    from mini_slurm.releases import Release

CTLD_PORT: Final = 6817
DBD_PORT: Final = 6819
DB_PORT: Final = 3306
DB_NAME: Final = "slurm_acct"
CONTAINER_GPUS: Final = "/dev/fakegpu"
"""First part of a GPU's path in a container, where each node has a /dev of its own."""
_CONTAINER_MUNGE: Final = Path("/run/munge")
"""In containers each machine has a munged of its own on the default socket, as on a real cluster."""

_DEFAULT_MEM_PER_CPU_MIB: Final = 1024

_FIXED: Final = f"""\
SlurmctldPort={CTLD_PORT}
SlurmUser=slurm
AuthType=auth/munge
MpiDefault=none
# One machine plays every node: no cgroups, so that a job that only sleeps costs two small processes.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
MailProg=/bin/true
# Short waits: tests start and cancel all the time.
KillWait=2
MessageTimeout=10
SlurmdTimeout=60
MinJobAge=60
CompleteWait=0
InactiveLimit=0
ReturnToService=1
MaxJobCount=25000
MaxArraySize=10001
# Scheduling. Modest weights; the site factor of the scale in fairgpu-site.yaml dominates them.
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=1000
PriorityWeightJobSize=100
PriorityWeightPartition=0
PriorityWeightQOS=10000
PriorityMaxAge=7-0
PriorityCalcPeriod=1
PreemptType=preempt/qos
PreemptMode=REQUEUE
# Accounting.
AccountingStorageType=accounting_storage/slurmdbd
AccountingStoragePort={DBD_PORT}
AccountingStorageEnforce=associations,limits,qos
AccountingStoreFlags=job_comment
SlurmctldDebug=info
SlurmdDebug=info
"""

_SCHEDULER_PARAMETERS: Final = (
    "sched_interval=2",
    "batch_sched_delay=1",
    "bf_interval=2",
    "bf_continue",
    "bf_max_job_test=2000",
    "default_queue_depth=1000",
)


def slurm_conf(spec: ClusterSpec, root: Path, release: Release) -> str:
    """Return slurm.conf for `spec` in directory `root` on the Slurm that `release` describes."""
    socket = munge_socket(spec, root)
    dbd_host = accounting_host(spec)
    tres = ["gres/gpu", *(f"gres/gpu:{gpu}" for gpu in spec.types)]
    lines = [
        f"ClusterName={spec.name}",
        f"SlurmctldHost={CONTROLLER}({addresses(spec)[CONTROLLER]})",
        f"AccountingStorageHost={dbd_host}",
        f"AuthInfo={','.join((f'socket={socket}', *release.auth_info))}",
        # Without it slurmctld asks the host's munge when it talks to slurmdbd.
        f"AccountingStoragePass={socket}",
        f"AccountingStorageTRES={','.join(tres)}",
        f"SchedulerParameters={','.join((*_SCHEDULER_PARAMETERS, *release.scheduler_parameters))}",
        f"StateSaveLocation={root}/var/slurmctld",
        f"SlurmdSpoolDir={root}/var/slurmd/%n",
        f"SlurmctldPidFile={root}/run/slurmctld.pid",
        f"SlurmdPidFile={root}/run/slurmd.%n.pid",
        f"SlurmctldLogFile={root}/log/slurmctld.log",
        f"SlurmdLogFile={root}/log/slurmd.%n.log",
        # Without a default a job takes all memory of its node and nothing shares it.
        f"DefMemPerCPU={min(_DEFAULT_MEM_PER_CPU_MIB, spec.mem_per_node_mib // spec.cpus_per_node)}",
        *release.slurm_conf,
        *_hook_lines(spec, root),
        *(_node_line(spec, group) for group in spec.groups()),
        *_partition_lines(spec),
    ]
    return _FIXED + "\n".join(lines) + "\n"


def munge_folder(spec: ClusterSpec, root: Path) -> Path:
    """Return the directory of munged's socket."""
    return _CONTAINER_MUNGE if spec.subnet else root / "run/munge"


def munge_socket(spec: ClusterSpec, root: Path) -> Path:
    """Return munged's socket: private to the cluster, or to the container."""
    return munge_folder(spec, root) / "munge.socket"


def _hook_lines(spec: ClusterSpec, root: Path) -> list[str]:
    if not spec.hook:
        return []
    plugins = {"lua": "lua", "compiled": "fairgpu", "both": "lua,fairgpu"}[spec.hook]
    folders = [plugin_dir(), *([root / "lib"] if spec.is_compiled else [])]
    return [f"JobSubmitPlugins={plugins}", f"PluginDir={':'.join(map(str, folders))}"]


def plugin_dir() -> Path:
    """Return the directory of Slurm's own plugins."""
    return min(Path("/usr/lib").glob(LUA_PLUGIN)).parent


def _node_line(spec: ClusterSpec, group: NodeGroup) -> str:
    sockets = 2 if spec.cpus_per_node % 2 == 0 else 1
    last = group.first_port + len(group.names) - 1
    port = str(last) if len(group.names) == 1 else f"[{group.first_port}-{last}]"
    # A node in a container has its own address, which /etc/hosts tells.
    where = "" if spec.subnet else f"NodeHostname={CONTROLLER} NodeAddr=127.0.0.1 Port={port} "
    gres = f" Gres=gpu:{group.gpu_type}:{spec.gpus_per_node}" if group.gpu_type else ""
    return (
        f"NodeName={fold(group.names)} {where}"
        f"Sockets={sockets} CoresPerSocket={spec.cpus_per_node // sockets} ThreadsPerCore=1 "
        f"RealMemory={spec.mem_per_node_mib}{gres} Feature={group.gpu_type or 'cpu'} State=UNKNOWN"
    )


def _partition_lines(spec: ClusterSpec) -> list[str]:
    gpu_nodes = ",".join(fold(group.names) for group in spec.groups() if group.gpu_type)
    lines = [
        f"PartitionName=main Nodes={gpu_nodes} Default=YES MaxTime=INFINITE State=UP",
        # The same nodes, not named in the site file: what FairGPU must treat as foreign use.
        f"PartitionName=other Nodes={gpu_nodes} MaxTime=INFINITE State=UP",
    ]
    cpu_nodes = ",".join(fold(group.names) for group in spec.groups() if not group.gpu_type)
    if cpu_nodes:
        lines.append(f"PartitionName=cpu Nodes={cpu_nodes} MaxTime=INFINITE State=UP")
    return lines


def gres_conf(spec: ClusterSpec, root: Path) -> str:
    """Return gres.conf: each GPU is a null device with a GPU's name."""
    stem = CONTAINER_GPUS if spec.subnet else f"{root}/dev/gpu"
    numbers = "0" if spec.gpus_per_node == 1 else f"[0-{spec.gpus_per_node - 1}]"
    groups = [group for group in spec.groups() if group.gpu_type]
    lines = [f"NodeName={fold(g.names)} Name=gpu Type={g.gpu_type} File={stem}{numbers}" for g in groups]
    return "AutoDetect=off\n" + "\n".join(lines) + "\n"


def slurmdbd_conf(spec: ClusterSpec, root: Path, password: str) -> str:
    """Return slurmdbd.conf; it carries the database's password, so it must be readable by slurm only."""
    host = accounting_host(spec)
    return f"""\
DbdHost={host}
DbdAddr={addresses(spec)[host]}
DbdPort={DBD_PORT}
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=socket={munge_socket(spec, root)}
StorageType=accounting_storage/mysql
StorageHost={DATABASE if spec.subnet else "localhost"}
StorageUser=slurm
StoragePass={password}
StorageLoc={DB_NAME}
PidFile={root}/run/slurmdbd.pid
ArchiveDir={root}/var/slurmctld
LogFile={root}/log/slurmdbd.log
DebugLevel=info
"""
