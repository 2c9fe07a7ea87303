"""What the receiving path asks about a message, with the other worker hearing it: the store knows, not a process.

| question                                 | who answers                                                           |
|------------------------------------------|-----------------------------------------------------------------------|
| is the bot in this thread?               | rows of `message` and `context`; asked again for what has just come   |
| was this message received before?        | the insert, also for its second id                                    |
| whose thread is it?                      | the insert: the owner carries out commands, presses, answers, retries |
| which message does an edit mean?         | its row; mail to the owner, which first reads the rows before it      |
| what runs and waits in a channel?        | the rows, and mail to the owners                                      |
| how many has its author had?             | the insert                                                            |
| was this stranger refused today?         | a row of `bucket`                                                     |
| what was chosen or allowed here?         | `slot`, read again after each notice (`test_states`)                  |
| is a model's circuit open?               | each worker; an opening is a notice to all (`test_states`)            |
| may its author use the bot?              | the settings, which all workers share                                 |

What nobody has stored is read again from the platform: `test_catch_up`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import anyio
import pytest

from bot import wording
from bot.extensions.postgres.store import PostgresStore
from bot.routing.rate_limit import RateLimiter
from bot.wiring.core import Core
from tests.bot.extensions.postgres.workers import rows
from tests.patience import WITHIN_S, until
from tests.world import ANN, T1, Gate, Platform, Scripted, message, running, says
from threads.model import Answer, Author, Deleted, Edited, Incoming, Option, Question
from transports.base.transport import Capabilities

now = partial(datetime.now, UTC)


@dataclass
class Two:
    """Two workers with one platform. The owner serves m1, whose answer waits until the gate is open."""

    owner: Core
    other: Core
    stores: list[PostgresStore]
    platform: Platform
    gate: Gate
    model: Scripted

    async def begin(self) -> None:
        """Let the owner begin the turn of a mention."""
        await self.gate.hold(self.owner, replace(message(1), via="mention"))

    async def settle(self, *messages: str) -> dict[str, str]:
        """Open the gate, and return the outcomes once these messages have theirs."""
        self.gate.open.set()
        await self.platform.settled(*messages)
        return self.platform.outcomes

    @asynccontextmanager
    async def blind(self):
        """Keep the owner from reading new rows until the block ends."""
        journal, lifted = self.owner.journal, anyio.Event()
        read = journal._read

        async def late(threads: list[str]) -> None:
            await lifted.wait()
            await read(threads)

        journal._read = late
        try:
            yield
        finally:
            lifted.set()


def overheard(number: int, text: str = "and now?") -> Incoming:
    """Return a message without a mention that was said this moment."""
    return replace(message(number, text), via="overheard", sent_at=now().isoformat())


async def follow_up(two: Two) -> None:
    await two.begin()
    await two.other.orchestrator.receive(overheard(2))
    assert await two.settle("m1", "m2") == {"m1": "answered", "m2": "answered"}


def note_asking(two: Two) -> anyio.Event:
    """Return what is set once the other worker has asked whether a thread is begun."""
    asked, begun = anyio.Event(), two.stores[1].begun

    async def ask(thread, before):
        found = await begun(thread, before)
        asked.set()
        return found

    two.stores[1].begun = ask
    return asked


async def follow_up_before_the_mention_is_stored(two: Two) -> None:
    asked = note_asking(two)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(two.other.orchestrator.receive, overheard(2))
        await asked.wait()
        await two.begin()
    assert await two.settle("m1", "m2") == {"m1": "answered", "m2": "answered"}


async def said_before_the_mention(two: Two) -> None:
    """It is an earlier line of the thread, however late it is looked for again."""
    asked, early = note_asking(two), overheard(2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(two.other.orchestrator.receive, early)
        await asked.wait()
        await two.owner.orchestrator.receive(
            replace(message(1, "hi"), via="mention", sent_at=now().isoformat())
        )
        await two.settle("m1")
    assert rows(two.stores[0]._dsn, "SELECT count(*) FROM message") == [(1,)]


async def beside_the_bot(two: Two) -> None:
    """A message that was refused, or is only a command, opens no thread."""
    await two.owner.orchestrator.receive(replace(message(1, "/status"), via="mention"))
    await until(lambda: rows(two.stores[0]._dsn, "SELECT FROM message WHERE outcome IS NOT NULL"))
    await two.other.orchestrator.receive(overheard(2))
    assert rows(two.stores[0]._dsn, "SELECT count(*) FROM message") == [(1,)]


async def copy(two: Two) -> None:
    await two.begin()
    await two.other.orchestrator.receive(message(1))
    await two.other.orchestrator.receive(replace(message(2), alias="c2"))
    await two.owner.orchestrator.receive(replace(message(3), id="c2"))
    assert await two.settle("m1", "m2") == {"m1": "answered", "m2": "answered"}


async def edit(two: Two) -> None:
    await two.begin()
    await two.owner.orchestrator.receive(message(2, "wrong"))
    await two.other.orchestrator.receive(Edited("m2", T1, "right \ud83d", "> theirs \ud83d"))
    await until(lambda: not rows(two.stores[0]._dsn, "SELECT FROM mail"))
    await two.settle("m1", "m2")
    others, _, text = two.model.requests[-1].messages[-1].blocks
    assert others.text.endswith("> theirs ?")
    assert text.text == "right ?"


async def deletion(two: Two) -> None:
    await two.begin()
    await two.owner.orchestrator.receive(message(2))
    await two.other.orchestrator.receive(Deleted("m2", T1))
    await two.platform.settled("m2")
    assert (await two.settle("m1"))["m2"] == "withdrawn"


async def deletion_of_what_the_owner_has_not_read(two: Two) -> None:
    await two.begin()
    async with two.blind():
        await two.other.orchestrator.receive(message(2))
        await two.other.orchestrator.receive(Deleted("m2", T1))
        opening = two.owner.journal._opening
        await until(lambda: opening or not rows(two.stores[0]._dsn, "SELECT FROM mail"))
    await until(lambda: not rows(two.stores[0]._dsn, "SELECT FROM mail"))
    assert (await two.settle("m1", "m2"))["m2"] == "withdrawn"


async def deletion_heard_by_the_owner_before_it_reads(two: Two) -> None:
    await two.begin()
    async with two.blind():
        await two.other.orchestrator.receive(message(2))
        await two.owner.orchestrator.receive(Deleted("m2", T1))
    await until(lambda: not rows(two.stores[0]._dsn, "SELECT FROM mail"))
    assert (await two.settle("m1", "m2"))["m2"] == "withdrawn"


async def stop(two: Two) -> None:
    await two.begin()
    await two.other.orchestrator.receive(message(2, "stop"))
    await two.platform.settled("m1", "m2")
    assert two.platform.outcomes == {"m1": "stopped", "m2": "answered"}


async def stop_in_the_channel(two: Two) -> None:
    await two.begin()
    await two.other.orchestrator.receive(message(2, "/stop", replace(T1, root="")))
    await two.platform.settled("m1", "m2")
    assert two.platform.outcomes == {"m1": "stopped", "m2": "answered"}


async def status(two: Two) -> None:
    await two.begin()
    await two.other.orchestrator.receive(message(2, "/status"))
    await two.platform.settled("m2")
    assert two.platform.texts[0].startswith("Working on a message")


async def rate(two: Two) -> None:
    await two.begin()
    await two.other.orchestrator.receive(message(2))
    await two.other.orchestrator.receive(message(3))
    assert (await two.settle("m1", "m2", "m3"))["m3"] == "refused"


async def retry(two: Two) -> None:
    two.gate.answer = RuntimeError("a bug")
    await two.begin()
    await two.settle("m1")
    await two.other.orchestrator.receive(message(2, "/retry"))
    assert await two.settle("m2") == {"m1": "failed", "m2": "answered"}


async def stranger(two: Two) -> None:
    eve = Author("U9", "eve")
    for core, number in ((two.owner, 1), (two.other, 2), (two.other, 1)):
        await core.orchestrator.receive(message(number, author=eve))
    await two.platform.settled("m1")
    assert two.platform.texts == [wording.NOT_ALLOWED]
    assert rows(two.stores[0]._dsn, "SELECT count(*) FROM message") == [(1,)]


HEARD: dict[str, Callable[[Two], Awaitable[None]]] = {
    "a follow-up while the first turn runs": follow_up,
    "a follow-up before the mention is stored": follow_up_before_the_mention_is_stored,
    "a line that was said before the mention": said_before_the_mention,
    "a message in a thread that only had a command": beside_the_bot,
    "a copy, under either id": copy,
    "an edit": edit,
    "a deletion": deletion,
    "a deletion of what the owner has not read": deletion_of_what_the_owner_has_not_read,
    "a deletion that the owner hears before it reads": deletion_heard_by_the_owner_before_it_reads,
    "a stop": stop,
    "a stop in the channel": stop_in_the_channel,
    "a status": status,
    "a message beyond its author's rate": rate,
    "a retry": retry,
    "a stranger's second message of the day": stranger,
}


@pytest.mark.parametrize("what", HEARD)
async def test_what_another_worker_hears_counts_as_if_the_owner_had_heard_it(dsn, tmp_path, what):
    stores = [PostgresStore(dsn, tmp_path / name, name=name, version="1", now=now) for name in "ab"]
    platform, gate = Platform(), Gate(says("first"))
    model = Scripted(gate)
    given = {"clock": now, "allowed": lambda event: event.author == ANN, "rates": RateLimiter(2)}
    try:
        with anyio.fail_after(WITHIN_S):
            async with (
                running(tmp_path / "a", platform, model, store=stores[0], **given) as owner,
                running(tmp_path / "b", platform, model, store=stores[1], **given) as other,
            ):
                await HEARD[what](Two(owner, other, stores, platform, gate, model))
    finally:
        with anyio.CancelScope(shield=True):
            for store in stores:
                await store.abort()


@pytest.mark.parametrize("kind", ["decision", "answer"])
@pytest.mark.parametrize("typed", [False, True], ids=["pressed", "typed"])
async def test_the_answer_to_a_question_counts_whichever_worker_hears_it(dsn, tmp_path, kind, typed):
    stores = [PostgresStore(dsn, tmp_path / name, name=name, version="1", now=now) for name in "ab"]
    platform, answers = Platform(), list[Answer | None]()
    platform.capabilities = Capabilities(find=True, asks=True)
    options = (Option("Yes", True, "yes"), Option("No", False, "no"))

    async def run(turn):
        question = Question("Well?", options, lambda _: True, kind=kind, asker=ANN.id)
        answers.append(await turn.ask(question))
        return "done"

    try:
        with anyio.fail_after(WITHIN_S):
            async with (
                running(tmp_path / "a", platform, Scripted(), store=stores[0], clock=now, run=run) as owner,
                running(tmp_path / "b", platform, Scripted(), store=stores[1], clock=now, run=run) as other,
            ):
                await owner.orchestrator.receive(message(1))
                await platform.until(lambda: bool(platform.posts))
                press = platform.posts[0].choices[0].command
                words = {"decision": "/approve", "answer": "yes"}[kind]
                await other.orchestrator.receive(message(2, words if typed else press))
                await platform.settled("m1", "m2")
    finally:
        with anyio.CancelScope(shield=True):
            for store in stores:
                await store.abort()
    assert [answer.approved if kind == "decision" else answer.words for answer in answers] == [
        True if kind == "decision" else "yes"
    ]
