"""A model behind HTTP on loopback that answers at once: Chat Completions, streamed to whoever asks for a stream.

It runs in a process of its own, the same for all, so that only the contender's side of a call is measured.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.child import ROOT
from benchmarks.versus.peers.harness import ANSWER

USAGE = {"prompt_tokens": 1000, "completion_tokens": 8, "total_tokens": 1008}
ABOUT: dict[str, Any] = {"id": "c-1", "created": 0, "model": "instant"}


@contextmanager
def model_server() -> Iterator[str]:
    """Run the server until the block ends, and return its address."""
    command = [sys.executable, "-m", "benchmarks.versus.model_server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def _whole() -> bytes:
    message = {"role": "assistant", "content": ANSWER}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    body = {**ABOUT, "object": "chat.completion", "choices": choices, "usage": USAGE}
    return _response("application/json", json.dumps(body).encode())


def _streamed() -> bytes:
    words = [{"role": "assistant", "content": ""}, *({"content": f"{word} "} for word in ANSWER.split()[:-1])]
    deltas = [*words, {"content": ANSWER.split()[-1]}]
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    chunks.append({"choices": [], "usage": USAGE})
    lines = [json.dumps({**ABOUT, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    return _response(
        "text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()
    )


def _response(kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    whole, streamed = _whole(), _streamed()
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            _, _, length = head.partition(b"\r\ncontent-length:")
            body = await reader.readexactly(int(length.partition(b"\r\n")[0]))
            writer.write(streamed if json.loads(body).get("stream") else whole)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
