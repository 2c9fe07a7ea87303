"""What becomes of a button after it was pressed: it goes, and what was chosen stands in its place.

Only when the press was taken: a stranger's press changes nothing for the others. The buttons of a question go when
the question is closed, whoever answered it and however (`posting.Posting.close_question`).
"""

from __future__ import annotations

from collections import OrderedDict

from pydantic import JsonValue

from threads.model import Feedback, QuestionClosed, Taken, TurnEvent, TurnSettled
from transports.slack.hear.press import Pressed
from transports.slack.render.blocks import without_actions
from transports.slack.wire.names import Names
from transports.slack.wire.web import Web

REMEMBERED = 1_000
"""Presses whose fate is waited for."""

ANSWERS = ("/approve", "/deny")

THANKS = {
    "up": "Thank you.",
    "down": "Thank you. Tell me here what was wrong with it, and I will try again.",
}


class Buttons:
    def __init__(self, web: Web, names: Names) -> None:
        self._web, self._names = web, names
        self._pressed: OrderedDict[str, Pressed] = OrderedDict()

    def pressed(self, press: Pressed) -> None:
        """Remember a press before it is handed over."""
        if not press.ephemeral and not press.incoming.text.startswith(ANSWERS):
            self._pressed[press.incoming.id] = press
            if len(self._pressed) > REMEMBERED:
                self._pressed.popitem(last=False)

    def taken(self, message_id: str, event: TurnEvent) -> Pressed | None:
        """Return the press that this event says was taken, once."""
        match event:
            case Taken() | TurnSettled("answered"):
                return self._pressed.pop(message_id, None)
            case TurnSettled():
                self._pressed.pop(message_id, None)
            case _:
                pass
        return None

    async def retire(self, press: Pressed) -> None:
        """Take the buttons off the message; may be dropped."""
        who = await self._names.of(press.incoming.author.id)
        note = f"{press.label or press.incoming.text}{who and ' by '}{who}"
        shown = [block for block in press.blocks if isinstance(block, dict)]
        blocks: list[JsonValue] = [*without_actions(shown, note)]
        await self._web.try_call(
            "chat.update", channel=press.channel, ts=press.ts, blocks=blocks, text=note, parse="none"
        )

    async def thank(self, feedback: Feedback) -> None:
        """Say to the person alone that their judgement was noted; may be dropped."""
        await self._web.try_call(
            "chat.postEphemeral",
            channel=feedback.thread.channel,
            user=feedback.author.id,
            thread_ts=feedback.thread.root or None,
            text=THANKS[feedback.verdict],
        )


def decided(event: QuestionClosed, who: str) -> str:
    """Return how a question ended, for below its text; *who* is the name of the person, if it is known."""
    if not event.by:
        return "Nobody decided in time."
    return f"{'Approved' if event.approved else 'Declined'}{who and ' by '}{who}."
