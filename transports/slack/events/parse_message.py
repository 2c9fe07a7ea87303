"""A Slack message as a message to the bot, live or from the history; pure.

in a DM                               -> direct
names the bot                         -> mention
a reply that names nobody             -> overheard: the router knows whether the bot joined the thread
a reply that names others, not it     -> nothing
said in the channel, not naming it    -> nothing
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import starmap

from threads.model import Attachment, Author, Incoming, Spoken, ThreadId, Via
from threads.store.checksummed_lines import scrub
from transports.slack.api.json_fields import Shape, count, identifier, instant, part, parts, stamp, string
from transports.slack.events.blocks import unknown
from transports.slack.events.decode import decode, mentioned
from transports.slack.events.message_words import (
    all_words,
    heading,
    holders_of_files,
    is_preview,
    own_words,
    quotation_words,
    quotations,
)

SAID = frozenset({"", "file_share", "me_message", "reply_broadcast", "thread_broadcast"})
"""The subtypes under which people say something; with ``bot_message`` another bot does."""

UNSEEN = frozenset({"message_changed", "message_deleted", "message_replied"})
"""The subtypes of what is told about other messages."""

_NOTED = """
    app_conversation_join app_conversation_leave assistant_app_thread bot_add bot_disable bot_enable bot_remove
    channel_archive channel_canvas_updated channel_convert_to_private channel_join channel_leave channel_name
    channel_posting_permissions channel_purpose channel_topic channel_unarchive document_mention ekm_access_denied
    emoji_changed file_changed file_comment file_created file_deleted file_mention file_public file_shared
    file_unshared group_archive group_join group_leave group_name group_purpose group_topic group_unarchive
    huddle_thread joiner_notification joiner_notification_for_inviter pinned_item reminder_add sh_room_created
    sh_room_shared share_shortcut slackbot_response tabbed_canvas_updated tombstone unpinned_item
"""
NOTED = frozenset(_NOTED.split())
"""The subtypes under which Slack notes what somebody did. It is an earlier line, and said to nobody."""

HUDDLES = frozenset({"huddle_thread", "sh_room_created", "sh_room_shared"})
"""Those of them that people see as a card without a text."""

SUBTYPES = SAID | UNSEEN | NOTED | {"bot_message"}

NO_DOWNLOAD = frozenset({"file_access", "hidden_by_limit", "huddle_transcript", "list"})
"""The modes of files whose address, if they have one, leads to a page of Slack's and not to their content."""

CANVAS = frozenset({"canvas", "docs", "quip"})
"""The modes of canvases, which are handed out as web pages."""

MODES = NO_DOWNLOAD | CANVAS | {"", "email", "external", "hosted", "post", "snippet", "space", "tombstone"}

LONGEST_TEXT = 100_000
"""Characters of one message; Slack's own have about 60,000 at most."""


_NAMES_SOMEBODY = re.compile(r"<(?:@[^<>]+|!(?:subteam\^[^<>]+|channel|here|everyone|group)(?:\|[^<>]*)?)>")
LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class Known:
    """What was looked up, by id. A name is blank, and a file empty, if Slack does not give it."""

    names: MutableMapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Shape] = field(default_factory=dict)


NOTHING_KNOWN = Known()


@dataclass(frozen=True, slots=True)
class Me:
    """The bot: the ids of its workspace, its user and its bot, and its display name.

    ``bots`` are the ids of other bots, or of their users, that may write to this one. ``transport`` is what
    the settings call this workspace.
    """

    team: str
    user: str
    bot_id: str = ""
    name: str = ""
    bots: frozenset[str] = frozenset()
    transport: str = "slack"

    @property
    def names(self) -> dict[str, str]:
        """The bot's display name by its id."""
        return {self.user: self.name or "bot"}

    def thread(self, channel: str, root: str) -> ThreadId:
        return ThreadId(self.transport, self.team, channel, root)

    def is_author(self, message: Shape) -> bool:
        return self.user == string(message, "user") or (
            self.bot_id != "" and self.bot_id == string(message, "bot_id")
        )

    def is_named_in(self, raw: str) -> bool:
        return re.search(rf"<@{re.escape(self.user)}(?:\|[^<>]*)?>", raw) is not None


def sent_at(ts: str) -> str:
    return datetime.fromtimestamp(float(instant(ts)), UTC).isoformat(timespec="milliseconds")


def parse_message(
    message: Shape, channel: str, me: Me, known: Known = NOTHING_KNOWN, *, direct: bool, named: bool = False
) -> Incoming | None:
    """Return a message to the bot, or None for any other. *named*: Slack says that it names us."""
    ts, author = stamp(message, "ts"), author_of(message, me, known)
    if not ts or author is None or message.get("hidden"):
        return None
    root, raw = root_of(message), own_words(message)
    if (via := _via(raw, me, direct=direct, reply=root != ts, named=named)) is None:
        return None
    (text, quoted), files = text_and_quoted(message, raw, me, known), _files(message, known)
    if not (text or quoted or files):
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
        quoted=quoted,
    )


def spoken(message: Shape, me: Me, known: Known = NOTHING_KNOWN) -> Spoken | None:
    """Return a message as an earlier line of its thread; None if people see nothing of it."""
    subtype = string(message, "subtype")
    if subtype in UNSEEN or (message.get("hidden") and subtype != "tombstone"):
        return None
    # An app's post in a person's name has both ids; the person did not type it.
    user, bot, ours = identifier(message, "user"), identifier(message, "bot_id"), me.is_author(message)
    who = user if ours else bot or user
    names = ChainMap(me.names, known.names)
    (own, others), files = _quotes(message, me, names), _files(message, known)
    words = [decode(own_words(message), names), *own, *others, *(f"[file: {file.name}]" for file in files)]
    text = "\n".join(filter(None, words)).strip() or _words_without_text(subtype)
    if not (who and text):
        return None
    author = Author(who, _name_in(message, known))
    ts = stamp(message, "ts")
    return Spoken(author, _bounded(text), ours, bool(others), ts, files, sent_at(ts))


def _words_without_text(subtype: str) -> str:
    if subtype in HUDDLES:
        return "[a huddle]"
    return "" if subtype in SUBTYPES else unknown("message", subtype, set())


def wanted(message: Shape, unread: set[str]) -> Iterator[str]:
    """Yield the ids that a message leaves unexplained: of its author, of whom it names, and of withheld files.

    Add its kinds that are not known to *unread*: of blocks, of files, and its own.
    """
    if (subtype := string(message, "subtype")) not in SUBTYPES:
        unknown("message", subtype, unread)
    yield identifier(message, "user")
    for words in all_words(message, unread):
        yield from mentioned(words)
    for holder in holders_of_files(message):
        for file in parts(holder, "files"):
            if _is_withheld(file):
                yield identifier(file, "id")
            if (mode := string(file, "mode")) not in MODES:
                unknown("file", mode, unread)


def author_of(message: Shape, me: Me, known: Known = NOTHING_KNOWN) -> Author | None:
    """Return the author: a person, or a listed bot; None for any other."""
    subtype = string(message, "subtype")
    user, bot = identifier(message, "user"), identifier(message, "bot_id")
    if subtype in NOTED or subtype in UNSEEN or me.is_author(message) or not (user or bot):
        return None
    name = _name_in(message, known)
    if not message.get("bot_id") and subtype != "bot_message":
        return Author(user, name) if user else None
    listed = next((one for one in (user, bot) if one and one in me.bots), "")
    return Author(listed, name) if listed else None  # its messages are counted by that id


def _name_in(message: Shape, known: Known) -> str:
    """Return the author's name; a person of another company brings it along."""
    profile, bot = part(message, "user_profile"), part(message, "bot_profile")
    brought = (
        *((profile, name) for name in ("display_name", "real_name", "name")),
        (message, "username"),
        (bot, "name"),
    )
    name = known.names.get(identifier(message, "user")) or next(filter(None, starmap(string, brought)), "")
    return scrub(name)[:LONGEST_NAME]


def root_of(message: Shape) -> str:
    """Return the time of the thread's first message, which may be this one."""
    return stamp(message, "thread_ts") or stamp(message, "ts")


def text_and_quoted(message: Shape, raw: str, me: Me, known: Known = NOTHING_KNOWN) -> tuple[str, str]:
    """Return what its author says in the *raw* words, and what others say in the message, such as a forward.

    The text is without the bot's name at its beginning, unless it is only the name.
    """
    names = ChainMap(me.names, known.names)
    rest = re.sub(rf"\A\s*<@{re.escape(me.user)}(?:\|[^<>]*)?>[\s,:]*", "", raw)
    own, others = _quotes(message, me, names)
    text = "\n\n".join(filter(None, (decode(rest, names).strip(), *own)))
    quoted = "\n\n".join(others)
    return _bounded(text or ("" if quoted else decode(raw, names).strip())), _bounded(quoted)


def _bounded(text: str) -> str:
    more = len(text) - LONGEST_TEXT
    return f"{text[:LONGEST_TEXT]}\n[{more} more characters are not shown]" if more > 0 else text


def _quotes(message: Shape, me: Me, names: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the quotations: those that its author or the bot wrote, and those of others."""
    own, others = list[str](), list[str]()
    for item in quotations(message):
        if words := decode(quotation_words(item), names).strip():
            quote = "\n".join(f"> {line}" for line in [heading(item), *words.splitlines()])
            (own if _is_own(item, message, me) else others).append(quote)
    return own, others


def _is_own(item: Shape, message: Shape, me: Me) -> bool:
    """Return whether all of a quotation was written by who quotes it, or by the bot."""
    if is_preview(item):
        return False
    holds_another = any(quotations(part(one, "message")) for one in parts(item, "message_blocks"))
    own = {identifier(message, "user"), me.user, me.bot_id} - {""}
    return identifier(item, "author_id") in own and not holds_another


def _via(raw: str, me: Me, *, direct: bool, reply: bool, named: bool) -> Via | None:
    if direct:
        return "direct"
    if named or me.is_named_in(raw):
        return "mention"
    return "overheard" if reply and not _NAMES_SOMEBODY.search(raw) else None


def _files(message: Shape, known: Known) -> tuple[Attachment, ...]:
    """Return the files of a message and of its forwarded messages, without deleted ones."""
    files = [file for holder in holders_of_files(message) for file in parts(holder, "files")]
    files = [
        known.files.get(identifier(file, "id")) or file if _is_withheld(file) else file for file in files
    ]
    user = identifier(message, "user")
    return tuple(attachment_of(file, user) for file in files if string(file, "mode") != "tombstone")


def _is_withheld(file: Shape) -> bool:
    """Return whether a file of another company came as its id alone."""
    return string(file, "mode") == "file_access" or string(file, "file_access") == "check_file_info"


def withheld_as(mode: str) -> str:
    """Return what stands for the address of a file of this mode, which is no download."""
    return f"mode:{mode}"


def attachment_of(file: Shape, user: str) -> Attachment:
    """Return one file of a message of *user*.

    Its address may be blank or not Slack's, or say that there is none: the download reports it. A clip that somebody
    else recorded, as in a forwarded message, is not the user's own voice.
    """
    name = string(file, "name") or string(file, "title") or "file"
    media_type, size, mode = string(file, "mimetype"), count(file, "size"), identifier(file, "mode")
    if mode in CANVAS:  # its size is not that of the page
        name, media_type, size = f"{string(file, 'title') or 'canvas'}.html", "text/html", 0
    address = string(file, "url_private_download") or string(file, "url_private")
    return Attachment(
        id=identifier(file, "id"),
        name=scrub(name)[:LONGEST_NAME],
        media_type=scrub(media_type)[:LONGEST_NAME],
        size=size,
        url=withheld_as(mode) if mode in NO_DOWNLOAD or not (mode in MODES or address) else scrub(address),
        voice=string(file, "subtype") == "slack_audio" and identifier(file, "user") == user,
    )
