"""Cases of the checks about bands, for :mod:`tests.slurm_plugin.doctor.test_checks`."""

from __future__ import annotations

from typing import Any

from slurm_plugin.bands.accounting import AssocKey, AssocRow, QosRow
from slurm_plugin.doctor import Status
from tests.slurm_plugin.doctor.conftest import SITE

BANDS = SITE + "bands: {}\n"
GUARANTEED = ("fg_fg_rec", "fg_fg_risk")


def qos_rows(priority: int = 100, names: tuple[str, ...] = GUARANTEED) -> tuple[QosRow, ...]:
    normal = QosRow(name="normal", fields={"priority": "0"})
    return (normal, *(QosRow(name=name, fields={"priority": str(priority)}) for name in names))


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
        "set_default_qos: true",
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
    "defaults": ("default-qos", {"site": BANDS, "assoc_rows": assoc_rows("fg_fg_risk")}),
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
