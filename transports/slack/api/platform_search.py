"""Slack's own search, with the rights of somebody who has just written to the bot.

A bot may search only with the ``action_token`` that came with a person's message, and finds what that person may
read (docs.slack.dev, "Real-time Search API"). We ask for public channels, which need ``search:read.public``. Tokens
are short-lived, so they are kept in memory alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
from cachetools import TTLCache

from threads.errors import TransportRejected
from transports.slack.api.json_fields import Shape, identifier, part, parts, place_of, stamp, string
from transports.slack.api.web_api import WebApi

SEARCH = "assistant.search.context"
MOST_TOKENS, LASTS_S = 1_000, 900.0
MOST_FOUND, LONGEST = 20, 1_000
"""Messages of one search, and characters of one of them."""

NOT_GIVEN = "Slack did not allow a search along with this message: only people who write to me bring that."


class PlatformSearch:
    def __init__(self, web: WebApi) -> None:
        self._web = web
        self._tokens: TTLCache[str, str] = TTLCache(MOST_TOKENS, LASTS_S, anyio.current_time)

    def note(self, event: Shape) -> None:
        """Note the token that came with a message, if there is one."""
        if token := string(part(event, "assistant_thread"), "action_token") or string(event, "action_token"):
            self._tokens[place_of(identifier(event, "channel"), stamp(event, "ts"))] = token

    async def search(self, channel: str, message_id: str, words: str) -> Sequence[str]:
        """Return messages that the author of that message may read, each below its link. Raises `PostFailed`."""
        if (token := self._tokens.get(place_of(channel, message_id))) is None:
            refused = TransportRejected(f"{SEARCH}: no action_token came with the message")
            refused.friendly = NOT_GIVEN
            raise refused
        kinds: dict[str, Any] = {"content_types": ["messages"], "channel_types": ["public_channel"]}
        answer = await self._web.call(SEARCH, query=words, action_token=token, limit=MOST_FOUND, **kinds)
        return [_line(one) for one in parts(part(answer, "results"), "messages")[:MOST_FOUND]]


def _line(found: Shape) -> str:
    where = string(found, "channel_name") or string(found, "channel_id")
    who = string(found, "author_name") or string(found, "author_user_id")
    return f"{string(found, 'permalink')}\n#{where} {who}: {string(found, 'content')[:LONGEST]}"
