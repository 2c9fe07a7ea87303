"""One message that comes twice: a mention has two events; and what a client sent twice has two times and one
``client_msg_id``, and comes by the socket, by a catch-up or by both.

The journal's disk takes its time, so that the second copy always comes while the first one is being written.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace

import anyio
import pytest

from tests.sim.loop import virtual_time
from tests.transports.catching_up import START
from tests.transports.memory import Memory
from tests.transports.slack.test_catch_up import FILE, ME, Slack, now
from threads.background import background_tasks
from threads.errors import StoreUnavailable
from threads.journal.journal import FileJournal
from threads.model import Edited, Incoming
from threads.store.disk import PosixDisk
from threads.store.mark_file import MarkFile
from transports.shared.backfill.marks import Marks
from transports.slack.events.intake import Intake
from transports.slack.events.lookups import Lookups
from transports.slack.events.timestamps import STAMPS

SLOW_S = 0.5


anyio_backend = virtual_time


async def slowly(function, *arguments):
    await anyio.sleep(SLOW_S)
    return function(*arguments)


class Bot:
    """An intake over a real journal.

    What goes to the sink is in ``taken``, what is routed in ``routed``, what was acknowledged in ``acked``.
    """

    def __init__(self, tasks, folder, slack, disk):
        self.slack, self.taken, self.routed, self.acked = slack, [], [], []
        self.journal = FileJournal(PosixDisk(), folder / "journal.jsonl", offload=slowly, now=now)
        self.marks = Marks(MarkFile(disk, FILE), slowly, now, STAMPS)
        self.marks.open()
        self.journal.open()
        self.intake = Intake(
            tasks, slack, ME, self.marks, self.sink, SimpleNamespace(),
            Lookups(slack, ME, lambda _: None), SimpleNamespace(), lambda *_: None,
            recent=self.recent, now=now, max_age_s=600,
        )  # fmt: skip

    async def sink(self, event):
        self.taken.append(event)
        if isinstance(event, Incoming):
            await self.journal.receive(event)

    async def recent(self, within_s, most):
        return []

    def say(self, *, at=None, **more):
        """Say it where it can be read, and return its event."""
        ts = self.slack.say(at=at, client_msg_id="c-1", **more)
        return {"type": "event_callback", "event": {**self.slack.channels["C1"][ts], "channel": "C1"}}

    def route(self, pending):
        self.routed.append(pending.incoming.id)

    async def hear(self, body):
        with suppress(StoreUnavailable):
            await self.intake.take("event", body)
            self.acked.append(body["event"]["ts"])


@asynccontextmanager
async def listening(folder, slack, disk=None):
    async with background_tasks() as tasks:
        bot = Bot(tasks, folder, slack, disk or Memory())
        tasks.start_soon(bot.journal.run, bot)
        bot.marks.start("C1", f"{START:.6f}")
        await bot.marks.save()
        yield bot, tasks
        await anyio.sleep(100)


def as_mention(said):
    return {**said, "event": {**said["event"], "type": "app_mention"}}


@pytest.mark.parametrize("twins", [False, True], ids=["sent twice", "the events of a mention"])
@pytest.mark.parametrize("gap_s", [0, SLOW_S / 2, 2 * SLOW_S])
async def test_two_copies_on_the_socket_are_one_message_and_both_are_acknowledged_when_it_is_on_disk(
    tmp_path, gap_s, twins
):
    async with listening(tmp_path, Slack()) as (bot, tasks):
        first = bot.say()
        second = as_mention(first) if twins else bot.say()
        tasks.start_soon(bot.hear, first)
        await anyio.sleep(gap_s)
        tasks.start_soon(bot.hear, second)
        await anyio.sleep(SLOW_S / 4)
        assert len(bot.acked) == (0 if gap_s < SLOW_S else 2)
    assert bot.routed == [first["event"]["ts"]]
    assert sorted(bot.acked) == sorted([first["event"]["ts"], second["event"]["ts"]])
    assert len(bot.taken) == (1 if twins else 2)


async def test_an_edit_is_taken_though_its_message_was(tmp_path):
    async with listening(tmp_path, Slack()) as (bot, _):
        said = bot.say()
        edited = {"subtype": "message_changed", "message": {**said["event"], "edited": {"user": "U1"}}}
        await bot.hear(said)
        await bot.hear({**said, "event": {**said["event"], **edited}})
    assert [type(event) for event in bot.taken] == [Incoming, Edited]


@pytest.mark.parametrize("live", [0, 1], ids=["the first one comes live", "the second one comes live"])
@pytest.mark.parametrize("lead_s", [-SLOW_S / 4, 0, SLOW_S / 4], ids=["live first", "at once", "read first"])
async def test_a_copy_on_the_socket_and_one_out_of_the_history_are_one_message(tmp_path, live, lead_s):
    slack = Slack(pause=SLOW_S / 4)
    async with listening(tmp_path, slack) as (bot, tasks):
        copies = [bot.say(), bot.say()]
        bot.intake.missed()
        await anyio.sleep(slack.pause + lead_s)  # when the history is read, or shortly before or after that
        tasks.start_soon(bot.hear, copies[live])
    assert ("conversations.history", "C1") in slack.calls
    assert len(bot.routed) == 1
    assert bot.acked == [copies[live]["event"]["ts"]]


async def test_a_copy_that_is_acknowledged_is_on_disk_also_if_the_first_one_was_not_taken(
    tmp_path, monkeypatch
):
    async with listening(tmp_path, Slack()) as (bot, tasks):
        first, second = bot.say(), bot.say()
        refuse_once(monkeypatch)
        for copy in (first, second):
            tasks.start_soon(bot.hear, copy)
        await anyio.sleep(2 * SLOW_S)
        assert bot.acked == []  # Slack sends both again
        for copy in (second, first):
            tasks.start_soon(bot.hear, copy)
    assert len(bot.routed) == 1
    assert len(bot.acked) == 2


def refuse_once(monkeypatch):
    def full(*_):
        monkeypatch.undo()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("threads.journal.journal.write_all", full)


async def test_the_second_event_of_a_mention_is_taken_if_the_first_was_refused(tmp_path, monkeypatch):
    async with listening(tmp_path, Slack()) as (bot, tasks):
        said = bot.say()
        refuse_once(monkeypatch)
        for event in (said, as_mention(said)):
            tasks.start_soon(bot.hear, event)
        await anyio.sleep(1.5 * SLOW_S)
        assert bot.acked == []  # the second one is being written now
    assert bot.acked == bot.routed == [said["event"]["ts"]]


async def test_a_mention_of_which_only_the_second_event_tells_is_taken(tmp_path):
    async with listening(tmp_path, Slack()) as (bot, _):
        said = bot.say(text="hi", root=bot.slack.say())
        await bot.hear(said)
        await bot.hear(as_mention(said))
    assert [event.via for event in bot.taken] == ["overheard", "mention"]


async def test_after_a_restart_what_is_said_first_is_taken_first_though_the_marks_are_being_written(tmp_path):
    disk, slack = Memory(), Slack()
    async with listening(tmp_path, slack, disk):
        """The first start, after which the channel is followed."""
    async with background_tasks() as tasks:
        bot = Bot(tasks, tmp_path, slack, disk)
        tasks.start_soon(bot.journal.run, bot)
        sent = []
        for n in range(8):
            said = bot.say()
            said["event"]["client_msg_id"] = f"c-{n // 2}"  # each is sent twice
            sent.append(said["event"]["ts"])
            tasks.start_soon(bot.hear, said)
            await anyio.sleep(SLOW_S / 3)
        await anyio.sleep(100)
    assert bot.routed == sent[::2]
    assert sorted(bot.acked) == sent
