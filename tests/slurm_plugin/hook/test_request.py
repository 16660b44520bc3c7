import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.hook.request import count_array_tasks, is_startable, parse_gpus, requested_tres

NO_VAL = "4294967294"

REQUESTS = {
    "nothing asked": ({}, 1, 0, 0, {}),
    "unset fields are NO_VAL": (
        {"min_nodes": NO_VAL, "num_tasks": NO_VAL, "cpus_per_task": "65534", "min_cpus": NO_VAL},
        1,
        0,
        0,
        {},
    ),
    "INFINITE is no amount either": ({"min_nodes": "4294967295", "cpus_per_task": "65535"}, 1, 0, 0, {}),
    "tasks times CPUs": ({"num_tasks": "3", "cpus_per_task": "4"}, 12, 0, 0, {}),
    "min_cpus may be more": ({"num_tasks": "1", "min_cpus": "8"}, 8, 0, 0, {}),
    "memory per node": ({"min_nodes": "2", "min_mem_per_node": "1000"}, 2, 2000, 0, {}),
    "memory per CPU": ({"num_tasks": "4", "min_mem_per_cpu": "500"}, 4, 2000, 0, {}),
    "22.05 per node, typed": (
        {"tres_per_node": "gres:gpu:a100:2", "min_nodes": "3"},
        3,
        0,
        6,
        {"gres/gpu:a100": 6},
    ),
    "24.11 per node, untyped": ({"tres_per_node": "gres/gpu:2", "min_nodes": "3"}, 3, 0, 6, {}),
    "one GPU without a count": ({"tres_per_node": "gres:gpu"}, 1, 0, 1, {}),
    "two types": (
        {"tres_per_node": "gres/gpu:a100:1,gres/gpu:h100:2"},
        1,
        0,
        3,
        {"gres/gpu:a100": 1, "gres/gpu:h100": 2},
    ),
    "per job is a total": ({"tres_per_job": "gres:gpu:5", "min_nodes": "2"}, 2, 0, 5, {}),
    "the total wins": ({"tres_per_job": "gres/gpu:4", "tres_per_node": "gres/gpu:2"}, 1, 0, 4, {}),
    "24.11 per task": (
        {"tres_per_task": "cpu=2,gres/gpu:h100=1", "num_tasks": "4"},
        4,
        0,
        4,
        {"gres/gpu:h100": 4},
    ),
    "per socket": (
        {"tres_per_socket": "gres:gpu:1", "sockets_per_node": "2", "min_nodes": "2"},
        2,
        0,
        4,
        {},
    ),
    "other GRES are left out": ({"tres_per_node": "gres:shard:4,gres:gpu:1"}, 1, 0, 1, {}),
    "no numbers": ({"num_tasks": "-3", "min_nodes": "1e9", "min_cpus": "٣"}, 1, 0, 0, {}),
}


@pytest.mark.parametrize(("fields", "cpu", "mem", "gpu", "typed"), REQUESTS.values(), ids=REQUESTS.keys())
def test_requested_tres(fields: dict[str, str], cpu: int, mem: int, *, gpu: int, typed: dict[str, int]) -> None:
    want = {"cpu": cpu, "mem": mem} | ({"gres/gpu": gpu} if gpu else {}) | typed
    assert requested_tres(fields) == want


ARRAYS = {
    "": 1,
    "5": 1,
    "0-9": 10,
    "0-9%2": 10,
    "0-9:3": 4,
    "1,3,7-9": 5,
    "[0-3]": 4,
    "0-9:0": 10,
    "9-0": 1,
    "x": 1,
    "0-999999999": 4_000_001,
}


@pytest.mark.parametrize(("text", "want"), ARRAYS.items())
def test_array_tasks_are_counted_without_expanding_them(text: str, want: int) -> None:
    assert count_array_tasks(text) == want


@given(st.text(max_size=80))
def test_no_text_breaks_the_readers(text: str) -> None:
    assert count_array_tasks(text) >= 1
    assert all(amount >= 0 for amount in parse_gpus(text).values())
    fields = dict.fromkeys(("min_nodes", "tres_per_node", "min_cpus", "begin_time", "min_mem_per_cpu"), text)
    assert requested_tres(fields)["cpu"] >= 1
    assert is_startable(fields, 0.0) in (True, False)


STARTABLE = {
    "plain": ({}, True),
    "priority not set": ({"priority": NO_VAL}, True),
    "held": ({"priority": "0"}, False),
    "a dependency": ({"dependency": "afterok:5"}, False),
    "begins later": ({"begin_time": "2000"}, False),
    "began already": ({"begin_time": "500"}, True),
    "no begin": ({"begin_time": "0"}, True),
}


@pytest.mark.parametrize(("fields", "want"), STARTABLE.values(), ids=STARTABLE.keys())
def test_only_jobs_that_wait_for_resources_are_startable(fields: dict[str, str], *, want: bool) -> None:
    assert is_startable(fields, 1000.0) is want
