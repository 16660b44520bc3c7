from __future__ import annotations

from collections import Counter

import pytest

from policies.records import NodeName
from slurm_plugin.client import CliSettings, CliSlurm
from slurm_plugin.client.nodes import FLAGS, STATES, is_schedulable, read_nodes
from slurm_plugin.client.table import Table
from slurm_plugin.translate import parse_time_s
from tests.slurm_plugin.client.recordings import FIXTURES, RELEASES, RecordedCluster


def table(*rows: tuple[str, ...]) -> Table:
    """Rows whose time is ``Unknown`` unless it is given."""
    return Table(rows=[(*row, "Unknown")[:7] for row in rows], n_malformed=0, missing=())


@pytest.mark.parametrize(
    ("state", "want"),
    [
        ("idle", True),
        ("mixed", True),
        ("allocated", True),
        ("allocated+completing", True),
        ("mixed+planned", True),
        ("idle+cloud+powered_down", True),
        ("idle+cloud+powering_up", True),
        ("idle+reboot_requested", True),
        ("down", False),
        ("down+not_responding", False),
        ("idle+not_responding", False),
        ("allocated+drain", False),
        ("idle+fail", False),
        ("idle+maintenance", False),
        ("idle+reserved", False),
        ("idle+cloud+powering_down", False),
        ("idle+reboot_issued", False),
        ("idle+invalid_reg", False),
        ("error", False),
        ("unknown", False),
        ("future", False),
        ("frobnicated", False),
        ("idle+frobnicated", True),
    ],
)
def test_which_states_take_a_job(state: str, want: bool) -> None:  # noqa: FBT001 - the table's column
    assert is_schedulable(state) is want


def test_every_state_has_a_reason() -> None:
    assert all(reason for _, reason in (*STATES.values(), *FLAGS.values()))


def test_one_node_per_name_with_all_partitions() -> None:
    (node,) = read_nodes(
        table(
            ("n1", "main*", "MIXED+PLANNED", "16", "64000", "gpu:a100:4(S:0-1)"),
            ("n1", "alt", "MIXED+PLANNED", "16", "64000", "gpu:a100:4(S:0-1)"),
        ),
        Counter(),
    )
    assert (node.partitions, node.state, node.is_schedulable) == (("alt", "main"), "mixed+planned", True)
    assert node.tres == (("cpu", 16), ("gres/gpu", 4), ("gres/gpu:a100", 4), ("mem", 64000))


def test_mixed_types_add_up() -> None:
    (node,) = read_nodes(table(("n1", "p", "idle", "8", "100", "gpu:a100:2,gpu:h100:1")), Counter())
    assert dict(node.tres)["gres/gpu"] == 3


def test_a_node_without_gpus_or_partition() -> None:
    (node,) = read_nodes(table(("n1", "", "idle", "8", "100", "(null)")), Counter())
    assert (node.partitions, node.tres) == ((), (("cpu", 8), ("mem", 100)))


def test_unknown_words_are_counted() -> None:
    problems: Counter[str] = Counter()
    read_nodes(
        table(
            ("n1", "p", "odd", "8", "100", "(null)"),
            ("n2", "p", "idle+strange", "8", "100", "(null)"),
            ("n3", "p", "idle", "many", "100", "(null)"),
        ),
        problems,
    )
    assert problems == {"node state odd": 1, "node state flag strange": 1, "sinfo row not understood": 1}


def test_malformed_rows_are_counted() -> None:
    problems: Counter[str] = Counter()
    read_nodes(Table(rows=[], n_malformed=2, missing=()), problems)
    assert problems == {"sinfo row with the wrong number of columns": 2}


@pytest.mark.parametrize(
    ("state", "want"),
    [
        ("down", 1234),
        ("down+not_responding", 1234),
        ("error", 1234),
        ("idle+drain", 1234),
        ("idle+drain+invalid_reg", 1234),
        ("idle+fail", 1234),
        ("unknown+drain", 1234),
        ("mixed+drain", None),
        ("allocated+fail", None),
        ("idle+not_responding", None),
        ("idle+maintenance", None),
        ("idle+cloud+powered_down", None),
        ("idle+reserved", None),
        ("idle", None),
    ],
)
def test_only_a_node_that_is_out_says_since_when(state: str, want: int | None) -> None:
    (node,) = read_nodes(table(("n1", "p", state, "8", "100", "(null)", "1234")), Counter())
    assert node.out_since_s == want


def test_a_time_that_nobody_knows_is_no_time() -> None:
    problems: Counter[str] = Counter()
    nodes = read_nodes(
        table(
            ("n1", "p", "down", "8", "100", "(null)", "Unknown"),
            ("n2", "p", "down", "8", "100", "(null)", ""),
            ("n3", "p", "down", "8", "100", "(null)", "yesterday"),
        ),
        problems,
    )
    assert [node.out_since_s for node in nodes] == [None, None, None]
    assert problems == {"sinfo time not understood": 1}


@pytest.mark.parametrize("release", RELEASES)
def test_every_recorded_release_says_since_when_a_node_is_down(release: str) -> None:
    nodes = {node.name: node for node in CliSlurm(CliSettings(runner=RecordedCluster(release=release))).observe().nodes}
    shown = next(
        line.split()
        for line in (FIXTURES / f"cli-{release}" / "sinfo-N-O.txt").read_text().splitlines()
        if line.startswith("node04")
    )
    (time,) = [word.rstrip("|") for word in shown if word.startswith(("|2026-", "2026-"))]
    assert nodes[NodeName("node04")].out_since_s == parse_time_s(time.lstrip("|"))
    assert nodes[NodeName("node03")].out_since_s is None  # it drains, its jobs run
