"""Buttons and their ``custom_id``; pure.

The id holds all that a press needs, so buttons work after a restart. An id in any other form is unknown.

| custom_id             | command                                                        |
|-----------------------|----------------------------------------------------------------|
| ``stop:MARK``         | ``/stop``; MARK tells the post of which this is the draft      |
| ``choice:N:/COMMAND`` | the command; N tells buttons of one message apart              |
| ``feedback:VERDICT``  | none: ``up`` or ``down`` is a verdict on the answer above it   |

https://docs.discord.com/developers/components/reference#button
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from threads.model import Choice, Verdict
from transports.base.text import split
from transports.discord.api.values import MAX_BUTTONS, Button, Style
from transports.discord.markdown.render import clean, inert, utf16_size

MAX_LABEL, MAX_ID = 80, 100

FEEDBACK: dict[str, Verdict] = {"feedback:up": "up", "feedback:down": "down"}

THUMBS = (Button("👍", "feedback:up"), Button("👎", "feedback:down"))
"""The buttons under an answer."""

STYLES: dict[str, Style] = {"/approve": "success", "/deny": "danger", "/stop": "danger", "/retry": "primary"}

_STOP = re.compile(r"stop:([A-Za-z0-9_-]{1,40})")
_CHOICE = re.compile(r"choice:\d{1,2}:(/[A-Za-z][A-Za-z-]{0,20}(?: [^\s\x00-\x1f\x7f]{1,80})*)", re.ASCII)


def stop_button(mark: str) -> Button:
    """Return the button of an unfinished message; *mark* has at most 40 letters, digits, ``-`` or ``_``."""
    return Button("Stop", f"stop:{mark}", "danger")


def choice_buttons(choices: Sequence[Choice]) -> tuple[Button, ...]:
    """Return a button for each of the first 25 choices whose command fits an id."""
    return tuple(button for _, button in _buttons(choices))


def without_button(choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """Return the choices that `choice_buttons` leaves out, for `choices_as_text`."""
    with_button = {number for number, _ in _buttons(choices)}
    return tuple(choice for number, choice in enumerate(choices) if number not in with_button)


def choices_as_text(choices: Iterable[Choice]) -> str:
    """Return the choices in words, one per line."""
    return "\n".join(f"{inert(choice.label)}: {_typed(choice.command)}" for choice in choices)


def command_of(custom_id: str) -> str | None:
    """Return the command of a button; None if it is not ours."""
    if _STOP.fullmatch(custom_id):
        return "/stop"
    found = _CHOICE.fullmatch(custom_id)
    return found[1] if found and utf16_size(custom_id) <= MAX_ID else None


def stop_mark(custom_ids: Iterable[str]) -> str:
    """Return the mark of the Stop button among the buttons of a message; "" if it has none and is not a draft."""
    return next((found[1] for found in map(_STOP.fullmatch, custom_ids) if found), "")


def _buttons(choices: Sequence[Choice]) -> list[tuple[int, Button]]:
    """Return the buttons, each with the number of its choice."""
    result = []
    for number, choice in enumerate(choices):
        style = STYLES.get(choice.command.partition(" ")[0], "secondary")
        result.append((number, Button(_label(choice), f"choice:{number}:{choice.command}", style)))
    return [(number, button) for number, button in result if command_of(button.custom_id)][:MAX_BUTTONS]


def _label(choice: Choice) -> str:
    label = " ".join(clean(choice.label).split()) or choice.command
    return label if utf16_size(label) <= MAX_LABEL else split(label, MAX_LABEL - 1, size=utf16_size)[0] + "…"


def _typed(command: str) -> str:
    return f"`{' '.join(clean(command).split()).replace('`', '')}`"
