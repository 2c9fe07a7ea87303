"""Metrics for Prometheus: work is counted when it ends, and the state of the bot is read at each scrape.

Names begin with ``threadfast_`` and end in their base unit. Labels are few and from the settings: never a person, a
thread, a channel or anything that somebody wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from bot.observe.http_pages import HttpPage
from bot.observe.turn_events import Sink, Work
from bot.ports.status import UP, CircuitState, Status
from threads.model import Outcome

MOST_NAMES = 100
"""Models, tools and kinds of parts counted by name; MCP servers may offer any number. The rest is `OTHER`."""
OTHER = "other"

Buckets = tuple[float, ...]

ANSWERED_S = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 900)
CALLED_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 600)
TOOL_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120)
STEPS = (1, 2, 3, 5, 8, 13, 21, 34, 50)


class Metrics(Sink):
    """Counts the events of the bot. Its page has the figures."""

    def __init__(self) -> None:
        self.pages = {"/metrics": self.render}
        disable_created_metrics()  # type: ignore[no-untyped-call]  # twice the lines, and nobody reads them
        self.registry = registry = CollectorRegistry()
        self._gauges = _StatusGauges()
        self._names: dict[str, set[str]] = {"model": set(), "tool": set(), "kind": set()}

        def counter(name: str, words: str, *labels: str) -> Callable[..., Counter]:
            # A cache of the labelled ones: the client's own look-up takes longer than counting.
            return cache(Counter(f"threadfast_{name}", words, labels, registry=registry).labels)

        def histogram(name: str, words: str, buckets: Buckets, *labels: str) -> Callable[..., Histogram]:
            metric = Histogram(f"threadfast_{name}", words, labels, buckets=buckets, registry=registry)
            return cache(metric.labels if labels else lambda: metric)

        self._messages = counter("messages", "Messages that have their outcome.", "transport", "outcome")
        self._turns = counter("turns", "Turns that ended, by ok or the error's code.", "outcome")
        self._calls = counter("model_calls", "Model calls, by ok or the error's code.", "model", "outcome")
        self._tokens = counter("model_tokens", "Tokens by kind.", "model", "kind")
        self._cost = counter("model_cost_usd", "What calls of a known price cost.", "model")
        self._retries = counter("model_retries", "Attempts after the first of a step.", "model")
        self._failovers = counter("model_failovers", "Steps that another model took over.", "model", "to")
        self._tools = counter(
            "tool_calls", "Tool calls, by ok, partial or the error's code.", "tool", "outcome"
        )
        self._unread = counter(
            "unread_parts", "Parts of messages of a kind that the bot does not know.", "transport", "kind"
        )
        self._turn_s = histogram("turn_seconds", "Length of turns, waits for people included.", ANSWERED_S)
        self._steps = histogram("turn_steps", "Steps of a turn.", STEPS)
        self._answer_s = histogram("answer_seconds", "From message to answer.", ANSWERED_S, "transport")
        self._call_s = histogram("model_call_seconds", "Length of model calls.", CALLED_S, "model")
        self._first_s = histogram("model_first_content_seconds", "Until an answer begins.", CALLED_S, "model")
        self._tool_s = histogram("tool_call_seconds", "Length of tool calls that ran.", TOOL_S, "tool")
        registry.register(self._gauges)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

    def render(self, status: Status) -> HttpPage:
        """Return what a scrape reads; a few milliseconds."""
        self._gauges.status = status
        for transport in status.transports:
            for outcome in get_args(Outcome):  # Prometheus cannot see an increase without a 0 before it
                self._messages(transport.name, outcome)
        return HttpPage(generate_latest(self.registry), kind=CONTENT_TYPE_PLAIN_0_0_4)

    def ended(self, work: Work) -> None:
        match work.kind:
            case "turn":
                self._turns(work.outcome).inc()
                self._turn_s().observe(work.seconds)
                self._steps().observe(work.steps)
            case "step":
                if work.switched_from:
                    model, to = (self._named("model", name) for name in (work.switched_from, work.name))
                    self._failovers(model, to).inc()
            case "model_call":
                self._called(work)
            case "tool":
                tool = self._named("tool", work.name)
                self._tools(tool, work.outcome).inc()
                if work.outcome != "tool_denied":
                    self._tool_s(tool).observe(work.seconds)

    def settled(
        self, transport: str, outcome: Outcome, seconds: float | None, _ids: Mapping[str, str], /
    ) -> None:
        self._messages(transport, outcome).inc()
        if outcome == "answered" and seconds is not None:
            self._answer_s(transport).observe(seconds)

    def unread(self, transport: str, kind: str) -> None:
        self._unread(transport, self._named("kind", kind)).inc()

    def _called(self, call: Work) -> None:
        model, usage = self._named("model", call.name), call.usage
        self._calls(model, call.outcome).inc()
        self._call_s(model).observe(call.seconds)
        if call.first_content_s is not None:
            self._first_s(model).observe(call.first_content_s)
        counted = {
            "input": usage.input,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
            "output": usage.output,
        }
        for kind, tokens in counted.items():
            if tokens > 0:
                self._tokens(model, kind).inc(tokens)
        if call.cost_usd:
            self._cost(model).inc(call.cost_usd)
        if call.attempt > 1:
            self._retries(model).inc()

    def _named(self, label: str, name: str) -> str:
        names = self._names[label]
        if name not in names and len(names) >= MOST_NAMES:
            return OTHER
        names.add(name)
        return name


class _StatusGauges:
    """The gauges of a `Status`. Each scrape makes new ones, so what has gone is not reported."""

    status: Status | None = None

    def collect(self) -> Iterator[Metric]:
        if (status := self.status) is None:
            return
        yield _gauge("build_info", "The version that runs; always 1.", "version", [((status.version,), 1)])
        started = datetime.fromisoformat(status.started_at).timestamp()
        for name, words, value in (
            (
                "ready",
                "1 if it serves: interrupted work is taken up, and a transport is connected.",
                status.ready,
            ),
            ("stopping", "1 if no new turn begins.", status.stopping),
            ("start_time_seconds", "When it started, in Unix time.", started),
            ("threads", "Threads in memory.", status.threads),
            ("turns_running", "Running turns.", status.running),
            ("turns_queued", "Turns that wait for a slot.", status.queued),
            ("messages_waiting", "Messages that wait for the turn before them.", status.waiting),
            ("messages_pending", "Messages received and without an outcome yet.", status.pending),
            (
                "oldest_pending_seconds",
                "How long the oldest of them has been pending.",
                status.oldest_pending_s,
            ),
            ("loop_lag_seconds", "Lag of the event loop at its last beat.", status.lag_s),
            ("loop_worst_lag_seconds", "The maximum lag of the last minute.", status.worst_lag_s),
            ("troubles", "Things that do not work now; see `threadfast status`.", len(status.troubles)),
        ):
            yield _gauge(name, words, "", [((), value)])
        links, models, spend = status.transports, status.circuits[:MOST_NAMES], status.spend
        silent = [((one.name,), one.silent_s) for one in links if one.silent_s is not None]
        up = [((one.name,), one.state in UP) for one in links]
        state = [((one.name, one.state), 1) for one in links]
        circuits = [((m.title, state), m.state == state) for m in models for state in get_args(CircuitState)]
        waiting = [((one.title,), one.waiting) for one in models]
        reserved = [((one.scope,), one.reserved) for one in spend]
        limits = [((one.scope,), one.limit) for one in spend if one.limit is not None]
        yield _gauge("transport_up", "1 if it is connected.", "transport", up)
        yield _gauge("transport_state", "1 for its state.", "transport state", state)
        yield _gauge("transport_silent_seconds", "How long its link has been silent.", "transport", silent)
        yield _gauge("circuit", "1 for the state of the model's circuit.", "model state", circuits)
        yield _gauge("calls_waiting", "Calls in the model's queue.", "model", waiting)
        yield _gauge("spend_usd", "Spent under this limit.", "scope", [((s.scope,), s.spent) for s in spend])
        yield _gauge("spend_reserved_usd", "Reserved for calls.", "scope", reserved)
        yield _gauge("spend_limit_usd", "The limit, if there is one.", "scope", limits)


def _gauge(name: str, words: str, labels: str, samples: Iterable[tuple[Sequence[str], float]]) -> Metric:
    """Return a gauge with one sample for each tuple of values of *labels*, which are separated by blanks."""
    family = GaugeMetricFamily(f"threadfast_{name}", words, labels=labels.split())
    for values, value in samples:
        family.add_metric(values, float(value))
    return family
