"""OpenTelemetry spans by the conventions for generative AI. `bot.extensions.tracing.otlp_export` sends them.

A turn is ``invoke_agent``, a model call ``chat`` and a tool ``execute_tool``; the conventions have no name for a
step. No span contains text of a person, a model or a tool.

The trace id of a turn begins with the reference that its thread sees, ``(ref 1a2b3c4d)``. Ids are derived from the
message's id, so a turn that continues after a restart links to its interrupted attempt.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from bot.observe.turn_events import Sink, Work
from threads.actor.turn import correlation_id
from threads.model import ThreadId, message_key

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Link
    from opentelemetry.util.types import AttributeValue


@dataclass(frozen=True, slots=True)
class _Ids:
    """The ids of a turn's trace and root span, derived from the thread, the message and the attempt."""

    trace: int
    span: int

    @classmethod
    def of(cls, thread_id: str, message_id: str, reference: str, attempt: int) -> _Ids:
        digest = hashlib.sha256(f"{thread_id} {message_id} {attempt}".encode("utf-8", "replace")).hexdigest()
        return cls(int(reference + digest[:24], 16), int(digest[24:40], 16) or 1)


class Spans(Sink):
    """A sink of `bot.observe.turn_events`. Add span processors to ``provider``."""

    def __init__(self, agent: str) -> None:
        from opentelemetry import trace  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator  # noqa: PLC0415

        class TurnIdGenerator(RandomIdGenerator):
            """Random ids, except for the next root span if ``ids`` is set."""

            ids: _Ids | None = None

            def generate_trace_id(self) -> int:
                return self.ids.trace if self.ids else super().generate_trace_id()

            def generate_span_id(self) -> int:
                return self.ids.span if self.ids else super().generate_span_id()

        self._agent, self._trace, self._ids = agent, trace, TurnIdGenerator()
        own = version("threadfast")
        self.provider: TracerProvider = TracerProvider(
            resource=Resource.create({"service.name": agent, "service.version": own}),
            id_generator=self._ids,
            shutdown_on_exit=False,  # it would wait 30 s for a receiver that hangs
        )
        self._tracer = self.provider.get_tracer("threadfast", own)

    def began(self, work: Work) -> None:
        trace = self._trace
        parent = work.parent.sink_state if work.parent is not None else None
        context = trace.set_span_in_context(parent if isinstance(parent, trace.Span) else trace.INVALID_SPAN)
        kind = trace.SpanKind.CLIENT if work.kind == "model_call" else trace.SpanKind.INTERNAL
        links = self._root(work) if work.kind == "turn" else []
        try:
            work.sink_state = self._tracer.start_span(
                self._name(work), context, kind, attributes=self._start_attributes(work), links=links
            )
        finally:
            self._ids.ids = None

    def ended(self, work: Work) -> None:
        span = work.sink_state
        if not isinstance(span, self._trace.Span):
            return
        span.set_attributes(_end_attributes(work))
        if work.outcome not in ("ok", "partial"):
            span.set_attribute("error.type", work.outcome)
            span.set_status(self._trace.StatusCode.ERROR, work.outcome)
        span.update_name(self._name(work))
        span.end()

    def _root(self, work: Work) -> list[Link]:
        """Make the turn's span the root of its trace; return the link to the interrupted attempt before it."""
        thread_id, message_id = work.ids["thread_id"], work.ids["message_id"]
        if (reference := work.ids.get("correlation_id")) is None:
            return []
        self._ids.ids = _Ids.of(thread_id, message_id, reference, work.attempt)
        if work.attempt == 1:
            return []
        key, before = message_key(ThreadId.parse(thread_id), message_id), work.attempt - 1
        cut = _Ids.of(thread_id, message_id, correlation_id(key, before), before)
        return [self._trace.Link(self._trace.SpanContext(cut.trace, cut.span, is_remote=True))]

    def _name(self, work: Work) -> str:
        match work.kind:
            case "turn":
                return f"invoke_agent {self._agent}"
            case "step":
                return "step"
            case "model_call":
                return f"chat {work.name.partition('/')[2]}"
            case "tool":
                return f"execute_tool {work.name}"

    def _start_attributes(self, work: Work) -> dict[str, AttributeValue]:
        provider, _, model = work.name.partition("/")
        match work.kind:
            case "turn":
                return {
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.agent.name": self._agent,
                    "gen_ai.conversation.id": work.ids["thread_id"],
                    "threadfast.attempt": work.attempt,
                    "threadfast.transport": work.name,
                    **{f"threadfast.{name}": value for name, value in work.ids.items()},
                }
            case "step":
                return {"threadfast.step": work.attempt}
            case "model_call":
                return {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": provider,
                    "gen_ai.request.model": model,
                    "gen_ai.request.stream": True,
                    "threadfast.attempt": work.attempt,
                }
            case "tool":
                return {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": work.name,
                    "gen_ai.tool.type": "extension" if "__" in work.name else "function",
                    "gen_ai.tool.call.id": work.ids.get("call_id", ""),
                }


def _end_attributes(work: Work) -> dict[str, AttributeValue]:
    usage, attributes = work.usage, dict[str, "AttributeValue"]()
    if work.kind == "model_call":
        attributes = {
            "gen_ai.usage.input_tokens": usage.prompt,
            "gen_ai.usage.output_tokens": usage.output,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        }
        if work.stop:
            attributes["gen_ai.response.finish_reasons"] = (work.stop,)
        if work.first_content_s is not None:
            attributes["gen_ai.response.time_to_first_chunk"] = work.first_content_s
        if work.cost_usd is not None:
            attributes["threadfast.cost_usd"] = work.cost_usd
    if work.kind == "step":
        attributes["threadfast.model"] = work.name
        if work.switched_from:
            attributes["threadfast.switched_from"] = work.switched_from
    return attributes
