"""A mail as it is read: who, when, about what, its text, and the texts attached to it."""

from __future__ import annotations

from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage, MIMEPart
from typing import cast

from bot.extensions.documents.problems import WHY, LeftOut
from bot.extensions.documents.problems import left_out as sentence

from .result import Extraction, Read, Unreadable, text
from .text import clean

HEADERS = ("From", "To", "Cc", "Date", "Subject")

_BODIES = ("text/plain", "text/html")
_SIGNATURES = ("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature")


def mail(data: bytes, read: Read) -> Extraction:
    """Return a mail's text; raises `Unreadable` for one without any."""
    message = message_from_bytes(data, policy=policy.default)
    left_out = set[LeftOut]()
    title = clean(str(message.get("Subject", "")))
    return text(_parts(message, read, left_out), title=title, left_out=left_out)


def _parts(message: EmailMessage, read: Read, left_out: set[LeftOut]) -> Iterator[str]:
    yield "\n".join(f"{name}: {clean(str(message[name]))}" for name in HEADERS if message[name]) + "\n\n"
    for part in _leaves(message):
        name = clean(part.get_filename() or "")
        kind = part.get_content_type()
        if kind.startswith("image/") and not part.is_attachment():
            left_out.add("pictures")
            yield f"[picture: {name or kind}]\n\n"
        elif kind.startswith("text/") and not part.is_attachment() and not name:
            words, why = _words(part, read)
            left_out |= {"pages"} if why else set()
            yield words.strip("\n") + "\n\n"
        elif kind not in _SIGNATURES:
            words, why = _words(part, read)
            left_out |= {"attachments"} if why else set()
            yield f"[attachment: {name or kind}{'; ' if why else ''}{why.rstrip('.')}]\n{words}\n\n"


def _leaves(part: MIMEPart) -> Iterator[MIMEPart]:
    """Yield the parts that people see, in their order. Of alternatives the last that can be read is the best."""
    if part.get_content_type() == "multipart/alternative":
        forms = list(part.iter_parts())
        shown = [form for form in forms if form.get_content_type() in _BODIES or form.is_multipart()]
        for form in [*shown[-1:], *(form for form in forms if form not in shown)]:
            yield from _leaves(form)
    elif part.get_content_maintype() == "multipart":
        for child in part.iter_parts():
            yield from _leaves(child)
    else:
        yield part


def _words(part: MIMEPart, read: Read) -> tuple[str, str]:
    """Return a part's text, and a sentence on what it lacks."""
    try:
        found = _read(part, read)
    except MemoryError:
        raise
    except Unreadable as error:
        return "", WHY[error.code] if error.code != "empty" else ""
    except Exception:  # noqa: BLE001 - whatever a parser raises for a part costs only that part
        return "", WHY["damaged"]
    return found.body.decode(), sentence(found.left_out)


def _read(part: MIMEPart, read: Read) -> Extraction:
    if (kind := part.get_content_type()) == "message/rfc822":
        data = part.get_content().as_bytes()
    elif part.is_multipart():  # a report of what became of a mail
        data, kind = "\n".join(str(child) for child in part.iter_parts()).encode(), "text/plain"
    else:
        data = cast("bytes", part.get_payload(decode=True)) or b""
    name = part.get_filename() or ""
    return read(
        data,
        f"{kind}; charset={part.get_content_charset('')}",
        f".{name.rpartition('.')[2].lower()}" if "." in name else "",
    )
