"""The Enter key: it sends what was typed, or ends a line of what was pasted.

| Enter, and then                  | it was                                    |
|----------------------------------|-------------------------------------------|
| nothing for `PASTE_S`            | typed: the message is sent                |
| text, a tab or an Enter sooner   | pasted: a new line of the same message    |
| any other key                    | typed: the message is sent                |

Most terminals mark their pastes and need none of this; over a serial line, or in some multiplexers, they do not.
"""

from __future__ import annotations

import asyncio

from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus, is_searching
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys

PASTE_S = 0.03
"""Nobody types Enter and the next letter so close together."""


class EnterKey:
    """``keys`` are bound for one prompt; more may be added to them."""

    def __init__(self) -> None:
        self.keys = KeyBindings()
        self._sending: asyncio.TimerHandle | None = None
        follows = Condition(lambda: self._sending is not None)
        at_prompt = has_focus(DEFAULT_BUFFER) & ~is_searching
        self.keys.add("enter", filter=at_prompt)(self._enter)
        self.keys.add("c-j", filter=at_prompt)(self._line_feed)
        for key in (Keys.Any, Keys.Tab):
            self.keys.add(key, filter=follows)(self._text)

    def _enter(self, event: KeyPressEvent) -> None:
        self._ends_line(event)
        behind = (key for key in event.key_processor.input_queue if key.key != Keys.CPRResponse)
        key = next(behind, None)
        if key is None or _is_text(key):
            self._sending = asyncio.get_running_loop().call_later(PASTE_S, self._send, event)
        else:
            self._send(event)

    def _line_feed(self, event: KeyPressEvent) -> None:
        before = event.previous_key_sequence
        if not (self._sending and before and before[-1].key == Keys.Enter):  # CR LF is one end of a line
            self._enter(event)

    def _text(self, event: KeyPressEvent) -> None:
        self._ends_line(event)
        event.current_buffer.insert_text(event.data)

    def _ends_line(self, event: KeyPressEvent) -> None:
        """Make a new line of the Enter before this key, if it came right behind one."""
        if self._sending:
            self._sending.cancel()
            self._sending = None
            event.current_buffer.insert_text("\n")

    def _send(self, event: KeyPressEvent) -> None:
        self._sending = None
        if not event.app.is_done:
            event.current_buffer.validate_and_handle()


def _is_text(key: KeyPress) -> bool:
    return key.key in {Keys.Enter, Keys.ControlJ, Keys.Tab} or len(key.key) == 1
