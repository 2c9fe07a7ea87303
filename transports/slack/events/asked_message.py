"""A message that somebody asks the bot about, from the menu of the message or by a reaction.

The turn is that person's, in the thread of the message. What the message says is quoted, so it is text from outside,
whoever wrote it. Each person asks about a message once: a double click and what Slack sends again have the same id,
which is not that of the message. One that came to nothing can be asked about again from the menu.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
from pydantic import JsonValue

from threads.errors import PostFailed, StoreUnavailable, TransportUnavailable
from threads.model import Author, Incoming, Outcome, Via
from transports.base.text import digest
from transports.shared.buttons import CARRIED_OUT
from transports.shared.live.background_calls import retry_cleanup
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.json_fields import Shape, identifier, is_direct, part, parts, stamp, string
from transports.slack.api.thread_history import REPLIES
from transports.slack.api.web_api import WebApi
from transports.slack.events.lookups import NAMED_WITHIN_S, Lookups
from transports.slack.events.parse_message import Me, root_of, sent_at, spoken
from transports.slack.live.presence import Presence
from transports.slack.manifest import ASK, Features

log = logging.getLogger(__name__)

WORDS = "Please help with the message that is quoted above."
"""What somebody says who only chooses a message."""

READ_WITHIN_S = 1.0
"""How long the message is looked at; Slack waits 3 s for the acknowledgement."""

OUTSIDE = ("not_in_channel", "channel_not_found")
NOT_A_MEMBER = "I am not in this conversation. Invite me, or forward the message to me in a direct message."
ANSWERED = "You have asked me about this message before. My answer is in its thread: {link}"

Deliver = Callable[[Incoming], Awaitable[Outcome | None]]


@dataclass(frozen=True, slots=True)
class Asked:
    """The message ``ts`` in a channel, which ``user`` asks about. ``click`` tells two choices of it apart.

    ``message`` is what came along of it.
    """

    channel: str
    ts: str
    user: str
    at: str
    click: str = ""
    reply_address: str = field(default="", repr=False)
    message: Shape = field(default_factory=dict, repr=False)


def parse_shortcut(payload: Shape) -> Asked | None:
    """Read a choice in the menu of a message; None for one that is not ours. Never raises."""
    message = part(payload, "message")
    channel, user = (identifier(part(payload, name), "id") for name in ("channel", "user"))
    ts, at = stamp(message, "ts") or stamp(payload, "message_ts"), stamp(payload, "action_ts")
    click, reply_address = digest(string(payload, "trigger_id")), string(payload, "response_url")
    if string(payload, "callback_id") != ASK or not (channel and ts and user):
        return None
    return Asked(channel, ts, user, at, click, reply_address, message)


def parse_reaction(event: Shape, reaction: str, me: Me) -> Asked | None:
    """Read a reaction to a message; None for another one than *reaction*, and for the bot's own. Never raises."""
    item, user = part(event, "item"), identifier(event, "user")
    # Without the tone of a skin.
    chosen = reaction and string(event, "reaction").partition("::")[0] == reaction
    asked = Asked(identifier(item, "channel"), stamp(item, "ts"), user, stamp(event, "event_ts"))
    return asked if chosen and asked.channel and asked.ts and user not in ("", me.user) else None


@dataclass(frozen=True, slots=True)
class AskedMessages:
    """``url`` is the address of the workspace on the web; ``deliver`` makes a message durable."""

    web: WebApi
    me: Me
    lookups: Lookups
    features: Features
    url: str
    presence: Presence
    deliver: Deliver

    async def by_shortcut(self, payload: Mapping[str, JsonValue]) -> None:
        """Take a choice in the menu of a message. Raises `StoreUnavailable`."""
        if (asked := parse_shortcut(payload)) is None or not self.features.shortcut:
            log.info("intake.ignored: a shortcut that is not ours, or is off")
            return
        message = asked.message
        try:
            message = await self._read(asked) or message
        except PostFailed as error:
            if isinstance(error, SlackRefused) and error.error in OUTSIDE:
                self._tell(asked, NOT_A_MEMBER)
                return
            log.info("ask.unread: a message is taken as it came with the question: %s", error)
        incoming = await self._question(asked, message)
        if (outcome := await self.deliver(incoming)) in CARRIED_OUT:
            self._tell(asked, ANSWERED.format(link=self._link(asked, message)))
        elif outcome is not None:
            await self.deliver(replace(incoming, id=f"{incoming.id}-{asked.click}"))

    async def by_reaction(self, event: Shape) -> None:
        """Take a reaction. Raises `StoreUnavailable`, also if Slack cannot be asked now: it sends the event again."""
        if (asked := parse_reaction(event, self.features.ask_reaction, self.me)) is None:
            return
        try:
            who = part(await self._ask("users.info", user=asked.user), "user")
            message = None if who.get("is_bot") else await self._read(asked)
        except SlackRefused as refused:
            log.warning("ask.refused: what somebody reacted to cannot be looked at: %s", refused)
            return
        except PostFailed as error:
            raise StoreUnavailable(f"a reaction waits: {error}") from error
        if message:
            await self.deliver(await self._question(asked, message))

    async def _read(self, asked: Asked) -> Shape | None:
        """Return the message as it is now, None if it is gone. Raises `PostFailed`.

        Slack answers with the message alone, or with its thread from the message on.
        """
        answer = await self._ask(REPLIES, channel=asked.channel, ts=asked.ts, limit=1)
        return next((one for one in parts(answer, "messages") if stamp(one, "ts") == asked.ts), None)

    async def _ask(self, method: str, **arguments: Any) -> Shape:
        try:
            with anyio.fail_after(READ_WITHIN_S):
                return await self.web.call(method, **arguments)
        except TimeoutError:
            raise TransportUnavailable(f"{method}: no answer within {READ_WITHIN_S:.0f} s") from None

    async def _question(self, asked: Asked, message: Shape) -> Incoming:
        """Return what a person says by asking: a few words of ours, and the message as a quotation."""
        await self.lookups.explain([message], NAMED_WITHIN_S)
        line = spoken(message, self.me, self.lookups.known)
        who = f" from {line.author.name or line.author.id}" if line else ""
        said = line.text if line else "[nothing in it that I can read]"
        rows = (f"Message{who}: {self._link(asked, message)}", *said.splitlines())
        id_ = f"ask-{digest(asked.channel, asked.ts, asked.user)}"
        thread = self.me.thread(asked.channel, root_of(message) or asked.ts)
        at = sent_at(asked.at) if asked.at else ""
        asks = Incoming(id_, thread, Author(asked.user), WORDS, at, reply_address=asked.reply_address)
        via: Via = "direct" if is_direct(asked.channel) else "mention"
        files = tuple(replace(file, voice=False) for file in line.files) if line else ()
        return replace(asks, via=via, files=files, quoted="\n".join(f"> {row}" for row in rows))

    def _link(self, asked: Asked, message: Shape) -> str:
        """Return the permalink of the message, in the form that ``chat.getPermalink`` gives."""
        root = root_of(message)
        within = f"?thread_ts={root}&cid={asked.channel}" if root not in ("", asked.ts) else ""
        return f"{self.url}archives/{asked.channel}/p{asked.ts.replace('.', '')}{within}"

    def _tell(self, asked: Asked, text: str) -> None:
        """Tell the person alone, in the background."""
        tell = partial(self.web.respond, asked.reply_address, {"text": text})
        self.presence.soon(partial(retry_cleanup, tell, self.me.thread(asked.channel, asked.ts)))
