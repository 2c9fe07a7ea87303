"""Figures for Prometheus: what work was done, counted as it ends, and how the bot is, asked when somebody looks.

Names begin with ``threadfast_`` and end in their base unit. Labels are few and from the settings: never a person, a
thread, a channel or anything that somebody wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

from bot.observe.turn_events import Work
from bot.ports.status import CircuitState, Status
from threads.model import Outcome

MOST_NAMES = 100
"""Models, and tools, that are counted by name; MCP servers may offer any number. The rest is `OTHER`."""
OTHER = "other"

Buckets = tuple[float, ...]

ANSWERED_S = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 900)
CALLED_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 600)
TOOL_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120)
STEPS = (1, 2, 3, 5, 8, 13, 21, 34, 50)


class Metrics:
    """A sink of `bot.observe.turn_events`."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # twice the lines, and nobody reads them
        self.registry = registry = CollectorRegistry()
        self._asked = _Asked()
        self._names: dict[str, set[str]] = {"model": set(), "tool": set()}

        def counter(name: str, words: str, *labels: str) -> Callable[..., Counter]:
            # A cache of the labelled ones: the client's own look-up takes longer than counting.
            return cache(Counter(f"threadfast_{name}", words, labels, registry=registry).labels)

        def histogram(name: str, words: str, buckets: Buckets, *labels: str) -> Histogram:
            return Histogram(f"threadfast_{name}", words, labels, buckets=buckets, registry=registry)

        self._messages = counter("messages", "Messages that have their outcome.", "transport", "outcome")
        self._turns = counter("turns", "Turns that ended, by ok or the error's code.", "outcome")
        self._calls = counter(
            "model_calls", "Single attempts to ask a model, by ok or the error's code.", "model", "outcome"
        )
        self._tokens = counter("model_tokens", "Tokens, as they are paid for.", "model", "kind")
        self._cost = counter("model_cost_usd", "What calls of a known price cost.", "model")
        self._retries = counter("model_retries", "Attempts after the first of a step.", "model")
        self._failovers = counter("model_failovers", "Steps that another model took over.", "model", "to")
        self._tools = counter(
            "tool_calls", "Tool calls, by ok, partial or the error's code.", "tool", "outcome"
        )
        self._turn_s = histogram(
            "turn_seconds", "How long turns took, waits for people included.", ANSWERED_S
        )
        self._steps = histogram("turn_steps", "Steps of a turn.", STEPS)
        self._answer_s = cache(
            histogram(
                "answer_seconds", "From a message's arrival to its answer.", ANSWERED_S, "transport"
            ).labels
        )
        self._call_s = cache(histogram("model_call_seconds", "How long they took.", CALLED_S, "model").labels)
        self._first_s = cache(
            histogram("model_first_content_seconds", "Until an answer began.", CALLED_S, "model").labels
        )
        self._tool_s = cache(
            histogram("tool_call_seconds", "How long they ran, if they did.", TOOL_S, "tool").labels
        )
        registry.register(self._asked)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

    def render(self, status: Status) -> tuple[bytes, str]:
        """Return what a scrape reads, and its content type; a few milliseconds."""
        self._asked.status = status
        for transport in status.transports:
            for outcome in get_args(
                Outcome
            ):  # from 0 on, or a first one would seem to have always been there
                self._messages(transport.name, outcome)
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def began(self, work: Work) -> None:
        """Count nothing: what is not over has no outcome."""

    def ended(self, work: Work) -> None:
        match work.kind:
            case "turn":
                self._turns(work.outcome).inc()
                self._turn_s.observe(work.seconds)
                self._steps.observe(work.steps)
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

    def settled(self, transport: str, outcome: Outcome, seconds: float | None) -> None:
        self._messages(transport, outcome).inc()
        if outcome == "answered" and seconds is not None:
            self._answer_s(transport).observe(seconds)

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


class _Asked:
    """The gauges of a `Status`, made anew for each scrape: what is gone from it is gone from them."""

    status: Status | None = None

    def collect(self) -> Iterator[Metric]:
        if (status := self.status) is None:
            return
        yield _one("build_info", "The version that runs; always 1.", 1, version=status.version)
        started = datetime.fromisoformat(status.started_at).timestamp()
        for name, words, value in (
            ("ready", "1 when it serves: taken up what was left, and connected.", status.ready),
            ("stopping", "1 when no turn is begun any more.", status.stopping),
            ("start_time_seconds", "When it started, in Unix time.", started),
            ("threads", "Threads in memory.", status.threads),
            ("turns_running", "Turns that run.", status.running),
            ("turns_queued", "Turns that wait for a slot.", status.queued),
            ("messages_waiting", "Messages that wait for the turn before them.", status.waiting),
            ("messages_pending", "Messages received and without an outcome yet.", status.pending),
            ("oldest_pending_seconds", "For how long the oldest of them is.", status.oldest_pending_s),
            ("loop_lag_seconds", "How late the event loop was at its last beat.", status.lag_s),
            ("loop_worst_lag_seconds", "The most of the last minute.", status.worst_lag_s),
            (
                "troubles",
                "Things that do not work now; `threadfast status` names them.",
                len(status.troubles),
            ),
        ):
            yield _one(name, words, value)
        yield from _transports(status)
        yield from _circuits(status)
        yield from _spend(status)


def _one(name: str, words: str, value: float, **labels: str) -> Metric:
    family = GaugeMetricFamily(f"threadfast_{name}", words, labels=list(labels))
    family.add_metric(list(labels.values()), float(value))
    return family


def _transports(status: Status) -> Iterator[Metric]:
    up = GaugeMetricFamily("threadfast_transport_up", "1 when it is connected.", labels=["transport"])
    state = GaugeMetricFamily(
        "threadfast_transport_state", "1 for the state it is in.", labels=["transport", "state"]
    )
    silent = GaugeMetricFamily(
        "threadfast_transport_silent_seconds", "How long its link said nothing at all.", labels=["transport"]
    )
    for one in status.transports:
        up.add_metric([one.name], float(one.state == "connected"))
        state.add_metric([one.name, one.state], 1.0)
        if one.silent_s is not None:
            silent.add_metric([one.name], one.silent_s)
    yield from (up, state, silent)


def _circuits(status: Status) -> Iterator[Metric]:
    circuit = GaugeMetricFamily(
        "threadfast_circuit", "1 for the state that the model's circuit is in.", labels=["model", "state"]
    )
    waiting = GaugeMetricFamily("threadfast_calls_waiting", "Calls in the model's line.", labels=["model"])
    for one in status.circuits[:MOST_NAMES]:
        for state in get_args(CircuitState):
            circuit.add_metric([one.model, state], float(one.state == state))
        waiting.add_metric([one.model], one.waiting)
    yield from (circuit, waiting)


def _spend(status: Status) -> Iterator[Metric]:
    spent = GaugeMetricFamily("threadfast_spend_usd", "Spent under this limit.", labels=["scope"])
    reserved = GaugeMetricFamily("threadfast_spend_reserved_usd", "Set aside for calls.", labels=["scope"])
    limit = GaugeMetricFamily(
        "threadfast_spend_limit_usd", "The limit, where there is one.", labels=["scope"]
    )
    for one in status.spend:
        spent.add_metric([one.scope], one.spent)
        reserved.add_metric([one.scope], one.reserved)
        if one.limit is not None:
            limit.add_metric([one.scope], one.limit)
    yield from (spent, reserved, limit)
