"""Checks that look at several settings at once, on the raw tree, so that they report beside field errors."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from policies.quota.names import PREFIX, Band, band_qos
from policies.records import AgentName
from policies.registry import POLICIES
from policies.site_policy import TagSource
from slurm_plugin.site.problems import suggest
from slurm_plugin.site.scalars import exact_number
from slurm_plugin.site.yaml_tree import Path, Problem, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

_LISTS: Final = ("accounts", "users", "groups")


def cross_check(tree: Tree) -> tuple[Problem, ...]:
    """Return what contradicts itself in a tree whose single values may be right or wrong."""
    top = tree.value if isinstance(tree.value, dict) else {}
    agents = top.get("agents")
    sections = (
        {name: agent for name, agent in (agents or {}).items() if isinstance(agent, dict)}
        if isinstance(agents, dict)
        else {}
    )
    found = [
        *_duplicates(top, sections),
        *_shared_accounts(sections),
        *_no_positive_weight(sections),
        *_targets_without_source(top, sections),
        *_tags_without_source(top, sections),
        *_unknown_policy(top),
        *_bands(top, sections),
    ]
    return tuple(Problem(line=tree.line_of(path), path=path, text=text) for path, text in found)


def _items(value: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a raw YAML value
    return value if isinstance(value, tuple) else ()


def _duplicates(top: dict[str, Any], agents: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    lists: list[tuple[Path, Any]] = [(("partitions",), top.get("partitions"))]
    hook = top.get("hook")
    if isinstance(hook, dict):
        lists.append((("hook", "peers"), hook.get("peers")))
    bands = top.get("bands")
    if isinstance(bands, dict):
        lists.append((("bands", "managed_qos"), bands.get("managed_qos")))
    lists += [(("agents", name, key), agent.get(key)) for name, agent in agents.items() for key in _LISTS]
    for path, value in lists:
        seen: list[Any] = []
        for index, item in enumerate(_items(value)):
            if item in seen:
                yield (*path, index), f"{item!r} is listed twice"
            seen.append(item)


def _shared_accounts(agents: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    owner: dict[str, str] = {}
    for name, agent in agents.items():
        for index, account in enumerate(_items(agent.get("accounts"))):
            if not isinstance(account, str):
                continue
            first = owner.setdefault(account, name)
            if first != name:
                text = f"account {account!r} already belongs to agent {first!r}; an account has one agent"
                yield ("agents", name, "accounts", index), text


def _no_positive_weight(agents: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    try:
        weights = [exact_number(agent.get("base_weight")) for agent in agents.values()]
    except ValueError:
        return
    if weights and not any(weights):
        yield ("agents",), "at least one base_weight must be greater than 0"


def _targets_without_source(top: dict[str, Any], agents: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    sla = top.get("sla")
    if isinstance(sla, dict) and sla.get("indicators") is not None:
        return
    for name, agent in agents.items():
        targets = agent.get("sla")
        for key in ("p99_latency", "error_rate"):
            if isinstance(targets, dict) and targets.get(key) is not None:
                yield (
                    ("agents", name, "sla", key),
                    "nothing measures it: set sla.indicators to the file with the values",
                )


def _unknown_policy(top: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    name = top.get("policy")
    if isinstance(name, str) and name not in POLICIES:
        yield ("policy",), f"no policy is called {name!r}{suggest(name, tuple(sorted(POLICIES)))}"


def _bands(top: dict[str, Any], agents: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    bands = top.get("bands")
    for name, agent in agents.items():
        for key in ("quota", "borrowing_limit"):
            if bands is None and agent.get(key) is not None:
                yield ("agents", name, key), "nothing reads it without a bands section; bands: {} takes the defaults"
        is_weightless = isinstance(agent.get("base_weight"), int | Decimal) and not agent["base_weight"]
        if bands is not None and is_weightless and agent.get("quota", "auto") == "auto":
            yield ("agents", name, "quota"), "an agent of base_weight 0 needs an explicit quota, or quota: none"
    if bands is not None:
        yield from _clashing_names(agents)
    if isinstance(bands, dict):
        yield from _our_own_qos(bands)


def _clashing_names(agents: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    taken = {
        band_qos("", AgentName(name), band): name for name in agents for band in Band if band is not Band.GUARANTEED
    }
    for name in agents:
        owner = taken.get(band_qos("", AgentName(name), Band.GUARANTEED))
        if owner is not None:
            yield ("agents", name), f"its QOS would have the name of one of agent {owner!r}'s bands; rename it"


def _our_own_qos(bands: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    named: list[tuple[Path, Any]] = [(("bands", "template_qos"), bands.get("template_qos"))]
    named += [(("bands", "managed_qos", at), name) for at, name in enumerate(_items(bands.get("managed_qos")))]
    for path, name in named:
        if isinstance(name, str) and name.startswith(PREFIX):
            yield path, f"names that begin with {PREFIX} are those of our own QOSes"


def _tags_without_source(top: dict[str, Any], agents: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    if top.get("tag_source") != TagSource.ACCOUNT.value:
        return
    for name, agent in agents.items():
        for key in ("users", "groups"):
            if _items(agent.get(key)):
                yield (
                    ("agents", name, key),
                    "nothing reads it with tag_source: account, since tags are not read then",
                )
