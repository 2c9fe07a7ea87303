"""A Matrix event as a message to the bot, live or from the history; pure.

in a direct room                               -> direct
names the bot                                  -> mention
names others, not it                           -> nothing
in a thread, naming nobody                     -> overheard: the router knows whether the bot joined it
said in the room                               -> nothing

Names are those of ``m.mentions``; without it, a link to the bot, its id or its name in the text. A notice is from a
program, which is heard only if it is listed and names the bot. https://spec.matrix.org/v1.16/client-server-api/
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from threads.model import Attachment, Author, Incoming, Spoken, Via
from transports.matrix.values import (
    Event,
    Me,
    Room,
    content_of,
    encoded,
    fields,
    newest_content,
    relation,
    several,
    text,
)

FILES = ("m.file", "m.image", "m.audio", "m.video")
POLLS = ("m.poll.start", "org.matrix.msc3381.poll.start")
SPOKEN = ("m.room.message", "m.sticker", *POLLS)

_FALLBACK = re.compile(r"\A(?:> [^\n]*\n)+\n")
_PILL = re.compile(r"https://matrix\.to/#/(?:@|%40)([^\s\"'<>?)]+)")


def parse_message(event: Event, room: Room, me: Me, bots: Collection[str]) -> Incoming | None:
    """Return a message to the bot, or None for any other. Never raises. *bots* may write to this one."""
    id_, sender, content = text(event, "event_id"), text(event, "sender"), newest_content(event)
    via = _via(event, content, room, me)
    is_program = content.get("msgtype") == "m.notice" or sender in bots
    may_speak = sender != me.id and (not is_program or (sender in bots and via == "mention"))
    said, files = without_name(words_of(event, content), me), files_of(id_, content)
    if via is None or not id_ or not may_speak or not (said or files):
        return None
    thread = room.thread(relation(event, "m.thread") or ("" if room.direct else id_))
    return Incoming(encoded(id_), thread, Author(sender), said, sent_at(event), via=via, files=files)


def parse_spoken(event: Event, me: Me, name: str) -> Spoken | None:
    """Return a message as an earlier line of its thread; None for one without words and files."""
    id_, sender, content = text(event, "event_id"), text(event, "sender"), newest_content(event)
    said, files = words_of(event, content), files_of(id_, content)
    if relation(event, "m.replace") or not (said or files):
        return None
    author, ours = Author(sender, name), sender == me.id
    return Spoken(author, said, ours, id=encoded(id_), files=files, sent_at=sent_at(event))


def words_of(event: Event, content: Mapping[str, Any]) -> str:
    """Return what people read in a message; the words beside a file, and none if there is only the file."""
    body, kind = _FALLBACK.sub("", text(content, "body")).strip(), content.get("msgtype")
    if event.get("type") not in SPOKEN:
        return ""
    if event.get("type") != "m.room.message":
        return "\n- ".join(_poll(content)) or body
    if kind in FILES:
        return body if content.get("filename") not in (None, content.get("body")) else ""
    return f"*{body}*" if kind == "m.emote" else f"{body} {text(content, 'geo_uri')}".strip()


def files_of(id_: str, content: Mapping[str, Any]) -> tuple[Attachment, ...]:
    """Return the file of a message. The address of an encrypted one is the object that has its key."""
    locked, info = fields(content, "file"), fields(content, "info")
    url, name = text(locked or content, "url"), text(content, "filename") or text(content, "body")
    if content.get("msgtype") not in FILES or not url:
        return ()
    size = info["size"] if isinstance(info.get("size"), int) else 0
    url, voice = json.dumps(dict(locked)) if locked else url, "org.matrix.msc3245.voice" in content
    return (Attachment(encoded(id_), name or "file", text(info, "mimetype"), max(size, 0), url, voice),)


def replied_to(event: Event) -> str:
    """Return the event that somebody chose to reply to, a blank if there is none."""
    related = fields(content_of(event), "m.relates_to")
    return "" if related.get("is_falling_back") else text(fields(related, "m.in_reply_to"), "event_id")


def sent_at(event: Event) -> str:
    """Return when the author's homeserver got an event: it may be wrong."""
    at = event.get("origin_server_ts")
    seconds = min(max(at, 0), 1 << 42) / 1000 if isinstance(at, int) else 0.0
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def without_name(said: str, me: Me) -> str:
    """Return a text without the bot's name at its beginning, as clients write it to call somebody."""
    names = "|".join(map(re.escape, (me.id, f"@{me.name}", me.name, me.id.partition(":")[0])))
    return re.sub(rf"\A\s*(?:{names})(?:[:,]+|(?=\s)|\Z)\s*", "", said, flags=re.IGNORECASE).strip()


def _via(event: Event, content: Mapping[str, Any], room: Room, me: Me) -> Via | None:
    if room.direct:
        return "direct"
    named = {*_named(content, me)}
    if me.id in named:
        return "mention"
    return "overheard" if relation(event, "m.thread") and not named else None


def _named(content: Mapping[str, Any], me: Me) -> Iterator[str]:
    """Yield the people that a message names."""
    if "m.mentions" in content:
        yield from (id_ for id_ in several(fields(content, "m.mentions"), "user_ids") if isinstance(id_, str))
        return
    body = _FALLBACK.sub("", text(content, "body"))
    for pill in _PILL.findall(text(content, "formatted_body")):
        yield f"@{pill.replace('%3A', ':')}"
    if me.id in body or re.search(rf"(?<!\w){re.escape(me.name)}(?!\w)", body, re.IGNORECASE):
        yield me.id


def _poll(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the question of a poll, and its answers."""
    poll = fields(content, "m.poll") or fields(content, POLLS[1])
    for part in (poll.get("question"), *several(poll, "answers")):
        one = part if isinstance(part, dict) else {}
        newer = [text(form, "body") for form in several(one, "m.text") if isinstance(form, dict)]
        yield text(one, "body") or text(one, "org.matrix.msc1767.text") or "".join(newer[:1])
