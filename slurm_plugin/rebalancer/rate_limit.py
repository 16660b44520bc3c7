"""A token bucket as a value: how many updates Slurm may get now."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBucket:
    """Tokens refill at ``rate_per_s`` up to ``burst``.

    Attributes
    ----------
    tokens : float
        What is left at ``at_s``, in [0, burst].
    """

    rate_per_s: float
    burst: float
    tokens: float
    at_s: float

    @classmethod
    def full(cls, *, rate_per_s: float, interval_s: float, now_s: float) -> TokenBucket:
        """Bucket that lets through one interval's worth of updates at once, at least one."""
        burst = max(1.0, rate_per_s * interval_s)
        return cls(rate_per_s=rate_per_s, burst=burst, tokens=burst, at_s=now_s)

    def take(self, wanted: int, *, now_s: float) -> tuple[int, TokenBucket]:
        """Return how many of ``wanted`` are granted and the bucket afterwards.

        A clock that steps back gives nothing at that moment, and tokens come back from there on.
        """
        elapsed_s = max(0.0, now_s - self.at_s)
        tokens = min(self.burst, self.tokens + elapsed_s * self.rate_per_s)
        granted = min(wanted, int(tokens))
        return granted, replace(self, tokens=tokens - granted, at_s=now_s)
