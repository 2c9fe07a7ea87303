"""From a post to its messages: how many, and what is below them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from threads.model import Outgoing
from transports.discord.api.values import MAX_BUTTONS, Button
from transports.discord.markdown.buttons import THUMBS, choice_buttons, choices_as_text, without_button
from transports.discord.markdown.render import MAX_CONTENT, note, parts, utf16_size
from transports.shared.delivery.files import file_name

MAX_PARTS = 5
"""An answer that needs more messages is a file, with its beginning in a message."""

MOST_PARTS = 20
"""Messages of an answer where no file can be sent; the last one says that it is cut."""

CUT = note("The answer goes on, but it is too long to be posted here.")

FILE_PART = 99
"""The number of the part that is a file; no message with text has it."""


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One message, part ``part`` of its post; or the ``file`` of that name, with the whole text."""

    part: int
    content: str
    buttons: tuple[Button, ...] = ()
    file: str = ""

    @property
    def custom_ids(self) -> tuple[str, ...]:
        return tuple(button.custom_id for button in self.buttons)


def pages(outgoing: Outgoing, most: int = MOST_PARTS, *, feedback: bool = False) -> list[MessagePage]:
    """Return the messages that show *outgoing*, the last one with its choices and, under a reply, the *feedback*."""
    choices = choices_as_text(without_button(outgoing.choices))
    texts = parts("\n\n".join(filter(None, (outgoing.text, choices))))
    if len(texts) > most:
        texts = [*texts[: most - 1], CUT]
    result = [MessagePage(number, content) for number, content in enumerate(texts)]
    return [*result[:-1], _with_buttons(result[-1], outgoing, feedback=feedback)]


def with_file(outgoing: Outgoing, *, feedback: bool = False) -> list[MessagePage]:
    """Return the beginning of *outgoing* with its buttons, and the page that is a file."""
    file = file_name(outgoing.key)
    words = f"This is only the beginning: the whole answer is in the file {file}."
    page = _with_buttons(MessagePage(0, with_note(outgoing.text, words)), outgoing, feedback=feedback)
    return [page, MessagePage(FILE_PART, "", file=file)]


def with_note(text: str, words: str) -> str:
    """Return as much of *text* as fits into a message, with *words* in small print below it."""
    last = f"\n{note(words)}"
    return parts(text, MAX_CONTENT - utf16_size(last))[0] + last


def _with_buttons(page: MessagePage, outgoing: Outgoing, *, feedback: bool) -> MessagePage:
    thumbs = THUMBS if feedback and outgoing.kind == "reply" else ()
    return replace(page, buttons=(*choice_buttons(outgoing.choices), *thumbs)[:MAX_BUTTONS])
