"""Presses of buttons, through the real client and the loopback Discord."""

from __future__ import annotations

from contextlib import asynccontextmanager

import discord
import pytest

from tests.fakes.discord import BOT, CHANNEL, GUILD, ROLE, U1, U2, Cut, FakeDiscord, Message, Refused, Status
from tests.fakes.discord.sdk import RecordingClient, connected, online
from threads.model import Author, Choice, ThreadId
from transports.discord.api.channel_types import place_of
from transports.discord.events.interactions import (
    EXPIRED,
    ButtonPress,
    acknowledge,
    answer_privately,
    parse_press,
)
from transports.discord.markdown.buttons import choice_buttons, stop_button

CALLBACK = "POST /interactions/{}/{}/callback"
STOP = stop_button("abc")
[AGAIN] = choice_buttons([Choice("Try again", "/retry 5")])


class PressingClient(RecordingClient):
    """Does with a press what the intake does, in short."""

    def __init__(self):
        super().__init__()
        self.pressed = []

    async def on_interaction(self, interaction: discord.Interaction):
        place = place_of(interaction.channel)
        pressed = place and parse_press(interaction, place)
        if pressed is None:
            await answer_privately(interaction, EXPIRED)
            self.fake.changed()
            return
        await acknowledge(interaction, thinking=False)
        self.pressed.append(pressed)
        self.fake.changed()


@asynccontextmanager
async def pressing_client():
    async with FakeDiscord() as fake:
        client = PressingClient()
        async with connected(client, fake):
            yield fake, client


def with_buttons(fake, channel, *buttons, flags=0) -> Message:
    """A message of the bot with these buttons, in a row."""
    items = [{"type": 2, "style": 2, "label": one.label, "custom_id": one.custom_id} for one in buttons]
    row = {"type": 1, "components": items}
    return fake.put(Message(fake.snowflake(), channel, BOT, "text", flags=flags, components=[row]))


async def press(fake, client, user, message, button) -> ButtonPress:
    before = len(client.pressed)
    await fake.press(user, message, button.custom_id)
    await fake.until(lambda: len(client.pressed) > before)
    return client.pressed[-1]


async def test_a_press_is_the_command_that_its_button_stands_for():
    async with pressing_client() as (fake, client):
        message = with_buttons(fake, CHANNEL, STOP, AGAIN)
        fake.users[U1].roles = [ROLE]
        pressed = await press(fake, client, U1, message, AGAIN)
        incoming = pressed.incoming
        assert (incoming.text, incoming.via) == ("/retry 5", "mention")
        assert incoming.author == Author(U1, fake.users[U1].name.title(), (ROLE,))
        assert incoming.thread == ThreadId("discord", GUILD, CHANNEL, message.id)
        assert (pressed.channel, pressed.message) == (CHANNEL, message.id)
        assert incoming.sent_at > "2020"
        assert (await press(fake, client, U1, message, STOP)).incoming.text == "/stop"


async def test_the_same_press_of_the_same_person_is_the_same_message():
    async with pressing_client() as (fake, client):
        message, other = with_buttons(fake, CHANNEL, STOP, AGAIN), with_buttons(fake, CHANNEL, AGAIN)
        presses = [(U1, message, AGAIN), (U2, message, AGAIN), (U1, message, STOP), (U1, other, AGAIN)]
        ids = [(await press(fake, client, *one)).incoming.id for one in presses]
        assert len(set(ids)) == 4
        assert (await press(fake, client, U1, message, AGAIN)).incoming.id == ids[0]
        assert all(id_.startswith("press-") for id_ in ids)


async def test_a_press_in_a_thread_or_a_direct_message_belongs_there():
    async with pressing_client() as (fake, client):
        thread = await fake.thread(U1, await fake.say(U1, CHANNEL, "hi"), "talk")
        pressed = await press(fake, client, U1, with_buttons(fake, thread.id, STOP), STOP)
        assert pressed.incoming.thread == ThreadId("discord", GUILD, CHANNEL, thread.id)
        direct = fake.dm(U1)
        direct = direct if isinstance(direct, str) else direct.id
        pressed = await press(fake, client, U1, with_buttons(fake, direct, STOP), STOP)
        assert pressed.incoming.thread == ThreadId("discord", "@me", direct, direct)
        assert pressed.incoming.via == "mention"
        assert pressed.incoming.author.id == U1


async def test_a_press_in_place_belongs_to_the_conversation_that_was_found():
    async with pressing_client() as (fake, client):
        message = with_buttons(fake, CHANNEL, STOP)
        await press(fake, client, U1, message, STOP)
        [interaction] = client.of("interaction")
        found = parse_press(interaction, place_of(interaction.channel), root="5")
        assert found.incoming.thread.root == "5"


async def test_a_message_that_one_person_alone_sees_is_no_conversation():
    async with pressing_client() as (fake, client):
        pressed = await press(fake, client, U1, with_buttons(fake, CHANNEL, STOP, flags=64), STOP)
        assert pressed.ephemeral
        assert pressed.incoming.thread == ThreadId("discord", GUILD, CHANNEL, "")


@pytest.mark.parametrize("custom_id", ["vote:1", "stop:", "choice:0:rm -rf", "x" * 100])
async def test_a_button_that_nobody_knows_is_told_to_be_expired_and_to_nobody_else(custom_id):
    async with pressing_client() as (fake, client):
        message = with_buttons(fake, CHANNEL, type(STOP)("Old", custom_id))
        asked = await fake.press(U1, message, custom_id)
        assert asked.acked
        assert asked.contents == [EXPIRED]
        assert asked.answers[0].ephemeral
        assert client.pressed == []


async def test_what_can_be_said_after_an_acknowledgement_is_a_message_of_its_own():
    async with pressing_client() as (fake, client):
        message = with_buttons(fake, CHANNEL, STOP)
        await press(fake, client, U1, message, STOP)
        [interaction] = client.of("interaction")
        await answer_privately(interaction, "thank you")
        [asked] = fake.interactions.values()
        assert asked.contents == ["thank you"]
        assert asked.answers[0].ephemeral
        assert message.content == "text"


async def test_an_acknowledgement_that_got_through_unnoticed_counts(caplog):
    async with pressing_client() as (fake, client):
        fake.fail(CALLBACK, Refused(400, 40060, "already acknowledged"))
        fake.press(U1, with_buttons(fake, CHANNEL, STOP), STOP.custom_id)
        await fake.until(lambda: client.pressed)
        assert "interaction.late" not in caplog.text


@pytest.mark.parametrize("fault", [Refused(404, 10062, "Unknown interaction"), Cut(), Status(401)])
async def test_a_press_that_cannot_be_acknowledged_is_heard_all_the_same(fault, caplog):
    async with pressing_client() as (fake, client):
        message = with_buttons(fake, CHANNEL, STOP)
        fake.fail(CALLBACK, fault)
        fake.press(U1, message, STOP.custom_id)
        await fake.until(lambda: client.pressed)
        assert "interaction.late" in caplog.text


async def test_an_answer_that_cannot_be_given_is_only_logged(caplog):
    async with pressing_client() as (fake, _):
        message = with_buttons(fake, CHANNEL, type(STOP)("Old", "vote:1"))
        fake.fail(CALLBACK, Cut(), forever=True)
        fake.press(U1, message, "vote:1")
        await fake.until(lambda: "interaction.unanswered" in caplog.text)
    assert "token-" not in caplog.text


async def test_a_press_is_heard_when_the_client_was_closed_meanwhile(caplog):
    async with online() as (fake, client):
        fake.press(U1, with_buttons(fake, CHANNEL, STOP), STOP.custom_id)
        [interaction] = await fake.until(lambda: client.of("interaction"))
    await acknowledge(interaction, thinking=False)
    assert "interaction.late" in caplog.text
    await answer_privately(interaction, "too late")


async def test_a_press_without_a_person_or_a_message_is_nothing():
    async with pressing_client() as (fake, client):
        await press(fake, client, U1, with_buttons(fake, CHANNEL, STOP), STOP)
        [interaction] = client.of("interaction")
    place, message = place_of(interaction.channel), interaction.message
    for name, odd in (
        ("message", None),
        ("user", discord.utils.MISSING),
        ("data", None),
        ("data", {"custom_id": 5}),
    ):
        before = getattr(interaction, name)
        setattr(interaction, name, odd)
        assert parse_press(interaction, place) is None
        setattr(interaction, name, before)
    del message.components
    assert parse_press(interaction, place)
