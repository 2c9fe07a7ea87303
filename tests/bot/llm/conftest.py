from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from bot.llm.adapters.http_client import SharedHttp
from bot.ports.model import Completion, Model, Request
from tests.fakes.http import Reply, Seen
from threads.model import Answer, Message, Question, Text, TextDelta, TextReset, ThinkingDelta, TurnEvent

Complete = Callable[..., Awaitable[tuple[Completion, Seen]]]


@pytest.fixture
def complete(http, listener) -> Complete:
    """Ask a model once; return its answer and the request that the server saw."""
    from tests.bot.llm.apis import HELLO, FakeProvider, model_at

    async def complete(api, request=None, reply: Reply | None = None, base_url="", **options):
        async with FakeProvider([reply or HELLO[api]]) as fake:
            model: Model = model_at(base_url or fake.base_url, api, http, **options)
            completion = await model.complete(request or ask(), listener)
        return completion, fake.requests[0]

    return complete


@pytest.fixture(scope="module")
async def http(anyio_backend) -> AsyncIterator[SharedHttp]:
    shared = SharedHttp()
    yield shared
    await shared.aclose()


@dataclass
class Listener:
    """Records the texts of a stream."""

    heard: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)

    async def __call__(self, event: TurnEvent) -> None:
        match event:
            case TextDelta(text):
                self.heard.append(text)
            case ThinkingDelta(text):
                self.thoughts.append(text)
            case TextReset():
                self.heard.clear()
            case _:
                raise AssertionError(event)

    @property
    def text(self) -> str:
        return "".join(self.heard)


@dataclass
class FakeTurn:
    """A turn that records its notes and questions; its people give these answers."""

    answers: list[Answer | None] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    async def ask(self, question: Question) -> Answer | None:
        self.questions.append(question)
        return self.answers.pop(0)


@pytest.fixture
def listener() -> Listener:
    return Listener()


def ask(*messages: Message, **fields) -> Request:
    return Request("Be brief.", messages or (user("hi"),), **fields)


def user(text: str) -> Message:
    return Message("user", (Text(text),))
