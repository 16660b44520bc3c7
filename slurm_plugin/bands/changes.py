"""One change of slurmdbd each: how it reads and which command makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from slurm_plugin.bands.accounting import TRES_KEYWORDS, AssocKey
from slurm_plugin.client.qos import parse_limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SACCTMGR: Final = ("sacctmgr", "-i")
_CLEARED: Final = "-1"
_EMPTIED: Final = frozenset({"preempt"})
"""Cleared by an empty value; all others by -1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateQos:
    """A QOS that is not there yet; Preempt lists come later, when all QOSes exist."""

    name: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyQos:
    """Fields of a QOS of ours that differ: keyword -> (present, wanted)."""

    name: str
    fields: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteQos:
    """A QOS of ours that nothing needs any more."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeAssoc:
    """What an association allows, and its default.

    Attributes
    ----------
    own_qos, own_default
        What is written there now; the journal keeps it.
    add, remove : tuple of str
        QOSes.
    is_cleared : bool
        Nothing of its own is left: it inherits again.
    default : str or None
        New default, empty for none of its own, ``None`` to leave it.
    assoc_id : str
        Set where account and user name several associations (one for each partition); names this one alone.
    """

    key: AssocKey
    own_qos: tuple[str, ...]
    own_default: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    is_cleared: bool = False
    default: str | None = None
    assoc_id: str = ""


Change: TypeAlias = CreateQos | ModifyQos | DeleteQos | ChangeAssoc


def command_for(change: Change, cluster: str) -> tuple[str, ...]:
    """Return the one command that makes a change."""
    match change:
        case CreateQos():
            return (*_SACCTMGR, "add", "qos", change.name, "set", *_assignments(change.fields))
        case ModifyQos():
            return (*_SACCTMGR, "modify", "qos", change.name, "set", *_modifications(change.fields))
        case DeleteQos():
            return (*_SACCTMGR, "delete", "qos", change.name)
        case ChangeAssoc():
            return (*_SACCTMGR, "modify", *_where(change, cluster), "set", *_assoc_words(change))
        case _:
            assert_never(change)


def describe(change: Change) -> tuple[str, ...]:
    """Return the change as lines of a diff: ``+`` comes, ``-`` goes, ``~`` becomes another."""
    match change:
        case CreateQos():
            words = " ".join(_assignments(change.fields))
            return (f"+ qos {change.name}  {words}",)
        case ModifyQos():
            return tuple(
                f"~ qos {change.name}  {word}: {_value(word, old) or '(none)'} -> {_value(word, new) or '(none)'}"
                for word, (old, new) in sorted(change.fields.items())
            )
        case DeleteQos():
            return (f"- qos {change.name}",)
        case ChangeAssoc():
            return _describe_assoc(change)
        case _:
            assert_never(change)


def merge_equal(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Join neighbouring changes of QOSes that write the same values: one command for many is quicker."""
    merged: list[Change] = []
    for change in changes:
        joint = _joint(merged[-1], change) if merged else None
        if joint is None:
            merged.append(change)
        else:
            merged[-1] = joint
    return tuple(merged)


def _joint(one: Change, other: Change) -> Change | None:
    match one, other:
        case CreateQos(), CreateQos() if one.fields == other.fields:
            return replace(one, name=f"{one.name},{other.name}")
        case ModifyQos(), ModifyQos() if _modifications(one.fields) == _modifications(other.fields):
            fields = {
                word: (one.fields[word][0] or other.fields[word][0], new) for word, (_, new) in one.fields.items()
            }
            return ModifyQos(name=f"{one.name},{other.name}", fields=fields)
        case DeleteQos(), DeleteQos():
            return DeleteQos(name=f"{one.name},{other.name}")
        case _:
            return None


def _where(change: ChangeAssoc, cluster: str) -> tuple[str, ...]:
    key = change.key
    kind = "user" if key.user else "account"
    words = [kind, "where", f"cluster={cluster}", f"account={key.account}"]
    words += [f"user={key.user}"] if key.user else []
    words += [f"partition={key.partition}"] if key.partition else []
    words += [f"associations={change.assoc_id}"] if change.assoc_id else []
    return tuple(words)


def _assoc_words(change: ChangeAssoc) -> list[str]:
    words = []
    if change.is_cleared:
        words.append("qos=")
    if change.add:
        words.append(f"qos+={','.join(change.add)}")
    if change.remove:
        words.append(f"qos-={','.join(change.remove)}")
    if change.default is not None:
        words.append(f"defaultqos={change.default or _CLEARED}")
    return words


def _describe_assoc(change: ChangeAssoc) -> tuple[str, ...]:
    lines = []
    if change.add or change.remove or change.is_cleared:
        own = ",".join(change.own_qos) or "(inherited)"
        parts = [f"+{name}" for name in change.add] + [f"-{name}" for name in change.remove]
        text = "(inherited)" if change.is_cleared else f"{own} {' '.join(parts)}"
        lines.append(f"~ association {change.key}  qos: {own} -> {text}")
    if change.default is not None:
        old, new = change.own_default or "(inherited)", change.default or "(inherited)"
        lines.append(f"~ association {change.key}  defaultqos: {old} -> {new}")
    return tuple(lines)


def _shown(fields: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(word, value) for word, value in sorted(fields.items()) if value]


def _assignments(fields: Mapping[str, str]) -> list[str]:
    return [f"{word}={_value(word, value)}" for word, value in _shown(fields)]


def _modifications(fields: Mapping[str, tuple[str, str]]) -> list[str]:
    words = []
    for word, (old, new) in sorted(fields.items()):
        if word in TRES_KEYWORDS:
            words.append(f"{word}={_tres_value(old, new)}")
        elif not new:
            words.append(f"{word}={'' if word in _EMPTIED else _CLEARED}")
        else:
            words.append(f"{word}={_value(word, new)}")
    return words


def _value(word: str, value: str) -> str:
    return _tres_value("", value) if word in TRES_KEYWORDS else value


def _tres_value(old: str, new: str) -> str:
    """Limits as sacctmgr reads them: memory with its unit, -1 for each that is no longer limited."""
    kept = dict(parse_limits(new))
    gone = [name for name, _ in parse_limits(old) if name not in kept]
    return ",".join(_amounts([(name, -1) for name in gone] + sorted(kept.items())))


def _amounts(limits: Iterable[tuple[str, int]]) -> list[str]:
    return [f"{name}={amount}{'M' if name == 'mem' and amount > 0 else ''}" for name, amount in limits]
