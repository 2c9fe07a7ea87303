"""What the tests of metrics and spans share: a bot with a model on loopback, a status, and a sink that remembers."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bot.observe.turn_events import Observing, Sink, Work
from bot.ports.status import CircuitStatus, Spend, Status, TransportStatus
from tests.fakes import openai
from tests.fakes.http import Reply, Seen
from tests.serving import Chat, compatible, serving

PRICES = {f"{name}/m": {"input": 1.0, "output": 10.0} for name in ("one", "two")}

STATUS = Status(
    pid=1,
    version="1.2.3",
    started_at="2026-11-21T10:00:00+00:00",
    uptime_s=5.0,
    ready=True,
    stopping=False,
    data="/nowhere",
    model="one/m",
    transports=(
        TransportStatus("slack", "connected", silent_s=1.5),
        TransportStatus("discord", "reconnecting"),
    ),
    circuits=(CircuitStatus("one/m", "open", "rate limited", 2),),
    spend=(Spend("day", 4.0, 1.0, 50.0), Spend("month", 4.0, 1.0, None)),
    threads=3,
    running=2,
    queued=1,
    pending=4,
    oldest_pending_s=7.5,
    lag_s=0.001,
    worst_lag_s=0.3,
    troubles=("discord is reconnecting",),
)


class RecordingSink:
    """A sink that keeps what ended."""

    def __init__(self) -> None:
        self.begun = 0
        self.ends: list[Work] = []
        self.outcomes: list[tuple[str, str, float | None]] = []

    def began(self, work: Work) -> None:
        self.begun += 1

    def ended(self, work: Work) -> None:
        self.ends.append(work)

    def settled(self, transport, outcome, seconds, ids) -> None:
        self.outcomes.append((transport, outcome, seconds))

    def of(self, kind: str) -> list[Work]:
        return [work for work in self.ends if work.kind == kind]


@asynccontextmanager
async def watched(
    data: Path,
    script: Sequence[Reply] | Callable[[Seen], Reply],
    *sinks: Sink,
    fallback: Sequence[Reply] | Callable[[Seen], Reply] = (),
    **given: object,
) -> AsyncIterator[Chat]:
    """Serve a bot whose model `one/m` plays a script, and `two/m`, if there is a fallback, another."""
    async with openai.FakeOpenAI(script) as one, openai.FakeOpenAI(fallback) as two:
        settings = {
            "model": "one/m",
            "fallback_models": ["two/m"] if fallback else [],
            "providers": {**compatible("one", one.base_url), **compatible("two", two.base_url)},
            "prices": PRICES,
            **given,
        }
        async with serving(data, settings, observing=Observing(*sinks)) as seat:
            yield seat


def says(text: str = "All right.") -> Reply:
    return openai.chat_answer(openai.Text(text))


def wants(*calls: tuple[str, dict[str, object]]) -> Reply:
    return openai.chat_answer(*[openai.Tool(f"call_{n}", *call) for n, call in enumerate(calls)])


def busy() -> Reply:
    return openai.fault(503, None)
