"""How many ``sacctmgr`` commands it takes when one agent crosses its nominal quota; ``pytest -s`` prints them."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from policies.cycle import decide
from policies.plan import SetPreemptList
from policies.site_policy import BandPolicy
from slurm_plugin.rebalancer.enact import _chunks
from slurm_plugin.rebalancer.writers import _changes
from tests.strategies import NOW, make_node, make_observation, make_quota, make_running, make_site, make_tres

if TYPE_CHECKING:
    from policies.plan import Plan
    from policies.records import JobRecord, Observation, QosRecord

QUOTA = 2
OLD_CHUNK = 100


def names_of(n_agents: int) -> list[str]:
    return [f"a{number:03}" for number in range(n_agents)]


def job(number: int, agent: str, band: str = "") -> JobRecord:
    return make_running(str(number + 1), agent, nodes="", qos=f"fg_c_{agent}{band}", tres=make_tres(cpu=1, gpu=1))


def seen_with(jobs: list[JobRecord], qos: tuple[QosRecord, ...]) -> Observation:
    return make_observation(jobs, [make_node(tres=make_tres(cpu=999, gpu=999))], qos=qos)


def with_lists(qos: tuple[QosRecord, ...], plan: Plan) -> tuple[QosRecord, ...]:
    new = {change.qos: change.new for change in plan.decisions if isinstance(change, SetPreemptList)}
    return tuple(replace(record, preempt=new.get(record.name, record.preempt)) for record in qos)


def n_writes_when_one_crosses(n_agents: int, *, n_lending_late: int) -> int:
    """The first agent goes from its quota to one above; the last ones hold a loan although they are below theirs."""
    names = names_of(n_agents)
    site = make_site(dict.fromkeys(names, 1), bands=BandPolicy())
    at_nominal = [job(number, name) for number, name in enumerate([names[0]] * QUOTA)]
    late = [job(100 + number, name, "_opp") for number, name in enumerate(names[n_agents - n_lending_late :])]
    qos = tuple(record for name in names for record in make_quota(name, QUOTA))
    settled = with_lists(qos, decide(seen_with([*at_nominal, *late], qos), site, now=NOW))
    crossed = [*at_nominal, job(50, names[0], "_opp"), *late]
    plan = decide(seen_with(crossed, settled), site, now=NOW)
    chunks = _chunks([change for change in plan.decisions if isinstance(change, SetPreemptList)])
    return sum(len(_changes([one for one in chunk if isinstance(one, SetPreemptList)])) for chunk in chunks)


def n_writes_with_own_bands_in_every_list(n_agents: int) -> int:
    """The same as it was: each agent's own bands were always in its own lists, and 100 QOSes made a chunk."""
    names = names_of(n_agents)
    lists = [
        tuple(sorted({f"fg_c_{one}{kind}" for one in {names[0], name} for kind in kinds}))
        for name in names
        for kinds in (("_borrow", "_opp"), ("_opp",))
        if name != names[0]
    ]
    return sum(len(set(lists[start : start + OLD_CHUNK])) for start in range(0, len(lists), OLD_CHUNK))


@pytest.mark.parametrize(("n_agents", "before"), [(20, 38), (100, 198)])
@pytest.mark.parametrize("n_lending_late", [0, 2])
def test_one_crossing_costs_a_write_per_distinct_list(n_agents: int, before: int, n_lending_late: int) -> None:
    found = n_writes_when_one_crosses(n_agents, n_lending_late=n_lending_late)
    sys.stdout.write(f"{n_agents} agents, {n_lending_late} with late loans: {before} writes before, {found} now\n")
    assert n_writes_with_own_bands_in_every_list(n_agents) == before
    # The lists of the borrow QOSes hold the first agent's band already: it is their place holder.
    assert found == 1 + 2 * n_lending_late
