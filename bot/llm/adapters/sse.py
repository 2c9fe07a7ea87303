"""Reads the events of an answer from its body, whatever the label of the body says; pure.

Servers and the proxies before them send a stream as ``application/json``, a whole answer as ``text/event-stream``,
lines of JSON without ``data:``, one line break between two events, and errors with status 200. So the first character
tells what a body is:

| first                | is                                                                                |
|----------------------|-----------------------------------------------------------------------------------|
| ``{`` or ``[``       | one JSON document, or a document a line if the first line is one                  |
| ``<``                | a page: `UnreadableAnswer`                                                        |
| other                | server-sent events; without any event it is `UnreadableAnswer`                    |

An event that is an error raises it, see `_fault_in`. `END` follows a whole document, and is what ``[DONE]`` becomes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic_core import from_json

from bot.llm.classify import Fault, failure_of
from bot.ports.errors import UnreadableAnswer

JsonEvent = dict[str, Any]
"""An event as JSON. A missing or odd part raises KeyError or TypeError, which ends the call with a typed error."""

END: JsonEvent = {"type": "[DONE]"}
"""The end of a stream, told by the server."""

MAX_PAGE = 1_000_000
"""Bytes to read of a body that is not an event stream."""

_LINE_END = re.compile(rb"\r\n|\r|\n")
_ANSWER = frozenset({"choices", "content", "output", "type"})
"""A document with none of these is no answer of any of the three APIs."""

_WORDS = (
    *("message", "detail", "details", "msg", "reason"),
    *("error_msg", "error_message", "errorMessage", "status_msg", "title"),
)
"""The names under which servers put the text of an error."""


class EventDecoder:
    """Turns the pieces of one body into events. ``headers`` are those of the response, with lower-case names.

    Raises `ProviderError`, and ValueError for an event that is not JSON.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers
        self._form: Literal["", "document", "lines"] = ""
        self._head = b""
        self._rest: list[bytes] = []
        self._size = 0
        self._after_return = False
        self._name = b""
        self._data: list[bytes] = []
        self._documents = self._events = 0
        self._over = False

    def feed(self, piece: bytes) -> Iterator[JsonEvent]:
        """Yield the events that end in *piece*."""
        if self._over or not piece:
            return
        if len(self._head) < 200:
            self._head = (self._head + piece)[:200].lstrip()
        if not self._form and self._head:
            self._form = self._form_of(self._head)
        if self._after_return and piece.startswith(b"\n"):
            piece = piece[1:]
        self._after_return = piece.endswith(b"\r")
        self._size += len(piece)
        if self._form == "document" and self._size > MAX_PAGE:
            raise self._unreadable()
        first, *others = _LINE_END.split(piece)
        self._rest.append(first)
        for following in others:
            line, self._rest = b"".join(self._rest), [following]
            if (event := self._line(line)) is not None:
                yield event

    def finish(self) -> Iterator[JsonEvent]:
        """Yield what the end of the body completes."""
        if self._over:
            return
        if (line := b"".join(self._rest)) and (event := self._line(line)) is not None:
            yield event
        if self._form == "document":
            yield self._document(b"\n".join(self._data))
        elif self._name == b"error" and self._data:
            yield self._event(b"\n".join(self._data))
        if self._documents == 1 and self._events == 1:
            yield END
        elif self._head and not self._events and not self._name and not self._head.startswith(b":"):
            raise self._unreadable()

    def _form_of(self, head: bytes) -> Literal["document", "lines"]:
        if head.startswith(b"<"):
            page = self._unreadable()
            page.retryable = True  # It may be a proxy's, for as long as the server is down.
            raise page
        return "document" if head[:1] in b"{[" else "lines"

    def _line(self, line: bytes) -> JsonEvent | None:
        """Take a line; return the event that ends with it."""
        if self._form == "document":
            return self._document_line(line)
        if not line:
            data, self._data = self._data, []
            event = self._event(b"\n".join(data)) if data else None
            self._name = b""
            return event
        if line[:1] == b"{":
            return self._event(line)
        field, _, value = line.partition(b":")
        if field == b"data":
            return self._data_line(value.strip())
        if field == b"event":
            self._name = value.strip()
        return None

    def _document_line(self, line: bytes) -> JsonEvent | None:
        """Hold a line of a document; the first one may be a document itself, and then so are the others."""
        if not self._data and line.strip():
            try:
                document = _read(line)
            except ValueError:
                pass
            else:
                self._form, self._documents = "lines", 1
                return self._checked(document)
        self._data.append(line)
        return None

    def _data_line(self, value: bytes) -> JsonEvent | None:
        """Return an event that fits on a line at once: not every server sends the blank line after it."""
        if value.startswith(b"[DONE]"):
            self._over = True
            return END
        if self._data:
            self._data.append(value)
        elif value and value != b"null":
            try:
                event = _read(value)
            except ValueError:
                self._data.append(value)
            else:
                return self._checked(event)
        return None

    def _document(self, text: bytes) -> JsonEvent:
        self._documents = 1
        try:
            return self._checked(_read(text))
        except ValueError as error:
            raise self._unreadable() from error

    def _event(self, data: bytes) -> JsonEvent:
        try:
            return self._checked(_read(data))
        except ValueError:
            if self._name != b"error":
                raise
        return self._checked({"message": data.decode(errors="replace")})

    def _checked(self, found: Any) -> JsonEvent:
        """Return what was found, as an event. Raises `ProviderError` for an error, and for what is no event."""
        self._events += 1
        event = found[0] if isinstance(found, list) and found else found  # Gemini puts an error into a list.
        if not isinstance(event, dict):
            raise self._unreadable()
        if self._name:
            event.setdefault("type", self._name.decode(errors="replace"))
        if fault := _fault_in(event, self._headers):
            raise failure_of(fault)
        if self._documents and _ANSWER.isdisjoint(event):
            raise self._unreadable()
        return event

    def _unreadable(self) -> UnreadableAnswer:
        kind = self._headers.get("content-type", "no type")
        return UnreadableAnswer(f"status 200 with {kind} in place of an answer: {self._head!r}")


def _read(text: bytes) -> Any:
    """Return JSON; raises ValueError. The fast parser does not take all of it, such as half a surrogate pair."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def _fault_in(event: JsonEvent, headers: Mapping[str, str]) -> Fault | None:
    """Return the error that an event is, in any of the forms that servers and gateways have for it, or None.

    ``{"error": …}`` at the top or in the choice, ``{"object": "error"}`` of vLLM and SGLang, ``{"type": "error"}`` of
    Anthropic and Responses, ``{"base_resp": …}`` of MiniMax, and words without an answer: ``detail`` of FastAPI.
    """
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    base = event.get("base_resp")
    told: Any = event.get("error") or choice.get("error")
    if not told and isinstance(base, dict) and base.get("status_code"):
        told = base
    named = event.get("object") == "error" or event.get("type") == "error"
    wordless = not _ANSWER.isdisjoint(event) or not any(event.get(word) for word in _WORDS)
    if not told and not named and wordless:
        return None
    words = told if isinstance(told, dict) else event
    text = told if isinstance(told, str) else next((words[word] for word in _WORDS if words.get(word)), words)
    body = {"error": told} if choice.get("error") else event
    status = next((event[name] for name in ("status", "status_code") if _is_status(event.get(name))), None)
    return Fault(str(text), body, status, headers)


def _is_status(value: object) -> bool:
    return isinstance(value, int) and 400 <= value < 600
