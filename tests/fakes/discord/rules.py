"""Discord's rules as far as they are documented or were measured: sizes, components, and what a text sets off.

Pure. A broken rule is raised as ``Refusal``, which is the error body of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.fakes.discord.ids import Json

CONTENT, CUSTOM_ID, LABEL, ROWS, IN_ROW, NAME, NONCE, FILES, EMBEDS = 2_000, 100, 80, 5, 5, 100, 25, 10, 10
ARCHIVE_AFTER = (60, 1440, 4320, 10080)
SUPPRESSING = 4
KEPT_FLAGS = SUPPRESSING | 4096 | 32768 | 64


class Refusal(Exception):
    """An answer other than 2xx: ``{"message": message, "code": code, **more}``."""

    def __init__(self, status: int, code: int, message: str, **more: Any) -> None:
        super().__init__(f"{status} {code} {message}")
        self.status, self.code, self.message, self.more = status, code, message, more

    @property
    def body(self) -> Json:
        return {"message": self.message, "code": self.code, **self.more}


def unknown_channel() -> Refusal:
    return Refusal(404, 10003, "Unknown Channel")


def unknown_message() -> Refusal:
    return Refusal(404, 10008, "Unknown Message")


def missing_access() -> Refusal:
    return Refusal(403, 50001, "Missing Access")


def missing_permissions() -> Refusal:
    return Refusal(403, 50013, "Missing Permissions")


def archived(*, locked: bool) -> Refusal:
    return Refusal(403 if locked else 400, 50083, "Thread is archived")


def wrong_type() -> Refusal:
    return Refusal(400, 50024, "Cannot execute action on this channel type")


def invalid(field: str, code: str, message: str) -> Refusal:
    """50035, with the faulty *field* ("components.0.label") told as Discord tells it."""
    errors: Json = {"_errors": [{"code": code, "message": message}]}
    for part in reversed(field.split(".")):
        errors = {part: errors}
    return Refusal(400, 50035, "Invalid Form Body", errors=errors)


def too_long(field: str, most: int, least: int = 0) -> Refusal:
    if least:
        return invalid(field, "BASE_TYPE_BAD_LENGTH", f"Must be between {least} and {most} in length.")
    return invalid(field, "BASE_TYPE_MAX_LENGTH", f"Must be {most} or fewer in length.")


# sizes


def check_body(body: Json) -> None:
    """Content, nonce, embeds and components of a message that is sent or edited."""
    content = body.get("content")
    if content is not None and not isinstance(content, str):
        raise invalid("content", "BASE_TYPE_STRING", "Could not interpret value as string.")
    if len(content or "") > CONTENT:
        raise too_long("content", CONTENT)
    if len(str(body.get("nonce") or "")) > NONCE:
        raise too_long("nonce", NONCE)
    if len(body.get("embeds") or ()) > EMBEDS:
        raise too_long("embeds", EMBEDS)
    check_components(body.get("components") or [])


def check_components(rows: list[Json]) -> None:
    if len(rows) > ROWS:
        raise too_long("components", ROWS)
    seen: set[str] = set()
    for row_number, row in enumerate(rows):
        where = f"components.{row_number}"
        if row.get("type") != 1:
            raise invalid(where, "UNION_TYPE_CHOICES", "Value of field type must be one of (1,).")
        items = row.get("components") or []
        if not 1 <= len(items) <= IN_ROW:
            raise too_long(f"{where}.components", IN_ROW, 1)
        for number, item in enumerate(items):
            _check_item(f"{where}.components.{number}", item, seen)


def _check_item(where: str, item: Json, seen: set[str]) -> None:
    if len(item.get("label") or "") > LABEL:
        raise too_long(f"{where}.label", LABEL)
    is_link = item.get("type") == 2 and item.get("style") == 5
    if item.get("type") == 2 and not (item.get("label") or item.get("emoji")):
        raise invalid(
            where, "BUTTON_COMPONENT_LABEL_OR_EMOJI_REQUIRED", "A button needs a label or an emoji."
        )
    custom_id = item.get("custom_id")
    if is_link:
        return
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= CUSTOM_ID:
        raise too_long(f"{where}.custom_id", CUSTOM_ID, 1)
    if custom_id in seen:
        raise invalid(
            f"{where}.custom_id", "COMPONENT_CUSTOM_ID_DUPLICATED", "Component custom id cannot be duplicated"
        )
    seen.add(custom_id)


def check_thread(body: Json) -> tuple[str, int]:
    """The name and the minutes until it is archived."""
    name, minutes = body.get("name"), body.get("auto_archive_duration") or 1440
    if not isinstance(name, str):
        raise invalid("name", "BASE_TYPE_REQUIRED", "This field is required")
    if not 1 <= len(name) <= NAME:
        raise too_long("name", NAME, 1)
    if minutes not in ARCHIVE_AFTER:
        raise invalid("auto_archive_duration", "BASE_TYPE_CHOICES", f"Value must be one of {ARCHIVE_AFTER}.")
    return name, minutes


# what a text sets off

_CODE = re.compile(r"```.*?```|``.+?``|`[^`\n]+`", re.DOTALL)
_USER, _ROLE = re.compile(r"<@!?(\d+)>"), re.compile(r"<@&(\d+)>")
_EVERYONE = re.compile(r"@(?:everyone|here)\b")
_QUIET, _URL = (
    re.compile(r"<https?://[^<>\s]+>", re.IGNORECASE),
    re.compile(r"https?://[^\s<>|)\"\]`]+", re.IGNORECASE),
)


@dataclass(frozen=True)
class Mentions:
    users: list[str]
    roles: list[str]
    everyone: bool


def mentions_in(content: str) -> Mentions:
    """Whom *content* names, outside of code."""
    spoken = _CODE.sub(" ", content)
    users, roles = _once(_USER.findall(spoken)), _once(_ROLE.findall(spoken))
    return Mentions(users, roles, bool(_EVERYONE.search(spoken)))


def notified(content: str, allowed: Json | None) -> Mentions:
    """Whom *content* may notify under ``allowed_mentions`` (None: everybody it names)."""
    named = mentions_in(content)
    if allowed is None:
        return named
    parse = allowed.get("parse") or ()
    users = named.users if "users" in parse else [u for u in named.users if u in _ids(allowed.get("users"))]
    roles = named.roles if "roles" in parse else [r for r in named.roles if r in _ids(allowed.get("roles"))]
    return Mentions(users, roles, named.everyone and "everyone" in parse)


def _ids(values: Any) -> set[str]:
    return {str(value) for value in values or ()}


def _once(found: list[str]) -> list[str]:
    return list(dict.fromkeys(found))


def links(content: str) -> Iterator[str]:
    """Addresses that Discord makes a preview of: bare ones, outside of code."""
    yield from _once(_URL.findall(_QUIET.sub(" ", _CODE.sub(" ", content))))
