"""The figures for Prometheus: of a whole bot that worked, and of how it says it is."""

from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from bot.extensions.metrics.metrics import MOST_NAMES, Metrics
from bot.observe.turn_events import Work
from bot.ports.model import Usage
from tests.bot.observe.watching import STATUS, busy, says, wants, watched


def figures(metrics: Metrics) -> dict[tuple[str, frozenset[str]], float]:
    """Return what a scrape reads: each value by its name and the values of its labels."""
    page = metrics.render(STATUS)
    assert page.kind.startswith("text/plain; version=0.0.4")
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(page.body.decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, *labels: str) -> float | None:
    return figures(metrics).get((f"threadfast_{name}", frozenset(labels)))


async def test_a_bot_that_worked_has_the_figures_of_its_work(tmp_path):
    metrics = Metrics()
    script = [busy(), wants(("list_files", {}), ("read_file", {"path": "none"})), says()]
    async with watched(tmp_path, script, metrics) as seat:
        await seat.say("look")
        await seat.say("/status")
    for expected, name, *labels in (
        (2, "messages_total", "fake", "answered"),
        (1, "answer_seconds_count", "fake"),  # a command is no answer of a model's
        (1, "turns_total", "ok"),
        (1, "turn_seconds_count"),
        (2, "turn_steps_sum"),
        (1, "model_calls_total", "one/m", "unavailable"),
        (2, "model_calls_total", "one/m", "ok"),
        (3, "model_call_seconds_count", "one/m"),
        (1, "model_first_content_seconds_count", "one/m"),
        (1, "model_retries_total", "one/m"),
        (14, "model_tokens_total", "one/m", "output"),
        (10, "model_tokens_total", "one/m", "cache_read"),
        (1, "tool_calls_total", "list_files", "ok"),
        (1, "tool_calls_total", "read_file", "tool_not_found"),
        (1, "tool_call_seconds_count", "list_files"),
    ):
        assert value(metrics, name, *labels) == expected, (name, labels)
    assert 0 < value(metrics, "model_cost_usd_total", "one/m") < 0.001


async def test_a_failover_is_counted_from_the_one_to_the_other(tmp_path):
    metrics = Metrics()
    async with watched(tmp_path, lambda _: busy(), metrics, fallback=lambda _: says()) as seat:
        await seat.say("hello")
    assert value(metrics, "model_failovers_total", "one/m", "two/m") == 1


async def test_no_label_tells_who_wrote_where_or_what(tmp_path):
    metrics = Metrics()
    async with watched(
        tmp_path, [wants(("list_files", {"path": "canary-path"})), says("canary-answer")], metrics
    ) as seat:
        await seat.say("canary-text")
    body = metrics.render(STATUS).body.decode()
    for private in ("canary", "U1", "ann", "C1", "m1", "fake:"):
        assert private not in body, private


def test_the_status_is_read_anew_for_each_scrape():
    metrics = Metrics()
    for expected, name, *labels in (
        (1, "ready"),
        (0, "stopping"),
        (1, "transport_up", "slack"),
        (0, "transport_up", "discord"),
        (1, "transport_state", "discord", "reconnecting"),
        (1.5, "transport_silent_seconds", "slack"),
        (None, "transport_silent_seconds", "discord"),
        (1, "circuit", "one/m", "open"),
        (0, "circuit", "one/m", "half-open"),
        (2, "calls_waiting", "one/m"),
        (4, "messages_pending"),
        (7.5, "oldest_pending_seconds"),
        (4, "spend_usd", "day"),
        (50, "spend_limit_usd", "day"),
        (None, "spend_limit_usd", "month"),
        (0.3, "loop_worst_lag_seconds"),
        (1, "troubles"),
        (1, "build_info", "1.2.3"),
        (datetime(2026, 11, 21, 10, tzinfo=UTC).timestamp(), "start_time_seconds"),
    ):
        assert value(metrics, name, *labels) == expected, (name, labels)


def test_every_outcome_of_a_transport_is_counted_from_nought_on():
    assert value(Metrics(), "messages_total", "slack", "dead_letter") == 0


def test_parts_of_messages_that_cannot_be_read_are_counted_by_their_kind():
    metrics = Metrics()
    for kind in ("hologram", "hologram", "smell"):
        metrics.unread("slack", kind)
    assert value(metrics, "unread_parts_total", "slack", "hologram") == 2


def test_names_beyond_a_hundred_are_counted_together():
    metrics = Metrics()
    for number in range(MOST_NAMES + 20):
        metrics.ended(Work("tool", f"mcp__{number}"))
    assert value(metrics, "tool_calls_total", "mcp__0", "ok") == 1
    assert value(metrics, "tool_calls_total", "other", "ok") == 20


def test_a_call_of_no_known_price_costs_nothing_that_is_counted():
    metrics = Metrics()
    metrics.ended(Work("model_call", "one/m", usage=Usage(input=3)))
    assert value(metrics, "model_cost_usd_total", "one/m") is None
    assert value(metrics, "model_tokens_total", "one/m", "input") == 3
