"""What was said while nobody listened is found, once the link is back; and no mark ever passes what was not taken."""

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sim.loop import virtual_time
from tests.transports.catching_up import CatchUpBot, Story, play, steps
from threads.errors import TransportUnavailable
from threads.store.mark_file import MarkFile
from transports.shared.backfill.catch_up import CatchUp
from transports.slack.api.api_errors import SlackRefused
from transports.slack.events import catch_up as reading
from transports.slack.events.catch_up import ChannelHistory
from transports.slack.events.lookups import Lookups
from transports.slack.events.parse_message import Me, parse_message
from transports.slack.events.timestamps import STAMPS

ME = Me("T1", "UBOT", "BBOT", "Threadfast")
FILE = Path("/data/slack-marks.json")


anyio_backend = virtual_time


def now():
    return datetime.fromtimestamp(anyio.current_time(), UTC)


@dataclass
class Slack:
    """A workspace behind a `WebApi`: history newest first, replies oldest first, pages as small as is wished."""

    limit: int = 200
    pause: float = 0.0
    channels: dict[str, dict[str, dict]] = field(default_factory=dict)
    refuses: dict[str, Exception] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    ticks: int = 0

    def say(self, channel="C1", text="<@UBOT> hi", root=None, user="U1", at=None, **more):
        self.ticks += 1
        ts = f"{(anyio.current_time() if at is None else at) + self.ticks / 1e6 - 0.001:.6f}"
        message = {"type": "message", "ts": ts, "user": user, "text": text, **more}
        if root:
            message["thread_ts"] = root
            of = self.channels[channel][root]
            of |= {"thread_ts": root, "latest_reply": ts, "reply_count": of.get("reply_count", 0) + 1}
        self.channels.setdefault(channel, {})[ts] = message
        return ts

    @property
    def limits(self):
        return self

    async def take(self, method, *, urgent):
        """Look-ups of names are not limited here."""

    async def ask(self, method, *, user):
        return {"user": {"id": user, "name": "ann"}}

    async def call(self, method, *, channel="", urgent=True, **arguments):
        assert not urgent
        self.calls.append((method, channel))
        await anyio.sleep(self.pause)
        if error := self.refuses.get(channel or method):
            raise error
        match method:
            case "users.conversations":
                assert arguments["types"] == "im"
                return {"channels": [{"id": channel} for channel in self.channels if channel.startswith("D")]}
            case "conversations.history":
                messages = self.channels.get(channel, {}).values()
                found = [m for m in messages if m.get("thread_ts", m["ts"]) == m["ts"] or "subtype" in m]
                return self._page(found[::-1], arguments)
            case "conversations.replies":
                root, oldest = arguments["ts"], float(arguments["oldest"])
                messages = self.channels.get(channel, {}).values()
                if not root:
                    raise SlackRefused(method, "invalid_arguments")
                if root not in self.channels.get(channel, {}):
                    raise SlackRefused(method, "thread_not_found")
                replies = [m for m in messages if m.get("thread_ts") == root and float(m["ts"]) > oldest]
                return self._page(replies, arguments)
        raise AssertionError(method)

    def _page(self, found, arguments):
        """A cursor is the ts that the next page begins with."""
        stamps = [m["ts"] for m in found]
        begin = stamps.index(arguments["cursor"]) if "cursor" in arguments else 0
        end = begin + min(self.limit, arguments["limit"])
        following = {"next_cursor": stamps[end]} if end < len(stamps) else {}
        return {"messages": [dict(m) for m in found[begin:end]], "response_metadata": following}


class Bot(CatchUpBot):
    def __init__(self, slack, disk=None, *, active=(), taken=None, **more):
        super().__init__(FILE, STAMPS, now, disk, taken)
        self.slack, self.active, self.lookups = slack, active, Lookups(slack, ME, lambda _: None)
        self.history = ChannelHistory(
            slack,
            self.marks,
            ME,
            self.lookups,
            self.take,
            active_threads=self.active_threads,
            now=now,
            **more,
        )
        self.catch_up = CatchUp(self.marks, self.history)

    async def active_threads(self):
        self.looks += 1
        await anyio.sleep(0)
        return dict.fromkeys(self.slack.channels, self.active)

    @property
    def said(self):
        return [incoming.text for incoming in self.taken]


async def after_a_stop(slack, channel="C1", **more):
    """A bot that knew *channel* up to now, stopped, and was started two hours later."""
    before = Bot(slack)
    before.marks.move(channel, f"{anyio.current_time():.6f}")
    await before.marks.save()
    await anyio.sleep(7200)
    return Bot(slack, before.disk, **more)


# -- catching up -----------------------------------------------------------------------------------------------


async def test_what_was_missed_is_handed_over_oldest_first_in_all_pages():
    slack = Slack(limit=2)
    bot = await after_a_stop(slack)
    for number in range(5):
        slack.say(text=f"<@UBOT> {number}")
        slack.say(text="not for the bot")
    await bot.catch_up.run()
    assert bot.said == ["0", "1", "2", "3", "4"]
    assert {(incoming.via, incoming.stale) for incoming in bot.taken} == {("mention", False)}


async def test_what_is_too_old_is_marked_as_stale():
    slack = Slack()
    bot = await after_a_stop(slack, max_age_s=600)
    slack.say(text="<@UBOT> old", at=anyio.current_time() - 700)
    slack.say(text="<@UBOT> new", at=anyio.current_time() - 500)
    await bot.catch_up.run()
    assert [(i.text, i.stale) for i in bot.taken] == [("old", True), ("new", False)]


async def test_replies_come_from_new_threads_from_older_ones_that_moved_and_from_those_the_bot_is_in():
    slack = Slack(limit=4)
    forgotten, old = slack.say(text="forgotten"), slack.say(text="old")
    for number in range(2):
        slack.say(text=f"between {number}")
    bot = await after_a_stop(slack, active=(forgotten,))
    slack.say(text="to old <@UBOT>", root=old)
    new = slack.say(text="<@UBOT> new")
    slack.say(text="to forgotten", root=forgotten)
    slack.say(text="to new", root=new)
    slack.say(text="<@U2> to new", root=new)
    await bot.catch_up.run()
    assert bot.said == ["to old @Threadfast", "new", "to forgotten", "to new"]
    assert [i.thread.root for i in bot.taken] == [old, new, forgotten, new]


async def test_a_quiet_thread_that_the_history_shows_is_not_asked_for():
    slack = Slack()
    quiet = slack.say()
    slack.say(text="long ago", root=quiet)
    bot = await after_a_stop(slack, active=(quiet,))
    await bot.catch_up.run()
    assert ("conversations.replies", "C1") not in slack.calls


async def test_a_reply_shown_in_the_channel_tells_of_its_thread():
    slack = Slack(limit=2)
    root = slack.say(text="old")
    slack.say(text="x")
    slack.say(text="y")
    bot = await after_a_stop(slack)
    slack.say(text="both", root=root, subtype="thread_broadcast")
    slack.say(text="only there", root=root)
    await bot.catch_up.run()
    assert bot.said == ["both", "only there"]


async def test_a_thread_that_is_gone_does_not_stop_its_channel():
    slack = Slack()
    bot = await after_a_stop(slack, active=("1.2", ""))  # the blank one is the channel itself
    slack.say()
    await bot.catch_up.run()
    assert bot.said == ["hi"]


async def test_no_more_is_read_than_back_to_the_mark_and_no_mark_is_set_in_the_future():
    slack = Slack(limit=1)
    for _ in range(9):
        slack.say()
    bot = await after_a_stop(slack)
    slack.say(at=anyio.current_time() + 100)
    await bot.catch_up.run()
    assert slack.calls.count(("conversations.history", "C1")) == 2
    await bot.marks.save()
    assert float(bot.stored()["channels"]["C1"]) == anyio.current_time()


async def test_a_channel_seen_for_the_first_time_starts_at_now():
    slack = Slack()
    slack.say(text="<@UBOT> before you came")
    await anyio.sleep(60)
    bot = Bot(slack)
    bot.marks.move("C1", slack.say())
    await bot.catch_up.run()
    assert bot.said == ["hi"]  # read again, and dropped by the journal


async def test_the_first_start_reads_no_old_direct_messages():
    slack = Slack()
    slack.say("D1", "long ago")
    await anyio.sleep(60)
    bot = Bot(slack)
    await bot.catch_up.run()
    assert bot.taken == []
    assert slack.calls == [("users.conversations", "")]
    slack.say("D1", "missed")
    await bot.catch_up.run()
    assert bot.said == ["missed"]


async def test_a_gap_before_the_first_look_at_direct_messages_is_a_gap_all_the_same():
    slack = Slack(refuses={"users.conversations": TransportUnavailable("500")})
    bot = Bot(slack)
    with anyio.move_on_after(1):
        await bot.catch_up.run()
    slack.say("D1", "missed")
    slack.refuses.clear()
    await bot.catch_up.run()
    assert bot.said == ["missed"]


async def test_a_direct_message_opened_on_a_dead_link_is_found_although_the_bot_seemed_alive_since():
    slack = Slack()
    bot = await after_a_stop(slack)
    await bot.catch_up.run()
    slack.say("D7", "hello?")
    await anyio.sleep(30)
    bot.marks.alive()
    await bot.catch_up.run()
    assert bot.said == ["hello?"]


async def test_a_direct_message_opened_while_down_is_found():
    slack = Slack()
    bot = await after_a_stop(slack)
    slack.say("D7", "hello?")
    await bot.catch_up.run()
    assert [(i.text, i.via) for i in bot.taken] == [("hello?", "direct")]


async def test_a_live_message_in_a_new_direct_conversation_does_not_hide_what_was_missed_there(caplog):
    slack = Slack(refuses={"users.conversations": SlackRefused("users.conversations", "missing_scope")})
    bot = await after_a_stop(slack)
    slack.say("D7", "hello?")
    await anyio.sleep(60)
    bot.marks.move("D7", slack.say("D7", "live"))
    await bot.catch_up.run()
    await bot.catch_up.run()
    assert bot.said[:2] == ["hello?", "live"]
    assert caplog.text.count("missing_scope") == 1


async def test_more_than_is_held_at_once_comes_in_rounds_and_none_is_left_out(monkeypatch, caplog):
    monkeypatch.setattr(reading, "MOST_AT_ONCE", 4)
    caplog.set_level(logging.INFO)
    slack = Slack(limit=3)
    bot = await after_a_stop(slack)
    root = slack.say(text="<@UBOT> 0")
    for number in range(1, 12):
        slack.say(text=f"<@UBOT> {number}", root=root if number % 2 else None)
    await bot.catch_up.run()
    assert bot.said == [str(number) for number in range(12)]
    assert "going on" in caplog.text


async def test_a_listing_that_never_ends_is_given_up_with_a_word(monkeypatch, caplog):
    monkeypatch.setattr(reading, "MOST_PAGES", 3)
    slack = Slack(limit=1)
    bot = await after_a_stop(slack)
    for _ in range(9):
        slack.say()
    await bot.catch_up.run()
    assert len(bot.taken) == 3
    assert "more than 3 pages" in caplog.text


# -- trouble ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        *((code, "gone") for code in ("is_archived", "not_in_channel", "channel_not_found")),
        *((code, "unread") for code in ("missing_scope", "method_deprecated")),
        *((code, "moment") for code in ("invalid_cursor", "brand_new_code", "invalid_arguments")),
        ("token_revoked", "token"),
    ],
)
async def test_what_a_refusal_means_for_the_gap(code, verdict):
    assert Bot(Slack()).history.verdict(SlackRefused("conversations.history", code)) == verdict


async def test_a_cursor_that_has_expired_makes_it_begin_again_at_the_mark():
    slack = Slack(limit=1)
    bot = await after_a_stop(slack)
    slack.say(text="<@UBOT> one")
    slack.say(text="<@UBOT> two")
    call = slack.call

    async def refusing(method, **arguments):
        if "cursor" in arguments:
            slack.call = call
            raise SlackRefused(method, "invalid_cursor")
        return await call(method, **arguments)

    slack.call = refusing
    await bot.catch_up.run()
    assert bot.said == ["one", "two"]


async def test_the_threads_the_bot_takes_part_in_are_asked_for_again_after_each_gap_and_not_for_each_channel():
    slack = Slack(limit=2)
    bot = await after_a_stop(slack)
    bot.marks.move("C2", slack.say("C2"))
    root = slack.say(text="old")
    for _ in range(4):
        slack.say(text="x")
    await bot.catch_up.run()
    assert bot.looks == 1
    await anyio.sleep(3601)
    bot.active = (root,)
    slack.say(text="x")
    slack.say(text="only there", root=root)
    await bot.catch_up.run()
    assert bot.said[-1] == "only there"
    assert bot.looks == 2


async def test_a_channel_with_many_threads_does_not_keep_the_others_waiting():
    slack = Slack(pause=1.0)
    bot = await after_a_stop(slack)
    bot.marks.move("C2", f"{anyio.current_time() - 7300:.6f}")
    for _ in range(100):
        slack.say(text="hi", root=slack.say(text="root"))
    slack.say("C2")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bot.catch_up.run)
        await anyio.sleep(6)
        assert bot.said == ["hi"]


async def test_one_page_tells_of_many_old_threads_which_have_moved():
    slack = Slack()
    roots = [slack.say(text="root") for _ in range(300)]
    for root in roots:
        slack.say(text="answer", root=root)
    for _ in range(200):
        slack.say(text="talk")
    bot = await after_a_stop(slack, active=roots)
    slack.say(text="more", root=roots[7])
    slack.say(text="more", root=roots[250])
    await bot.catch_up.run()
    assert bot.said == ["more", "more"]
    assert slack.calls.count(("conversations.history", "C1")) == 3
    assert slack.calls.count(("conversations.replies", "C1")) == 2


async def test_no_more_is_read_for_old_threads_than_there_are_threads():
    slack = Slack(limit=10)
    roots = [slack.say(text="root"), slack.say(text="root")]
    for _ in range(1000):
        slack.say(text="talk")
    bot = await after_a_stop(slack, active=roots)
    slack.say(text="more", root=roots[1])
    await bot.catch_up.run()
    assert bot.said == ["more"]
    assert len(slack.calls) <= 1 + 2 * 2 + 1


# -- marks -----------------------------------------------------------------------------------------------------


# -- any story -------------------------------------------------------------------------------------------------

STEPS = steps(st.tuples(st.just("say"), st.sampled_from(["C1", "D1", "D2"]), st.booleans()))


class StoryBot(Bot):
    """Takes part in the threads whose roots it took."""

    async def active_threads(self):
        await anyio.sleep(0)
        return {channel: self.roots(channel) for channel in self.slack.channels}

    def roots(self, channel):
        return [incoming.id for incoming in self.taken if incoming.thread.channel == channel]


class SlackStory(Story):
    outage = dict.fromkeys(("C1", "D1", "users.conversations"), TransportUnavailable("500"))

    def __init__(self, seed, limit):
        super().__init__(seed, Slack(limit, pause=0.2))
        self.knows_c1 = False

    def missing(self):
        taken = {incoming.key for incoming in self.taken}
        return {key: ts for key, ts in self.owed.items() if key not in taken}

    def new_bot(self):
        return StoryBot(self.platform, self.disk, taken=self.taken)

    def begin_session(self):
        self.start(self.bot.catch_up.run)

    async def say(self, channel, reply):
        known = [
            ts for ts, m in self.platform.channels.get(channel, {}).items() if m.get("thread_ts", ts) == ts
        ]
        root = self.rng.choice(known) if reply and known else None
        ts = self.platform.say(channel, root=root)
        joined_while_down = channel == "C1" and not self.knows_c1 and not self.is_up  # it starts at now
        if not (joined_while_down or (root and self.out_of_reach(channel, root))):
            self.owed[f"slack:T1:{channel}:{ts}"] = ts
        if self.is_up:
            self.knows_c1 |= channel == "C1"
            self.start(self.live, self.bot, (channel, ts))

    def out_of_reach(self, channel, root):
        """Tell whether nothing leads to a thread: it is on no page for sure, and the bot neither took its root nor will.

        That is so when its root was said before the channel was known. Slack lists no threads (see
        `transports.slack.events.catch_up`).
        """
        all_on_one_page = len(self.platform.channels[channel]) <= self.platform.limit
        is_known = f"slack:T1:{channel}:{root}" in self.owed or root in self.bot.roots(channel)
        return not (all_on_one_page or is_known)

    async def deliver(self, bot, message):
        channel, ts = message
        incoming = parse_message(
            self.platform.channels[channel][ts], channel, ME, direct=channel.startswith("D")
        )
        with bot.marks.taking(channel, ts):
            if incoming:
                await bot.take(incoming)

    def forget_what_a_crash_loses(self):
        """What was never written down starts at now."""
        if FILE not in self.disk.files:
            self.owed = {}
        self.knows_c1 = "C1" in self.stored()
        if not self.knows_c1:
            self.owed = {key: ts for key, ts in self.owed.items() if ":C1:" not in key}

    def check_mark_before(self, key):
        mark = self.stored().get(key.split(":")[2], "0")
        assert float(self.owed[key]) > float(mark) - MarkFile.overlap_s


A_REPLY_IN_A_THREAD_FROM_BEFORE_THE_CHANNEL_WAS_KNOWN = [
    ("say", "C1", False),
    ("down",),
    ("crash",),
    ("say", "D1", False),
    ("say", "C1", False),
    ("say", "C1", False),
    ("up",),
    ("crash",),  # C1 was never written down, and is forgotten
    ("wait", 7.0),
    ("say", "C1", False),
    ("down",),
    ("say", "C1", True),
]


@example(steps=A_REPLY_IN_A_THREAD_FROM_BEFORE_THE_CHANNEL_WAS_KNOWN, seed=3, limit=1, most=2)
@example(steps=A_REPLY_IN_A_THREAD_FROM_BEFORE_THE_CHANNEL_WAS_KNOWN, seed=3, limit=200, most=2)
@settings(max_examples=400, deadline=None)
@given(STEPS, st.integers(0, 1000), st.sampled_from([1, 2, 200]), st.sampled_from([2, 5, 10_000]))
def test_whatever_happens_every_message_is_handed_over_and_no_mark_passes_one(steps, seed, limit, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "MOST_AT_ONCE", most)
        play(SlackStory(seed, limit), seed, steps)
