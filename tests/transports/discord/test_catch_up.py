"""What was said while nobody listened is found, once there is a new session; and no mark ever passes what was not."""

import random
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.discord import BOT, CHANNEL, CHANNEL2, FORUM, GUILD, U1, VOICE, FakeDiscord, Refused, Status
from tests.fakes.discord.sdk import RecordingClient, connected
from tests.patience import WITHIN_S
from tests.sim.loop import SimLoop
from tests.transports.catching_up import START, CatchUpBot, Story, play, steps
from threads.errors import StoreUnavailable, TransportUnavailable
from threads.model import ThreadId
from threads.store.mark_file import MarkFile
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import open_rest
from transports.discord.api.snowflake import at, before, instant
from transports.discord.events import catch_up as reading
from transports.discord.events.catch_up import ChannelHistory
from transports.discord.events.read_marks import SNOWFLAKES, last_messages, path
from transports.shared.backfill import catch_up
from transports.shared.backfill.catch_up import CatchUp
from transports.shared.backfill.marks import Marks

FILE = Path("/data/discord-marks.json")
HISTORY = "GET /channels/{}/messages"


class Bot(CatchUpBot):
    def __init__(self, rest, wall, disk=None, *, taken=None, recent=(), **more):
        super().__init__(FILE, SNOWFLAKES, lambda: datetime.fromtimestamp(wall(), UTC), disk, taken)
        self.recent = recent
        active = lambda within_s, most: self.active(within_s, most)  # noqa: E731 - a test may replace it
        self.history = ChannelHistory(rest, self.marks, self.take, recent=active, **more)
        self.catch_up = CatchUp(self.marks, self.history)

    async def active(self, within_s, most):
        self.looks += 1
        return self.recent[:most]

    async def ready(self, last):
        self.history.on_session()
        self.history.set_last_messages(last)
        await self.catch_up.run()

    @property
    def said(self):
        return [message.content for message in self.taken]


# -- against the wire ------------------------------------------------------------------------------------------


class World:
    """A bot that was stopped for a while; *up* starts the next one, until its catch-up is done."""

    def __init__(self, discord, rest):
        self.discord, self.rest, self.recent = discord, rest, ()
        self.bot = Bot(rest, discord.wall)

    async def up(self, **more):
        self.bot = Bot(self.rest, self.discord.wall, self.bot.disk, recent=self.recent, **more)
        async with self.session():
            pass
        return self.bot

    @asynccontextmanager
    async def session(self):
        client = RecordingClient()
        async with connected(client, self.discord):
            with anyio.fail_after(WITHIN_S):  # it tries again until it can
                await self.bot.ready(last_messages(client.guilds))
            yield

    async def down(self, *heard, seconds=7200.0):
        """Stop, after these messages were heard and two minutes of quiet, for so long."""
        for message in heard:
            guild = self.discord.channels[message.channel].guild or "@me"
            self.bot.marks.move(path(guild, message.channel), message.id)
        self.discord.later(180)
        self.bot.marks.alive()
        await self.bot.marks.save()
        self.discord.later(seconds)

    @property
    def reads(self):
        return Counter(call.path["channel"] for call in self.discord.calls_to(HISTORY))


@pytest.fixture
async def world():
    async with FakeDiscord() as discord, open_rest(discord.api_base_url, discord.token) as rest:
        await rest.login()
        made = World(discord, rest)
        async with made.session():
            pass
        yield made


async def test_a_first_start_reads_nothing():
    async with FakeDiscord() as discord, open_rest(discord.api_base_url, discord.token) as rest:
        discord.say(U1, CHANNEL, f"<@{BOT}> long ago")
        await rest.login()
        made = World(discord, rest)
        async with made.session():
            pass
        assert made.bot.taken == []
        assert made.reads == {}


async def test_what_was_missed_in_a_channel_is_handed_over_oldest_first(world):
    await world.down(world.discord.say(U1, CHANNEL, "heard"))
    for number in range(250):
        world.discord.say(U1, CHANNEL, f"<@{BOT}> {number}")
    bot = await world.up()
    assert bot.said == [f"<@{BOT}> {number}" for number in range(250)]
    assert world.reads == {CHANNEL: 3}
    assert bot.marks.mark_of(path(GUILD, CHANNEL)) == str(bot.taken[-1].id)
    assert bot.marks.due() == []


async def test_where_nothing_was_missed_nothing_is_read(world):
    await world.down(world.discord.say(U1, CHANNEL, "heard"), world.discord.say(U1, CHANNEL2, "heard"))
    bot = await world.up()
    assert bot.taken == []
    assert world.reads == {}
    assert bot.marks.due() == []


async def test_a_channel_that_was_quiet_so_far_is_read_from_when_the_bot_was_last_alive(world):
    world.discord.say(U1, CHANNEL, "before the bot listened", quiet=True)
    await world.down()
    for channel in (CHANNEL, CHANNEL2, VOICE):
        world.discord.say(U1, channel, f"<@{BOT}> {channel}")
    bot = await world.up()
    assert sorted(bot.said) == [f"<@{BOT}> {channel}" for channel in (CHANNEL, CHANNEL2, VOICE)]


async def test_threads_are_read_those_too_that_were_opened_meanwhile(world):
    discord = world.discord
    known = discord.thread(U1, discord.say(U1, CHANNEL, "a"), "known")
    unknown = discord.thread(U1, discord.say(U1, CHANNEL, "b"), "never heard of")
    await world.down(discord.say(U1, known.id, "heard"))
    discord.say(U1, known.id, "in the known one")
    discord.say(U1, unknown.id, "in the other one")
    opened = discord.thread(U1, discord.say(U1, CHANNEL, "c"), "opened meanwhile")
    discord.say(U1, opened.id, "in the new one")
    discord.post(U1, FORUM, "a post", "in a forum")
    bot = await world.up()
    assert {"in the known one", "in the other one", "c", "in the new one", "in a forum"} <= set(bot.said)
    assert not {"a", "b", "heard"} & set(bot.said)


async def test_direct_messages_are_read_though_nobody_tells_of_them(world):
    direct = world.discord.dm(U1)
    await world.down(world.discord.say(U1, direct, "heard"))
    world.discord.say(U1, direct, "hello?")
    assert (await world.up()).said == ["hello?"]


@pytest.mark.parametrize(("seconds", "said"), [(7200, ["late"]), (1800, [])])
async def test_a_thread_that_was_archived_again_is_read_after_an_hour(world, seconds, said):
    discord = world.discord
    ours, others = (discord.thread(U1, discord.say(U1, CHANNEL, name), name) for name in ("ours", "others"))
    heard = [discord.say(U1, thread.id, "heard") for thread in (ours, others)]
    await world.down(*heard, seconds=seconds)
    for thread in (ours, others):
        discord.say(U1, thread.id, "late")
        discord.archive(thread.id)
    world.recent = [ThreadId("discord", GUILD, CHANNEL, thread) for thread in (ours.id, "123")]
    bot = await world.up()
    assert bot.said == said
    assert others.id not in world.reads
    assert bot.looks == bool(said)


async def test_every_new_session_reads_what_was_said_before_it_and_a_resumed_one_need_not(world):
    async with world.session():
        missed = world.discord.say(U1, CHANNEL, "its event got lost", quiet=True)
    async with world.session():
        assert [str(message.id) for message in world.bot.taken] == [missed.id]


async def test_what_the_bot_may_not_read_costs_no_call(world, caplog):
    await world.down(world.discord.say(U1, CHANNEL, "heard"), world.discord.say(U1, CHANNEL2, "heard"))
    for channel in (CHANNEL, CHANNEL2, VOICE):
        world.discord.say(U1, channel, "missed")
    world.discord.deny(CHANNEL, "READ_MESSAGE_HISTORY")
    world.discord.deny(VOICE, "VIEW_CHANNEL")
    bot = await world.up()
    assert world.reads == {CHANNEL2: 1}
    assert bot.said == ["missed"]
    assert bot.marks.due() == []
    assert world.discord.invalid == 0


async def test_a_channel_that_is_refused_or_gone_does_not_stop_the_others_and_is_told_once(world, caplog):
    discord = world.discord
    thread = discord.thread(U1, discord.say(U1, CHANNEL, "a"), "ours")
    await world.down(*(discord.say(U1, channel, "heard") for channel in (CHANNEL, CHANNEL2, thread.id)))
    for channel in (CHANNEL, CHANNEL2):
        discord.say(U1, channel, "missed")
    discord.delete_channel(thread.id)
    no_access = Refused(403, 50001, "Missing Access")
    discord.fail(HISTORY, no_access, forever=True, when=lambda call: call.path["channel"] == CHANNEL)
    world.recent = [ThreadId("discord", GUILD, CHANNEL, thread.id)]
    bot = await world.up()
    async with world.session():
        pass
    assert set(bot.said) == {"missed"}
    assert bot.marks.due() == []
    assert caplog.text.count("stays unread") == 2
    assert caplog.text.count("code 50001") == caplog.text.count("code 10003") == 1
    await bot.marks.save()
    assert bot.stored()["channels"].keys() == {path(GUILD, CHANNEL), path(GUILD, CHANNEL2)}


async def test_a_server_that_fails_is_asked_again_from_where_it_failed(world, monkeypatch, caplog):
    monkeypatch.setattr(catch_up, "PAUSES_S", (0.01,))
    await world.down(world.discord.say(U1, CHANNEL, "heard"))
    for number in range(250):
        world.discord.later(1)
        world.discord.say(U1, CHANNEL, str(number))
    asked = []
    world.discord.fail(HISTORY, Status(503), when=lambda call: asked.append(call) or len(asked) == 3)
    bot = await world.up()
    again = [str(number) for number in range(195, 200)]  # the mark may have been overtaken
    assert bot.said == [*map(str, range(200)), *again, *map(str, range(200, 250))]
    assert world.reads == {CHANNEL: 4}
    assert "trying again" in caplog.text


async def test_a_channel_whose_last_message_was_deleted_is_not_read_again_and_again(world):
    await world.down(world.discord.say(U1, CHANNEL, "heard"))
    world.discord.delete(world.discord.say(U1, CHANNEL, "deleted"))
    await world.up()
    await world.down()
    assert (await world.up()).taken == []
    assert world.reads == {CHANNEL: 1}


def test_a_thread_without_a_last_message_has_the_one_it_began_with():
    thread = SimpleNamespace(id=5, last_message_id=None)
    guild = SimpleNamespace(id=1, text_channels=[], voice_channels=[], stage_channels=[], threads=[thread])
    assert last_messages([guild]) == {"1/5": "5"}


# -- in virtual time -------------------------------------------------------------------------------------------

EPOCH = 1.7e9
KNOWN, OTHER, THREAD, DIRECT = "1/10", "1/20", "1/30", "@me/40"
VIRTUAL = "asyncio", {"loop_factory": lambda: SimLoop(random.Random(1), START)}
in_virtual_time = pytest.mark.parametrize("anyio_backend", [VIRTUAL])


def wall():
    return EPOCH + anyio.current_time()


@dataclass
class Discord:
    """Channels behind a `Pages`."""

    pause: float = 0.0
    channels: dict[str, list[SimpleNamespace]] = field(default_factory=dict)
    archived: set[str] = field(default_factory=set)
    refuses: dict[str, Exception] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    ticks: int = 0

    def say(self, channel=KNOWN, text="hi", ago=0.0):
        self.ticks += 1
        key = int(at(datetime.fromtimestamp(wall() - ago, UTC))) + self.ticks
        self.archived.discard(channel)
        self.channels.setdefault(channel, []).append(SimpleNamespace(id=key, channel=channel, content=text))
        return str(key)

    def last(self):
        told = self.channels.keys() - self.archived
        return {channel: str(self.channels[channel][-1].id) for channel in told if channel != DIRECT}

    async def history(self, channel, *, after="", before="", limit=100):
        [there] = [one for one in self.channels if one.endswith(f"/{channel}")]
        self.reads.append(there)
        await anyio.sleep(self.pause)
        if error := self.refuses.get(there):
            raise error
        return [message for message in self.channels[there] if message.id > int(after)][:limit]


async def after_a_stop(discord, seconds=7200.0, **more):
    """A bot that knew a channel and a DM up to now, stopped, and was started two hours later."""
    before = Bot(discord, wall)
    for channel in (KNOWN, DIRECT):
        before.marks.move(channel, discord.say(channel, "heard"))
    await anyio.sleep(180)
    before.marks.alive()
    await before.marks.save()
    await anyio.sleep(seconds)
    return Bot(discord, wall, before.disk, **more)


@in_virtual_time
async def test_of_what_can_still_be_answered_all_is_read_however_much_it_is(monkeypatch):
    monkeypatch.setattr(reading, "MOST_OLD", 200)
    bot = await after_a_stop(discord := Discord())
    for number in range(300):
        discord.say(text=str(number))
    await bot.ready(discord.last())
    assert bot.said == [str(number) for number in range(300)]


@in_virtual_time
async def test_of_what_is_too_old_to_be_answered_only_so_much_is_read(monkeypatch, caplog):
    monkeypatch.setattr(reading, "MOST_OLD", 200)
    bot = await after_a_stop(discord := Discord(), max_age_s=600)
    for number in range(300):
        discord.say(text=f"old {number}", ago=3000 - number)
    discord.say(text="new")
    await bot.ready(discord.last())
    assert bot.said == [*(f"old {number}" for number in range(200)), "new"]
    assert caplog.text.count("so much was missed") == 1
    assert bot.marks.due() == []


@in_virtual_time
async def test_what_was_said_before_the_weekend_is_not_read_and_that_is_told_once(caplog):
    bot = await after_a_stop(discord := Discord(), seconds=14 * 24 * 3600)
    for channel in (KNOWN, OTHER, DIRECT):
        discord.say(channel, "last week", ago=7 * 24 * 3600)
        discord.say(channel, channel, ago=2 * 24 * 3600)
    await bot.ready(discord.last())
    assert set(bot.said) == {KNOWN, OTHER, DIRECT}
    assert caplog.text.count("nothing was heard since") == 1


@in_virtual_time
async def test_a_channel_without_end_is_given_up_with_a_word(monkeypatch, caplog):
    monkeypatch.setattr(reading, "MOST_PAGES", 3)
    bot = await after_a_stop(discord := Discord())
    for _ in range(500):
        discord.say()
    await bot.ready(discord.last())
    assert len(bot.taken) == 300
    assert "more than 3 pages" in caplog.text


@in_virtual_time
async def test_a_kill_in_the_middle_reads_on_from_the_last_page():
    bot = await after_a_stop(discord := Discord(pause=1.0))
    for number in range(300):
        discord.say(text=str(number), ago=3000 - number)
    with anyio.move_on_after(2.5):
        await bot.ready(discord.last())
    assert len(bot.taken) == 200
    await bot.marks.save()
    again = Bot(discord, wall, bot.disk)
    await again.ready(discord.last())
    assert again.said[-101:] == [str(number) for number in range(199, 300)]
    assert len(again.said) <= 106


@pytest.mark.parametrize(
    ("status", "code", "verdict"),
    [
        (403, 50001, "unread"),
        (404, 10003, "gone"),
        (400, 50024, "unread"),
        (400, 50035, "moment"),
        (418, 0, "moment"),
        (401, 0, "token"),
    ],
)
def test_what_a_refusal_means_for_the_gap(status, code, verdict):
    history = Bot(Discord(), lambda: EPOCH).history
    assert history.verdict(DiscordRefused("history", status, code)) == verdict


@in_virtual_time
@pytest.mark.parametrize("taken", [Marks.move, Marks.missed])
async def test_a_live_message_where_the_bot_never_heard_any_does_not_hide_what_was_missed_there(taken):
    bot = await after_a_stop(discord := Discord())
    discord.say(OTHER, "missed")
    bot.history.set_last_messages(discord.last())
    bot.catch_up.missed()
    taken(bot.marks, OTHER, discord.say(OTHER, "live"))
    await bot.catch_up.run(gap=False)
    assert bot.said == ["missed", "live"]


@in_virtual_time
async def test_a_session_that_begins_while_one_is_looked_into_has_a_gap_of_its_own():
    bot = await after_a_stop(discord := Discord())

    async def active(within_s, most):
        discord.say()
        bot.history.on_session()
        bot.catch_up.missed()
        return ()

    bot.active = active
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bot.ready, discord.last())
        await anyio.sleep(1)
        del bot.active
        bot.history.set_last_messages(discord.last())
    assert bot.said == ["hi"]


@in_virtual_time
async def test_a_message_that_the_disk_refuses_after_the_session_began_is_read_though_nobody_told_of_it():
    bot = await after_a_stop(discord := Discord())
    bot.history.set_last_messages(discord.last())
    bot.catch_up.missed()
    with pytest.raises(StoreUnavailable), bot.marks.taking(KNOWN, discord.say()):
        raise StoreUnavailable
    await bot.catch_up.run(gap=False)
    assert bot.said == ["hi"]


@in_virtual_time
async def test_nothing_is_looked_for_until_a_session_has_told_what_was_said():
    bot = await after_a_stop(discord := Discord(refuses={KNOWN: TransportUnavailable("500")}))
    discord.say()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bot.ready, discord.last())
        await anyio.sleep(1)  # it failed, and pauses
        discord.refuses.clear()
        for _ in range(2):  # the first of these ends before it has told
            bot.history.on_session()
            bot.catch_up.missed()
            await anyio.sleep(100)
            assert bot.said == []
        bot.history.set_last_messages(discord.last())
    assert bot.said == ["hi"]


@in_virtual_time
async def test_only_so_many_direct_messages_are_read_those_that_spoke_last(monkeypatch):
    monkeypatch.setattr(reading, "MOST_DIRECT", 2)
    discord, bot = Discord(), Bot(Discord(), wall)
    for number in range(4):
        bot.marks.move(f"@me/{number}", discord.say(f"@me/{number}"))
    await bot.marks.save()
    await anyio.sleep(7200)
    again = Bot(discord, wall, bot.disk)
    await again.ready({})
    assert discord.reads == ["@me/3", "@me/2"]
    assert again.marks.due() == []


@in_virtual_time
async def test_a_guild_that_is_away_is_read_from_its_marks_when_it_is_back():
    bot = await after_a_stop(discord := Discord())
    discord.say()
    await bot.ready({})
    bot.marks.alive()
    await anyio.sleep(3600)
    assert bot.said == []
    await bot.ready(discord.last())
    assert bot.said == ["hi"]


# -- any story -------------------------------------------------------------------------------------------------

STEPS = steps(
    st.tuples(st.just("say"), st.sampled_from([KNOWN, OTHER, THREAD, DIRECT])),
    "archive",
    waits=(0.01, 0.3, 2.0, 7.0, 100.0, 4000.0),
)


class DiscordStory(Story):
    outage = dict.fromkeys((KNOWN, DIRECT), TransportUnavailable("500"))

    def missing(self):
        taken = {str(message.id) for message in self.taken}
        return {key: channel for key, channel in self.owed.items() if key not in taken}

    def new_bot(self):
        recent = [ThreadId("discord", "1", "10", "30")]
        return Bot(self.platform, wall, self.disk, taken=self.taken, recent=recent)

    def begin_session(self):
        self.start(self.bot.ready, self.platform.last())

    async def say(self, channel):
        key = self.platform.say(channel)
        if self.is_up:
            self.start(self.live, self.bot, self.platform.channels[channel][-1])
        if self.is_up or channel != DIRECT or DIRECT in self.stored():
            self.owed[key] = channel

    async def deliver(self, bot, message):
        with bot.marks.taking(message.channel, str(message.id)):
            await bot.take(message)

    def forget_what_a_crash_loses(self):
        """Nobody tells of direct messages that were never written down."""
        if DIRECT not in self.stored():
            self.owed = {key: channel for key, channel in self.owed.items() if channel != DIRECT}

    def check_mark_before(self, key):
        mark = self.stored().get(self.owed[key]) or before(self.bot.stored()["alive_at"], 120)
        assert int(key) > int(before(mark, MarkFile.overlap_s))

    async def archive(self):
        """Nobody said anything in the thread for an hour; what the bot has not heard of it was said while down."""
        said = [message.id for message in self.platform.channels.get(THREAD, ())]
        alive_at = self.bot.stored()["alive_at"]
        heard = all(int(key) > int(alive_at) for key, channel in self.missing().items() if channel == THREAD)
        if THREAD in self.stored() and heard and wall() - instant(str(said[-1])).timestamp() > 3600:
            self.platform.archived.add(THREAD)


@settings(max_examples=400, deadline=None)
@given(STEPS, st.integers(0, 1000))
def test_whatever_happens_every_message_is_handed_over_and_no_mark_passes_one(steps, seed):
    play(DiscordStory(seed, Discord(pause=0.2)), seed, steps)
