"""The text and files of a Discord message; pure.

The author's own words, and those of others: forwarded messages, then somebody else's message that it replies to. A
command stands alone. Markup is decoded as a person reads it; unknown markup stays as it is.
https://docs.discord.com/developers/reference#message-formatting
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import discord

from threads.model import Attachment
from threads.store.checksummed_lines import scrub
from transports.base.text import without_controls
from transports.discord.api.values import Me
from transports.discord.events import components
from transports.discord.events.notices import COMMAND_TYPES, NOTICES, SPOKEN_TYPES, STARTER, UNKNOWN

log = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST_NAME, LONGEST_PERSON = 255, 100
"""Characters of a name that are kept; Discord lets a person's have 32."""

LONGEST_FILE = 1_000
"""Characters of a file's name; its ending tells its type."""

SOMEBODY = "somebody"

LONGEST_QUOTE = 10_000
"""Characters of a quoted message: one with cards has no more."""

NO_WORDS = "[nothing that I can read]"

NameOf = Callable[[str], str]
"""Returns the name of ``@ID`` (a user), ``@&ID`` (a role) or ``#ID`` (a channel), "" if it is not known."""

MINUTE = "%Y-%m-%d %H:%M UTC"

_MARKUP = re.compile(
    r"<(?:(?P<kind>@!?|@&|#)(?P<id>[0-9]{1,20})"
    r"|a?(?P<emoji>:\w{1,64}:)[0-9]{1,20}"
    r"|t:(?P<time>[0-9]{1,11})(?::[A-Za-z])?"
    r"|(?P<command>/[^<>:\n]{1,100}):[0-9]{1,20})>"
)
_COMMAND = re.compile(r"[/!][A-Za-z][^\n]*|stop", re.IGNORECASE)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def text_and_quoted(
    message: discord.Message, me: Me, forward: discord.Message | None = None
) -> tuple[str, str]:
    """Return what its author says, and what others say in it: forwards, previews, and what it replies to.

    The text is without the bot's name at its beginning, unless it is only the name. *forward* is another message, a
    forward that this one is about.
    """
    name_of = _name_lookup(message, me)
    raw = content_of(message)
    rest = re.sub(rf"\A\s*{_names_of(me)}[\s,:]*", "", raw)
    own = "\n".join(filter(None, (decode(rest, name_of).strip(), *_extras(message, name_of))))
    about = _quoted(forward, _name_lookup(forward, me)) if forward else []
    replied, by_others = _replied(message, me), _replies_to_others(message)
    others = [*about, *_quoted(message, name_of), *(replied if by_others else [])]
    if replied and not by_others and not _COMMAND.fullmatch(own):
        own = "\n\n".join(filter(None, (own, *replied)))
    return own or ("" if others else decode(raw, name_of).strip()), "\n\n".join(others)


def words_of(message: discord.Message, me: Me) -> str:
    """Return a message as a line of a conversation, with what others say in it, and file names."""
    name_of = _name_lookup(message, me)
    words = [_content(message, name_of), *_extras(message, name_of)]
    files = [f"[file: {_name(file)}]" for file in message.attachments]
    return "\n".join(filter(None, [*words, *_quoted(message, name_of), *files]))


def _content(message: discord.Message, name_of: NameOf) -> str:
    """Return a message's text; of one that Discord itself wrote, what that says."""
    text = decode(content_of(message), name_of).strip()
    if message.type in (*SPOKEN_TYPES, *COMMAND_TYPES):
        return text
    notice = NOTICES.get(message.type) if isinstance(message.type.value, int) else None
    if notice is None:
        return f"[{UNKNOWN.format(kind=str(message.type.value)[:20])}]\n{text}".strip()
    whom = [person_name(person) for person in getattr(message, "mentions", ())[:1]]
    who = author_name(message) or SOMEBODY
    return f"[{notice.format(who=who, whom=''.join(whom) or SOMEBODY, what=text)}]"


def files_of(
    message: discord.Message, me: Me, forward: discord.Message | None = None
) -> tuple[Attachment, ...]:
    """Return the files of a message, of its forwarded messages, and of the messages that it is about.

    The id is ``CHANNEL/MESSAGE/ATTACHMENT``: addresses expire after a day, and the message has a new one.
    """
    other = replied_to(message)
    replied = own_files(other) if other and not is_ours(other, me) else ()
    if _replies_to_others(message):
        replied = tuple(replace(file, voice=False) for file in replied)
    return (*own_files(message), *(own_files(forward) if forward else ()), *replied)


def own_files(message: discord.Message) -> tuple[Attachment, ...]:
    """Return the files of a message and of its forwarded messages."""
    voice = isinstance(message.flags.value, int) and message.flags.voice
    return tuple(
        replace(_attachment(message, file), voice=voice and file in message.attachments)
        for file in attachments_of(message)
    )


def attachments_of(message: discord.Message) -> list[discord.Attachment]:
    """Return the files of a message and of its forwarded messages."""
    forwarded = (file for snapshot in message.message_snapshots for file in snapshot.attachments)
    return [*message.attachments, *forwarded]


def replied_to(message: discord.Message) -> discord.Message | None:
    """Return the message that this one replies to, if Discord includes it."""
    return _referred_to(message) if message.type == discord.MessageType.reply else None


def starter_of(message: discord.Message) -> discord.Message | None:
    """Return the message that a thread was opened from, if this one points to it and Discord includes it."""
    return _referred_to(message) if message.type == STARTER else None


def _referred_to(message: discord.Message) -> discord.Message | None:
    resolved = message.reference.resolved if message.reference else None
    return resolved if isinstance(resolved, discord.Message) else None


def is_ours(message: discord.Message, me: Me) -> bool:
    author = author_of(message)
    return author is not None and str(author.id) == me.id


def author_of(message: discord.Message) -> discord.User | discord.Member | None:
    """Return who wrote it; a payload without an author leaves the attribute unset."""
    return getattr(message, "author", None)


def author_name(message: discord.Message) -> str:
    """Return the name under which its author is shown there."""
    author = author_of(message)
    return person_name(author) if author is not None else ""


def person_name(person: discord.User | discord.Member) -> str:
    return one_line(_string(person.display_name), LONGEST_PERSON)


def is_from_bot(message: discord.Message) -> bool:
    author = author_of(message)
    return message.webhook_id is not None or (author is not None and author.bot)


def content_of(message: discord.Message | discord.MessageSnapshot) -> str:
    return _string(message.content)


def mentions_in(message: discord.Message) -> frozenset[str]:
    """Return the mentions in a message's text, outside code, as ``@ID`` and ``@&ID``."""
    text = _CODE.sub(" ", content_of(message))
    return frozenset(kind + who for kind, who in re.findall(r"<(@&?)!?([0-9]{1,20})>", text))


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _names_of(me: Me) -> str:
    """Return the pattern of a mention of the bot, or of the role that is its alone."""
    return rf"<@(?:!?{re.escape(me.id)}{''.join(f'|&{re.escape(role)}' for role in sorted(me.roles))})>"


def _name_lookup(message: discord.Message, me: Me) -> NameOf:
    users = {f"@{user.id}": user.display_name for user in getattr(message, "mentions", ())}
    ours = dict.fromkeys([f"@{me.id}", *(f"@&{role}" for role in me.roles)], me.name or "bot")
    guild = message.guild if isinstance(message.guild, discord.Guild) else None

    def name_of(token: str) -> str:
        if name := ours.get(token) or users.get(token):
            return one_line(name, LONGEST_NAME)
        found: discord.Role | discord.abc.GuildChannel | discord.Thread | None = None
        if guild is not None and token.startswith("@&"):
            found = guild.get_role(int(token[2:]))
        elif guild is not None and token.startswith("#"):
            found = guild.get_channel_or_thread(int(token[1:]))
        return one_line(found.name, LONGEST_NAME) if found else ""

    return name_of


def _extras(message: discord.Message | discord.MessageSnapshot, name_of: NameOf) -> list[str]:
    """Return the words that stand outside of a message's text: stickers, a poll, components, a bot's embeds."""
    words = [_read(_described, file) for file in message.attachments]
    words += [_read(_sticker, sticker) for sticker in message.stickers]
    if isinstance(message, discord.Message):
        words += [_read(_poll, message.poll)] if message.poll else []
        words += [_read(_invitation, message)] if message.activity else []
    marked = [_read(components.words_of, [one]) for one in message.components]
    marked += [_read(_embedded, embed) for embed in message.embeds if _owns_embeds(message)]
    return [*filter(None, words), *(decode(text, name_of) for text in marked if text)]


def _read(read: Callable[[T], str], part: T) -> str:
    """Return the words of a part; of one in an odd form, that it cannot be read. The library takes any form."""
    try:
        return read(part)
    except Exception:  # the boundary of a transport: one odd part, and the others are read
        log.exception("intake.part_unread: a part of a message cannot be read")
        return "[a part of a message, which I cannot read]"


def _described(file: discord.Attachment) -> str:
    words = one_line(_string(file.description), LONGEST_FILE)
    return f"[{_name(file)}: {words}]" if words else ""


def _sticker(sticker: discord.StickerItem) -> str:
    return f"[sticker: {one_line(_string(sticker.name), LONGEST_NAME)}]"


def _invitation(message: discord.Message) -> str:
    return f"[invitation: {message.application.name if message.application else 'an activity'}]"


def _owns_embeds(message: discord.Message | discord.MessageSnapshot) -> bool:
    """Return whether a message's embeds are its own: those of a person's text are previews that Discord added."""
    if not (isinstance(message, discord.Message) and content_of(message).strip()):
        return True
    return is_from_bot(message)


def _poll(poll: discord.Poll) -> str:
    return f"[poll: {_string(poll.question)} {' / '.join(map(_answer, poll.answers))}]"


def _answer(answer: discord.PollAnswer) -> str:
    votes = f"({answer.vote_count})" if answer.vote_count else ""
    return " ".join(filter(None, (str(answer.emoji or ""), _string(answer.text), votes)))


def _embedded(embed: discord.Embed) -> str:
    """Return what people read in an embed, from top to bottom."""
    if embed.type == "poll_result":
        return _poll_result({str(field.name): str(field.value) for field in embed.fields})
    words = (
        embed.provider.name,
        _linked(embed.author.name, embed.author.url),
        _linked(embed.title, embed.url),
        embed.description,
        *[f"{field.name}: {field.value}" for field in embed.fields],
        "[image]" if embed.image.url or embed.thumbnail.url else "",
        "[video]" if embed.video.url else "",
        embed.footer.text,
        f"{embed.timestamp:{MINUTE}}" if embed.timestamp else "",
    )
    return "\n".join(filter(None, words))


def _poll_result(fields: Mapping[str, str]) -> str:
    """Return how a poll ended; Discord tells no winner of a draw."""
    votes, total = fields.get("victor_answer_votes", "0"), fields.get("total_votes", "0")
    won = f"{fields.get('victor_answer_text', 'nothing')}: {votes} of {total} votes"
    return f"[poll: {fields.get('poll_question_text', '')} {won}]"


def _linked(words: str | None, url: str | None) -> str:
    """Return *words* with the address they lead to."""
    return f"{words} ({url})" if words and url and words != url else words or url or ""


def quotes_others(message: discord.Message) -> bool:
    """Return whether a message holds words of others than its author."""
    return bool(message.message_snapshots or (message.embeds and not _owns_embeds(message)))


def _quoted(message: discord.Message, name_of: NameOf) -> list[str]:
    """Return forwarded messages, whose authors Discord does not tell, and previews as quotes."""
    forwarded = [_quote("Forwarded message:", _held(held, name_of)) for held in message.message_snapshots]
    previews = () if _owns_embeds(message) else message.embeds
    read = ((embed.url, decode(_read(_embedded, embed), name_of)) for embed in previews)
    return [*forwarded, *(_quote(f"Preview of {url or 'a link'}:", words) for url, words in read if words)]


def _held(snapshot: discord.MessageSnapshot, name_of: NameOf) -> str:
    words = [decode(content_of(snapshot), name_of).strip(), *_extras(snapshot, name_of)]
    return "\n".join(filter(None, words)) or "\n".join(
        f"[file: {_name(file)}]" for file in snapshot.attachments
    )


def _replied(message: discord.Message, me: Me) -> list[str]:
    """Return the message that this one replies to as a quote, unless it is the bot's."""
    if message.type != discord.MessageType.reply or message.reference is None:
        return []
    other = message.reference.resolved
    if not isinstance(other, discord.Message):
        return [_quote("In reply to a message:", "[it is deleted]" if other else "[I cannot read it]")]
    if is_ours(other, me):
        return []
    words = words_of(other, me)
    more = len(words) - LONGEST_QUOTE
    cut = f"{words[:LONGEST_QUOTE]}… (cut: {more:,} more characters)" if more > 0 else words
    return [_quote(f"In reply to {author_name(other) or SOMEBODY}:", cut)]


def _replies_to_others(message: discord.Message) -> bool:
    """Return whether it replies to a message with words of others than its author."""
    other, author = replied_to(message), author_of(message)
    if other is None:
        return False
    theirs = author_of(other)
    is_own = author is not None and theirs is not None and theirs.id == author.id
    return quotes_others(other) or not is_own


def _quote(heading: str, words: str) -> str:
    return "\n".join(f"> {line}" for line in [heading, *(words or NO_WORDS).splitlines()])


def _name(file: discord.Attachment) -> str:
    return one_line(_string(file.filename), LONGEST_FILE) or "file"


def _attachment(message: discord.Message, file: discord.Attachment) -> Attachment:
    return Attachment(
        id=f"{message.channel.id}/{message.id}/{file.id}",
        name=_name(file),
        media_type=scrub(_string(file.content_type))[:LONGEST_NAME],
        size=file.size if isinstance(file.size, int) and file.size > 0 else 0,
        url=scrub(_string(file.url)),
    )


def decode(text: str, name_of: NameOf) -> str:
    """Return *text* with names in place of mentions, and with readable times."""

    def decoded(found: re.Match[str]) -> str:
        if found["id"]:
            kind = found["kind"].replace("!", "")
            return kind[0] + (name_of(kind + found["id"]) or found["id"])
        if found["time"]:
            return datetime.fromtimestamp(int(found["time"]), UTC).strftime(MINUTE)
        return found["emoji"] or found["command"]

    return _MARKUP.sub(decoded, text)


def one_line(name: str, longest: int) -> str:
    """Return a name as one line."""
    return " ".join(without_controls(scrub(name[: 4 * longest])).split())[:longest]
