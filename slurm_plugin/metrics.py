"""What ``/metrics`` shows: one definition per metric yields the metric and its line in ``docs/reference/metrics.md``.

Labels are bounded: agents, TRES, outcomes and verbs, never users or jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

    from policies.plan import Plan
    from policies.records import Observation, Tres

BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One metric: its full name, kind (``counter``, ``gauge``, ``histogram``), labels and meaning."""

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    text: str


_CYCLE: Final = (
    MetricSpec(name="fairgpu_cycles_total", kind="counter", labels=("outcome",), text="Cycles by how they ended."),
    MetricSpec(
        name="fairgpu_cycle_duration_seconds",
        kind="histogram",
        labels=("verb",),
        text="Time that observe, decide, enact and report took.",
    ),
    MetricSpec(
        name="fairgpu_last_cycle_timestamp_seconds",
        kind="gauge",
        text="When the last good cycle read Slurm, seconds since the epoch.",
    ),
    MetricSpec(
        name="fairgpu_decisions_total",
        kind="counter",
        labels=("outcome",),
        text="Decisions by what became of them.",
    ),
    MetricSpec(
        name="fairgpu_reclaims_total",
        kind="counter",
        labels=("agent", "band"),
        text="Jobs taken back from an agent that ran on borrowed quota; band is borrow or opportunistic.",
    ),
    MetricSpec(name="fairgpu_enabled", kind="gauge", text="0 while the kill switch is off, else 1."),
    MetricSpec(
        name="fairgpu_restored_jobs_total",
        kind="counter",
        text="Jobs that got their former site factor back: the kill switch is off, or they left the agents.",
    ),
    MetricSpec(
        name="fairgpu_history_errors_total",
        kind="counter",
        text="Operations on the history database that failed (the cycle goes on).",
    ),
    MetricSpec(
        name="fairgpu_output_errors_total",
        kind="counter",
        labels=("file",),
        text="Standings or snapshot files that could not be written (the cycle goes on).",
    ),
    MetricSpec(
        name="fairgpu_reader_problems", kind="gauge", text="What the last observation could not understand, counted."
    ),
    MetricSpec(name="fairgpu_findings", kind="gauge", labels=("kind",), text="What an operator should see, by kind."),
)
_CLUSTER: Final = (
    MetricSpec(
        name="fairgpu_capacity",
        kind="gauge",
        labels=("tres",),
        text="What the agents share (CPUs, MiB, pieces).",
    ),
    MetricSpec(
        name="fairgpu_agent_allocated",
        kind="gauge",
        labels=("agent", "tres"),
        text="What an agent's jobs hold (CPUs, MiB, pieces).",
    ),
    MetricSpec(name="fairgpu_agent_base_weight", kind="gauge", labels=("agent",), text="Agreed weight, normalised."),
    MetricSpec(
        name="fairgpu_agent_sla_factor", kind="gauge", labels=("agent",), text="How the SLA state bends the weight."
    ),
    MetricSpec(
        name="fairgpu_agent_weight", kind="gauge", labels=("agent",), text="Weight that counts: base times SLA factor."
    ),
    MetricSpec(
        name="fairgpu_agent_dominant_share_ratio",
        kind="gauge",
        labels=("agent",),
        text="Largest share of any TRES that the agent holds (0-1).",
    ),
    MetricSpec(
        name="fairgpu_agent_weighted_share",
        kind="gauge",
        labels=("agent",),
        text="Dominant share over weight; equal among busy agents when shares are fair. +Inf for weight 0.",
    ),
    MetricSpec(
        name="fairgpu_agent_jobs",
        kind="gauge",
        labels=("agent", "state"),
        text="Jobs, array tasks counted one by one; state is running, pending or startable.",
    ),
    MetricSpec(
        name="fairgpu_agent_oldest_wait_seconds",
        kind="gauge",
        labels=("agent",),
        text="How long the agent's oldest waiting job waits.",
    ),
    MetricSpec(
        name="fairgpu_agent_quota",
        kind="gauge",
        labels=("agent", "band", "tres"),
        text="GrpTRES of the agent's guaranteed and borrow QOS (CPUs, MiB, pieces); absent where there is no limit.",
    ),
    MetricSpec(
        name="fairgpu_agent_band_used",
        kind="gauge",
        labels=("agent", "band", "tres"),
        text="In use by band (CPUs, MiB, pieces); band is guaranteed, borrow, opportunistic or outside.",
    ),
    MetricSpec(
        name="fairgpu_agent_lent",
        kind="gauge",
        labels=("agent", "tres"),
        text="Idle quota of an agent that others use above theirs, each unit counted once (CPUs, MiB, pieces).",
    ),
    MetricSpec(
        name="fairgpu_agent_moved_out_jobs",
        kind="gauge",
        labels=("agent",),
        text="Pending jobs that wait in the borrow or opportunistic band.",
    ),
)
METRICS: Final = (*_CYCLE, *_CLUSTER)


class RebalancerMetrics:
    """The metrics of one rebalancer in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        self._server: WSGIServer | None = None
        self._thread: Thread | None = None
        for spec in METRICS:
            self._add(spec)
        self.set_enabled(is_enabled=True)

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(amount)

    def observe_durations(self, durations_s: Mapping[str, float]) -> None:
        """Note how long each verb of a cycle took, seconds."""
        for verb, seconds in durations_s.items():
            self._histograms["fairgpu_cycle_duration_seconds"].labels(verb=verb).observe(seconds)

    def set_enabled(self, *, is_enabled: bool) -> None:
        """Say whether the kill switch lets us act."""
        self._gauges["fairgpu_enabled"].set(int(is_enabled))

    def show_cycle(self, seen: Observation, plan: Plan) -> None:
        """Show what a cycle saw; agents that are no more disappear."""
        self._set("fairgpu_last_cycle_timestamp_seconds", [((), seen.at_s)])
        self._set("fairgpu_reader_problems", [((), sum(count for _, count in seen.problems))])
        kinds = [finding.kind for finding in plan.findings]
        self._set("fairgpu_findings", [((kind,), kinds.count(kind)) for kind in sorted(set(kinds))])
        for name, rows in _cluster_samples(plan).items():
            self._set(name, rows)

    def serve(self, listen: str) -> int:
        """Serve ``/metrics`` on ``host:port`` from a thread that ends with the process; return the port.

        Raises
        ------
        OSError
            The address cannot be listened on.
        """
        host, _, port = listen.rpartition(":")
        self._server, self._thread = start_http_server(int(port), addr=host.strip("[]"), registry=self.registry)
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = self._thread = None

    def _add(self, spec: MetricSpec) -> None:
        # Each metric is built with its class's own signature, so that mypy checks it.
        match spec.kind:
            case "counter":
                self._counters[spec.name] = Counter(spec.name, spec.text, spec.labels, registry=self.registry)
            case "gauge":
                self._gauges[spec.name] = Gauge(spec.name, spec.text, spec.labels, registry=self.registry)
            case _:
                self._histograms[spec.name] = Histogram(
                    spec.name, spec.text, spec.labels, registry=self.registry, buckets=BUCKETS_S
                )

    def _set(self, name: str, rows: Iterable[tuple[Sequence[str], float]]) -> None:
        gauge = self._gauges[name]
        if gauge._labelnames:  # noqa: SLF001 - clear() on a gauge without labels would remove it
            gauge.clear()
        for labels, value in rows:
            (gauge.labels(*labels) if labels else gauge).set(value)


def _cluster_samples(plan: Plan) -> dict[str, list[tuple[tuple[str, ...], float]]]:
    standings = plan.standings
    return {
        "fairgpu_capacity": [((tres,), amount) for tres, amount in zip(plan.tres, plan.capacity, strict=True)],
        "fairgpu_agent_allocated": [
            ((s.agent, tres), amount) for s in standings for tres, amount in zip(plan.tres, s.allocation, strict=True)
        ],
        "fairgpu_agent_base_weight": [((s.agent,), float(s.base_weight)) for s in standings],
        "fairgpu_agent_sla_factor": [((s.agent,), float(s.sla_factor)) for s in standings],
        "fairgpu_agent_weight": [((s.agent,), float(s.weight)) for s in standings],
        "fairgpu_agent_dominant_share_ratio": [((s.agent,), float(s.dominant_share)) for s in standings],
        "fairgpu_agent_weighted_share": [
            ((s.agent,), float("inf") if s.weighted_share is None else float(s.weighted_share)) for s in standings
        ],
        "fairgpu_agent_jobs": [
            ((s.agent, state), n)
            for s in standings
            for state, n in (("running", s.n_running), ("pending", s.n_pending), ("startable", s.n_startable))
        ],
        "fairgpu_agent_oldest_wait_seconds": [((s.agent,), s.oldest_wait_s) for s in standings],
        **_band_samples(plan),
    }


def _band_samples(plan: Plan) -> dict[str, list[tuple[tuple[str, ...], float]]]:
    banded = [(standing.agent, standing.bands) for standing in plan.standings if standing.bands is not None]
    quotas = [(agent, (("guaranteed", b.nominal), ("borrow", b.borrow_cap))) for agent, b in banded]
    used = [
        (
            agent,
            (
                ("guaranteed", b.guaranteed),
                ("borrow", b.borrow),
                ("opportunistic", b.opportunistic),
                ("outside", b.outside),
            ),
        )
        for agent, b in banded
    ]
    return {
        "fairgpu_agent_quota": _flat(quotas),
        "fairgpu_agent_band_used": _flat(used),
        "fairgpu_agent_lent": [((agent, tres), amount) for agent, b in banded for tres, amount in b.lent],
        "fairgpu_agent_moved_out_jobs": [((agent,), b.n_moved_out) for agent, b in banded],
    }


def _flat(
    agents: Sequence[tuple[str, Sequence[tuple[str, Tres]]]],
) -> list[tuple[tuple[str, ...], float]]:
    return [((agent, band, tres), amount) for agent, bands in agents for band, tres_ in bands for tres, amount in tres_]


def metrics_page() -> str:
    """Return ``docs/reference/metrics.md``."""
    lines = [
        "# Metrics",
        "",
        "The rebalancer serves these at `/metrics` where `rebalancer.metrics_listen` in the site file names an",
        "address (`127.0.0.1:9911` for example; there is no password, so keep it on the loopback). This page is",
        "made from the code; a test compares.",
        "",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
        *(
            f"| `{spec.name}` | {spec.kind} | {', '.join(f'`{label}`' for label in spec.labels)} | {spec.text} |"
            for spec in METRICS
        ),
    ]
    return "\n".join(lines) + "\n"
