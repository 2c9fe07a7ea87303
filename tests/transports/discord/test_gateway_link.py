"""Every row of what can happen to a session of the gateway, through the real discord.py, over real sockets."""

import asyncio
import logging
import threading
import traceback
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from tests.fakes.discord import CHANNEL, FORUM, GUILD, U1, Cut, FakeDiscord, RateLimited, Stall, Status
from tests.patience import WITHIN_S, until
from threads.background import background_tasks
from threads.errors import PostFailed, TransportFatal, TransportRateLimited
from transports.discord.api import gateway, gateway_link
from transports.discord.api.gateway_link import GatewayLink
from transports.discord.api.invalid_requests import InvalidRequests
from transports.discord.api.options import Options
from transports.shared.link.supervisor import LinkDown

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_proxy")]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(gateway_link, "LOOK_S", 0.02)
    monkeypatch.setattr(gateway_link, "GUILDS_S", 0.05)


@pytest.fixture
async def discord(anyio_backend):
    async with FakeDiscord() as discord:
        yield discord


@dataclass
class Bot:
    """A link, what it told, and how it ended."""

    discord: FakeDiscord
    token: str = ""
    invalid_requests: InvalidRequests = field(default_factory=InvalidRequests)
    on_frame: Callable[[], None] = lambda: None
    story: list = field(default_factory=list)
    said: list = field(default_factory=list)
    unread: list = field(default_factory=list)
    places: dict = field(default_factory=dict)
    end: Exception | None = None
    over: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self):
        urls = self.discord.api_base_url, self.discord.gateway_url
        options = Options(self.token or self.discord.token, *urls)
        self.link = GatewayLink(options, lambda: self, self.invalid_requests, self.on_frame)

    def note(self, what):
        self.story.append(what)
        self.discord.changed()

    def connected(self):
        self.note("up")

    def prepare(self, client):
        assert client.user is None
        self.client = client
        self.note("prepare")

    def on_session(self):
        self.note("session")

    def on_ready(self, client):
        self.note("ready")

    def on_message(self, message):
        self.said.append(message.content)
        self.note("message")

    def on_edit(self, payload):
        self.note(f"edit {payload.message_id} {payload.data['content']}")

    def on_reaction(self, event):
        self.note(f"reaction {event.emoji} {event.message_id}")

    def on_delete(self, channel_id, message_ids):
        self.note(f"delete {channel_id} {' '.join(sorted(message_ids))}")

    async def on_interaction(self, interaction):
        await interaction.response.defer()
        self.note(f"interaction {interaction.data.get('custom_id')}")

    def on_guild(self, guild):
        self.note(f"guild {guild.id}")

    def on_channel(self, channel):
        self.places[str(channel.id)] = channel.name
        self.note(f"channel {channel.id}")

    def on_unread(self, kind):
        self.unread.append(kind)

    def on_gone(self, channel_id):
        self.note(f"gone {channel_id}")

    async def run(self):
        try:
            await self.link.run(self.connected)
        except (LinkDown, PostFailed, TransportFatal) as error:
            self.end = error
        finally:
            self.over.set()
            self.discord.changed()

    def has(self, what, times=1):
        return lambda: self.story.count(what) >= times


@asynccontextmanager
async def listening(discord, **options):
    """A bot whose session is ready."""
    bot = Bot(discord, **options)
    async with background_tasks() as tasks:
        tasks.start_soon(bot.run)
        await discord.until(lambda: bot.has("ready")() or bot.end)
        assert bot.end is None, bot.end
        yield bot


async def ended(discord, **options):
    """A bot whose link did not come up, or that ends by itself."""
    bot = Bot(discord, **options)
    with anyio.fail_after(WITHIN_S):
        await bot.run()
    return bot


# what is told


async def test_a_session_begins_before_anything_of_it_is_told(discord):
    async with listening(discord) as bot:
        first = [what for what in bot.story if what in ("prepare", "session", "up", "ready")]
        assert first == ["prepare", "session", "up", "ready"]
        assert f"guild {GUILD}" in bot.story
        assert {CHANNEL, FORUM} <= set(bot.places)


async def test_two_links_in_one_process_each_speak_to_their_own_api_and_gateway(discord):
    async with FakeDiscord() as other, listening(discord), listening(other):
        for fake in (discord, other):
            press = await fake.press(U1, await fake.say(U1, CHANNEL, "x"), "go", stale=True)
            assert press.acked
            assert len(fake.links) == len(fake.calls_to("GET /users/@me")) == 1


async def test_messages_are_told_at_once_and_in_order(discord):
    """The library's own way is a task for each, and what waits in one lets the next one pass."""
    async with listening(discord) as bot:
        for number in range(50):
            discord.say(U1, CHANNEL, str(number))
        await discord.until(bot.has("message", 50))
        assert bot.said == [str(number) for number in range(50)]
        assert not [task for task in asyncio.all_tasks() if "on_message" in task.get_name()]


async def test_parts_that_cannot_be_read_are_counted_by_their_kind_and_an_edit_does_not_count(discord):
    async with listening(discord) as bot:
        said = await discord.say(U1, CHANNEL, "look", components=[{"type": 99}, {"type": 10, "content": "x"}])
        await discord.edit(said, "look here")
        await discord.say(U1, CHANNEL, "hm", type=98, forward_of=said)
        await discord.until(lambda: len(bot.unread) == 3)
        assert bot.unread == ["component 99", "message 98", "component 99"]


async def test_a_message_that_comes_twice_is_told_twice(discord):
    async with listening(discord) as bot:
        said = await discord.say(U1, CHANNEL, "hi")
        await discord.redeliver(said)
        await discord.until(bot.has("message", 2))


async def test_edits_deletions_channels_and_presses_are_told(discord):
    async with listening(discord) as bot:
        one, two, three = [await discord.say(U1, CHANNEL, text) for text in "abc"]
        await discord.edit(one, "A")
        await discord.delete(one)
        discord.bulk_delete(two, three)
        thread = await discord.thread(U1, await discord.say(U1, CHANNEL, "d"), "title")
        discord.archive(thread.id)
        discord.delete_channel(thread.id)
        channel = discord.channel("new")
        discord.delete_channel(channel.id)
        await discord.until(bot.has(f"gone {channel.id}"))
        told = [what for what in bot.story[bot.story.index("ready") + 1 :] if what != "message"]
        assert told[:3] == [
            f"edit {one.id} A",
            f"delete {CHANNEL} {one.id}",
            f"delete {CHANNEL} {' '.join(sorted((two.id, three.id)))}",
        ]
        assert told.count(f"channel {thread.id}") == 2
        assert f"gone {thread.id}" in told
        assert bot.places[thread.id] == "title"


async def test_a_press_is_answered_beside_the_reading(discord):
    async with listening(discord) as bot:
        said = await discord.say(U1, CHANNEL, "x")
        press = await discord.press(U1, said, "go", stale=True)
        assert press.acked
        await discord.until(bot.has("interaction go"))


async def test_what_a_hook_raises_is_logged_and_ends_nothing(discord, caplog):
    async with listening(discord) as bot:
        broken = bot.note
        bot.note = None
        await discord.say(U1, CHANNEL, "one")
        await (await discord.press(U1, await discord.say(U1, CHANNEL, "x"), "go", stale=True))
        await until(lambda: "interaction.failed" in caplog.text)
        bot.note = broken
        await discord.say(U1, CHANNEL, "two")
        await discord.until(bot.has("message"))
        assert bot.said[-1] == "two"
        assert "what came was not taken: message" in caplog.text


async def test_what_the_library_cannot_read_ends_no_session(discord, caplog):
    async with listening(discord) as bot:
        await discord.say(U1, CHANNEL, "odd", embeds=[{"type": "rich", "timestamp": "not a time"}])
        discord.tell("MESSAGE_CREATE", {"id": "none", "channel_id": CHANNEL, "guild_id": GUILD})
        discord.tell("CHANNEL_CREATE", {"id": "1", "type": 0, "guild_id": GUILD})
        discord.tell("INTERACTION_CREATE", {"id": "none"})
        await discord.say(U1, CHANNEL, "two")
        await discord.until(lambda: len(bot.said) == 2)
        assert bot.said == ["odd", "two"]
        assert "a message cannot be read" in caplog.text
        for event in ("CHANNEL_CREATE", "INTERACTION_CREATE"):
            assert f"what came cannot be read: {event}" in caplog.text
        assert discord.identifies == 1


# what ends


@pytest.mark.parametrize("way", ["abort", "reconnect", 1000, 1001, 1012, 4000, 4009])
async def test_a_link_that_breaks_is_resumed_with_what_was_missed(discord, way):
    async with listening(discord) as bot:
        [broken] = discord.links
        match way:
            case int(code):
                await broken.close(code)
            case str(name):
                getattr(broken, name)()
        await discord.until(lambda: broken not in discord.links)
        discord.say(U1, CHANNEL, "missed")
        await discord.until(lambda: bot.has("message")() and bot.has("up", 2)())
        assert bot.said == ["missed"]
        assert (bot.story.count("session"), discord.identifies, discord.resumes) == (1, 1, 1)


@pytest.mark.parametrize("way", ["op 9", "resume refused"])
async def test_a_session_that_is_gone_ends_the_run(discord, way):
    async with listening(discord) as bot:
        if way == "op 9":
            discord.links[0].invalidate()
        else:
            discord.forget_sessions()
            discord.links[0].abort()
        await discord.until(lambda: bot.end)
        assert isinstance(bot.end, LinkDown)
        assert "ended the session" in str(bot.end)
        assert bot.story.count("session") == 1
        assert not discord.links


async def test_a_link_that_does_not_come_back_ends_the_run(discord, monkeypatch):
    monkeypatch.setattr(gateway_link, "DOWN_S", 0.4)
    async with listening(discord) as bot:
        discord.dead = True
        discord.links[0].abort()
        await discord.until(lambda: bot.end)
        assert isinstance(bot.end, LinkDown)
        assert "no session for" in str(bot.end)


async def test_a_link_that_falls_silent_ends_the_run(discord, monkeypatch):
    monkeypatch.setattr(gateway_link, "SILENT_S", 0.3)
    async with listening(discord) as bot:
        discord.links[0].freeze()
        await discord.until(lambda: bot.end)
        assert isinstance(bot.end, LinkDown)
        assert "no frame for" in str(bot.end)
        await discord.until(lambda: not discord.links)


async def test_heartbeats_keep_a_quiet_link(monkeypatch):
    monkeypatch.setattr(gateway_link, "SILENT_S", 0.4)
    async with FakeDiscord(heartbeat=0.05) as discord, listening(discord) as bot:
        await anyio.sleep(0.8)
        assert bot.end is None


async def test_a_zombie_is_left_by_the_library_and_resumed(monkeypatch):
    monkeypatch.setattr(gateway_link, "HEARTBEAT_S", 0.3)
    async with FakeDiscord(heartbeat=0.05) as discord, listening(discord) as bot:
        discord.links[0].freeze()
        await discord.until(bot.has("up", 2))
        assert bot.end is None
        assert discord.resumes == 1


@pytest.mark.parametrize("fault", ["503", "cut"])
async def test_a_first_connection_that_fails_is_told_as_what_it_is(discord, fault):
    if fault == "503":
        discord.dead = True
    else:
        discord.fail("GET /gateway", Cut(), Cut(), forever=True)
    bot = await ended(discord)
    assert isinstance(bot.end, LinkDown)
    assert str(bot.end).startswith("no connection to the gateway")


async def test_a_first_connection_that_is_broken_off_is_told_as_what_it_is(discord, monkeypatch):
    """The library stumbles over it with an AttributeError (discord.py#10520)."""

    async def broken(*_, **__):
        discord.links[0].abort()
        await anyio.sleep(0.05)

    monkeypatch.setattr(gateway.Gateway, "before_identify_hook", broken)
    bot = await ended(discord)
    assert isinstance(bot.end, LinkDown)


async def test_a_gateway_that_never_says_hello_is_given_up(discord, monkeypatch):
    monkeypatch.setattr(gateway_link, "DOWN_S", 0.3)
    discord.fail("GET /gateway", Stall())
    bot = await ended(discord)
    assert isinstance(bot.end, LinkDown)


@pytest.mark.parametrize("status", [503, 520])
async def test_a_login_that_fails_is_tried_again(discord, status):
    discord.fail("GET /users/@me", Status(status))
    assert not isinstance((await ended(discord)).end, TransportFatal)


async def test_a_login_that_hangs_is_given_up(discord, monkeypatch):
    monkeypatch.setattr(gateway_link, "LOGIN_WITHIN_S", 0.2)
    discord.fail("GET /users/@me", Stall())
    assert getattr((await ended(discord)).end, "retryable", False)


# what only a person mends


async def test_a_bad_token_is_fatal(discord):
    bot = await ended(discord, token="not-a-token")
    assert isinstance(bot.end, TransportFatal)
    assert "reset it under Bot" in str(bot.end)


async def test_a_token_that_is_revoked_is_fatal(discord):
    async with listening(discord) as bot:
        discord.revoke()
        await discord.until(lambda: bot.end)
        assert isinstance(bot.end, TransportFatal)
        assert "reset it under Bot" in str(bot.end)


async def test_an_intent_that_is_not_ticked_is_fatal():
    async with FakeDiscord(message_content=False) as discord:
        bot = await ended(discord)
        assert isinstance(bot.end, TransportFatal)
        assert 'tick "Message Content Intent" under Bot' in str(bot.end)
        assert discord.identifies <= 1


@pytest.mark.parametrize("code", [4010, 4011, 4012, 4013])
async def test_a_close_that_no_retry_mends_is_fatal(discord, code):
    async with listening(discord) as bot:
        await discord.links[0].close(code)
        await discord.until(lambda: bot.end)
        assert isinstance(bot.end, TransportFatal)
        assert str(bot.end) == gateway_link.FATAL[code]


# good invalid_requests


async def test_a_ban_holds_the_gateway_back_too(discord):
    invalid_requests = InvalidRequests()
    discord.fail("GET /users/@me", RateLimited(1.0, via=False))
    bot = await ended(discord, invalid_requests=invalid_requests)
    assert isinstance(bot.end, TransportRateLimited)
    assert bot.end.retry_after == pytest.approx(600, abs=1)
    discord.calls.clear()
    again = await ended(discord, invalid_requests=invalid_requests)
    assert isinstance(again.end, LinkDown)
    assert again.end.retry_after == pytest.approx(600, abs=5)
    assert not discord.calls


async def test_sessions_are_not_begun_faster_than_discord_allows_in_a_day(discord, monkeypatch):
    monkeypatch.setattr(gateway_link, "SESSIONS_PER_HOUR", 2)
    assert 24 * 40 < 1000
    bot = Bot(discord)
    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bot.run)
            await discord.until(bot.has("ready"))
            bot.story.clear()
            discord.links[0].invalidate()
    bot.end = None
    await bot.run()
    assert "2 sessions in an hour" in str(bot.end)
    assert discord.identifies == 2


# the end


def left_over():
    mine = ("discord.py", "_delay_ready", "_close", "poll_event", "Gateway")
    tasks = [task for task in asyncio.all_tasks() if any(name in repr(task) for name in mine)]
    return tasks, [one for one in threading.enumerate() if "keep-alive" in one.name]


async def test_a_cancelled_link_closes_with_1000_and_leaves_nothing(discord):
    async with listening(discord):
        pass
    await discord.until(lambda: discord.closes)
    assert discord.closes == [1000]
    await anyio.sleep(0.01)
    assert left_over() == ([], [])


async def test_a_link_cancelled_before_it_is_ready_leaves_nothing(discord, monkeypatch):
    monkeypatch.setattr(gateway_link, "GUILDS_S", 5.0)
    bot = Bot(discord)
    async with background_tasks() as tasks:
        tasks.start_soon(bot.run)
        await discord.until(bot.has("session"))
    await anyio.sleep(0.01)
    assert left_over() == ([], [])
    assert "ready" not in bot.story


@pytest.mark.parametrize("stuck", ["peer", "library"])
async def test_a_close_that_does_not_end_holds_nothing_up(discord, monkeypatch, stuck):
    monkeypatch.setattr(gateway, "CLOSE_WITHIN_S", 0.2)
    async with listening(discord) as bot:
        if stuck == "peer":
            discord.links[0].freeze()
        else:
            bot.client.close = anyio.sleep_forever
        began = anyio.current_time()
    assert anyio.current_time() - began < 2
    with pytest.raises(RuntimeError, match="Session is closed"):
        await bot.client.http.get_user(1)


async def test_a_press_that_is_being_answered_ends_before_the_session_does(discord):
    async with listening(discord) as bot:
        held, done = anyio.Event(), []

        async def slow(interaction):
            held.set()
            await anyio.sleep(0.2)
            await interaction.response.defer()
            done.append(interaction)

        bot.on_interaction = slow
        discord.press(U1, await discord.say(U1, CHANNEL, "x"), "go", stale=True)
        await held.wait()
    assert done


async def test_more_presses_than_can_be_under_way_are_not_taken(discord, monkeypatch, caplog):
    monkeypatch.setattr(gateway, "INTERACTIONS_AT_ONCE", 1)
    monkeypatch.setattr(gateway, "DRAIN_S", 0.01)
    async with listening(discord) as bot:
        taken = []

        async def stuck(interaction):
            taken.append(interaction)
            await anyio.sleep_forever()

        bot.on_interaction = stuck
        said = await discord.say(U1, CHANNEL, "x")
        for _ in range(3):
            discord.press(U1, said, "go", stale=True)
        await until(lambda: taken and caplog.text.count("one is not taken") == 2)
        assert len(taken) == 1


async def test_no_log_shows_the_token_or_what_is_said(discord, caplog):
    caplog.set_level(logging.DEBUG)
    async with listening(discord) as bot:
        await discord.say(U1, CHANNEL, "a secret of a person")
        await discord.until(bot.has("message"))
        discord.revoke()
        await discord.until(lambda: bot.end)
    assert discord.token not in caplog.text + repr(bot.link) + "".join(traceback.format_exception(bot.end))
    assert "a secret of a person" not in caplog.text


async def test_a_reconnect_of_the_library_is_a_warning_of_one_line(discord, caplog, monkeypatch):
    monkeypatch.setattr(gateway_link, "DOWN_S", 3.0)
    async with listening(discord) as bot:
        discord.dead = True
        discord.links[0].abort()
        await until(lambda: "Attempting a reconnect" in caplog.text)
        discord.dead = False
        await discord.until(bot.has("up", 2))
    [record] = [one for one in caplog.records if "Attempting a reconnect" in one.getMessage()][:1]
    assert record.levelname == "WARNING"
    assert record.exc_info is None
    assert "WSServerHandshakeError" in record.getMessage()


async def test_heartbeats_are_signs_of_life_and_a_frozen_link_gives_none():
    async with FakeDiscord(heartbeat=0.05) as discord:
        signs = []
        async with listening(discord, on_frame=lambda: signs.append(discord.changed())):
            await discord.until(lambda: len(signs) > 3)
            discord.links[0].freeze()
            await anyio.sleep(0.1)
            before = len(signs)
            await anyio.sleep(0.1)
            assert len(signs) == before
