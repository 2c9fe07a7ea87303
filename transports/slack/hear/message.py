"""What one message object of Slack says to the bot, whether it came as an event or out of the history; pure.

in a DM                               -> direct
names the bot                         -> mention
a reply that names nobody             -> overheard: whether the bot has joined that thread is not known here
a reply that names others, not it     -> nothing
said in the channel, not naming it    -> nothing
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from threads.lines import scrub
from threads.model import Attachment, Author, Incoming, Spoken, ThreadId, Via
from transports.slack.hear.decode import decode
from transports.slack.hear.rich_text import words_of
from transports.slack.wire.shapes import Shape, count, identifier, instant, part, parts, stamp, string

SAID = frozenset({"", "file_share", "thread_broadcast", "me_message"})
"""The subtypes under which people say something; with ``bot_message`` another bot does."""

_NAMES_SOMEBODY = re.compile(r"<(?:@[^<>]+|!(?:subteam\^[^<>]+|channel|here|everyone|group)(?:\|[^<>]*)?)>")
LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class Me:
    """Who the bot is: the ids of its workspace, its user and its bot, and the name people see."""

    team: str
    user: str
    bot_id: str = ""
    name: str = ""

    @property
    def names(self) -> Mapping[str, str]:
        """What the bot is called where a message names it."""
        return {self.user: self.name or "bot"}

    def thread(self, channel: str, root: str) -> ThreadId:
        return ThreadId("slack", self.team, channel, root)

    def is_author(self, message: Shape) -> bool:
        return self.user == string(message, "user") or (
            self.bot_id != "" and self.bot_id == string(message, "bot_id")
        )

    def is_named_in(self, raw: str) -> bool:
        return re.search(rf"<@{re.escape(self.user)}(?:\|[^<>]*)?>", raw) is not None


def sent_at(ts: str) -> str:
    return datetime.fromtimestamp(float(instant(ts)), UTC).isoformat(timespec="milliseconds")


def parse_message(
    message: Shape,
    channel: str,
    me: Me,
    *,
    direct: bool,
    bots: frozenset[str] = frozenset(),
    named: bool = False,
) -> Incoming | None:
    """Return what a message says to the bot, or None when it is not for it.

    *bots* are the ids of the bots, or of their users, that are listened to. *named*: Slack says that it names us.
    """
    ts, author = stamp(message, "ts"), author_of(message, me, bots)
    if not ts or author is None or message.get("hidden"):
        return None
    root = root_of(message)
    raw = own_words(message)
    via = _via(raw, me, direct=direct, reply=root != ts, named=named)
    text, files = text_of(message, me), _files(message)
    if via is None or not (text or files):
        return None
    return Incoming(
        id=ts,
        thread=me.thread(channel, root),
        author=author,
        text=text,
        sent_at=sent_at(ts),
        via=via,
        files=files,
        alias=identifier(message, "client_msg_id"),
    )


def spoken(message: Shape, me: Me, names: Mapping[str, str]) -> Spoken | None:
    """Return a message as an earlier line of its thread, whoever wrote it; None when nobody said anything."""
    if string(message, "subtype") not in {*SAID, "bot_message"} or message.get("hidden"):
        return None
    # What an app posts in a person's name has both ids, and is not what that person typed.
    user, bot, ours = identifier(message, "user"), identifier(message, "bot_id"), me.is_author(message)
    who = user if ours else bot or user
    name = names.get(user) or string(message, "username") or string(part(message, "bot_profile"), "name")
    forwarded = _quoted(message, me)
    words = [decode(_said(message), {**me.names, **names}), *forwarded]
    words += [f"[file: {file.name}]" for file in _files(message)]
    text = "\n".join(filter(None, words)).strip()
    if not (who and text):
        return None
    return Spoken(Author(who, name), text, ours=ours, forwarding=bool(forwarded))


def author_of(message: Shape, me: Me, bots: frozenset[str]) -> Author | None:
    """Return who is to be heard: a person, or a bot that is listened to; never the bot itself."""
    subtype, user, bot = (
        string(message, "subtype"),
        identifier(message, "user"),
        identifier(message, "bot_id"),
    )
    if subtype not in SAID and subtype != "bot_message":
        return None
    if me.is_author(message) or not (user or bot):
        return None
    if not message.get("bot_id") and subtype != "bot_message":
        return Author(user)
    heard = [one for one in (user, bot) if one and one in bots]
    return (
        Author(heard[0]) if heard else None
    )  # by the id it is listed under: its messages are counted by that


def root_of(message: Shape) -> str:
    """Return the time of the message that began the thread; its own when it began one, or will."""
    return stamp(message, "thread_ts") or stamp(message, "ts")


def own_words(message: Shape) -> str:
    """Return what the author wrote, in Slack's markup: not the previews that Slack adds, nor what was forwarded."""
    written = string(message, "text")
    return written if written.strip() else words_of(parts(message, "blocks"))


def text_of(message: Shape, me: Me) -> str:
    """Return what a person would say the message says, without the bot's name at its beginning.

    A message that is nothing but the bot's name keeps it: in a thread that means "look at this".
    """
    raw = _said(message)
    rest = re.sub(rf"\A\s*<@{re.escape(me.user)}(?:\|[^<>]*)?>[\s,:]*", "", raw)
    forwarded = _quoted(message, me)
    own = decode(rest, me.names).strip() or ("" if forwarded else decode(raw, me.names).strip())
    return "\n\n".join(filter(None, (own, *forwarded)))


def _said(message: Shape) -> str:
    """Return the author's words; a bot's may be in its attachments alone."""
    if words := own_words(message):
        return words
    return "\n".join(_content(item) for item in parts(message, "attachments") if not _is_shared(item))


def _quoted(message: Shape, me: Me) -> list[str]:
    """Return the messages that were forwarded with this one, as quotes."""
    quotes = []
    for item in parts(message, "attachments"):
        if _is_shared(item) and (words := decode(_content(item), me.names).strip()):
            name = string(item, "author_name") or string(item, "author_subname")
            heading = f"Forwarded message{' from ' if name else ''}{name}:"
            quotes.append("\n".join(f"> {line}" for line in [heading, *words.splitlines()]))
    return quotes


def _is_shared(attachment: Shape) -> bool:
    return attachment.get("is_share") is True or attachment.get("is_msg_unfurl") is True


def _content(attachment: Shape) -> str:
    return string(attachment, "text") or string(attachment, "fallback")


def _via(raw: str, me: Me, *, direct: bool, reply: bool, named: bool) -> Via | None:
    if direct:
        return "direct"
    if named or me.is_named_in(raw):
        return "mention"
    return "overheard" if reply and not _NAMES_SOMEBODY.search(raw) else None


def _files(message: Shape) -> tuple[Attachment, ...]:
    """Return the files of a message and of what was forwarded with it, without those that were taken back."""
    forwarded = [item for item in parts(message, "attachments") if _is_shared(item)]
    files = [file for holder in (message, *forwarded) for file in parts(holder, "files")]
    return tuple(_attachment(file) for file in files if string(file, "mode") != "tombstone")


def _attachment(file: Shape) -> Attachment:
    """Return one file, also one that cannot be had: whoever reads the message is told so when it is fetched.

    Beyond a plan's limit, or of another organisation, it has no url; kept elsewhere, one that is not Slack's.
    """
    name = string(file, "name") or string(file, "title") or "file"
    return Attachment(
        id=identifier(file, "id"),
        name=scrub(name)[:LONGEST_NAME],
        media_type=scrub(string(file, "mimetype"))[:LONGEST_NAME],
        size=count(file, "size"),
        url=scrub(string(file, "url_private_download") or string(file, "url_private")),
    )
