"""Sends spans to a receiver of OTLP over HTTP, such as an OpenTelemetry collector.

No turn waits for the receiver. Spans wait in a bounded queue that drops the oldest. A failing receiver is logged
once, and once more when it works again. It needs the extra ``threadfast[otel]``. Headers come from
``OTEL_EXPORTER_OTLP_HEADERS``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from bot.extensions.tracing.traces import Spans

if TYPE_CHECKING:
    import requests
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger(__name__)

SEND_WITHIN_S = 5.0
"""For one batch, retries included."""
QUEUE = 4096
"""Waiting spans: about a thousand turns, a few MB."""
BATCH = 512
EVERY_MS = 5000
LAST_S = 1.5
"""How long a stopping process waits for the last spans."""


@asynccontextmanager
async def open_spans(endpoint: str | None, agent: str) -> AsyncIterator[Spans | None]:
    """Yield a sink that sends spans to *endpoint*; None without an endpoint or without OpenTelemetry."""
    if endpoint is None:
        yield None
        return
    try:
        # The imports are slow.
        spans = await anyio.to_thread.run_sync(_start_export, traces_url(endpoint), agent)
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


def traces_url(endpoint: str) -> str:
    """Return the address for traces; an endpoint without a path gets the usual one."""
    scheme, _, rest = endpoint.partition("://")
    host, _, path = rest.partition("/")
    return f"{scheme}://{host}/{path or 'v1/traces'}"


def _start_export(endpoint: str, agent: str) -> Spans:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    # `log_failures_once` logs a failing receiver once; the library would log every batch.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    exporter = log_failures_once(
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
    """Return a session that reads only headers: the status is enough, and a body may never end."""
    import requests  # noqa: PLC0415

    session = requests.Session()
    session.stream = True
    session.hooks["response"] = [lambda response, **_: response.close()]
    return session


def log_failures_once(exporter: SpanExporter, endpoint: str) -> SpanExporter:
    """Return an exporter that logs when it begins to fail and when it works again. It runs in the SDK's thread."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult  # noqa: PLC0415

    class WarnsOnce(SpanExporter):
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

    return WarnsOnce()


async def _close(spans: Spans) -> None:
    """Send the last spans within `LAST_S`; the rest is lost."""
    end = threading.Thread(target=spans.provider.shutdown, name="last spans", daemon=True)
    end.start()
    await anyio.to_thread.run_sync(end.join, LAST_S)
