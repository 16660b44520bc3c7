from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest

from policies.records import AccountName, AgentName, PartitionName
from policies.registry import get_policy
from policies.site_policy import AgentPolicy, BandPolicy, Mode, SitePolicy, TagSource
from policies.submission.decision import Identity
from slurm_plugin.hook.directory import UserDirectory
from slurm_plugin.hook.outcome import MAX_MESSAGE, HookRules
from slurm_plugin.hook.recorder import submission_row
from slurm_plugin.hook.service import HookService, SubmissionRecord
from slurm_plugin.hook.standings import Standings, StandingsBook
from slurm_plugin.hook.stats import HookStats
from slurm_plugin.hook.wire import HEADER_BYTES, WireError, parse_fields

ALICE = 1000
SITE = SitePolicy(
    cluster="c",
    mode=Mode.ENFORCE,
    partitions=(PartitionName("gpu"),),
    agents=(
        AgentPolicy(name=AgentName("rec"), accounts=(AccountName("rec"),), base_weight=Fraction(1, 2)),
        AgentPolicy(
            name=AgentName("risk"),
            accounts=(AccountName("risk"),),
            groups=("fraud",),
            base_weight=Fraction(1, 2),
        ),
    ),
)
STANDINGS = Standings(
    policy=get_policy("wdrf"),
    at_s=1000.0,
    scale=40_000,
    tres=("cpu", "gres/gpu"),
    capacity=(100, 10),
    weights={"rec": Fraction(1, 2), "risk": Fraction(1, 2)},
    next_amounts={"rec": (0, 0), "risk": (0, 5)},
)
REBALANCER = 990
JOB = {"uid": str(ALICE), "account": "rec", "partition": "gpu"}


class Desk:
    """A service with its parts in reach."""

    def __init__(self, policy: SitePolicy = SITE, *, is_off: bool = False) -> None:
        self.records: list[SubmissionRecord] = []
        self.users = UserDirectory({ALICE: Identity(user="alice", groups=frozenset())})
        self.book = StandingsBook()
        self.book.offer(STANDINGS)
        self.stats = HookStats()
        rules = HookRules.from_policy(policy, is_off=is_off)
        self.service = HookService(rules, self.users, book=self.book, stats=self.stats, record=self.records.append)
        self.service.trusted_uids |= {REBALANCER}

    def submit(self, op: str = "S", **fields: str) -> Mapping[str, str]:
        reply = self.answer(op, JOB | fields, 1001.0)
        self.service.settle()
        return reply

    def answer(self, op: str, fields: Mapping[str, str], now_s: float) -> Mapping[str, str]:
        return parse_fields(self.service.answer(op, fields, now_s)[HEADER_BYTES:])


def test_enforce_sets_the_site_factor_of_the_accounts_agent() -> None:
    assert Desk().submit() == {"verdict": "accept", "agent": "rec", "site_factor": "40000"}


def test_enforce_rejects_a_tag_of_another_agent() -> None:
    reply = Desk().submit(comment="agent=risk")
    assert reply["verdict"] == "reject"
    assert "User alice with account rec may not use tag agent=risk" in reply["user_msg"]
    assert "site_factor" not in reply


def test_a_burst_spreads() -> None:
    desk = Desk()
    factors = [desk.submit(tres_per_node="gres:gpu:1")["site_factor"] for _ in range(3)]
    assert factors == ["40000", "33333", "28571"]


def test_a_held_job_gets_a_factor_but_moves_nothing() -> None:
    desk = Desk()
    factors = [desk.submit(tres_per_node="gres:gpu:1", priority="0")["site_factor"] for _ in range(2)]
    assert factors == ["40000", "40000"]


def test_a_rejected_job_moves_nothing() -> None:
    desk = Desk()
    desk.submit(comment="agent=risk", tres_per_node="gres:gpu:1")
    assert desk.submit()["site_factor"] == "40000"


def test_an_array_counts_its_tasks() -> None:
    desk = Desk()
    desk.submit(tres_per_node="gres:gpu:1", array_inx="0-4%2")
    assert desk.submit()["site_factor"] == "20000"


def test_without_standings_the_job_is_accepted_without_a_factor() -> None:
    desk = Desk()
    assert desk.answer("S", JOB, 5000.0) == {"verdict": "accept", "agent": "rec"}


def test_observe_changes_nothing_and_records_everything() -> None:
    desk = Desk(replace(SITE, mode=Mode.OBSERVE))
    assert desk.submit(comment="agent=risk stage=train") == {"verdict": "unchanged"}
    row = submission_row(desk.records[0])
    assert (row["verdict"], row["agent"], row["user"]) == ("reject", "rec", "alice")
    assert row["flags"] == '{"agent":"risk","stage":"train"}'
    assert row["message"].startswith("[observe] FairGPU: User alice")


def test_advise_only_tells() -> None:
    desk = Desk(replace(SITE, mode=Mode.ADVISE))
    told = desk.submit(comment="sla=soon")
    assert told["verdict"] == "unchanged"
    assert told["user_msg"].startswith("FairGPU: this job counts for agent rec (by account). FairGPU ignores: sla")
    warned = desk.submit(comment="agent=risk")
    assert warned["verdict"] == "unchanged"
    assert "only advice" in warned["user_msg"]


def test_what_we_change_ourselves_passes_and_a_claim_to_be_us_counts_for_updates_only() -> None:
    desk = Desk()
    for by in (REBALANCER, 0):
        assert desk.submit("M", comment="agent=risk", by=str(by)) == {"verdict": "unchanged"}
    assert desk.submit("M", comment="agent=risk", by=str(ALICE))["verdict"] == "reject"
    assert desk.submit("S", comment="agent=risk", by=str(REBALANCER))["verdict"] == "reject"


def test_off_is_unchanged_and_unrecorded() -> None:
    desk = Desk(is_off=True)
    assert desk.submit(comment="agent=risk") == {"verdict": "unchanged"}
    assert desk.records == []


BANDED = replace(SITE, bands=BandPolicy())
DEADLY = {
    "srun": {"qos": "fg_c_rec_borrow", "requeue": "65534", "batch": "0"},
    "--no-requeue": {"qos": "fg_c_rec_opp", "requeue": "0", "batch": "1"},
}


@pytest.mark.parametrize("fields", DEADLY.values(), ids=DEADLY.keys())
def test_a_job_that_would_die_in_a_borrow_band_is_refused(fields: dict[str, str]) -> None:
    reply = Desk(BANDED).submit(**fields)
    assert (reply["verdict"], "site_factor" in reply) == ("reject", False)
    assert "may be taken back at any time" in reply["user_msg"]
    assert Desk(replace(BANDED, mode=Mode.OBSERVE)).submit(**fields) == {"verdict": "unchanged"}
    assert "only advice" in Desk(replace(BANDED, mode=Mode.ADVISE)).submit(**fields)["user_msg"]


def test_a_batch_job_that_says_nothing_follows_the_clusters_default() -> None:
    desk = Desk(BANDED)
    fields = {"qos": "fg_c_rec_borrow", "requeue": "65534", "batch": "1"}
    assert desk.submit(**fields)["verdict"] == "accept"
    desk.service.requeues_by_default = False
    assert desk.submit(**fields)["verdict"] == "reject"
    assert desk.submit(**fields | {"requeue": "1"})["verdict"] == "accept"


def test_an_update_to_a_borrow_band_needs_to_say_requeue() -> None:
    desk = Desk(BANDED)
    fields = {"qos": "fg_c_rec_borrow", "batch": "1"}
    assert "say requeue=1 in the same command" in desk.submit("M", **fields)["user_msg"]
    assert desk.submit("M", **fields, requeue="1")["verdict"] == "accept"
    assert desk.submit("M", **fields, requeue="0")["verdict"] == "reject"


def test_another_agents_band_is_refused() -> None:
    reply = Desk(BANDED).submit(qos="fg_c_risk", requeue="1", batch="1")
    assert "belongs to agent risk, and this job counts for agent rec" in reply["user_msg"]


def with_bands(policy: SitePolicy = BANDED, **qos: str) -> Desk:
    """Return a desk whose standings show these agents' guaranteed QOSes."""
    desk = Desk(policy)
    desk.book.offer(replace(STANDINGS, qos=qos))
    return desk


def test_a_job_in_a_managed_qos_gets_its_agents_guaranteed_one() -> None:
    reply = with_bands(rec="fg_c_rec").submit(qos="normal", batch="1")
    assert reply == {"verdict": "accept", "agent": "rec", "site_factor": "40000", "qos": "fg_c_rec"}


def test_a_tagged_job_of_another_agents_account_gets_it_without_asking_for_a_qos() -> None:
    desk = with_bands(rec="fg_c_rec", risk="fg_c_risk")
    desk.users.replace({ALICE: Identity(user="alice", groups=frozenset({"fraud"}))})
    assert desk.submit(comment="agent=risk")["qos"] == "fg_c_risk"
    assert desk.submit(comment="agent=risk", account="guest")["qos"] == "fg_c_risk"
    assert "qos" not in desk.submit(comment="agent=rec")


NO_QOS = {
    "slurmctld does not show it": with_bands(risk="fg_c_risk"),
    "the standings are of another cluster": with_bands(rec="fg_d_rec"),
    "there are no bands": with_bands(SITE, rec="fg_c_rec"),
    "observe": with_bands(replace(BANDED, mode=Mode.OBSERVE), rec="fg_c_rec"),
    "advise": with_bands(replace(BANDED, mode=Mode.ADVISE), rec="fg_c_rec"),
    "a name that no shim takes": with_bands(replace(BANDED, cluster="c c"), rec="fg_c c_rec"),
}


@pytest.mark.parametrize("desk", NO_QOS.values(), ids=NO_QOS.keys())
def test_no_qos_is_set_when(desk: Desk) -> None:
    assert "qos" not in desk.submit(qos="normal", batch="1")


def test_old_standings_set_no_qos() -> None:
    assert "qos" not in with_bands(rec="fg_c_rec").answer("S", JOB | {"qos": "normal"}, 5000.0)


def test_only_a_users_move_into_a_managed_qos_is_refused() -> None:
    desk = with_bands(rec="fg_c_rec")
    move = {"qos": "normal", "batch": "1", "moved": "1"}
    refused = desk.submit("M", **move, by=str(ALICE))
    assert (refused["verdict"], "nobody could take back" in refused["user_msg"]) == ("reject", True)
    assert desk.submit("M", **move, by=str(REBALANCER)) == {"verdict": "unchanged"}
    desk.users.replace({ALICE: Identity(user="alice", groups=frozenset({"fraud"}))})
    desk.book.offer(replace(STANDINGS, qos={"risk": "fg_c_risk"}))
    assert "default QOS" in desk.submit("M", comment="agent=risk", moved="1")["user_msg"]
    # A job that is there already and only gives up its requeue, and a shim that does not tell.
    for moved in ({"moved": "0"}, {}):
        assert desk.submit("M", **move | moved if moved else {"qos": "normal"}) == {"verdict": "accept", "agent": "rec"}


def test_an_older_shim_that_sends_no_qos_is_answered_as_before() -> None:
    assert Desk(BANDED).submit()["verdict"] == "accept"


def test_a_mistyped_key_is_told_on_an_accepted_and_on_an_unmanaged_job() -> None:
    told = Desk().submit(comment="agnet=risk")
    assert told["verdict"] == "accept"
    assert "agnet: no tag of FairGPU" in told["user_msg"]
    left = Desk().submit(comment="agnet=risk", account="guest")
    assert left["verdict"] == "unchanged"
    assert "did you mean agent=...?" in left["user_msg"]
    assert Desk(replace(SITE, mode=Mode.ADVISE)).submit(comment="agnet=risk", account="guest") == left


def test_an_unmanaged_job_is_left_alone() -> None:
    assert Desk().submit(partition="cpu") == {"verdict": "unchanged"}


def test_an_update_is_checked_but_gets_no_factor() -> None:
    desk = Desk()
    assert desk.submit("M") == {"verdict": "accept", "agent": "rec"}
    assert desk.submit("M", comment="agent=risk")["verdict"] == "reject"
    assert "[modify]" in submission_row(desk.records[1])["message"]
    assert desk.stats.counts["modifications"] == 2


def test_an_unknown_uid_falls_to_the_account_and_is_looked_up() -> None:
    desk = Desk()
    assert desk.submit(uid="7", comment="agent=risk")["agent"] == "rec"
    assert desk.users.has_unknown
    assert desk.users.asked_uids() == (7,)
    desk.users.replace({7: Identity(user="bob", groups=frozenset({"fraud"}))})
    assert desk.submit(uid="7", comment="agent=risk")["agent"] == "risk"


TAG_SOURCES = {TagSource.COMMENT: "reject", TagSource.WCKEY: "accept", TagSource.ACCOUNT: "accept"}


@pytest.mark.parametrize(("source", "verdict"), TAG_SOURCES.items())
def test_the_tag_is_read_from_its_source_only(source: TagSource, verdict: str) -> None:
    desk = Desk(replace(SITE, tag_source=source))
    assert desk.submit(comment="agent=risk", wckey="agent=rec")["verdict"] == verdict


@pytest.mark.parametrize("uid", ["", "-1", "x", "9" * 11, "٣"])
def test_a_request_without_a_uid_is_malformed(uid: str) -> None:
    with pytest.raises(WireError):
        Desk().submit(uid=uid)


def test_an_unknown_operation_is_malformed() -> None:
    with pytest.raises(WireError):
        Desk().submit("X")


def test_messages_are_printable_and_bounded() -> None:
    reply = Desk().submit(account="rec\x1b[31m" + "x" * 5000, comment="agent=risk")
    message = reply["user_msg"]
    assert message.isascii()
    assert message.isprintable()
    assert len(message) <= MAX_MESSAGE


def test_a_row_survives_text_that_is_no_utf8() -> None:
    desk = Desk()
    desk.submit(account="a\udcff\0", partition="gpu")
    submission_row(desk.records[0])["account"].encode()


def test_a_ping_tells_the_counters() -> None:
    desk = Desk()
    desk.submit()
    desk.submit(comment="agent=risk")
    desk.stats.observe(40_000, 45_000)
    pong = desk.answer("P", {}, 0.0)
    got = {name: pong[name] for name in ("state", "submissions", "accepted", "rejected", "p50_us")}
    assert got == {"state": "enforce", "submissions": "2", "accepted": "1", "rejected": "1", "p50_us": "40.0"}
