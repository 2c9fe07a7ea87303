"""The words of a message in Slack's markup, wherever they stand in it: text, blocks, attachments; pure.

| attachment                               | is                                               |
|------------------------------------------|--------------------------------------------------|
| with one of `FORWARDED`                  | a forwarded or linked message: somebody's words  |
| ``from_url`` or ``original_url``         | a preview of a link: the page's words            |
| any other                                | the author's own: a pasted table, an app's alert |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape, unescape

from transports.slack.api.json_fields import Shape, instant, is_stamp, part, parts, string
from transports.slack.events.blocks import unreadable, words_of

FORWARDED = ("is_share", "is_msg_unfurl", "is_reply_unfurl")

NO_PREVIEW = "[no preview available]"
"""What Slack writes in place of blocks for old apps; nobody sees it."""

NO_TEXT = "This content can't be displayed."
"""The text that Slack gives a message of blocks that has none."""

MOST_ATTACHMENTS = 100
"""Attachments of one message that are read; Slack takes no more."""

MOST_CHARACTERS = 100_000
"""Characters of one message that are read; Slack's own have about 60,000 at most."""

NOT_SHOWN = "[the rest is not shown]"

_TOKEN = re.compile(r"<([^<>|]*)\|([^<>]*)>")
_LIST_MARK = re.compile(r"^[ \t>]*(?:\d{1,4}|[a-z]{1,5})[.)](?=\s)", re.MULTILINE)
_MARKS = re.compile(r"[\s*_~`•>-]")
_WORD = re.compile(r"[^\W_]+")


def own_words(message: Shape, unread: set[str] | None = None) -> str:
    """Return the author's words in Slack's markup, without what others say in the message.

    Add the kinds that cannot be read to *unread*.
    """
    unread = set() if unread is None else unread
    own = [item for item in parts(message, "attachments") if _is_own(item)]
    return _union(
        [
            string(message, "text"),
            words_of(message.get("blocks"), unread),
            *(_attachment_words(item, unread) for item in own[:MOST_ATTACHMENTS]),
            _left_out(own),
        ]
    )


def quotations(message: Shape) -> Sequence[Shape]:
    """Return the attachments in which others speak: forwarded messages, and previews of links."""
    found = [item for item in parts(message, "attachments") if not _is_own(item)]
    return found[:MOST_ATTACHMENTS]


def quotation_words(attachment: Shape, unread: set[str] | None = None, *, inner: bool = False) -> str:
    """Return the words of a quotation, in Slack's markup. Add the kinds that cannot be read to *unread*.

    *inner*: it stands in a forwarded message; what is forwarded in it is not read.
    """
    unread = set() if unread is None else unread
    messages = [part(one, "message") for one in parts(attachment, "message_blocks")]
    texts = [_attachment_words(attachment, unread)]
    for message in messages[:MOST_ATTACHMENTS]:
        texts.append(own_words(message, unread))
        texts += [
            f"{escape(heading(item), quote=False)}\n{quotation_words(item, unread, inner=True)}"
            for item in quotations(message)
            if not inner
        ]
    words = _union([*texts, _left_out(messages)])
    if is_preview(attachment):
        return words
    if not (words or parts(attachment, "files")):
        words = unreadable("a forwarded message")
    return _lines(words, _footer(attachment))


def heading(attachment: Shape) -> str:
    """Return the line above a quotation, which says whose it is."""
    if is_preview(attachment):
        return f"Preview of {string(attachment, 'from_url') or string(attachment, 'original_url')}:"
    name = string(attachment, "author_name") or string(attachment, "author_subname")
    return f"Forwarded message{' from ' if name else ''}{name}:"


def holders_of_files(message: Shape) -> Sequence[Shape]:
    """Return all that may hold files in a message: itself, and what it forwards; not the previews of links."""
    items = [item for item in parts(message, "attachments") if _is_own(item) or _is_forwarded(item)]
    inner = [part(one, "message") for item in items for one in parts(item, "message_blocks")]
    return [message, *items, *inner]


def all_words(message: Shape, unread: set[str] | None = None) -> Sequence[str]:
    """Return the author's words, and those of each quotation. Note the *unread* kinds."""
    return [own_words(message, unread), *(quotation_words(item, unread) for item in quotations(message))]


def is_preview(attachment: Shape) -> bool:
    """Return whether Slack shows in it what a link in the message leads to."""
    return not (_is_own(attachment) or _is_forwarded(attachment))


def _left_out(items: Sequence[Shape]) -> str:
    more = len(items) - MOST_ATTACHMENTS
    return f"[{more} more attachments are not shown]" if more > 0 else ""


def _is_forwarded(attachment: Shape) -> bool:
    return any(attachment.get(name) is True for name in FORWARDED)


def _is_own(attachment: Shape) -> bool:
    return not (_is_forwarded(attachment) or attachment.get("from_url") or attachment.get("original_url"))


def _attachment_words(attachment: Shape, unread: set[str]) -> str:
    """Return what people read in an attachment; its fallback is for those who see nothing else of it."""
    is_forwarded = _is_forwarded(attachment)
    words = _lines(
        string(attachment, "pretext"),
        string(attachment, "service_name"),
        "" if is_forwarded else _author(attachment),
        _linked(attachment, "title", "title_link"),
        string(attachment, "text"),
        words_of(attachment.get("blocks"), unread),
        *(_field(field) for field in parts(attachment, "fields")),
        words_of(attachment.get("actions"), unread),
        "[image]" if string(attachment, "image_url") else "",
        "" if is_forwarded else _footer(attachment),
    )
    fallback = string(attachment, "fallback")
    return words or ("" if fallback.strip() == NO_PREVIEW else fallback)


def _lines(*texts: str) -> str:
    return "\n".join(filter(None, texts))


def _author(attachment: Shape) -> str:
    names = _linked(attachment, "author_name", "author_link"), string(attachment, "author_subname")
    return " ".join(filter(None, names))


def _linked(attachment: Shape, name: str, link: str) -> str:
    words, address = string(attachment, name), string(attachment, link)
    return f"<{address}|{words}>" if address and words and "<" not in words else words


def _field(field: Shape) -> str:
    return ": ".join(filter(None, (string(field, "title"), string(field, "value"))))


def _footer(attachment: Shape) -> str:
    """Return the small print: a footer, the time, which Slack shows as a date, and the way to what is forwarded."""
    seconds = str(attachment.get("ts", ""))
    date = f"<!date^{int(instant(seconds))}^{{date}}>" if is_stamp(seconds) else ""
    way = f"<{string(attachment, 'from_url')}>" if attachment.get("is_share") is True else ""
    return " | ".join(filter(None, (string(attachment, "footer"), date, "" if way == "<>" else way)))


def _union(texts: Sequence[str]) -> str:
    """Return the texts one below the other, without those that say nothing new.

    Slack sends what a person writes twice, as text and as blocks. The text beside an app's blocks may be a summary of
    them, or say something else.
    """
    # Most that people write comes twice in the same form.
    texts = list(dict.fromkeys(filter(str.strip, texts)))
    if len(texts) > 1:
        texts = [text for text in texts if text.strip() != NO_TEXT]
    if len(texts) < 2:
        return "".join(texts)
    kept: list[tuple[str, str]] = []
    room = MOST_CHARACTERS
    for text in texts:
        if room < 0:
            kept.append((NOT_SHOWN, ""))
            break
        room -= len(text)
        new = text, _plain_words(text)
        if not any(_contains(other, new) for other in kept):
            kept = [other for other in kept if not _contains(new, other)] + [new]
    return "\n".join(text for text, _ in kept)


def _contains(whole: tuple[str, str], some: tuple[str, str]) -> bool:
    """Return whether *whole* says all of *some*, each a text with its words: marks and blanks may differ."""
    (text, words), (other, sought) = whole, some
    if not sought.strip():
        return _signs(other) in _signs(text)
    return sought in words or words.replace(" ", "") == sought.replace(" ", "")


def _plain_words(text: str) -> str:
    """Return the words with a blank on each side, without markup and the numbers of lists."""
    return f" {' '.join(_words(_LIST_MARK.sub('', _TOKEN.sub(_unlabelled, text))))} "


def _signs(text: str) -> str:
    """Return a text without the marks of lists, quotes and styles, unless it has nothing else."""
    plain = unescape(text)
    return _MARKS.sub("", _LIST_MARK.sub("", plain)) or plain.strip()


def _unlabelled(token: re.Match[str]) -> str:
    """Return an address with its label, if that says something else; of a mention, the id."""
    target, label = token[1], token[2]
    if target[:1] in "@#!" or "".join(_words(label)) in "".join(_words(target)):
        return target
    return f"{target} {label}"


def _words(text: str) -> list[str]:
    return _WORD.findall(unescape(text).casefold())
