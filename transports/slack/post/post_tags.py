"""What a thread's history says about our posts: their tags, and which parts are out. Pure.

Every message we post carries a `Tag` as its metadata: which post it belongs to, and which part of it. Slack shows
metadata only to the app that wrote it (``include_all_metadata``), so a tag is ours or it is not there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from pydantic import JsonValue

from threads.scheduled_messages import due_of
from transports.shared.delivery.files import file_name
from transports.slack.api.json_fields import Shape, count, instant, is_stamp, part, parts, stamp, string

EVENT_TYPE = "threadfast"

CLOCKS_S = 60
"""Seconds that our clock may be ahead of Slack's, in the search for answers to scheduled messages."""


@dataclass(frozen=True, slots=True)
class Tag:
    """Part ``part`` (from 0) of the ``parts`` of the post ``key``; an unfinished live answer is a ``draft``.

    ``file`` is the name of the file that holds the whole text and belongs to the post too.
    """

    key: str
    part: int = 0
    parts: int = 1
    file: str = ""
    draft: bool = False

    def metadata(self) -> dict[str, JsonValue]:
        """Return it as the ``metadata`` of a message."""
        payload: dict[str, JsonValue] = {"key": self.key, "part": self.part, "parts": self.parts}
        if self.file:
            payload["file"] = self.file
        if self.draft:
            payload["draft"] = True
        return {"event_type": EVENT_TYPE, "event_payload": payload}


def tag_of(message: Shape) -> Tag | None:
    """Return the tag that a message carries, or None."""
    metadata = part(message, "metadata")
    said = part(metadata, "event_payload")
    key = string(said, "key")
    if string(metadata, "event_type") != EVENT_TYPE or not key:
        return None
    file, draft = string(said, "file"), said.get("draft") is True
    return Tag(key, count(said, "part"), count(said, "parts") or 1, file, draft)


@dataclass(slots=True)
class Sent:
    """Which messages of one post are out: ``ts`` by part, and whether its file is (``filed``).

    ``ours``: this process has looked for it, or tried to post it, so that only a new look can tell more.
    """

    out: dict[int, str] = field(default_factory=dict)
    parts: int = 0
    filed: bool = False
    ours: bool = False

    def add(self, tag: Tag, ts: str) -> None:
        """Take a message in; of two for the same part, which a lost answer may leave, the first counts."""
        self.out.setdefault(tag.part, ts)
        self.parts = max(self.parts, tag.parts)

    @property
    def first(self) -> str:
        return self.out.get(0, "")

    @property
    def whole(self) -> bool:
        """Whether all parts are out. The one that names a file is posted after the file."""
        return self.parts > 0 and all(part in self.out for part in range(self.parts))


def fold(messages: Iterable[Shape], key: str, sent: Sent) -> None:
    """Take what *messages* show of the post *key* into *sent*."""
    file = file_name(key)
    for message in messages:
        tag, ts = tag_of(message), stamp(message, "ts")
        if tag is not None and tag.key == key and not tag.draft and ts:
            sent.add(tag, ts)
        sent.filed = sent.filed or any(string(shown, "name") == file for shown in parts(message, "files"))


def orphans(messages: Iterable[Shape], ours: Collection[str], since: str, live: Collection[str]) -> list[str]:
    """Return the ts of drafts that no process works on any more.

    Ours by ``user`` or ``bot_id`` (*ours*), later than *since*, unfinished (no tag, or that of a draft), without a
    file, and not in *live*.
    """
    return [
        ts
        for message in messages
        if (ts := stamp(message, "ts")) and ts not in live and instant(ts) > instant(since)
        if string(message, "user") in ours or string(message, "bot_id") in ours
        if message.get("subtype") in (None, "bot_message") and not message.get("files")
        if (tag := tag_of(message)) is None or tag.draft
    ]


def since_of(key: str) -> str:
    """Return the ts of the message that a post's *key* names, "" if the key ends in something else.

    A question's key goes on after that, with ``?`` and the id of the question. A scheduled message is none of
    Slack's, but tells when it was due.
    """
    ts = key.partition("?")[0].rpartition(":")[2]
    if due := due_of(ts):
        return f"{max(0, int(due.timestamp()) - CLOCKS_S)}.000000"
    return ts if is_stamp(ts) and "." in ts else ""
