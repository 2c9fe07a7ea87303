"""Which conversation a reply in a channel continues."""

from __future__ import annotations

import anyio
import pytest

from tests.sim.loop import virtual_time
from tests.transports.discord.payloads import (
    ANN,
    BOB,
    BOT,
    CHANNEL,
    DIRECT,
    IN_THREAD,
    ME,
    NEWS,
    forwarding,
    message,
    replying,
    said,
)
from threads.errors import TransportRejected, TransportUnavailable
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.events import reply_chains
from transports.discord.events.parse_message import parse_message
from transports.discord.events.reply_chains import ReplyChains
from transports.discord.post import thread_opening
from transports.discord.post.thread_opening import Destinations

anyio_backend = virtual_time


class Channel:
    """A channel that people and the bot speak in: what Discord would give for each message, and REST."""

    def __init__(self):
        self.said, self.calls, self.failure, self.failures = {}, [], None, []

    def say(self, author, to=None):
        """Say something, as a reply to the message with id *to*; returns its id."""
        id_ = str(1_174_110_000_000_000_000 + len(self.said))
        self.said[id_] = (author, to)
        return id_

    def data(self, id_, *, given=True):
        author, to = self.said[id_]
        if to is None:
            return said("text", author, id_=id_)
        if to not in self.said:
            return replying(said("gone", ANN, id_=to), "text", author, id_=id_, given=False)
        # What is given along has no predecessor of its own.
        return replying(self.data(to, given=...), "text", author, id_=id_, given=given)

    def event(self, id_):
        return message(self.data(id_))

    async def message(self, channel, id_):
        self.calls.append(id_)
        if failure := self.failures.pop() if self.failures else self.failure:
            raise failure
        if id_ not in self.said:
            raise TransportRejected("gone")
        return self.event(id_)


@pytest.fixture
def channel():
    return Channel()


@pytest.fixture
def found(channel):
    replies = ReplyChains(channel, ME, Destinations(channel))

    async def root_of(id_, place=CHANNEL):
        return await replies.root_of(channel.event(id_), place)

    return root_of


def conversation(channel, length, root=None):
    """Questions and answers, each a reply to the one before; returns the last answer."""
    last = root
    for _ in range(length):
        last = channel.say(BOT, channel.say(ANN, last))
    return last


async def test_a_message_that_replies_to_nothing_or_to_a_person_continues_none(channel, found):
    question = channel.say(ANN)
    assert await found(question) == ""
    assert await found(channel.say(BOB, question)) == ""
    assert channel.calls == []


async def test_a_reply_to_an_answer_continues_the_conversation_of_its_question(channel, found):
    question = channel.say(ANN)
    assert await found(channel.say(BOB, channel.say(BOT, question))) == question


async def test_a_long_chain_leads_to_its_first_message_and_is_walked_once(channel, found):
    question = channel.say(ANN)
    last = conversation(channel, 9, channel.say(BOT, question))
    assert await found(channel.say(BOB, last)) == question
    walked = len(channel.calls)
    assert walked < 15  # each look-up gives two
    again = channel.say(BOT, channel.say(ANN, last))
    assert await found(channel.say(BOB, again)) == question
    assert len(channel.calls) <= walked + 2


async def test_a_message_of_the_bot_that_replies_to_nothing_is_a_root(channel, found):
    notice = channel.say(BOT)
    assert await found(channel.say(ANN, notice)) == notice
    assert await found(notice) == notice


async def test_a_question_that_replied_to_a_person_is_a_root(channel, found):
    question = channel.say(ANN, channel.say(BOB))
    assert await found(channel.say(ANN, channel.say(BOT, question))) == question


async def test_an_answer_itself_belongs_to_its_conversation(channel, found):
    question = channel.say(ANN)
    answer = channel.say(BOT, question)
    assert await found(answer) == question
    assert await found(channel.say(BOT, channel.say(ANN, answer))) == question


async def test_a_question_that_was_deleted_is_a_root_all_the_same(channel, found):
    answer = channel.say(BOT, "1174000000000000000")
    assert await found(channel.say(ANN, answer)) == "1174000000000000000"


async def test_a_reply_to_a_deleted_answer_continues_what_is_remembered(channel, found):
    question = channel.say(ANN)
    answer = channel.say(BOT, question)
    reply = channel.say(ANN, answer)
    assert await found(reply) == question
    author, to = channel.said.pop(answer)
    assert (author, to) == (BOT, question)
    assert await found(reply) == question
    unknown = channel.say(ANN, "1174000000000000000")
    walked = len(channel.calls)
    assert await found(unknown) == ""
    assert len(channel.calls) == walked


async def test_the_question_that_an_answer_names_is_known_though_it_cannot_be_read(channel, found):
    question = channel.say(ANN)
    reply = channel.say(BOB, channel.say(BOT, question))
    channel.failure = TransportUnavailable("no")
    assert await found(reply) == question


async def test_what_cannot_be_read_now_ends_the_way_and_is_tried_again(channel, found):
    question = channel.say(ANN)
    further = channel.say(ANN, channel.say(BOT, question))
    reply = channel.say(BOB, channel.say(BOT, further))
    channel.failure = TransportUnavailable("no")
    assert await found(reply) == further
    channel.failure = None
    assert await found(reply) == question


async def test_a_slow_look_up_ends_the_way_after_a_while(channel, found, monkeypatch):
    question = channel.say(ANN)
    reply = channel.say(BOB, channel.say(BOT, question))
    monkeypatch.setattr(channel, "message", lambda *_: anyio.sleep(3600))
    began = anyio.current_time()
    assert await found(reply) == question
    assert anyio.current_time() - began == reply_chains.LONGEST_WALK_S


async def test_a_chain_that_never_ends_is_left_in_time(channel, found):
    last = conversation(channel, 100)
    assert await found(channel.say(BOB, last))
    assert len(channel.calls) <= reply_chains.MOST_STEPS


async def test_two_messages_that_reply_to_each_other_end_the_way(channel, found):
    first, second = channel.say(BOT, "1174110000000000001"), channel.say(ANN, "1174110000000000000")
    channel.data = lambda id_, **_: (
        replying(said("x", ANN, id_=second), "x", BOT, id_=first, given=...)
        if id_ == first
        else replying(said("x", BOT, id_=first), "x", ANN, id_=second, given=...)
    )
    assert await found(second) in (first, second)


async def test_threads_direct_messages_forwards_and_other_channels_are_no_chains(channel, found):
    reply = channel.say(ANN, channel.say(BOT))
    for place in (IN_THREAD, DIRECT):
        assert await found(reply, place) == ""
    assert (
        await ReplyChains(channel, ME, Destinations(channel)).root_of(
            message(forwarding({"content": "x"})), CHANNEL
        )
        == ""
    )
    elsewhere = replying(said("42", BOT, id_="1174000000000000000", channel=NEWS), "why?")
    assert await ReplyChains(channel, ME, Destinations(channel)).root_of(message(elsewhere), CHANNEL) == ""


async def test_only_so_many_answers_are_remembered(channel, monkeypatch):
    monkeypatch.setattr(thread_opening, "MOST_ANSWERS", 3)
    known = Destinations(channel)
    replies = ReplyChains(channel, ME, known)
    said = []
    for _ in range(5):
        said.append(conversation(channel, 1))
        await replies.root_of(channel.event(channel.say(ANN, said[-1])), CHANNEL)
    assert [answer for answer in said if known.root_of(answer)] == said[2:]


async def test_what_the_bot_posted_itself_is_known_without_a_look(channel):
    known = Destinations(channel)
    replies = ReplyChains(channel, ME, known)
    question = channel.say(ANN)
    command = channel.say(ANN, channel.say(BOT, question))
    answer = channel.say(BOT, command)
    known.note_answers(question, [answer])
    channel.failure = TransportUnavailable("no")
    assert await replies.root_of(channel.event(channel.say(BOB, answer)), CHANNEL) == question
    assert await replies.root_of(channel.event(answer), CHANNEL) == question
    assert channel.calls == []


async def test_a_look_up_that_fails_is_made_again(channel, found):
    question = channel.say(ANN)
    further = channel.say(ANN, channel.say(BOT, question))
    reply = channel.say(BOB, channel.say(BOT, further))
    channel.failures = [TransportUnavailable("no")] * 2
    assert await found(reply) == question


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (None, "the alarm"),
        (DiscordRefused("message", 404, 10008), "it is deleted"),
        (DiscordRefused("message", 403, 50001), "I cannot read it"),
        (TransportUnavailable("no"), "I cannot read it"),
    ],
)
@pytest.mark.parametrize("place", [CHANNEL, IN_THREAD, DIRECT])
async def test_what_a_reply_is_about_is_asked_for_once_where_it_is_not_given_along(
    channel, failure, words, place
):
    alarm = channel.say(BOB)
    reply = message(replying(said("the alarm", BOB, id_=alarm), f"<@{BOT}> why?", given=...))
    channel.said[alarm] = (BOB, None)
    channel.failure = failure
    channel.event = lambda id_: message(said("the alarm", BOB, id_=id_))
    await ReplyChains(channel, ME, Destinations(channel)).ask_for_target(reply)
    assert channel.calls == [alarm]
    incoming = parse_message(reply, place, ME)
    assert words in (incoming.text if failure else incoming.quoted)
