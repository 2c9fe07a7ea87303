"""Where spans go: a real receiver on loopback, one that is not there, one that hangs, and none that could be used."""

import builtins
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from bot.extensions.tracing import otlp_export
from bot.extensions.tracing.otlp_export import open_spans
from bot.observe.turn_events import Observing
from tests.patience import WITHIN_S

HANGS_S = WITHIN_S
IDS = {"thread_id": "fake:W:C1:1.0", "message_id": "m1", "correlation_id": "00c0ffee"}


class Receiver:
    """Keeps what is posted to it; if it hangs, it answers nothing until it is closed."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.posts: list[tuple[str, bytes]] = []
        self.reached, self.closing = threading.Event(), threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.posts.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
                receiver.reached.set()
                if hangs:
                    receiver.closing.wait(HANGS_S)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def names(self) -> list[str]:
        found = []
        for _, body in self.posts:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                told = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
                assert told["service.name"] == "threadfast" and told["service.version"]
                found += [span.name for scope in resource.scope_spans for span in scope.spans]
        return sorted(found)


@contextmanager
def receiving(*, hangs: bool = False) -> Iterator[Receiver]:
    receiver = Receiver(hangs=hangs)
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.closing.set()
        receiver.server.shutdown()
        thread.join()
        receiver.server.server_close()


def work(spans: object) -> None:
    observing = Observing(spans)
    with observing.work("turn", "fake", IDS):
        observing.step("one/m")


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("http://there", "http://there/v1/traces"),
        ("http://there:4318/", "http://there:4318/v1/traces"),
        ("https://there/otlp/v1/traces", "https://there/otlp/v1/traces"),
    ],
)
def test_a_receiver_that_is_named_without_a_path_is_asked_at_the_usual_one(given, asked):
    assert otlp_export.traces_url(given) == asked


async def test_a_receiver_that_is_not_there_is_told_of_once_and_nothing_else(
    caplog, monkeypatch, free_tcp_port
):
    monkeypatch.setattr(otlp_export, "EVERY_MS", 5)
    monkeypatch.setattr(otlp_export, "SEND_WITHIN_S", 0.05)
    async with open_spans(f"http://127.0.0.1:{free_tcp_port}", "threadfast") as spans:
        for _ in range(5):
            work(spans)
            await anyio.sleep(0.03)
    said = [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert [record.getMessage().partition(":")[0] for record in said] == ["observe.spans_lost"]
    assert said[0].exc_info is None


async def test_a_receiver_that_hangs_holds_up_neither_work_nor_the_end(monkeypatch):
    for name, value in (("LAST_S", 0.2), ("EVERY_MS", 5), ("SEND_WITHIN_S", 1), ("QUEUE", 64), ("BATCH", 16)):
        monkeypatch.setattr(otlp_export, name, value)
    with receiving(hangs=True) as receiver:
        async with open_spans(receiver.url, "threadfast") as spans:
            work(spans)
            await anyio.to_thread.run_sync(receiver.reached.wait, 20)
            began = time.perf_counter()
            for _ in range(100):  # two spans each: more than may wait
                work(spans)
        assert time.perf_counter() - began < HANGS_S / 2


async def test_that_spans_are_taken_again_is_told_once(caplog):
    results = [SpanExportResult.FAILURE, SpanExportResult.FAILURE, SpanExportResult.SUCCESS]

    class Flaky(SpanExporter):
        def export(self, spans):
            if not results:
                raise OSError("gone")
            return results.pop(0)

    caplog.set_level("INFO")
    exporter = otlp_export.log_failures_once(Flaky(), "http://there")
    for _ in range(4):
        exporter.export([])
    # and no earlier test's
    told = [text.partition(":")[0] for text in caplog.messages if "http://there" in text]
    assert told == ["observe.spans_lost", "observe.spans_sent", "observe.spans_lost"]


async def test_without_the_extra_it_is_said_what_to_install_and_no_spans_are_sent(caplog, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    async with open_spans("http://127.0.0.1:4318", "threadfast") as spans:
        assert spans is None
    assert "pip install 'threadfast[otel]'" in caplog.text


async def test_without_an_endpoint_nothing_is_said(caplog):
    async with open_spans(None, "threadfast") as spans:
        assert spans is None
    assert caplog.text == ""
