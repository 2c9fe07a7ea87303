"""What both of OpenAI's streaming APIs have in common."""

from __future__ import annotations

import base64

from bot.llm.adapters.openai_sdk import OpenAIClient
from bot.llm.adapters.sdk import SdkModel
from bot.llm.adapters.sse import JsonEvent
from bot.llm.adapters.wire_form import part, tokens
from bot.ports.effort import Effort
from bot.ports.model import Usage
from threads.model import Image


class OpenAIModel(OpenAIClient, SdkModel):
    """One model behind one of OpenAI's streaming APIs."""


def effort_to_wire(effort: Effort) -> str:
    return "none" if effort == "off" else effort


def data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"


def usage_of(usage: JsonEvent, prompt: str, answer: str) -> Usage:
    """Return the usage; *prompt* and *answer* are the API's names of the token counts.

    The API's prompt includes the tokens of the cache, and its answer those of reasoning. Servers of xAI and Gemini
    count reasoning only in the total.
    """
    details = part(usage, f"{prompt}_details")
    read, write = tokens(details.get("cached_tokens")) or 0, tokens(details.get("cache_write_tokens")) or 0
    asked, answered = tokens(usage.get(prompt)) or 0, tokens(usage.get(answer)) or 0
    return Usage(
        input=max(0, asked - read - write),
        output=max(answered, (tokens(usage.get("total_tokens")) or 0) - asked) if asked else answered,
        cache_read=read,
        cache_write=write,
    )
