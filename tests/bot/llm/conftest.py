from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from bot.llm.adapters.http_client import SharedHttp
from bot.ports.model import Request
from threads.model import Message, Text, TextDelta, ThinkingDelta, TurnEvent

NO_COUNTS = (float("nan"), float("inf"), -5, 1.5, 10**40, "7", [7], True)
"""What a server may say in place of a count of tokens."""


@pytest.fixture(scope="module")
async def http(anyio_backend) -> AsyncIterator[SharedHttp]:
    shared = SharedHttp()
    yield shared
    await shared.aclose()


@dataclass
class Listener:
    """Keeps what it hears."""

    heard: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)

    async def __call__(self, event: TurnEvent) -> None:
        assert isinstance(event, TextDelta | ThinkingDelta)
        (self.heard if isinstance(event, TextDelta) else self.thoughts).append(event.text)

    @property
    def text(self) -> str:
        return "".join(self.heard)


@pytest.fixture
def listener() -> Listener:
    return Listener()


def ask(*messages: Message, **fields) -> Request:
    return Request("Be brief.", messages or (user("hi"),), **fields)


def user(text: str) -> Message:
    return Message("user", (Text(text),))
