"""Calls of Discord's REST API, made through discord.py by ids alone."""

from __future__ import annotations

import io
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypeVar, cast

import anyio
import discord

from threads.errors import TransportRejected, TransportUnavailable
from transports.discord.api.account import BotAccount
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.sdk import DISCORD, interactions_through, read_message
from transports.discord.api.snowflake import number
from transports.discord.api.values import MAX_BUTTONS, Button, ReplyAddress, Upload

T = TypeVar("T")

log = logging.getLogger(__name__)

UPLOAD_WITHIN_S = 300.0
MAX_NAME = 100
MAX_PAGE = 100
"""Messages of one call."""
ARCHIVE_AFTER_MIN: Literal[1440] = 1440
ORIGINAL: Final = cast(int, "@original")
"""Discord's name of the first answer to an interaction; the library passes ids on as they are."""
EXPIRED = 50_027


class Rest(BotAccount):
    """Discord's REST API with one bot token, after `login`.

    Every call raises `DiscordRefused`, `TransportRateLimited`, `TransportUnavailable` or `TransportRejected`, and no
    other `Exception`. Calls that are not *urgent* are held back first. Posts ping nobody, and links have no previews.
    """

    async def send(
        self,
        channel: str,
        content: str,
        *,
        nonce: str,
        reply_to: str = "",
        buttons: Sequence[Button] = (),
        upload: Upload | None = None,
        urgent: bool = True,
    ) -> discord.Message:
        """Post a message; *content* has at most 2,000 characters, *nonce* 25.

        A second send with the same nonce within minutes returns the first message, whose content may differ. A reply
        to a deleted message becomes a plain post.
        """

        async def post() -> discord.Message:
            more: dict[str, Any] = {}
            if reply_to:
                more["reference"] = discord.MessageReference(
                    message_id=int(reply_to), channel_id=int(channel), fail_if_not_exists=False
                )
            if buttons:
                more["view"] = view_of(buttons)
            if upload:
                more["file"] = _opened(upload)
            return await self._place(channel).send(content or None, nonce=nonce, suppress_embeds=True, **more)

        within = UPLOAD_WITHIN_S if upload else None
        return await self._ask("send", post, line=nonce, urgent=urgent, within=within, posts=True)

    async def answer_privately(
        self, address: ReplyAddress, content: str, buttons: Sequence[Button], *, line: str, in_place: bool
    ) -> str:
        """Answer the person of an interaction alone, *in_place* of the "thinking"; return the message's id."""

        async def answer(hook: discord.Webhook) -> discord.WebhookMessage:
            view = view_of(buttons)
            if in_place:
                return await hook.edit_message(ORIGINAL, content=content, view=view)
            return await hook.send(content, view=view, ephemeral=True, suppress_embeds=True, wait=True)

        return str((await self._call_webhook("whisper", address, answer, line)).id)

    async def end_thinking(self, address: ReplyAddress, *, line: str) -> None:
        """Take the "thinking" of an interaction away."""
        await self._call_webhook("end_thinking", address, lambda hook: hook.delete_message(ORIGINAL), line)

    async def _call_webhook(
        self, call: str, address: ReplyAddress, work: Callable[[discord.Webhook], Awaitable[T]], line: str
    ) -> T:
        """Make a call with the token of an interaction, which is refused once that is over."""

        async def ask() -> T:
            hook = discord.Webhook.partial(int(address.application), address.token, client=self._library)
            hook.type, hook.proxy = discord.WebhookType.application, self._library.http.proxy
            try:
                with interactions_through(self._interaction_calls):
                    return await work(hook)
            except discord.HTTPException as refused:
                if refused.status != 401:
                    raise
            # It says nothing about the bot's own token.
            raise DiscordRefused(call, 404, EXPIRED, "the interaction is over")

        return await self._ask(call, ask, line=line)

    async def edit(
        self,
        channel: str,
        message: str,
        content: str | None = None,
        *,
        buttons: Sequence[Button] = (),
        urgent: bool = True,
    ) -> None:
        """Change a message of ours, and replace its buttons. Without *content* its text stays."""

        async def patch() -> None:
            text: dict[str, Any] = {} if content is None else {"content": content}
            await self._message(channel, message).edit(view=view_of(buttons), **text)

        await self._ask("edit", patch, line=message, urgent=urgent)

    async def delete(self, channel: str, message: str) -> None:
        """Delete a message; one that is gone already is no failure."""
        delete = self._message(channel, message).delete
        try:
            await self._ask("delete", delete, line=message, urgent=False)
        except DiscordRefused as refused:
            if refused.kind != "gone":
                raise

    async def react(self, channel: str, message: str, emoji: str) -> None:
        line = f"reactions {message}"
        await self._ask(
            "react", lambda: self._message(channel, message).add_reaction(emoji), line=line, urgent=False
        )

    async def unreact(self, channel: str, message: str, emoji: str) -> None:
        ours, line = discord.Object(self.me.id), f"reactions {message}"
        await self._ask(
            "unreact",
            lambda: self._message(channel, message).remove_reaction(emoji, ours),
            line=line,
            urgent=False,
        )

    async def typing(self, channel: str) -> None:
        """Show "typing" for ten seconds, or until the next post."""
        line = f"typing {channel}"
        await self._ask("typing", lambda: self._place(channel).typing(), line=line, urgent=False)

    async def open_thread(self, channel: str, message: str, name: str) -> str:
        """Open a thread from a message, unless there is one, and return its id: the message's."""

        async def start() -> None:
            opened: object = await self._library.http.start_thread_with_message(
                int(channel), int(message), name=name[:MAX_NAME], auto_archive_duration=ARCHIVE_AFTER_MIN
            )
            if not isinstance(opened, dict) or "id" not in opened:
                raise TransportUnavailable("open_thread: the answer is not a thread")

        try:
            await self._ask("open_thread", start, line=f"thread {message}", opens=True)
        except DiscordRefused as refused:
            if refused.kind != "exists":
                raise
        return message

    async def history(
        self, channel: str, *, after: str = "", before: str = "", limit: int = MAX_PAGE
    ) -> list[discord.Message]:
        """Return one page, oldest first: the first *limit* (at most 100) after an id, else the last before one.

        A message that the library cannot read is replaced by the next one.
        """

        async def read() -> list[discord.Message]:
            page: list[discord.Message] = []
            edge = after or before
            while (wanted := min(limit, MAX_PAGE) - len(page)) > 0:
                way = {"after" if after else "before": int(edge)} if edge else {}
                answer = await self._library.http.logs_from(int(channel), wanted, **way)
                if not _is_page(answer):  # an empty page would hide messages
                    raise TransportUnavailable("history: the answer is not a list of messages")
                page += filter(None, (self._read(channel, message) for message in answer))
                before_that = edge
                edge = (max if after else min)(
                    (str(message["id"]) for message in answer), key=number, default=""
                )
                if len(answer) < wanted or edge == before_that:
                    break
            return sorted(page, key=lambda message: message.id)

        return await self._ask("history", read)

    async def message(self, channel: str, message: str) -> discord.Message:
        async def fetch() -> discord.Message:
            if found := self._read(channel, await self._library.http.get_message(int(channel), int(message))):
                return found
            raise TransportRejected(f"message {message}: cannot be read")

        return await self._ask("message", fetch)

    async def channel(
        self, channel: str
    ) -> discord.abc.GuildChannel | discord.Thread | discord.abc.PrivateChannel:
        async def fetch() -> discord.abc.GuildChannel | discord.Thread | discord.abc.PrivateChannel:
            try:
                return await self._library.fetch_channel(int(channel))
            except discord.InvalidData as error:
                raise TransportRejected(f"channel {channel}: {error}") from None

        return await self._ask("channel", fetch)

    async def direct(self, user: str) -> str:
        """Return the channel of direct messages with a person."""

        async def start() -> str:
            return str((await self._library.http.start_private_message(int(user)))["id"])

        return await self._ask("direct", start)

    async def roles_of(self, guild: str, user: str) -> tuple[str, ...]:
        """Return the ids of the roles that a member has."""

        async def read() -> tuple[str, ...]:
            member = await self._library.http.get_member(int(guild), int(user))
            return tuple(map(str, member.get("roles", ())))

        return await self._ask("roles_of", read)

    async def ping(self) -> None:
        await self._ask("ping", self._library.application_info)

    def _read(self, channel: str, data: Any) -> discord.Message | None:
        """Have the library read a message of the history; None if it cannot."""
        make, place = self._library._connection.create_message, self._place(channel)  # noqa: SLF001
        message = read_message(lambda fields: make(channel=place, data=fields), data, self.count_unread)
        return message if hasattr(message, "author") else None

    def _place(self, channel: str) -> discord.PartialMessageable:
        return self._library.get_partial_messageable(int(channel))

    def _message(self, channel: str, message: str) -> discord.PartialMessage:
        """Return a message by its id: an edit of a whole one would restore the previews of its links."""
        return self._place(channel).get_partial_message(int(message))


@asynccontextmanager
async def open_rest(base_url: str | None, token: str) -> AsyncIterator[Rest]:
    """Open the API at *base_url* (ends in /api/v10; Discord's own if None)."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        rest = Rest(base_url or DISCORD, token, tasks)
        try:
            yield rest
        except Exception as error:  # noqa: BLE001  raised again below: no call fails in a group of exceptions
            failure = error
        finally:
            await rest.close()
            tasks.cancel_scope.cancel()
    if failure:
        raise failure


def _is_page(answer: object) -> bool:
    return isinstance(answer, list) and all(isinstance(item, dict) and "id" in item for item in answer)


def view_of(buttons: Sequence[Button]) -> discord.ui.View:
    """Return buttons that the library does not wait for: their ids tell presses, after a restart too."""
    view = discord.ui.View(timeout=None)
    for button in buttons[:MAX_BUTTONS]:
        view.add_item(
            discord.ui.Button(
                label=button.label, custom_id=button.custom_id, style=discord.ButtonStyle[button.style]
            )
        )
    view.stop()
    return view


def _opened(upload: Upload) -> discord.File:
    source = io.BytesIO(upload.source) if isinstance(upload.source, bytes) else upload.source
    try:
        return discord.File(source, filename=upload.name)
    except OSError as error:
        raise TransportRejected(f"{upload.name} cannot be read: {error.strerror}") from None
