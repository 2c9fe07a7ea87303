"""Where spans go, if the settings say so: to a receiver of OTLP over HTTP, such as an OpenTelemetry collector.

Whatever it does, no turn waits for it: spans wait in a bounded queue, and the oldest go when it is full. That it does
not take them is said once, and so is that it takes them again. Only what is installed with ``threadfast[otel]`` is
used. Headers that it wants are taken from ``OTEL_EXPORTER_OTLP_HEADERS``, as everywhere.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from bot.observe.traces import Spans

if TYPE_CHECKING:
    import requests
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger(__name__)

SEND_WITHIN_S = 5.0
"""One batch, retries included; the next one waits for it, and no turn does."""
QUEUE = 4096
"""Spans that wait at most: some thousand turns, and a few MB."""
BATCH = 512
EVERY_MS = 5000
LAST_S = 1.5
"""How long the end of the process waits for what is left to be sent."""


@asynccontextmanager
async def open_spans(endpoint: str | None, agent: str) -> AsyncIterator[Spans | None]:
    """Yield a sink that sends spans to *endpoint*; None when there is none, or nothing to send them with."""
    if endpoint is None:
        yield None
        return
    try:
        spans = await anyio.to_thread.run_sync(_sending, _traces(endpoint), agent)  # imports take their time
    except ImportError as error:
        log.warning(
            "observe.otlp_missing: observe.otlp_endpoint is set, but OpenTelemetry is not installed (%s), "
            "so no spans are sent; install it with: pip install 'threadfast[otel]'",
            error,
        )
        yield None
        return
    try:
        yield spans
    finally:
        with anyio.CancelScope(shield=True):
            await _close(spans)


def _traces(endpoint: str) -> str:
    """Return where traces go: to the usual path of a receiver that is named without one."""
    scheme, _, rest = endpoint.partition("://")
    host, _, path = rest.partition("/")
    return f"{scheme}://{host}/{path or 'v1/traces'}"


def _sending(endpoint: str, agent: str) -> Spans:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    # What it says of each failed batch, with the batch's fate, is said once by `_said_once`.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    exporter = _said_once(
        OTLPSpanExporter(endpoint, timeout=SEND_WITHIN_S, session=_headers_only()), endpoint
    )
    spans = Spans(agent)
    spans.provider.add_span_processor(
        BatchSpanProcessor(
            exporter, max_queue_size=QUEUE, schedule_delay_millis=EVERY_MS, max_export_batch_size=BATCH
        )
    )
    return spans


def _headers_only() -> requests.Session:
    """Return a session that reads no body: of an answer only its status counts, and it may go on for ever."""
    import requests  # noqa: PLC0415

    class HeadersOnly(requests.Session):
        def request(self, *given: Any, **more: Any) -> requests.Response:
            response = super().request(*given, **{**more, "stream": True})
            response.close()
            return response

    return HeadersOnly()


def _said_once(exporter: SpanExporter, endpoint: str) -> SpanExporter:
    """Return the exporter, which says when it begins to fail and when it works again; its thread is its own."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult  # noqa: PLC0415

    class SaidOnce(SpanExporter):
        failing = False

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            try:
                result = exporter.export(spans)
            except Exception as error:  # noqa: BLE001 - the boundary of a library's thread: it must go on
                log.debug("observe.span_batch_lost: %r", error)
                result = SpanExportResult.FAILURE
            failed = result is not SpanExportResult.SUCCESS
            if failed and not self.failing:
                log.warning(
                    "observe.spans_lost: %s does not take spans; they are lost until it does", endpoint
                )
            elif self.failing and not failed:
                log.info("observe.spans_sent: %s takes spans again", endpoint)
            self.failing = failed
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

    return SaidOnce()


async def _close(spans: Spans) -> None:
    """Send what is left, within `LAST_S`; what a receiver that hangs has not taken by then is lost."""
    end = threading.Thread(target=spans.provider.shutdown, name="last spans", daemon=True)
    end.start()
    await anyio.to_thread.run_sync(end.join, LAST_S)
