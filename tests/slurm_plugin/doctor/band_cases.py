"""Cases of the checks about bands, for :mod:`tests.slurm_plugin.doctor.test_checks`."""

from __future__ import annotations

from typing import Any

from policies.records import NodeRecord, PartitionName, QosRecord
from slurm_plugin.bands.accounting import AssocKey, AssocRow, QosRow
from slurm_plugin.doctor import Status
from slurm_plugin.qos_helper.probe import HelperProbe
from tests.slurm_plugin.doctor.conftest import SITE
from tests.strategies import make_node

BANDS = SITE + "bands: {}\n"
GUARANTEED = ("fg_fg_rec", "fg_fg_risk")


def qos_rows(priority: int = 100, names: tuple[str, ...] = GUARANTEED) -> tuple[QosRow, ...]:
    normal = QosRow(name="normal", fields={"priority": "0"})
    return (normal, *(QosRow(name=name, fields={"priority": str(priority)}) for name in names))


def nodes(*out_since_s: int | None) -> tuple[NodeRecord, ...]:
    """Nodes of 10 GPUs in the managed partition."""
    tres = (("cpu", 10), ("gres/gpu", 10), ("mem", 100))
    return tuple(
        make_node(f"n{number}", tres=tres, partitions=(PartitionName("main"),), out_since_s=since_s)
        for number, since_s in enumerate(out_since_s)
    )


def in_use(risk: int, rec: int) -> tuple[QosRecord, ...]:
    """QOSes of slurmctld for a quota of so many GPUs (and CPUs, and ten times the memory)."""
    return tuple(
        QosRecord(
            name=f"fg_fg_{agent}{suffix}",
            grp_tres=(("cpu", amount // by), ("gres/gpu", amount // by), ("mem", 10 * amount // by)),
        )
        for agent, amount in (("risk", risk), ("rec", rec))
        for suffix, by in (("", 1), ("_borrow", 5))
    )


def assoc_rows(default: str) -> tuple[AssocRow, ...]:
    return (
        AssocRow(key=AssocKey("risk"), qos=("fg_fg_risk",), default="fg_fg_risk"),
        AssocRow(key=AssocKey("risk", "alice"), qos=("fg_fg_risk",), default=default),
        AssocRow(key=AssocKey("guest", "mallory"), qos=("normal",), default=""),
    )


BAND_COMPLAINTS: dict[str, tuple[str, dict[str, Any], Status, str, str]] = {
    # name of the case: check, what is different, status, part of what was found, part of the fix
    "no preemption by QOS": (
        "preemption",
        {"site": BANDS, "config": {"PreemptType": "preempt/partition_prio", "PreemptMode": "OFF"}},
        Status.FAIL,
        "PreemptType=preempt/partition_prio; PreemptMode=OFF",
        "slurm.conf: PreemptType=preempt/qos\nslurm.conf: PreemptMode=REQUEUE",
    ),
    "quotas not enforced": (
        "quota-enforcement",
        {"site": BANDS, "config": {"AccountingStorageEnforce": "associations,limits"}},
        Status.FAIL,
        "AccountingStorageEnforce=associations,limits",
        "AccountingStorageEnforce=associations,limits,qos",
    ),
    "not applied yet": (
        "bands-applied",
        {"site": BANDS, "qos": qos_rows(names=("fg_fg_rec",))},
        Status.WARN,
        "1 QOSes are not there: fg_fg_risk",
        "sudo fairgpu apply",
    ),
    "another default QOS": (
        "default-qos",
        {"site": BANDS + "mode: enforce\n", "assoc_rows": assoc_rows("normal")},
        Status.FAIL,
        "1 of 2 associations have another one: account=risk user=alice",
        "sudo fairgpu apply",
    ),
    "default QOSes switched off in the site file": (
        "default-qos",
        {"site": SITE + "bands: {set_default_qos: false}\n", "assoc_rows": assoc_rows("normal")},
        Status.WARN,
        "1 of 2 associations have another one",
        "set_default_qos: true",
    ),
    "no QOS helper": (
        "qos-helper",
        {
            "site": BANDS + "mode: enforce\n",
            "qos_helper": HelperProbe(error="/run/fairgpu-qos/helper.sock: No such file or directory"),
            "config": {"SlurmUser": "slurmy(64030)"},
        },
        Status.FAIL,
        "no answer: /run/fairgpu-qos/helper.sock: No such file",
        "systemctl start fairgpu-qos-helper, or: sudo -u slurmy fairgpu qos-helper",
    ),
    "no QOS helper while only observing": (
        "qos-helper",
        {"site": BANDS, "qos_helper": HelperProbe(error="gone")},
        Status.WARN,
        "no answer: gone",
        "systemctl start fairgpu-qos-helper",
    ),
    "a QOS helper that this user may not ask": (
        "qos-helper",
        {"site": BANDS, "qos_helper": HelperProbe(error="Permission denied", is_closed=True)},
        Status.UNKNOWN,
        "there is a socket",
        "",
    ),
    "claims that wait for each other": (
        "reclaim-time",
        # the recorded KillWait 5 and MessageTimeout 10: max(7, 5 + 10) + 5
        {"site": BANDS.replace("{}", "{grace: 7s}")},
        Status.WARN,
        "GraceTime 7 s: claims that meet on a node may start up to 20 s after each other",
        "grace: 0s",
    ),
    "a grace time longer than Slurm's own waits": (
        "reclaim-time",
        {"site": BANDS.replace("{}", "{grace: 1m}")},
        Status.WARN,
        "up to 65 s after each other",
        "slurm.conf: KillWait=60",
    ),
    "factors that cross the bands": (
        "band-order",
        # 40000 + 1000 of the recorded weights against 40000 x (100 - 9) / 100
        {"site": BANDS, "qos": qos_rows(), "config": {"PriorityWeightQOS": "40000"}},
        Status.FAIL,
        "36400 = PriorityWeightQOS 40000 x (100 - 9) / 100",
        "slurm.conf: PriorityWeightQOS=",
    ),
    "a guaranteed QOS as low as a borrow one": (
        "band-order",
        {"site": BANDS, "qos": qos_rows(priority=9)},
        Status.FAIL,
        "x (9 - 9) / 9",
        "",
    ),
    "bands and unbounded factors": (
        "band-order",
        {"site": BANDS, "qos": qos_rows(), "config": {"PriorityFlags": "NO_NORMAL_ASSOC"}},
        Status.WARN,
        "PriorityFlags=NO_NORMAL_ASSOC",
        "NO_NORMAL_",
    ),
    "a node came back since apply": (
        "quotas-current",
        # two nodes of 10 GPUs: 6:4 by weight are 12 and 8; one node was out when the quotas were written
        {"site": BANDS, "nodes": nodes(None, None), "qos_in_use": in_use(6, 4)},
        Status.WARN,
        "4 QOSes have other limits than the site file gives now: fg_fg_risk cpu=6,gres/gpu=6,mem=60, not cpu=12,",
        "sudo fairgpu apply",
    ),
    "a node is out for long": (
        "quotas-current",
        {"site": BANDS, "nodes": nodes(None, 0), "qos_in_use": in_use(12, 8), "asked_s": 90_000.0},
        Status.WARN,
        "fg_fg_risk cpu=12,gres/gpu=12,mem=120, not cpu=6,gres/gpu=6,mem=60",
        "sudo fairgpu plan",
    ),
    "victims that start again between two cycles": (
        "reclaim-counting",
        {"site": BANDS + "rebalancer: {interval: 10s}\n"},
        Status.WARN,
        "a cycle every 10 s, a requeued job waits 6 s",
        "site file: rebalancer: {interval: 5s}",
    ),
    # name of the case: check, what is different, status, part of what was found, part of the fix
}

BAND_CONTENT: dict[str, tuple[str, dict[str, Any]]] = {
    "preemption by QOS": (
        "preemption",
        {"site": BANDS, "config": {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}},
    ),
    "safe stands for limits": (
        "quota-enforcement",
        {"site": BANDS, "config": {"AccountingStorageEnforce": "associations,safe,qos"}},
    ),
    "applied": ("bands-applied", {"site": BANDS, "qos": qos_rows()}),
    "quotas of today": ("quotas-current", {"site": BANDS, "nodes": nodes(None, None), "qos_in_use": in_use(12, 8)}),
    "quotas of today with a node out": (
        "quotas-current",
        {"site": BANDS, "nodes": nodes(None, 0), "qos_in_use": in_use(6, 4), "asked_s": 90_000.0},
    ),
    "quotas without bands": ("quotas-current", {}),
    "defaults": ("default-qos", {"site": BANDS, "assoc_rows": assoc_rows("fg_fg_risk")}),
    "a QOS helper": ("qos-helper", {"site": BANDS, "qos_helper": HelperProbe()}),
    "no bands, no QOS helper": ("qos-helper", {}),
    "no grace time": ("reclaim-time", {"site": BANDS}),
    "bands far apart": ("band-order", {"site": BANDS, "qos": qos_rows()}),
    "victims are seen": ("reclaim-counting", {"site": BANDS}),
    "slow cycles, slow requeue": (
        "reclaim-counting",
        {
            "site": BANDS + "rebalancer: {interval: 60s}\n",
            "version": "22.05.8",
            "config": {"AuthInfo": "(null)"},
        },
    ),
    "an agent without bands": (
        "bands-applied",
        {
            "site": BANDS.replace("base_weight: 0.4}", "base_weight: 0.4, quota: none}"),
            "qos": qos_rows(names=GUARANTEED[1:]),
        },
    ),
    "dominant over all but QOS": (
        "factor-scale",
        {"site": SITE.replace("scale: 40000, mode: blend", "scale: 2000, mode: dominant") + "bands: {}\n"},
    ),
}
