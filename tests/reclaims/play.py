"""Claims made on a real cluster, one after the other, with the predicted and the real victims of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.reclaims.explain import UNEXPLAINED, Seen, explain
from tests.reclaims.queue import restart_counts, restarted, submit
from tests.reclaims.watch import Claim, Watcher, predict

RUNS_WITHIN_S: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """What one reclaim showed; ``reason`` is empty where the prediction was right."""

    claims: tuple[str, ...]
    predicted: frozenset[str]
    real: frozenset[str]
    reason: str = ""


@dataclass(slots=True)
class Play:
    """Reclaims on one cluster."""

    watcher: Watcher
    tell: Callable[[str], None]
    done: list[Reclaim] = field(default_factory=list)

    @property
    def n_reclaims(self) -> int:
        """Reclaims counted: somebody was expected to lose a job, or did."""
        return len(self.done)

    @property
    def n_same(self) -> int:
        """Those with the predicted victims, all of them and no others."""
        return sum(not one.reason for one in self.done)

    @property
    def n_unexplained(self) -> int:
        """Those that nothing that was seen explains."""
        return sum(one.reason == UNEXPLAINED for one in self.done)

    def reclaim(self, claims: tuple[Claim, ...]) -> Reclaim | None:
        """Make claims at once, let them run and end them; ``None`` if they cannot run, or take nothing back."""
        cluster, site = self.watcher.cluster, self.watcher.site.policy
        ids = tuple(submit(cluster, claim.agent, 1, *claim.options, "--hold")[0] for claim in claims)
        try:
            before = self.watcher.look_when_settled()
            predicted = predict(before, site, ids)
            if predicted is None:
                return None
            counts = restart_counts(cluster)
            cluster.run("root", "scontrol", "release", ",".join(ids))
            cluster.wait(lambda: all(cluster.state(one) == "RUNNING" for one in ids), RUNS_WITHIN_S, "the claims run")
            after = self.watcher.look()
            real = restarted(counts, restart_counts(cluster))
        finally:
            cluster.run("root", "scancel", ",".join(ids))
        seen = Seen(before=before, after=after, claims=ids, predicted=predicted, real=real)
        return self._count(seen, " and ".join(map(str, claims)))

    def _count(self, seen: Seen, claims: str) -> Reclaim | None:
        if not seen.predicted and not seen.real:
            return None
        reason = "" if seen.predicted == seen.real else explain(seen, self.watcher.site.policy)
        found = Reclaim(claims=seen.claims, predicted=seen.predicted, real=seen.real, reason=reason)
        self.done.append(found)
        self.tell(
            f"{self.n_reclaims:3} {claims:22} predicted {_ids(seen.predicted):16} real {_ids(seen.real):16} "
            f"{f'DIFFERS: {reason}' if reason else 'same'}"
        )
        return found


def _ids(job_ids: frozenset[str]) -> str:
    return ",".join(sorted(job_ids, key=int)) or "nobody"
