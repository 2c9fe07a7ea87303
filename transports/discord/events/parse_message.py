"""A Discord message as a message to the bot, live or from the history; pure.

in a DM                                          -> direct
names the bot, or the role that is its alone     -> mention
names others, not it (a reply that pings names)  -> nothing
replies to the bot, or goes on from such a reply -> mention
in a thread, naming nobody                       -> overheard: the router knows whether the bot joined it
said in the channel                              -> nothing

``@everyone`` and ``@here`` name nobody in particular. Another bot is heard only if it is listed and names the bot
itself: two bots that answer each other's replies would never end.
"""

from __future__ import annotations

from datetime import timedelta

import discord

from threads.model import Author, Edited, Incoming, Spoken, Via
from transports.discord.api.snowflake import instant
from transports.discord.api.values import Me, Place
from transports.discord.events.message_text import (
    author_name,
    author_of,
    content_of,
    files_of,
    is_from_bot,
    is_ours,
    mentions_in,
    own_files,
    person_name,
    quotes_others,
    replied_to,
    starter_of,
    text_and_quoted,
    words_of,
)
from transports.discord.events.notices import SPOKEN_TYPES

MENTION_WITHIN = timedelta(minutes=30)
"""How long an edit that adds the bot's name counts as a new message."""


def parse_message(
    message: discord.Message,
    place: Place,
    me: Me,
    *,
    root: str = "",
    bots: frozenset[str] = frozenset(),
    forward: discord.Message | None = None,
) -> Incoming | None:
    """Return a message to the bot, or None for any other. Never raises.

    *root* is the first message of the conversation that it continues in a channel (`ReplyChains`). *bots* are the
    users of other bots, or webhooks, that may write to this one. *forward* is what it is about (`Forwards`).
    """
    author, via = accepted_author(message, me, bots), _via(message, place, me, root)
    if author is None or via is None:
        return None
    (text, quoted), files = text_and_quoted(message, me, forward), files_of(message, me, forward)
    if not (text or quoted or files):
        return None
    id_ = str(message.id)
    return Incoming(
        id=id_,
        thread=place.thread(root or id_),
        author=author,
        text=text,
        sent_at=sent_at(id_),
        via=via,
        files=files,
        alias=str(forward.id) if forward else "",
        quoted=quoted,
    )


def parse_edit(
    event: discord.RawMessageUpdateEvent,
    place: Place,
    me: Me,
    *,
    root: str = "",
    bots: frozenset[str] = frozenset(),
    forward: discord.Message | None = None,
) -> tuple[Edited | Incoming, ...]:
    """Read an edit; one that adds the bot's name is also a new message to it.

    Discord sends the same event, without a time of the edit, when it adds a preview.
    """
    message = event.message
    if accepted_author(message, me, bots) is None:
        return ()
    id_ = str(message.id)
    edited = Edited(id_, place.thread(root or id_), *text_and_quoted(message, me, forward))
    incoming = parse_message(message, place, me, root=root, bots=bots, forward=forward)
    edited_at = message.edited_at
    late = edited_at is None or edited_at - instant(id_) > MENTION_WITHIN
    return (edited,) if incoming is None or incoming.via != "mention" or late else (edited, incoming)


def parse_spoken(message: discord.Message, me: Me) -> Spoken | None:
    """Return a message as an earlier line of its thread; None for one without words.

    A thread's history begins with a pointer to the message that the thread was opened from.
    """
    if starter := starter_of(message):
        return parse_spoken(starter, me)
    author, text = author_of(message), words_of(message, me)
    if author is None or not text:
        return None
    return Spoken(
        Author(str(author.id), author_name(message)),
        text,
        ours=is_ours(message, me),
        forwarding=quotes_others(message),
        id=str(message.id),
        files=own_files(message),
        sent_at=sent_at(str(message.id)),
    )


def accepted_author(message: discord.Message, me: Me, bots: frozenset[str]) -> Author | None:
    """Return the author: a person, or a listed bot that names us; None for any other."""
    if (author := author_of(message)) is None or message.type not in SPOKEN_TYPES or is_ours(message, me):
        return None
    if is_from_bot(message) and not (str(author.id) in bots and f"@{me.id}" in mentions_in(message)):
        return None
    return author_value(author)


def author_value(author: discord.User | discord.Member) -> Author:
    """Return a person with their roles, which live messages of a guild have."""
    # The public list leaves out the roles of a guild that is not in the cache (yet).
    roles: tuple[int, ...] = tuple(getattr(author, "_roles", ()))
    return Author(str(author.id), person_name(author), tuple(str(role) for role in roles))


def sent_at(id_: str) -> str:
    return instant(id_).isoformat(timespec="milliseconds")


def _via(message: discord.Message, place: Place, me: Me, root: str) -> Via | None:
    if place.kind == "direct":
        return "direct"
    mentioned, ours = mentions_in(message), {f"@{me.id}", *(f"@&{role}" for role in me.roles)}
    if mentioned & ours:
        return "mention"
    pinged = {f"@{user.id}" for user in getattr(message, "mentions", ())}
    if (mentioned | pinged) - ours:
        return None
    other = replied_to(message)
    continues = place.kind == "channel" and root not in ("", str(message.id))
    if continues or (other is not None and is_ours(other, me)):
        return "mention"
    says_something = content_of(message).strip() or message.attachments or message.message_snapshots
    return "overheard" if place.kind == "thread" and (says_something or message.components) else None
