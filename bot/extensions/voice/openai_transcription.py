"""OpenAI's transcriptions, which speaches, vLLM, LocalAI and Groq have too: a recording goes in, text comes back.

https://platform.openai.com/docs/api-reference/audio/createTranscription

A server knows the format of a recording by the ending of its name. The person's own name of the file is not sent.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

import anyio

from bot.extensions.voice.recording import AudioUsage, TranscriptionRequest
from bot.llm.adapters.openai_sdk import OpenAIClient
from bot.llm.adapters.stream import UNCONNECTED, typed_errors
from bot.llm.adapters.wire_form import part, scrub, tokens
from bot.ports.errors import BadRequest, ModelConnection, ModelTimeout, ModelUnavailable, ProviderError
from bot.ports.model import Completion, Request
from threads.model import File, Message, OnEvent, Text

MAX_BYTES = 25_000_000
"""The largest recording that OpenAI takes (platform.openai.com/docs/guides/speech-to-text)."""

MAX_SECONDS = 1_000_000
"""More than fit into the largest recording."""

ENDINGS = {
    "audio/flac": ".flac",
    "audio/mp4": ".m4a",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/wav": ".wav",
    "audio/webm": ".webm",
    "audio/x-m4a": ".m4a",
    "audio/x-wav": ".wav",
}
SAME_AS = {".oga": ".ogg", ".opus": ".ogg", ".aac": ".m4a"}
"""Endings that the API does not know, of formats that it reads."""


class OpenAITranscription(OpenAIClient):
    """One transcription model of OpenAI or of a compatible server."""

    no_key = "none"

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:  # noqa: ARG002 - nothing is streamed
        """Return the text of the recording; raises `ProviderError`, and OSError if it cannot be read."""
        if not isinstance(request, TranscriptionRequest):
            raise BadRequest("there is no recording", provider=self.provider, model=self.model)
        client = await self._open_client()
        media_type = request.file.media_type
        file = (wire_name(request.file), await request.read(), media_type or "application/octet-stream")
        try:
            with typed_errors(self.provider, self.model, self.now):
                text, usage = _read(await self._send(client, file))
        except BaseException as error:
            if not _refused(error):
                request.meter(AudioUsage())  # It was sent: a provider may charge for it.
            raise
        return Completion(Message("assistant", (Text(text),), model=self.name), usage, "end")

    async def _send(self, client: Any, file: tuple[str, bytes, str]) -> str:
        """Return the body of the answer."""
        with anyio.move_on_after(self.timeouts.total):
            response = await client.audio.transcriptions.with_raw_response.create(
                file=file, model=self.model, response_format="json"
            )
            body: str = response.text
            return body
        raise ModelTimeout(f"no transcript within {self.timeouts.total:g} s")


def wire_name(file: File) -> str:
    """Return a name whose ending tells the format: the file's own, or that of its media type."""
    media_type = file.media_type.partition(";")[0].strip().lower()
    ending = PurePath(file.name).suffix.lower() or ENDINGS.get(media_type, "")
    return f"recording{SAME_AS.get(ending, ending)}"


def _read(body: str) -> tuple[str, AudioUsage]:
    """Return the text and the usage of an answer. Raises `ModelUnavailable` if it is none."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("text"), str):
        raise ModelUnavailable(f"status 200 without a transcript: {body[:200]!r}")
    usage = part(answer, "usage")
    details = part(usage, "input_token_details")
    return scrub(answer["text"]), AudioUsage(
        input=tokens(usage.get("input_tokens")) or 0,
        output=tokens(usage.get("output_tokens")) or 0,
        audio_tokens=tokens(details.get("audio_tokens")) or 0,
        seconds=_seconds(usage.get("seconds")) or _seconds(answer.get("duration")),
    )


def _seconds(value: object) -> float:
    """Return a server's count of seconds; 0 for one that cannot be true."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value <= MAX_SECONDS else 0.0


def _refused(error: BaseException) -> bool:
    """Return whether the call cost nothing: it did not get there, or the provider answered with an error."""
    causes = {type(why).__name__ for why in (error.__cause__, error.__cause__ and error.__cause__.__cause__)}
    match error:
        case ModelTimeout():
            return "status" in error.fields or bool(UNCONNECTED & causes)
        case ModelConnection():
            return error.alone or bool(causes & {"ConnectError", "ClientConnectorError"})
        case ModelUnavailable():
            return "status" in error.fields
    return isinstance(error, ProviderError)
