"""A Matrix event as a message to the bot, live or from the history; pure.

in a direct room                               -> direct
names the bot                                  -> mention
names others, not it                           -> nothing
in a thread, naming nobody                     -> overheard: the router knows whether the bot joined it
said in the room                               -> nothing

Names are those of ``m.mentions``; without it, a link to the bot or its id or name in the text. A notice is from a
program, which is heard only if it is listed and names the bot. https://spec.matrix.org/v1.16/client-server-api/
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from threads.model import Attachment, Author, Edited, Incoming, Spoken, Via
from transports.matrix.values import Event, Me, Room, content_of, encoded, fields, newest_content, relation

FILES = ("m.file", "m.image", "m.audio", "m.video")
POLLS = ("m.poll", "org.matrix.msc3381.poll")
SPOKEN = ("m.room.message", "m.sticker", *(f"{poll}.start" for poll in POLLS))

_FALLBACK = re.compile(r"\A(?:> [^\n]*\n)+\n")
_PILL = re.compile(r"https://matrix\.to/#/(@[^\s\"'<>?)]+)")


def parse_message(
    event: Event,
    room: Room,
    me: Me,
    *,
    bots: Collection[str] = (),
    name: str = "",
    quoted: str = "",
    stale: bool = False,
) -> Incoming | None:
    """Return a message to the bot, or None for any other. Never raises.

    *name* is the author's, and *quoted* what the message replies to. *bots* may write to this one.
    """
    id_, sender, content = event.get("event_id"), event.get("sender"), newest_content(event)
    if not (isinstance(id_, str) and isinstance(sender, str)) or event.get("type") not in SPOKEN:
        return None
    via, root = _via(event, content, room, me), relation(event, "m.thread")
    is_program = content.get("msgtype") == "m.notice" or sender in bots
    if via is None or sender == me.id or (is_program and not (sender in bots and via == "mention")):
        return None
    text, files = without_name(words_of(event.get("type"), content), me), files_of(id_, content)
    if not (text or quoted or files):
        return None
    thread = room.thread(root or ("" if room.direct else id_))
    return Incoming(
        encoded(id_),
        thread,
        Author(sender, name),
        text,
        sent_at(event),
        via=via,
        files=files,
        stale=stale,
        quoted=quoted,
    )


def parse_edit(event: Event, room: Room, me: Me) -> Edited | None:
    """Return what an edit makes of a message; the thread is that of the message, if it is known."""
    target, content = relation(event, "m.replace"), fields(content_of(event), "m.new_content")
    if not (target and content) or event.get("sender") == me.id:
        return None
    return Edited(encoded(target), room.thread(target), without_name(words_of("m.room.message", content), me))


def parse_spoken(event: Event, me: Me, name: str) -> Spoken | None:
    """Return a message as an earlier line of its thread; None for one without words and files."""
    id_, sender, content = event.get("event_id"), event.get("sender"), newest_content(event)
    if not (isinstance(id_, str) and isinstance(sender, str)) or event.get("type") not in SPOKEN:
        return None
    text, files = words_of(event.get("type"), content), files_of(id_, content)
    if relation(event, "m.replace") or not (text or files):
        return None
    return Spoken(Author(sender, name), text, ours=sender == me.id, id=encoded(id_), files=files)


def words_of(kind: object, content: Mapping[str, Any]) -> str:
    """Return what people read in a message; the words beside a file, and none if there is only the file."""
    if kind != "m.room.message":
        return "\n".join(_poll(content)) or _text(content, "body")
    body = _FALLBACK.sub("", _text(content, "body"))
    match content.get("msgtype"):
        case "m.emote":
            return f"*{body}*"
        case "m.location":
            return f"{body}\n{_text(content, 'geo_uri')}".strip()
        case kind if kind in FILES:
            return body if content.get("filename") not in (None, content.get("body")) else ""
        case _:
            return body.strip()


def files_of(id_: str, content: Mapping[str, Any]) -> tuple[Attachment, ...]:
    """Return the file of a message. The address of an encrypted one is the object that has its key."""
    locked = fields(content, "file")
    url, info = locked.get("url", content.get("url")), fields(content, "info")
    if content.get("msgtype") not in FILES or not isinstance(url, str):
        return ()
    name, size = _text(content, "filename") or _text(content, "body") or "file", info.get("size")
    return (
        Attachment(
            encoded(id_),
            name,
            _text(info, "mimetype"),
            size if isinstance(size, int) and size > 0 else 0,
            json.dumps(dict(locked)) if locked else url,
            voice="org.matrix.msc3245.voice" in content,
        ),
    )


def replied_to(event: Event) -> str:
    """Return the event that somebody chose to reply to, a blank if there is none."""
    related = fields(content_of(event), "m.relates_to")
    target = fields(related, "m.in_reply_to").get("event_id")
    return target if isinstance(target, str) and not related.get("is_falling_back") else ""


def sent_at(event: Event) -> str:
    return datetime.fromtimestamp(sent_s(event), UTC).isoformat(timespec="milliseconds")


def sent_s(event: Event) -> float:
    """Return when the homeserver of the author got an event, in seconds since 1970: it may be wrong."""
    at = event.get("origin_server_ts")
    return min(max(at, 0), 1 << 42) / 1000 if isinstance(at, int) else 0.0


def without_name(text: str, me: Me) -> str:
    """Return *text* without the bot's name at its beginning, as clients write it to call somebody."""
    names = "|".join(re.escape(name) for name in (me.id, f"@{me.name}", me.name, me.id.partition(":")[0]))
    return re.sub(rf"\A\s*(?:{names})(?:[:,]+|(?=\s)|\Z)\s*", "", text, flags=re.IGNORECASE).strip()


def _via(event: Event, content: Mapping[str, Any], room: Room, me: Me) -> Via | None:
    if room.direct:
        return "direct"
    named = set(_named(content, me))
    if me.id in named:
        return "mention"
    return "overheard" if relation(event, "m.thread") and not named else None


def _named(content: Mapping[str, Any], me: Me) -> Iterator[str]:
    """Yield the people that a message names."""
    if "m.mentions" in content:
        ids = fields(content, "m.mentions").get("user_ids")
        yield from filter(lambda id_: isinstance(id_, str), ids if isinstance(ids, list) else ())
        return
    body = _FALLBACK.sub("", _text(content, "body"))
    yield from _PILL.findall(_text(content, "formatted_body").replace("%3A", ":").replace("%40", "@"))
    if me.id in body or re.search(rf"(?<!\w){re.escape(me.name)}(?!\w)", body, re.IGNORECASE):
        yield me.id


def _poll(content: Mapping[str, Any]) -> Iterator[str]:
    for prefix in POLLS:
        poll = fields(content, f"{prefix}.start") or fields(content, prefix)
        answers = poll.get("answers")
        for part in (poll.get("question"), *(answers if isinstance(answers, list) else ())):
            if isinstance(part, dict) and (words := _poll_text(part)):
                yield words if part is poll.get("question") else f"- {words}"


def _poll_text(part: Mapping[str, Any]) -> str:
    for name in ("body", "org.matrix.msc1767.text", "m.text"):
        value = part.get(name)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = value[0].get("body")
        if isinstance(value, str):
            return value
    return ""


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    return value if isinstance(value, str) else ""
