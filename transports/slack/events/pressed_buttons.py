"""What replaces a button after it was pressed."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from threads.model import Feedback
from transports.shared.buttons import ANSWERS, THANKS, OpenQuestions, Presses
from transports.slack.api.web_api import WebApi
from transports.slack.events.lookups import Lookups
from transports.slack.events.parse_action import ButtonPress
from transports.slack.markdown.blocks import without_actions


class PressedButtons(Presses[ButtonPress]):
    def __init__(self, web: WebApi, lookups: Lookups, questions: OpenQuestions[Any]) -> None:
        super().__init__(questions)
        self._web, self._lookups = web, lookups

    async def retire(self, press: ButtonPress) -> None:
        """Remove the buttons of the message. Raises `PostFailed`.

        A note says what was chosen. How a question was decided is not known here.
        """
        note = press.label or press.incoming.text
        before = [block for block in press.blocks if isinstance(block, dict)]
        if press.incoming.text.startswith(ANSWERS):
            blocks: list[JsonValue] = [*without_actions(before)]
        else:
            who = await self._lookups.name_of(press.incoming.author.id)
            note = f"{note}{who and ' by '}{who}"
            blocks = [*without_actions(before, note)]
        changed: dict[str, JsonValue] = {"blocks": blocks, "text": note, "parse": "none"}
        await self._web.call("chat.update", channel=press.channel, urgent=False, ts=press.ts, **changed)

    async def thank(self, feedback: Feedback) -> None:
        """Thank the person alone for their feedback; may be dropped."""
        await self._web.try_call(
            "chat.postEphemeral",
            channel=feedback.thread.channel,
            user=feedback.author.id,
            thread_ts=feedback.thread.root or None,
            text=THANKS[feedback.verdict],
        )
