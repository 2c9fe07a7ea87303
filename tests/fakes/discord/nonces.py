"""Which message a nonce made, for the past few minutes: a repeated one with enforce_nonce makes no second message."""

from __future__ import annotations

from collections.abc import Callable

from tests.fakes.discord.records import Message


class Nonces:
    """``lasts``: seconds for which a nonce is enforced; ``shown``: for which the history tells it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.lasts, self.shown = 300.0, 60.0
        self._clock = clock
        self._kept: dict[str, tuple[float, Message]] = {}

    def remember(self, message: Message) -> None:
        if message.nonce:
            self._kept[message.nonce] = (self._clock(), message)

    def recent(self, nonce: str) -> Message | None:
        """The bot's message of that nonce, in any channel; even one that was deleted since is not made again."""
        at, message = self._kept.get(nonce, (0.0, None))
        return message if message and self._clock() - at < self.lasts else None

    def shows(self, message: Message) -> bool:
        at, kept = self._kept.get(message.nonce, (0.0, None))
        return kept is message and self._clock() - at < self.shown
