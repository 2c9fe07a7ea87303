"""A Slack message as a message to the bot, live or from the history; pure.

in a DM                               -> direct
names the bot                         -> mention
a reply that names nobody             -> overheard: the router knows whether the bot joined the thread
a reply that names others, not it     -> nothing
said in the channel, not naming it    -> nothing
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from threads.model import Attachment, Author, Incoming, Spoken, ThreadId, Via
from threads.store.checksummed_lines import scrub
from transports.slack.api.json_fields import Shape, count, identifier, instant, part, parts, stamp, string
from transports.slack.events.decode import decode
from transports.slack.events.message_words import author_of_forwarded, forwarded, forwarded_words, own_words

SAID = frozenset({"", "file_share", "thread_broadcast", "me_message"})
"""The subtypes under which people say something; with ``bot_message`` another bot does."""

_NAMES_SOMEBODY = re.compile(r"<(?:@[^<>]+|!(?:subteam\^[^<>]+|channel|here|everyone|group)(?:\|[^<>]*)?)>")
LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class Me:
    """The bot: the ids of its workspace, its user and its bot, and its display name.

    ``bots`` are the ids of other bots, or of their users, that may write to this one.
    """

    team: str
    user: str
    bot_id: str = ""
    name: str = ""
    bots: frozenset[str] = frozenset()

    @property
    def names(self) -> Mapping[str, str]:
        """The bot's display name by its id."""
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
    message: Shape, channel: str, me: Me, *, direct: bool, named: bool = False
) -> Incoming | None:
    """Return a message to the bot, or None for any other. *named*: Slack says that it names us."""
    ts, author = stamp(message, "ts"), author_of(message, me)
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
    """Return a message as an earlier line of its thread; None if it has no words."""
    if string(message, "subtype") not in {*SAID, "bot_message"} or message.get("hidden"):
        return None
    # An app's post in a person's name has both ids; the person did not type it.
    user, bot, ours = identifier(message, "user"), identifier(message, "bot_id"), me.is_author(message)
    who = user if ours else bot or user
    name = names.get(user) or string(message, "username") or string(part(message, "bot_profile"), "name")
    known = {**me.names, **names}
    quotes = _quoted(message, known)
    words = [decode(own_words(message), known), *quotes]
    words += [f"[file: {file.name}]" for file in _files(message)]
    text = "\n".join(filter(None, words)).strip()
    if not (who and text):
        return None
    return Spoken(Author(who, name), text, ours=ours, forwarding=bool(quotes))


def author_of(message: Shape, me: Me) -> Author | None:
    """Return the author: a person, or a listed bot; None for any other."""
    subtype = string(message, "subtype")
    user, bot = identifier(message, "user"), identifier(message, "bot_id")
    if subtype not in SAID and subtype != "bot_message":
        return None
    if me.is_author(message) or not (user or bot):
        return None
    if not message.get("bot_id") and subtype != "bot_message":
        return Author(user)
    known_bot = next((one for one in (user, bot) if one and one in me.bots), "")
    return Author(known_bot) if known_bot else None  # its messages are counted by that id


def root_of(message: Shape) -> str:
    """Return the time of the thread's first message, which may be this one."""
    return stamp(message, "thread_ts") or stamp(message, "ts")


def text_of(message: Shape, me: Me) -> str:
    """Return the text without the bot's name at its beginning, unless it is only the name."""
    raw = own_words(message)
    rest = re.sub(rf"\A\s*<@{re.escape(me.user)}(?:\|[^<>]*)?>[\s,:]*", "", raw)
    quotes = _quoted(message, me.names)
    own = decode(rest, me.names).strip() or ("" if quotes else decode(raw, me.names).strip())
    return "\n\n".join(filter(None, (own, *quotes)))


def _quoted(message: Shape, names: Mapping[str, str]) -> list[str]:
    """Return the forwarded messages as quotes."""
    quotes = []
    for item in forwarded(message):
        if words := decode(forwarded_words(item), names).strip():
            name = author_of_forwarded(item)
            heading = f"Forwarded message{' from ' if name else ''}{name}:"
            quotes.append("\n".join(f"> {line}" for line in [heading, *words.splitlines()]))
    return quotes


def _via(raw: str, me: Me, *, direct: bool, reply: bool, named: bool) -> Via | None:
    if direct:
        return "direct"
    if named or me.is_named_in(raw):
        return "mention"
    return "overheard" if reply and not _NAMES_SOMEBODY.search(raw) else None


def _files(message: Shape) -> tuple[Attachment, ...]:
    """Return the files of a message and of its forwarded messages, without deleted ones."""
    files = [file for holder in (message, *forwarded(message)) for file in parts(holder, "files")]
    user = identifier(message, "user")
    return tuple(_attachment(file, user) for file in files if string(file, "mode") != "tombstone")


def _attachment(file: Shape, user: str) -> Attachment:
    """Return one file of a message of *user*.

    Its address may be blank (beyond a plan's limit) or not Slack's: the download reports it. A clip that somebody
    else recorded, as in a forwarded message, is not the user's own voice.
    """
    name = string(file, "name") or string(file, "title") or "file"
    return Attachment(
        id=identifier(file, "id"),
        name=scrub(name)[:LONGEST_NAME],
        media_type=scrub(string(file, "mimetype"))[:LONGEST_NAME],
        size=count(file, "size"),
        url=scrub(string(file, "url_private_download") or string(file, "url_private")),
        voice=string(file, "subtype") == "slack_audio" and identifier(file, "user") == user,
    )
