"""The least that answers on Slack: slack_sdk's Socket Mode and Web API clients, the openai SDK, a list a thread.

It keeps nothing, asks nobody's permission and retries nothing. In a direct message it streams, with a call a second.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

from openai import AsyncOpenAI
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from benchmarks.wire.peers.bare_agent import Agent

SPACING_S = 1.0
STREAM_BYTES = 9_000
"""A streamed message takes some 11,900 bytes; then another one begins."""


class Bot:
    def __init__(self) -> None:
        address = os.environ["SLACK_API"]
        self._web = AsyncWebClient(token=os.environ["SLACK_BOT_TOKEN"], base_url=address)
        self._agent = Agent(AsyncOpenAI(api_key="none", base_url=os.environ["MODEL_URL"]))
        self._client = SocketModeClient(
            app_token=os.environ["SLACK_APP_TOKEN"], web_client=AsyncWebClient(base_url=address)
        )
        self._histories: dict[str, list[Any]] = defaultdict(list)

    async def run(self) -> None:
        self._client.socket_mode_request_listeners.append(self._take)
        await self._client.connect()
        await asyncio.Event().wait()

    async def _take(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        await client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))
        event = request.payload.get("event", {})
        direct = event.get("channel_type") == "im" and "bot_id" not in event and "subtype" not in event
        if not direct and event.get("type") != "app_mention":
            return
        channel, thread = event["channel"], event.get("thread_ts") or event["ts"]
        answer = self._agent.answer(self._histories[thread], event["text"])
        if direct:
            await self._stream(channel, thread, answer)
        else:
            text = "".join([piece async for piece in answer])
            await self._web.chat_postMessage(channel=channel, thread_ts=thread, text=text)

    async def _stream(self, channel: str, thread: str, answer: AsyncIterator[str]) -> None:
        """Show the answer as it grows, in as many messages as it takes."""
        ts, size, waiting, at = "", 0, "", 0.0
        async for piece in answer:
            waiting += piece
            if time.monotonic() - at < SPACING_S:
                continue
            if ts and size + len(waiting.encode()) > STREAM_BYTES:
                await self._web.chat_stopStream(channel=channel, ts=ts)
                ts, size = "", 0
            if ts:
                await self._web.chat_appendStream(channel=channel, ts=ts, markdown_text=waiting)
            else:
                ts = await self._start(channel, thread, waiting)
            size, waiting, at = size + len(waiting.encode()), "", time.monotonic()
        await self._web.chat_stopStream(channel=channel, ts=ts, markdown_text=waiting or None)

    async def _start(self, channel: str, thread: str, text: str) -> str:
        started = await self._web.chat_startStream(channel=channel, thread_ts=thread, markdown_text=text)
        return str(started["ts"])


async def main() -> None:
    await Bot().run()  # its client needs the event loop from the start


if __name__ == "__main__":
    asyncio.run(main())
