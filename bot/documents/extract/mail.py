"""A mail as it is read: who, when, about what, its text, and the texts attached to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from email import message_from_bytes, policy
from email.message import EmailMessage, MIMEPart
from typing import cast

from .result import Extraction, text
from .text import clean

HEADERS = ("From", "To", "Cc", "Date", "Subject")

Read = Callable[[bytes, str, str], Extraction]
"""Reads a file of these bytes, this type and this ending; raises `Unreadable`."""


def mail(data: bytes, read: Read) -> Extraction:
    """Return a mail's text; raises `Unreadable` for one without any."""
    message = message_from_bytes(data, policy=policy.default)
    problems: set[str] = set()
    extraction = text(_parts(message, read, problems), title=clean(str(message.get("Subject", ""))))
    return replace(extraction, problem=extraction.problem or min(problems, default=""))


def _parts(message: EmailMessage, read: Read, problems: set[str]) -> Iterator[str]:
    """Yield a mail's parts; adds "partly" to *problems* for an attachment that cannot be read."""
    lines = (f"{name}: {clean(str(message[name]))}" for name in HEADERS if message[name])
    yield "\n".join(lines) + "\n\n"
    body = message.get_body(("plain", "html"))
    if body is not None:
        yield _words(body, read, set()) + "\n\n"  # an empty body is no loss
    for attached in message.iter_attachments():
        name = clean(attached.get_filename() or attached.get_content_type())
        yield f"[attachment: {name}]\n"
        yield _words(attached, read, problems) + "\n\n"


def _words(part: MIMEPart, read: Read, problems: set[str]) -> str:
    try:
        return _read(part, read)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever a parser raises for a part costs only that part
        problems.add("partly")
        return ""


def _read(part: MIMEPart, read: Read) -> str:
    if part.get_content_type() == "message/rfc822":
        data = part.get_content().as_bytes()
    else:
        data = cast("bytes", part.get_payload(decode=True)) or b""
    kind = f"{part.get_content_type()}; charset={part.get_content_charset('')}"
    name = part.get_filename() or ""
    return read(data, kind, f".{name.rpartition('.')[2].lower()}" if "." in name else "").body.decode()
