from __future__ import annotations

import dataclasses
import re
from datetime import datetime
from typing import Any

import pytest

from policies.quota.nominal import compute_nominals
from policies.records import AccountName, JobId, JobRecord, JobState, NodeName, PartitionName
from slurm_plugin.bands.accounting import read_accounting
from slurm_plugin.bands.partitions import parse_partitions
from slurm_plugin.bands.precheck import Precheck, Surroundings, run_precheck
from tests.slurm_plugin.bands.conftest import NODES, SITE, observation, policy
from tests.slurm_plugin.bands.fake_sacctmgr import Assoc, FakeSacctmgr

CONFIG = {
    "PreemptType": "preempt/qos",
    "PreemptMode": "REQUEUE",
    "AccountingStorageEnforce": "associations,limits,qos",
    "AccountingStorageTRES": "cpu,mem,energy,node,billing,gres/gpu",
    "PriorityWeightQOS": "100000",
    "PriorityWeightAge": "1000",
}
PARTITION = "PartitionName=gpu AllowQos=ALL QoS=N/A"


OUT = [dataclasses.replace(NODES[0], name=NodeName(f"n{number}"), out_since_s=number) for number in range(10)]


def check(fake: FakeSacctmgr, site: str = SITE, partition: str = PARTITION, **changes: Any) -> Precheck:
    wanted = policy(site)
    around = Surroundings(
        config={**CONFIG, **changes.get("config", {})},
        partitions=parse_partitions(partition),
        observation=observation(
            jobs=changes.get("jobs", ()), nodes=changes.get("nodes", NODES), at_s=changes.get("at_s", 1000.0)
        ),
    )
    return run_precheck(wanted, compute_nominals(wanted, NODES), read_accounting(fake, "shop"), around)


def test_a_good_site_has_nothing_against_it(fake: FakeSacctmgr) -> None:
    del fake.qos["normal"]["grpjobs"]
    assert check(fake) == Precheck(blockers=(), warnings=())


@pytest.mark.parametrize(
    ("config", "what", "fix"),
    [
        ({"PreemptType": "preempt/none"}, "PreemptType=preempt/none", "slurm.conf: PreemptType=preempt/qos"),
        ({"PreemptMode": "OFF"}, "PreemptMode=OFF", "slurm.conf: PreemptMode=REQUEUE"),
        ({"PreemptMode": "GANG,OFF"}, "PreemptMode=GANG,OFF", "slurm.conf: PreemptMode=REQUEUE"),
        ({"AccountingStorageEnforce": "none"}, "AccountingStorageEnforce=none", "=associations,limits,qos"),
        (
            {"AccountingStorageTRES": "cpu,mem,gres/shard"},
            "AccountingStorageTRES lacks gres/gpu",
            "slurm.conf: AccountingStorageTRES=gres/gpu,gres/shard",
        ),
        ({"PriorityWeightQOS": "1000"}, "band order: site factor and other factors 41000 >= 910", "PriorityWeightQOS="),
    ],
)
def test_settings_that_forbid_bands(fake: FakeSacctmgr, config: dict[str, str], what: str, fix: str) -> None:
    (found,) = check(fake, config=config).blockers
    assert found.what.startswith(what)
    assert fix in found.fix


def test_a_template_that_does_not_exist_forbids(fake: FakeSacctmgr) -> None:
    (found,) = check(fake, SITE.replace("bands: {}", "bands: {template_qos: basic}")).blockers
    assert "no QOS 'basic'" in found.what
    assert "debug, long, normal" in found.fix


@pytest.mark.parametrize(
    ("partition", "what", "fix"),
    [
        (
            "PartitionName=gpu AllowQos=normal,fg_shop_risk",
            "partition gpu: AllowQos lacks fg_shop_rec, fg_shop_rec_borrow, fg_shop_rec_opp, fg_shop_risk_borrow",
            (
                "slurm.conf: PartitionName=gpu AllowQos=fg_shop_rec,fg_shop_rec_borrow,fg_shop_rec_opp,fg_shop_risk,"
                "fg_shop_risk_borrow,fg_shop_risk_opp,normal"
            ),
        ),
        (
            "PartitionName=gpu DenyQos=fg_shop_rec,long",
            "partition gpu: DenyQos names fg_shop_rec",
            "slurm.conf: PartitionName=gpu DenyQos=long",
        ),
        ("PartitionName=gpu DenyQos=fg_shop_rec", "partition gpu: DenyQos", "PartitionName=gpu without DenyQos"),
        (
            "PartitionName=gpu AllowQos=ALL QoS=long",
            "partition gpu: its QOS long limits cpu, gres/gpu of all jobs",
            "sacctmgr -i modify qos long set grptres=cpu=-1,gres/gpu=-1",
        ),
        ("PartitionName=gpu QoS=fg_shop_rec", "partition gpu: its own QOS is fg_shop_rec", "PartitionName=gpu QOS="),
    ],
)
def test_partitions_that_would_keep_our_qoses_out(fake: FakeSacctmgr, partition: str, what: str, fix: str) -> None:
    fake.qos["long"]["grptres"] = "cpu=10,gres/gpu=4"
    fake.qos["fg_shop_rec"] = dict(fake.qos["debug"])
    (found,) = check(fake, partition=partition).blockers
    assert found.what.startswith(what)
    assert found.fix.startswith(fix) or fix in found.fix


def test_other_limits_of_a_partition_qos_are_worth_knowing(fake: FakeSacctmgr) -> None:
    fake.qos["long"]["maxjobsperuser"] = "4"
    found = check(fake, partition="PartitionName=gpu QoS=long")
    assert found.blockers == ()
    assert any(one.what == "partition gpu: its QOS long sets maxjobsperuser" for one in found.warnings)


def test_an_unmanaged_partition_is_not_our_business(fake: FakeSacctmgr) -> None:
    assert check(fake, partition="PartitionName=other AllowQos=normal").blockers == ()


def warnings(fake: FakeSacctmgr, site: str = SITE, **changes: Any) -> dict[str, str]:
    return {one.what: one.fix for one in check(fake, site, **changes).warnings}


def test_a_cap_that_rounds_to_0_is_named_with_the_way_out(fake: FakeSacctmgr) -> None:
    site = SITE.replace("base_weight: 0.3}", "base_weight: 0.3, quota: {gres/gpu: 4}}")
    found = warnings(fake, site)
    text = found["agent rec can borrow no gres/gpu: its cap rounds to 0 of 4"]
    assert text == "site file: agents.rec.borrowing_limit: {gres/gpu: 1}, or a quota of 5 or more"


def test_a_cap_below_the_usual_job_is_named(fake: FakeSacctmgr) -> None:
    big = JobRecord(
        job_id=JobId("1"),
        user="alice",
        uid=1,
        account=AccountName("risk"),
        partitions=(PartitionName("gpu"),),
        state=JobState.PENDING,
        tres=(("cpu", 1), ("gres/gpu", 8)),
        submit_s=1,
    )
    small = dataclasses.replace(big, job_id=JobId("2"), tres=(("gres/gpu", 1),))
    found = warnings(fake, jobs=(big, dataclasses.replace(big, job_id=JobId("3")), small))
    assert found["agent risk may borrow 3 GPUs, its usual job takes 8"].endswith("borrowing_limit: {gres/gpu: 8}")
    assert not any("usual" in what for what in warnings(fake, jobs=(small,)))


def test_a_child_account_that_inherits_is_named(fake: FakeSacctmgr) -> None:
    fake.associations["risk_lab", "", ""] = Assoc(parent="risk")
    assert "account risk_lab is below risk and not in the site file" in warnings(fake)


def test_an_account_without_association_is_named(fake: FakeSacctmgr) -> None:
    del fake.associations["rec", "", ""], fake.associations["rec", "bob", ""]
    found = warnings(fake)
    assert found["account rec of agent rec has no association on this cluster"].endswith("account rec cluster=shop")


def test_group_limits_of_the_template_are_not_copied_and_named(fake: FakeSacctmgr) -> None:
    assert "QOS normal limits grpjobs of all its jobs together" in warnings(fake)


def test_an_exempt_time_is_named(fake: FakeSacctmgr) -> None:
    assert "PreemptExemptTime=00:10:00" in warnings(fake, config={"PreemptExemptTime": "00:10:00"})


def test_a_priority_above_the_sites_is_named(fake: FakeSacctmgr) -> None:
    fake.qos["long"]["priority"] = "5"
    assert "our QOS priority 100 is above the site's maximum 5" in warnings(fake)


def test_nodes_that_are_out_for_long_are_named(fake: FakeSacctmgr) -> None:
    del fake.qos["normal"]["grpjobs"]
    (found,) = check(fake, nodes=OUT[5:7], at_s=9000.0).warnings
    match = re.fullmatch(r"n5 is out since (\S+); n6 is out since (\S+), not counted", found.what)
    assert match is not None
    assert [datetime.fromisoformat(text).timestamp() for text in match.groups()] == [5, 6]
    (found,) = check(fake, nodes=OUT, at_s=9000.0).warnings
    assert found.what.endswith("; 2 more, not counted")


def test_nodes_that_are_out_do_not_matter_for_explicit_quotas(fake: FakeSacctmgr) -> None:
    del fake.qos["normal"]["grpjobs"]
    site = SITE.replace("base_weight", "quota: {gres/gpu: 5}, base_weight")
    assert check(fake, site, nodes=OUT, at_s=9000.0).warnings == ()
    assert check(fake, nodes=OUT, at_s=3000.0).warnings == ()


def test_explicit_quotas_above_what_is_configured_forbid(fake: FakeSacctmgr) -> None:
    site = SITE.replace("bands: {}", "  big: {accounts: [big], base_weight: 0.1, quota: {gres/gpu: 40}}\nbands: {}")
    found = check(fake, site)
    (excess,) = found.blockers
    assert excess.what == "explicit quotas 40 > 24 gres/gpu: rec, risk are left with 0"
    assert excess.fix == "site file: lower the quotas of big: together at most 24 gres/gpu"
    texts = [one.what for one in found.warnings]
    assert "agent rec: quota auto gives 0 of 24 gres/gpu" in texts
    assert "agent rec can borrow no gres/gpu: its cap rounds to 0 of 0" in texts


def test_explicit_quotas_count_nodes_that_are_out(fake: FakeSacctmgr) -> None:
    site = SITE.replace("base_weight", "quota: {gres/gpu: 12}, base_weight")
    assert check(fake, site, nodes=(NODES[0], dataclasses.replace(NODES[1], out_since_s=1)), at_s=9e5).blockers == ()
    (excess,) = check(fake, site.replace("gpu: 12", "gpu: 13")).blockers
    assert excess.what == "explicit quotas 26 > 24 gres/gpu"


def test_a_type_of_gpu_that_no_node_has_cannot_be_promised(fake: FakeSacctmgr) -> None:
    site = SITE.replace("base_weight: 0.3", "base_weight: 0.3, quota: {'gres/gpu:h100': 2}")
    config = {"AccountingStorageTRES": "gres/gpu,gres/gpu:h100"}
    (excess,) = check(fake, site, config=config).blockers
    assert excess.what == "explicit quotas 2 > 0 gres/gpu:h100"


def test_explicit_quotas_that_leave_an_auto_agent_nothing_are_named(fake: FakeSacctmgr) -> None:
    site = SITE.replace("base_weight: 0.3", "base_weight: 0.3, quota: {gres/gpu: 24}")
    found = check(fake, site)
    assert found.blockers == ()
    assert "agent risk: quota auto gives 0 of 24 gres/gpu" in [one.what for one in found.warnings]


def test_a_cluster_without_gpus_has_no_empty_quotas(fake: FakeSacctmgr) -> None:
    nodes = tuple(dataclasses.replace(node, tres=(("cpu", 12), ("mem", 1200))) for node in NODES)
    assert not [text for text in warnings(fake, nodes=nodes) if "gives 0" in text]
