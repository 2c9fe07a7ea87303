"""The words of a message in Slack's markup, wherever they stand in it: text, blocks, attachments; pure.

| attachment                                      | is                                             |
|-------------------------------------------------|------------------------------------------------|
| ``is_share`` or ``is_msg_unfurl``               | a forwarded message: somebody else's words     |
| ``from_url`` or ``original_url``                | a preview of a link: the page's words, not read |
| any other                                       | the author's own: a pasted table, an app's alert |
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from transports.slack.api.json_fields import Shape, part, parts, string
from transports.slack.events.blocks import unreadable, words_of

NO_PREVIEW = "[no preview available]"
"""What Slack writes in place of blocks for old apps; nobody sees it."""

_TOKEN = re.compile(r"<([^<>|]*)\|[^<>]*>")
_WORD = re.compile(r"[^\W_]+")


def own_words(message: Shape) -> str:
    """Return the author's words in Slack's markup, without previews and forwarded messages."""
    own = [_attachment_words(item) for item in parts(message, "attachments") if _is_own(item)]
    return _union([string(message, "text"), words_of(message.get("blocks")), *own])


def forwarded(message: Shape) -> Sequence[Shape]:
    """Return the attachments that are forwarded messages."""
    return [item for item in parts(message, "attachments") if _is_forwarded(item)]


def forwarded_words(attachment: Shape) -> str:
    """Return the words of a forwarded message, in Slack's markup."""
    inner = [part(one, "message") for one in parts(attachment, "message_blocks")]
    return _union([_attachment_words(attachment), *map(own_words, inner)]) or (
        "" if parts(attachment, "files") else unreadable("a forwarded message")
    )


def author_of_forwarded(attachment: Shape) -> str:
    return string(attachment, "author_name") or string(attachment, "author_subname")


def _is_forwarded(attachment: Shape) -> bool:
    return attachment.get("is_share") is True or attachment.get("is_msg_unfurl") is True


def _is_own(attachment: Shape) -> bool:
    return not (_is_forwarded(attachment) or attachment.get("from_url") or attachment.get("original_url"))


def _attachment_words(attachment: Shape) -> str:
    """Return what people read in an attachment; its fallback is for those who see nothing else of it."""
    heading = "" if _is_forwarded(attachment) else _linked(attachment, "author_name", "author_link")
    words = [
        string(attachment, "pretext"),
        heading,
        _linked(attachment, "title", "title_link"),
        string(attachment, "text"),
        words_of(attachment.get("blocks")),
        *(_field(field) for field in parts(attachment, "fields")),
        words_of(attachment.get("actions")),
        string(attachment, "footer"),
    ]
    fallback = string(attachment, "fallback")
    return "\n".join(filter(None, words)) or ("" if fallback.strip() == NO_PREVIEW else fallback)


def _linked(attachment: Shape, name: str, link: str) -> str:
    words, address = string(attachment, name), string(attachment, link)
    return f"<{address}|{words}>" if address and words and "<" not in words else words


def _field(field: Shape) -> str:
    return ": ".join(filter(None, (string(field, "title"), string(field, "value"))))


def _union(texts: Sequence[str]) -> str:
    """Return the texts one below the other, without those that say nothing new.

    Slack sends what a person writes twice, as text and as blocks. The text beside an app's blocks may be a summary of
    them, or say something else.
    """
    kept: list[str] = []
    for text in filter(str.strip, texts):
        if not any(_contains(other, text) for other in kept):
            kept = [other for other in kept if not _contains(text, other)] + [text]
    return "\n".join(kept)


def _contains(whole: str, some: str) -> bool:
    """Return whether *whole* says all of *some*: marks, blanks and the labels of links may differ."""
    whole_words, some_words = _plain_words(whole), _plain_words(some)
    if not some_words:
        return some.strip() in whole
    return (
        "".join(whole_words) == "".join(some_words)
        or f" {' '.join(some_words)} " in f" {' '.join(whole_words)} "
    )


def _plain_words(text: str) -> list[str]:
    return _WORD.findall(_TOKEN.sub(r"\1", text).casefold())
