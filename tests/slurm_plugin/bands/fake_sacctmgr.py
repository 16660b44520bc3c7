"""A slurmdbd in memory that answers the few sacctmgr commands which FairGPU uses, as 22.05.8 was seen to answer them.

It stores and prints; it knows nothing of what our code is about to do. ``+=`` and ``-=`` on an association without a
list of its own keep signed entries, an empty list inherits, deleting a QOS strips it from every list.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

from slurm_plugin.client.command import Command, CommandResult

HEADERS = {
    "priority": "Priority",
    "gracetime": "GraceTime",
    "preempt": "Preempt",
    "preemptmode": "PreemptMode",
    "flags": "Flags",
    "usagefactor": "UsageFactor",
    "grptres": "GrpTRES",
    "grpjobs": "GrpJobs",
    "maxtresperjob": "MaxTRES",
    "maxwalldurationperjob": "MaxWall",
    "maxjobsperuser": "MaxJobsPU",
}
FRESH = {"priority": "0", "gracetime": "00:00:00", "preemptmode": "cluster", "usagefactor": "1.000000"}
Key = tuple[str, str, str]


class Killed(BaseException):
    """Stands for SIGKILL: no handler of ours may catch it."""


@dataclass
class Assoc:
    qos: list[str] = field(default_factory=list)
    default: str = ""
    parent: str = ""


@dataclass
class FakeSacctmgr:
    """Runs commands against ``qos`` and ``associations``; dies before or after the n-th write if asked to."""

    qos: dict[str, dict[str, str]] = field(default_factory=dict)
    associations: dict[Key, Assoc] = field(default_factory=dict)
    written: list[tuple[str, ...]] = field(default_factory=list)
    die_before: int | None = None
    die_after: int | None = None

    def __call__(self, command: Command) -> CommandResult:
        words = [word for word in command.argv[1:] if word not in {"-i", "-P"}]
        assert command.argv[0] == "sacctmgr", command.argv
        if words[:2] == ["show", "qos"]:
            return CommandResult(0, self.show_qos(), "")
        if words[:2] == ["show", "assoc"]:
            return CommandResult(0, self.show_assoc(), "")
        if words[0] == "dump":
            return CommandResult(0, self.dump(), "")
        return self._write(command.argv, words)

    def _write(self, argv: tuple[str, ...], words: list[str]) -> CommandResult:
        number = len(self.written)
        if number == self.die_before:
            raise Killed
        self.written.append(argv)
        answer = self._change(words)
        if number == self.die_after:
            raise Killed
        return answer

    def _change(self, words: list[str]) -> CommandResult:
        match words:
            case ["add", "qos", names, "set", *assignments]:
                for name in names.split(","):
                    assert name not in self.qos, "sacctmgr says: Nothing new added"
                    self.qos[name] = dict(FRESH)
                    self._set(name, assignments)
            case ["modify", "qos", names, "set", *assignments]:
                for name in names.split(","):
                    self._set(name, assignments)
            case ["delete", "qos", names]:
                if any(assoc.default in names.split(",") for assoc in self.associations.values() if assoc.default):
                    return CommandResult(1, "", " Associations listed below have these as their Default QOS.\n")
                self._require_lists_without(set(names.split(",")))
                for name in names.split(","):
                    self._delete(name)
            case ["modify", "account" | "user" as kind, "where", *rest]:
                if lost := self._try_associations(kind, rest):
                    text = f" These associations don't have access to their default qos.\n {sorted(lost)}\n"
                    return CommandResult(0, "", text)
            case _:
                raise AssertionError(words)
        return CommandResult(0, {"add": " Adding", "delete": " Deleting"}.get(words[0], " Modified"), "")

    def _try_associations(self, kind: str, words: list[str]) -> set[Key]:
        before = deepcopy(self.associations)
        self._modify_associations(words)
        new = next((word.partition("=")[2] for word in words if word.startswith("defaultqos=")), "-1")
        lost = self.lost_defaults() - self.lost_defaults(before)
        if new != "-1" and kind == "account":
            lost |= self.without_access(words[1].partition("=")[2], new)
        if lost:
            self.associations = before
        return lost

    def lost_defaults(self, associations: dict[Key, Assoc] | None = None) -> set[Key]:
        """Associations that may not use the default that counts for them."""
        kept, self.associations = self.associations, associations or self.associations
        try:
            found = {key: self.effective(key) for key in self.associations}
        finally:
            self.associations = kept
        return {key for key, (names, default) in found.items() if default and default not in names}

    def without_access(self, account: str, name: str) -> set[Key]:
        """Associations of the account that may not use a QOS; seen on 22.05.8: one with its own default counts too."""
        return {key for key in self.associations if key[0] == account and name not in self.effective(key)[0]}

    def _set(self, name: str, assignments: list[str]) -> None:
        fields = self.qos[name]
        for one in assignments:
            word, _, value = one.partition("=")
            assert word in HEADERS, word
            if word == "preempt":
                assert set(filter(None, value.split(","))) <= set(self.qos), "a Preempt list names what exists"
                assert value or not name.endswith("_borrow") or not fields.get("preempt"), "a borrow list is emptied"
            if word in {"grptres", "maxtresperjob"}:
                limits = dict(part.split("=") for part in filter(None, fields.get(word, "").split(",")))
                limits |= dict(part.split("=") for part in filter(None, value.split(",")))
                value = ",".join(f"{tres}={text}" for tres, text in sorted(limits.items()) if text != "-1")
            if word == "gracetime":
                value = f"{int(value) // 3600:02}:{int(value) // 60 % 60:02}:{int(value) % 60:02}"
            fields[word] = "" if value == "-1" else value

    def _require_lists_without(self, names: set[str]) -> None:
        """Seen on 22.05.8: a borrow list that slurmdbd itself takes a name out of is wrong in memory."""
        for name, fields in self.qos.items():
            if name.endswith("_borrow") and name not in names:
                assert names.isdisjoint(fields.get("preempt", "").split(",")), f"{name} still names one of {names}"

    def _delete(self, name: str) -> None:
        del self.qos[name]
        for fields in self.qos.values():
            kept = [other for other in fields.get("preempt", "").split(",") if other != name]
            fields["preempt"] = ",".join(kept)
        for assoc in self.associations.values():
            assoc.qos = [word for word in assoc.qos if word.lstrip("+-") != name]

    def _modify_associations(self, words: list[str]) -> None:
        at = words.index("set")
        where = dict(word.split("=", 1) for word in words[:at])
        for key, assoc in self.associations.items():
            if key[0] != where["account"] or key[1] != where.get("user", ""):
                continue
            if "partition" in where and key[2] != where["partition"]:
                continue
            if "associations" in where and where["associations"] != self.number(key):
                continue
            for word in words[at + 1 :]:
                self._assign(assoc, word)

    def _assign(self, assoc: Assoc, word: str) -> None:
        if word.startswith("defaultqos="):
            value = word.removeprefix("defaultqos=")
            assert value == "-1" or value in self.qos, f"bad default qos {value!r}"
            assoc.default = "" if value == "-1" else value
        elif word == "qos=":
            assoc.qos = []
        else:
            sign, names = word.removeprefix("qos")[0], word.partition("=")[2].split(",")
            for name in names:
                assert name in self.qos, f"unknown qos {name!r}"
                self._sign(assoc, sign, name)

    @staticmethod
    def _sign(assoc: Assoc, sign: str, name: str) -> None:
        is_plain = bool(assoc.qos) and assoc.qos[0][0] not in "+-"
        assoc.qos = [word for word in assoc.qos if word.lstrip("+-") != name]
        if not is_plain:
            assoc.qos.append(sign + name)
        elif sign == "+":
            assoc.qos.append(name)

    def effective(self, key: Key) -> tuple[list[str], str]:
        """List and default that count, inherited values included."""
        account, user, partition = key
        assoc = self.associations[key]
        if user:
            above = self.effective((account, "", ""))
        elif assoc.parent:
            above = self.effective((assoc.parent, "", ""))
        else:
            above = (["normal"], "")
        del partition
        if assoc.qos and assoc.qos[0][0] not in "+-":
            names = list(assoc.qos)
        else:
            gone = {word[1:] for word in assoc.qos if word[0] == "-"}
            names = [name for name in above[0] if name not in gone]
            names += [word[1:] for word in assoc.qos if word[0] == "+"]
        return sorted(set(names)), assoc.default or above[1]

    def number(self, key: Key) -> str:
        """Id of an association."""
        return str(list(self.associations).index(key) + 1)

    def show_qos(self) -> str:
        """``sacctmgr -P show qos``."""
        lines = ["Name|" + "|".join(HEADERS.values())]
        lines += [f"{name}|" + "|".join(fields.get(word, "") for word in HEADERS) for name, fields in self.qos.items()]
        return "\n".join(lines) + "\n"

    def show_assoc(self) -> str:
        """``sacctmgr -P show assoc format=id,account,user,partition,qos,defaultqos``."""
        lines = ["ID|Account|User|Partition|QOS|Def QOS"]
        for key in self.associations:
            names, default = self.effective(key)
            lines.append(f"{self.number(key)}|{'|'.join(key)}|{','.join(names)}|{default}")
        return "\n".join(lines) + "\n"

    def dump(self) -> str:
        """``sacctmgr dump``."""
        lines = ["# Parent - 'root'", "Cluster - 'shop':Fairshare=1:QOS='normal'"]
        last = None
        for (account, user, _), assoc in sorted(self.associations.items(), key=lambda one: one[1].parent):
            if not user:
                if assoc.parent != last:
                    lines.append(f"Parent - '{assoc.parent or 'root'}'")
                last = assoc.parent
                lines.append(f"Account - '{account}':Description='a:QOS=':Fairshare=1{self._own(assoc)}")
        for account in [key[0] for key in self.associations if not key[1]]:
            lines.append(f"Parent - '{account}'")
            for (name, user, partition), assoc in self.associations.items():
                if name == account and user:
                    where = f":Partition='{partition}'" if partition else ""
                    lines.append(f"User - '{user}'{where}:DefaultAccount='x':Fairshare=1{self._own(assoc)}")
        return "\n".join(lines) + "\n"

    @staticmethod
    def _own(assoc: Assoc) -> str:
        default = f":DefaultQOS='{assoc.default}'" if assoc.default else ""
        return default + (f":QOS='{','.join(sorted(assoc.qos))}'" if assoc.qos else "")

    def image(self) -> str:
        """Everything that a dump and ``show qos`` show."""
        return self.dump() + self.show_qos()


def shop() -> FakeSacctmgr:
    """Two agents' accounts with every kind of association: inheriting, own list, additions, own default, partitions."""
    fake = FakeSacctmgr()
    for name in ("normal", "long", "debug"):
        fake.qos[name] = dict(FRESH)
    fake.qos["normal"] |= {"maxwalldurationperjob": "1-00:00:00", "flags": "DenyOnLimit,OverPartQOS", "grpjobs": "500"}
    fake.associations = {
        ("risk", "", ""): Assoc(),
        ("risk", "alice", ""): Assoc(),
        ("risk", "bob", ""): Assoc(qos=["normal", "long"], default="long"),
        ("risk", "carol", ""): Assoc(qos=["+debug", "-normal"], default="debug"),
        ("risk", "dora", ""): Assoc(default="normal"),
        ("risk", "dora", "gpu"): Assoc(qos=["long"], default="long"),
        ("rec", "", ""): Assoc(qos=["normal", "debug"], default="normal"),
        ("rec", "bob", ""): Assoc(),
        ("guest", "", ""): Assoc(),
        ("guest", "erin", ""): Assoc(),
        ("guest", "carol", ""): Assoc(),
    }
    return fake
