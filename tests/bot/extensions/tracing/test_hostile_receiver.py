"""A receiver of spans that answers without end takes none of the bot's memory."""

import socket
import threading

import anyio
import pytest

from bot.extensions.tracing.otlp_export import open_spans
from tests.bot.extensions.tracing.test_otlp_export import work

pytest.importorskip("opentelemetry")

MOST_BYTES = 20_000_000
"""More than both ends of a socket hold."""


async def test_an_answer_without_end_is_not_read():
    sent, over = 0, threading.Event()

    def flood(server):
        nonlocal sent
        connection, _ = server.accept()
        with connection:
            connection.settimeout(5)
            connection.recv(100_000)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            try:
                while sent < MOST_BYTES:
                    sent += connection.send(b"x" * 65_536)
            except OSError:
                pass
        over.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=flood, args=(server,), daemon=True).start()
        async with open_spans(f"http://127.0.0.1:{server.getsockname()[1]}", "bot") as spans:
            work(spans)
        assert await anyio.to_thread.run_sync(over.wait, 5)
    assert sent < MOST_BYTES
