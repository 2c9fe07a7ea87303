"""Logs: one event is one line, JSON or text. No secret appears in a line, and no text of a person can forge one.

Each line names its event with a word that does not change between versions, such as ``transport.connected``. Our log
calls write it before the text: ``"transport.connected: %s"``. `docs/events.md` lists all events.

Fields are passed as `extra=`. A line about a failure has ``code``, and ``report``: the error as data, made here from
the ``error`` that the log call passes (see `threads.errors.error_fields`) or from its exception. Lines that we or a
library log within a turn also have its `thread_id`, `message_id` and `correlation_id` (the ``(ref …)`` of a failure).
A log call never fails its caller, and other log handlers get the record unchanged.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import traceback
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Literal, TextIO

from pydantic import JsonValue

from bot.guards.redaction import Masker
from bot.observe.turn_events import turn_ids
from bot.ports.errors import report
from bot.wording import WORTH_RETRYING
from threads.errors import BotError
from threads.invisible_text import rewritten

MAX_TEXT = 20_000
"""Characters of one text. A longer one loses its middle."""
MAX_MASKED = 200_000
"""Characters that are searched for secrets: more than `MAX_TEXT`, so that none is cut before it is found."""
MAX_ITEMS = 50
MAX_DEPTH = 3
MAX_INT = 10**15
OWN = ("at", "level", "logger", "event", "text")
NAMED = re.compile(r"([a-z][a-z_]*(?:\.[a-z_]+)+)(?:: |$)")
FOREIGN = "library"
"""The event of a line from a library. Only its text says more."""
RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

Mask = Callable[[str], str]

PRIORITIES = defaultdict(lambda: 6, {"DEBUG": 7, "WARNING": 4, "ERROR": 3, "CRITICAL": 2})
"""systemd's number of a level, see sd-daemon(3)."""


TALKATIVE = ("aiohttp", "anthropic", "discord", "openai", "slack_sdk", "urllib3")
"""Loggers that write payloads, such as messages and tickets, at the level debug."""


SILENT = ("client", "httpcore2", "httpx2", "mcp", "nio")
"""Loggers that write addresses and sessions at the level info, and payloads at debug."""


def configure_logging(
    level: str, form: Literal["json", "text"], stream: TextIO, *, secrets: Iterable[str] = ()
) -> None:
    """Send all logs of the process to *stream*, from *level* (debug, info, warning, error) on.

    *secrets* are masked, in addition to everything that looks like one. A second call replaces the first.
    """
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, Sink)]:
        root.removeHandler(old)
    sink = Sink(stream, form, Masker(secrets))
    root.addHandler(sink)
    root.setLevel(level.upper())
    sink.setLevel(root.level)  # its own level, because the audit sets a lower one on our loggers
    for talkative in TALKATIVE:
        logging.getLogger(talkative).setLevel(max(logging.INFO, root.level))
    for silent in SILENT:
        logging.getLogger(silent).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(capture=True)


def mask_in_logs(secrets: Collection[str]) -> None:
    """Mask these secrets too in what is logged from now on."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Sink):
            handler.mask.learn(secrets)


def is_journal(stream: TextIO) -> bool:
    """Return whether the stream is systemd's journal, which takes a level before each line; see systemd.exec(5)."""
    try:
        about = os.fstat(stream.fileno())
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{about.st_dev}:{about.st_ino}"


def log_format_for(stream: TextIO, setting: Literal["json", "text"] | None) -> Literal["json", "text"]:
    """Return the setting, or else text for a terminal and JSON for anything else."""
    return setting or ("text" if stream.isatty() else "json")


class Sink(logging.StreamHandler[TextIO]):
    """Writes records as lines. ``lost`` counts those that could not be written."""

    def __init__(self, stream: TextIO, form: Literal["json", "text"], mask: Masker) -> None:
        super().__init__(stream)
        self.lost = 0
        self.mask, self._for_people, self._to_journal = mask, form == "text", is_journal(stream)

    def format(self, record: logging.LogRecord) -> str:
        fields = fields_of(record, self.mask)
        if _is_no_news(record, for_people=self._for_people):
            fields.pop("traceback", None)
        line = _text_line(fields) if self._for_people else json.dumps(fields)
        return f"<{PRIORITIES[record.levelname]}>{line}" if self._to_journal else line

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802
        # The inherited method prints the record with its secrets, to a stream that may be broken.
        self.lost += 1


def _text_line(fields: dict[str, JsonValue]) -> str:
    """Return a line for people: time, level, logger, event, text and fields, then an indented traceback."""
    at, level, logger, event, text = (one_line(str(fields.pop(name))) for name in OWN)
    trace = str(fields.pop("traceback", ""))
    fields.pop("report", None)  # the text says it
    words = [
        at,
        f"{level:7}",
        f"{logger}:",
        f"{event}: {text}" if text else event,
        *(f"{one_line(k)}={_word(v)}" for k, v in fields.items()),
    ]
    return "\n".join([" ".join(words), *(f"    {one_line(line)}" for line in trace.splitlines())])


def fields_of(record: logging.LogRecord, mask: Mask) -> dict[str, JsonValue]:
    """Return a record's fields: only text, numbers, and lists or maps of them, and no secret.

    They are `OWN`, the extras, and ``traceback``. An extra with one of these names gets a trailing ``_``.
    """
    event, text = named(_message(record))
    fields: dict[str, JsonValue] = {
        "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": event,
        "text": _text(text, mask),
    }
    known = {**turn_ids(), **vars(record)}
    if (failure := _failure(record)) is not None:
        known["report"] = _report(failure, record, known)
        known.pop("error", None)
    for name, value in known.items():
        if name not in RESERVED:
            taken = name in OWN or name == "traceback"
            fields[f"{name}_" if taken else mask(name)] = _value(value, mask, MAX_DEPTH)
    if record.exc_info and record.exc_info[1]:
        fields["traceback"] = _text("".join(traceback.format_exception(record.exc_info[1])), mask)
    elif record.exc_text or record.stack_info:
        fields["traceback"] = _text(record.exc_text or record.stack_info or "", mask)
    return fields


def _failure(record: logging.LogRecord) -> BaseException | None:
    """Return the error that a line is about, made from its code if the line has only that; None without both."""
    if isinstance(error := vars(record).get("error"), BaseException):
        return error
    if isinstance(code := vars(record).get("code"), str):
        coded = BotError(code)
        coded.code = code
        return coded
    return record.exc_info[1] if record.exc_info else None


def _report(error: BaseException, record: logging.LogRecord, known: Mapping[str, object]) -> JsonValue:
    """Return the report of a failure: the one that the log, the audit and the events carry."""
    at = datetime.fromtimestamp(record.created, UTC)
    return report(error, str(known.get("correlation_id", "")), at).model_dump(mode="json")


def named(message: str) -> tuple[str, str]:
    """Return the event that a log call names, and its text."""
    match = NAMED.match(message)
    return (match[1], message[match.end() :]) if match else (FOREIGN, message)


def _is_no_news(record: logging.LogRecord, *, for_people: bool) -> bool:
    """Return whether a traceback says nothing: for a provider's failure, and in text also for other known errors."""
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, BotError) or error.code == "internal":
        return False
    return for_people or error.code in WORTH_RETRYING


def one_line(text: str) -> str:
    r"""Return *text* with every character that is not plainly visible written as an escape, such as ``\n``."""
    return rewritten(text, lambda character: character.encode("unicode_escape").decode())


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001  # boundary: arguments are anyone's, and a log call must not fail
        return f"{_str(record.msg)} (its arguments could not be formatted: {type(error).__name__})"


def _str(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001  # boundary: as above, for __str__
        return f"<{type(value).__name__} without text: {type(error).__name__}>"


def _text(text: str, mask: Mask) -> str:
    return _shortened(mask(_shortened(text, MAX_MASKED)), MAX_TEXT)


def _shortened(text: str, limit: int) -> str:
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]} …{len(text) - 2 * half} more… {text[-half:]}"


def cleaned(value: object, mask: Mask) -> JsonValue:
    """Return *value* as JSON that is not too large, with all its texts masked."""
    return _value(value, mask, MAX_DEPTH)


def _value(value: object, mask: Mask, depth: int) -> JsonValue:
    match value:
        case None | bool():
            return value
        case int() if abs(value) < MAX_INT:
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case Mapping() if depth:
            pairs = islice(value.items(), MAX_ITEMS)
            return {_text(_str(key), mask): _value(item, mask, depth - 1) for key, item in pairs}
        case list() | tuple() | set() | frozenset() if depth:
            return [_value(item, mask, depth - 1) for item in islice(value, MAX_ITEMS)]
        case _:
            return _text(_str(value), mask)


def _word(value: JsonValue) -> str:
    if isinstance(value, str) and value and not any(c in value for c in ' "='):
        return one_line(value)
    return one_line(json.dumps(value, ensure_ascii=False))
