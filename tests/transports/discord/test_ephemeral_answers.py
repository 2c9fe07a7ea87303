"""Answers for one person alone, as long as Discord takes them; after that what was asked is answered in the channel."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import anyio
import pytest

from tests.fakes.discord import CHANNEL, GUILD, U1, Cut, Refused, Status
from tests.fakes.discord.sdk import RecordingClient, connected
from tests.transports.discord.posting_case import PostingCase, discord_and_rest
from tests.transports.discord.test_posting import long, patience
from threads.errors import TransportUnavailable
from threads.model import Choice, Outgoing, ThreadId
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.values import ReplyAddress
from transports.discord.events.interactions import reply_address
from transports.discord.markdown.buttons import choice_buttons
from transports.discord.post import ephemeral_answers as module
from transports.discord.post.message_pages import CUT, MAX_PARTS
from transports.shared.live.background_calls import retry_cleanup

ANSWER = "PATCH /webhooks/{}/{}/messages/{}"
FOLLOW_UP = "POST /webhooks/{}/{}"
RETRY = (Choice("Try again", "/retry 1"),)


@pytest.fixture(autouse=True)
def impatient():
    with patience(0.0):
        yield


class Person(PostingCase):
    """Somebody who uses slash commands in a channel, and presses buttons."""

    client: RecordingClient
    asked_last = None

    async def _heard(self, making, message_id, thinking):
        """Hear the interaction as the gateway's client does: it is put off at once, and remembered."""
        before = len(self.client.of("interaction"))
        await self.discord.until(lambda: len(self.client.of("interaction")) > before)
        interaction = self.client.of("interaction")[-1]
        await interaction.response.defer(ephemeral=True, thinking=thinking)
        acknowledged, address = anyio.Event(), reply_address(interaction)
        acknowledged.set()
        self.answers.remember(message_id, address, acknowledged)
        self.asked_last = making
        return Outgoing(
            ThreadId("discord", GUILD, CHANNEL, ""),
            f"discord:{GUILD}:{CHANNEL}:{message_id}",
            "all is well",
            "notice",
            message_id,
            (),
            U1,
            reply_address=address,
        )

    async def slash(self, message_id="slash-1"):
        return await self._heard(self.discord.slash(U1, CHANNEL, "status"), message_id, thinking=True)

    async def press(self, message_id="press-1"):
        await self.post("failed", choices=RETRY)
        [_, custom_id] = self.posts()[-1].buttons[0]
        pressed = self.discord.press(U1, self.posts()[-1], custom_id)
        outgoing = await self._heard(pressed, message_id, thinking=False)
        return replace(outgoing, thread=self.thread)

    def heard(self):
        """What the person alone reads."""
        return [
            (message.content, message.ephemeral) for message in self.asked_last.answers if not message.deleted
        ]

    def thinks(self):
        return not self.asked_last.original.deleted and not self.asked_last.original.content


@pytest.fixture
async def person():
    async with discord_and_rest() as (discord, rest):
        client = RecordingClient()
        async with connected(client, discord):
            person = await Person.start(discord, rest)
            person.client = client
            yield person


async def test_an_answer_waits_for_the_acknowledgement(person):
    outgoing = await person.slash()
    acknowledged = anyio.Event()
    person.answers.remember("slash-1", outgoing.reply_address, acknowledged)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(person.posting.post, outgoing)
        await anyio.sleep(0.05)
        assert not person.discord.calls_to(ANSWER)
        acknowledged.set()
    assert person.heard() == [("all is well", True)]


async def test_a_slash_command_is_answered_where_the_bot_was_thinking(person):
    outgoing = await person.slash()

    posted = await person.posting.post(outgoing)

    assert person.heard() == [("all is well", True)]
    assert posted == person.asked_last.original.id
    assert person.posts(CHANNEL) == []


async def test_a_long_answer_to_a_command_goes_on_in_messages_for_that_person_up_to_a_word(person):
    outgoing = await person.slash()

    await person.posting.post(replace(outgoing, text=long(MAX_PARTS + 2)))

    said = person.heard()
    assert len(said) == MAX_PARTS
    assert said[-1] == (CUT, True)
    assert all(alone for _, alone in said)


async def test_an_answer_to_a_command_may_have_buttons_and_pings_nobody(person):
    outgoing = await person.slash()

    await person.posting.post(replace(outgoing, text="@everyone", choices=RETRY))

    [message] = person.asked_last.answers
    assert [label for label, _ in message.buttons] == ["Try again"]
    assert person.discord.pings == []


async def test_what_a_press_brings_up_is_told_to_that_person_alone(person):
    outgoing = await person.press()

    await person.posting.post(outgoing)

    assert person.heard() == [("all is well", True)]
    assert person.visible() == ["failed"]


async def test_the_answer_that_a_press_asks_for_is_for_all(person):
    outgoing = await person.press()

    await person.posting.post(replace(outgoing, kind="reply"))

    assert person.visible() == ["failed", "all is well"]
    assert person.posts()[-1].reply_to == ""


async def test_a_whisper_that_is_tried_again_is_written_over(person):
    outgoing = await person.slash()
    person.discord.fail(ANSWER, Cut(applied=True))

    await person.outbox().post(outgoing)

    assert person.heard() == [("all is well", True)]


EXPIRED = {
    "unknown interaction": Refused(404, 10062),
    "unknown webhook": Refused(404, 10015),
    "its token is over": Refused(401, 50027),
}


@pytest.mark.parametrize("fault", EXPIRED.values(), ids=EXPIRED)
async def test_when_discord_takes_no_answer_any_more_it_is_posted_in_the_channel(person, fault):
    outgoing = await person.slash()
    person.discord.fail(ANSWER, fault)

    await person.posting.post(outgoing)

    assert person.heard() == []
    assert person.visible(CHANNEL) == ["all is well"]
    assert not person.thinks()


async def test_after_fourteen_minutes_nothing_is_whispered(person, monkeypatch):
    monkeypatch.setattr(module, "ANSWER_WITHIN_S", 0.0)
    person.restart()
    outgoing = replace(await person.slash(), reply_address="")

    await person.posting.post(outgoing)

    assert person.discord.calls_to(ANSWER, FOLLOW_UP) == []
    assert person.visible(CHANNEL) == ["all is well"]


async def test_a_command_is_answered_to_its_person_when_the_gateways_client_was_closed(person):
    outgoing = await person.slash()
    await person.client.close()

    await person.posting.post(outgoing)

    assert person.heard() == [("all is well", True)]


@pytest.mark.parametrize("ask", [Person.slash, Person.press])
async def test_another_process_answers_the_person_alone(person, ask):
    outgoing = await ask(person)
    person.restart()

    await person.posting.post(replace(outgoing, text=long(2)))

    assert [alone for _, alone in person.heard()] == [True, True]
    assert "all is well" not in person.visible(CHANNEL)


async def test_another_process_waits_until_the_interaction_is_acknowledged(person, monkeypatch):
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    outgoing = await person.slash()
    person.restart()
    for _ in range(3):
        person.discord.fail(ANSWER, Refused(404, 10015))

    await person.posting.post(outgoing)

    assert person.heard() == [("all is well", True)]


async def test_without_a_place_for_answers_a_command_is_answered_in_the_channel(person):
    """As in a message that an older version stored."""
    outgoing = await person.slash()
    person.restart()

    await person.posting.post(replace(outgoing, reply_address=""))

    assert person.visible(CHANNEL) == ["all is well"]


async def test_what_another_process_answers_for_all_does_not_go_on_thinking(person):
    outgoing = await person.slash("press-1")
    person.restart()

    await person.posting.post(replace(outgoing, kind="reply"))

    assert person.visible(CHANNEL) == ["all is well"]
    assert not person.thinks()


async def test_a_refused_token_of_an_interaction_says_nothing_about_the_bots_own(person):
    outgoing = await person.slash()
    person.discord.fail(ANSWER, Refused(401, 0))

    await person.posting.post(outgoing)

    assert person.visible(CHANNEL) == ["all is well"]
    with anyio.move_on_after(0.05) as waiting:
        await person.rest.until_refused()
    assert waiting.cancelled_caught


def test_a_place_for_answers_is_read_as_it_was_written_and_hides_its_token():
    for thinking in (True, False):
        address = ReplyAddress("42", "a:b/c", thinking)
        assert ReplyAddress.parse(str(address)) == address
        assert "a:b/c" not in repr(address)
    for odd in ("", "command:42:", "command::t", "other:42:t", "press:x:t", "https://example.org/x"):
        assert ReplyAddress.parse(odd) is None


async def test_a_command_that_is_answered_for_all_does_not_go_on_thinking(person):
    await person.slash()
    assert person.thinks()

    await person.answers.end_thinking("slash-1")

    assert not person.thinks()


async def test_an_answer_that_was_given_is_not_taken_away(person):
    await person.posting.post(await person.slash())

    await person.answers.end_thinking("slash-1")

    assert person.heard() == [("all is well", True)]


async def test_to_release_what_nobody_waits_for_or_cannot_be_reached_does_no_harm(person):
    await person.slash()
    person.discord.fail("DELETE /webhooks/{}/{}/messages/{}", Cut())

    await person.answers.end_thinking("slash-1")
    await person.answers.end_thinking("slash-1")


async def test_discord_in_trouble_is_told_from_an_answer_that_is_over(person):
    outgoing = await person.slash()
    person.discord.fail(ANSWER, Status(503), forever=True)

    with pytest.raises(TransportUnavailable):
        await person.posting.post(outgoing)


async def test_how_many_interactions_are_remembered_is_bounded(person, monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED", 2)
    person.restart()
    for number in range(3):
        await person.slash(f"slash-{number}")

    with pytest.raises(DiscordRefused):
        await person.answers.answer("slash-0", "", "who?")
    await person.answers.answer("slash-1", "", "you", choice_buttons(RETRY))


# questions


async def test_a_question_that_is_decided_loses_its_buttons_and_says_how_it_ended(person):
    key = f"{person.key}?q1"
    await person.post("May I?", kind="notice", key=key, choices=RETRY)

    await person.posting.close_question(person.posting.questions.pop(key), "Approved by Ann")

    [message] = person.posts()
    assert (message.content, message.buttons) == ("May I?\n-# Approved by Ann", [])


async def test_a_question_is_asked_once_across_a_kill_and_closed_then(person):
    key = f"{person.key}?q1"
    person.discord.fail("POST /channels/{}/messages", Cut(applied=True))
    with pytest.raises(TransportUnavailable):
        await person.post("May I?", kind="notice", key=key, choices=RETRY)
    person.restart()
    person.discord.later(400)

    await person.find(key=key)
    await person.post("May I?", kind="notice", key=key, choices=RETRY)
    await person.posting.close_question(person.posting.questions.pop(key), "Denied by Ann")

    assert person.visible() == ["May I?\n-# Denied by Ann"]


async def test_a_question_with_the_same_words_is_another_question(person):
    await person.post(
        "May I?", kind="notice", key=f"{person.key}?q1", choices=(Choice("Yes", "/approve q1"),)
    )
    person.restart()
    person.discord.later(400)

    await person.find(key=f"{person.key}?q2")
    await person.post(
        "May I?", kind="notice", key=f"{person.key}?q2", choices=(Choice("Yes", "/approve q2"),)
    )

    assert len(person.posts()) == 2


@pytest.mark.parametrize("code", [10008, 50001], ids=["gone", "forbidden"])
async def test_a_question_whose_buttons_cannot_go_is_logged_unless_it_is_gone(person, caplog, code):
    key = f"{person.key}?q1"
    await person.post("May I?", kind="notice", key=key, choices=RETRY)
    person.discord.fail("PATCH /channels/{}/messages/{}", Refused(404 if code == 10008 else 403, code))
    close = partial(person.posting.close_question, person.posting.questions.pop(key), "Approved by Ann")

    await retry_cleanup(close, ThreadId("discord", GUILD, CHANNEL, ""))
    assert ("live.left" in caplog.text) is (code == 50001)


async def test_a_choice_that_no_button_can_hold_is_written_out(person):
    await person.post("Well?", choices=(Choice("Long", f"/retry {'x' * 150}"), *RETRY))

    [message] = person.posts()
    assert [label for label, _ in message.buttons] == ["Try again"]
    assert "x" * 150 in message.content
