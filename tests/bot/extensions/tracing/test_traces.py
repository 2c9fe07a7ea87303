"""The spans of turns: their names, who is whose parent, what they hold and what they never hold."""

import json
import warnings

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode

from bot.extensions.tracing.traces import Spans
from bot.observe.turn_events import Observing
from tests.bot.observe.watching import busy, says, wants, watched
from tests.world import Gate, Platform, Scripted, message, running
from tests.world import says as answer


@pytest.fixture
def kept() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(kept):
    spans = Spans("threadfast")
    spans.provider.add_span_processor(SimpleSpanProcessor(kept))
    return spans


def named(kept, prefix: str):
    """Return the spans of that name, in the order in which they began."""
    found = [span for span in kept.get_finished_spans() if span.name.startswith(prefix)]
    return sorted(found, key=lambda span: span.start_time)


async def test_a_turn_is_one_trace_of_agent_steps_chats_and_tools(tmp_path, kept, spans):
    script = [busy(), wants(("list_files", {}), ("read_file", {"path": "none"})), says()]
    async with watched(tmp_path, script, spans) as seat:
        await seat.say("look")
    (turn,) = named(kept, "invoke_agent threadfast")
    first, second = named(kept, "step")
    chats, tools = named(kept, "chat m"), named(kept, "execute_tool")
    ids = [span.parent and span.parent.span_id for span in (turn, first, second, *chats, *tools)]
    one, two = first.context.span_id, second.context.span_id
    assert ids == [None, turn.context.span_id, turn.context.span_id, one, one, two, one, one]
    assert len({span.context.trace_id for span in kept.get_finished_spans()}) == 1
    assert {span.name for span in tools} == {"execute_tool list_files", "execute_tool read_file"}
    assert all(
        turn.start_time <= span.start_time and span.end_time <= turn.end_time for span in (*chats, *tools)
    )


async def test_spans_hold_what_the_conventions_name(tmp_path, kept, spans):
    async with watched(tmp_path, [busy(), wants(("list_files", {})), says()], spans) as seat:
        await seat.say("look")
    refused, chat, _ = named(kept, "chat m")
    assert chat.kind is SpanKind.CLIENT
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    assert chat.attributes["gen_ai.provider.name"] == "one"
    assert chat.attributes["gen_ai.request.model"] == "m"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 18
    assert chat.attributes["gen_ai.usage.cache_read.input_tokens"] == 5
    assert chat.attributes["gen_ai.usage.output_tokens"] == 7
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert chat.attributes["threadfast.cost_usd"] > 0
    assert chat.status.status_code is StatusCode.UNSET
    assert refused.attributes["error.type"] == "unavailable"
    assert refused.status.status_code is StatusCode.ERROR
    (tool,) = named(kept, "execute_tool")
    assert tool.attributes["gen_ai.tool.name"] == "list_files"
    assert tool.attributes["gen_ai.tool.call.id"] == "call_0"
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI")}
    known.add(error_attributes.ERROR_TYPE)
    used = {name for span in kept.get_finished_spans() for name in span.attributes}
    assert {name for name in used if not name.startswith("threadfast.")} <= known


async def test_the_trace_of_a_turn_begins_with_the_reference_that_the_thread_is_shown(tmp_path, kept, spans):
    async with watched(tmp_path, [], spans, llm_retry={"max_retries": 0}) as seat:
        said = await seat.say("hello")
    (turn,) = named(kept, "invoke_agent")
    reference = turn.attributes["threadfast.correlation_id"]
    assert f"(ref {reference})" in said.text
    assert f"{turn.context.trace_id:032x}".startswith(reference)
    assert turn.attributes["threadfast.thread_id"] == "fake:W:C1:1.0"
    assert turn.attributes["gen_ai.conversation.id"] == "fake:W:C1:1.0"
    assert turn.attributes["threadfast.message_id"] == "m1"
    assert turn.attributes["error.type"] != "ok"


async def test_a_turn_that_goes_on_after_a_restart_links_to_the_one_that_was_cut(tmp_path, kept, spans):
    gate = Gate(answer("never"))
    async with running(tmp_path, Platform(), Scripted(gate), observing=Observing(spans)) as core:
        await gate.hold(core, message(1))
    async with running(tmp_path, platform := Platform(find=False), Scripted(), observing=Observing(spans)):
        await platform.settled("m1")
    cut, resumed = named(kept, "invoke_agent")
    assert (cut.attributes["error.type"], resumed.attributes["threadfast.attempt"]) == ("turn_stopped", 2)
    assert cut.context.trace_id != resumed.context.trace_id
    (link,) = resumed.links
    assert (link.context.trace_id, link.context.span_id) == (cut.context.trace_id, cut.context.span_id)


async def test_no_span_holds_anything_that_anybody_said(tmp_path, kept, spans):
    (tmp_path / "kept").mkdir()
    script = [wants(("list_files", {"path": "canary-path"})), says("canary-answer")]
    async with watched(tmp_path, script, spans) as seat:
        await seat.say("canary-text")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = json.dumps([span.to_json() for span in kept.get_finished_spans()])
    assert "canary" not in whole and "sk-" not in whole and "U1" not in whole
    assert all(not span.events for span in kept.get_finished_spans())
