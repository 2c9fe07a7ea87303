"""What a message only gives the ids of becomes words; what cannot be had harms nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import anyio
import pytest

from tests.fakes.slack import ApiError, FakeSlack, Gate
from tests.sim.loop import virtual_time
from tests.transports.memory import Memory, offload
from tests.transports.slack.bot import bot_in
from tests.transports.slack.test_catch_up import FILE
from tests.transports.slack.test_slack_story import answers
from tests.transports.slack.virtual import LATENCY_S, VirtualWeb, count_calls, virtual_slack
from tests.world import Scripted
from threads.background import background_tasks
from threads.store.mark_file import MarkFile
from transports.shared.backfill.marks import Marks
from transports.slack.events.intake import Intake
from transports.slack.events.lookups import LASTS_S, MOST_AT_ONCE, REST_S, Lookups
from transports.slack.events.parse_message import Me, spoken
from transports.slack.events.timestamps import STAMPS

ME = Me("T1", "UBOT", "BBOT", "Threadfast")


anyio_backend = virtual_time


def _now():
    return datetime.fromtimestamp(1.7e9 + anyio.current_time(), UTC)


def workspace():
    slack = virtual_slack()
    for number in range(100):
        slack.user(f"U{100 + number}", f"ann{number}")
    slack.channel("C7", "secret", kind="private")
    return slack, Lookups(VirtualWeb(slack), ME, lambda _: None)


def said(text, user="U1", **more):
    return {"type": "message", "ts": "1700000100.000200", "user": user, "text": text, **more}


def read(lookups, message):
    return spoken(message, ME, lookups.known)


async def test_people_and_channels_that_are_only_named_get_their_names():
    _, lookups = workspace()
    forward = {"is_share": True, "text": "ask <@U102>"}
    message = said("<@U100> and <@U101|ben> in <#C2>, <@UBOT>", attachments=[forward])
    assert await lookups.explain([message], 1.0)
    line = read(lookups, message)
    assert line.author.name == "u1"
    assert line.text == "@ann0 and @ben in #random, @Threadfast\n> Forwarded message:\n> ask @ann2"


async def test_groups_that_are_only_named_get_their_names_():
    slack, lookups = workspace()
    slack.groups = {"S1": "ops", "S2": "all-hands"}
    message = said("<!subteam^S1> <!subteam^S9> <!subteam^S2|@everybody>")
    assert await lookups.explain([message], 1.0)
    assert read(lookups, message).text == "@ops @a-group (S9) @all-hands"
    assert not await lookups.explain([message], 1.0)


async def test_who_cannot_be_looked_up_is_someone_and_harms_nobody_else():
    slack, lookups = workspace()
    message = said("<@U0FOREIGN> and <@U100> in <#C0FOREIGN> and <#C7>")
    await lookups.explain([message], 1.0)
    assert read(lookups, message).text == (
        "@someone (U0FOREIGN) and @ann0 in #a-channel (C0FOREIGN) and #a-channel (C7)"
    )
    calls = len(slack.calls)
    assert not await lookups.explain([message], 1.0)
    assert len(slack.calls) == calls, "asked once"


async def test_look_ups_go_at_once_and_those_of_the_first_messages_come_first():
    slack, lookups = workspace()
    messages = [said("hi", user=f"U{100 + number}") for number in range(100)]
    began = anyio.current_time()
    await lookups.explain(messages, 2.0)
    assert anyio.current_time() - began <= 2.0 + LATENCY_S
    known = [read(lookups, message).author.name != "" for message in messages]
    assert all(known[:40]), "as many as Slack takes at once"
    assert known == sorted(known, reverse=True)
    assert len(slack.calls) <= MOST_AT_ONCE
    assert slack.limited == []


async def test_if_slack_does_not_answer_a_message_waits_once_and_then_not_for_a_minute():
    slack, lookups = workspace()
    slack.fail("users.info", Gate(), forever=True)
    began = anyio.current_time()
    for number in range(10):
        assert not await lookups.explain([said("hi", user=f"U{100 + number}")], 1.0)
    assert anyio.current_time() - began == pytest.approx(1.0)
    slack.heal()
    await anyio.sleep(REST_S)
    assert await lookups.explain([said("hi", user="U150")], 1.0)


async def test_a_name_is_asked_for_again_the_next_day():
    slack, lookups = workspace()
    await lookups.explain([said("hi")], 1.0)
    slack.users["U1"].name = "Ann B."
    await lookups.explain([said("hi")], 1.0)
    assert read(lookups, said("hi")).author.name == "u1"
    await anyio.sleep(LASTS_S)
    await lookups.explain([said("hi")], 1.0)
    assert read(lookups, said("hi")).author.name == "Ann B."
    assert count_calls(slack) == {"users.info": 2}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_in_a_thread_with_a_person_of_another_company_the_others_have_names(tmp_path):
    model = Scripted()
    async with FakeSlack() as slack, bot_in(slack, tmp_path, model):
        slack.fail(
            "users.info", ApiError("user_not_found"), forever=True, when=lambda args: args["user"] == "U2"
        )
        slack.user("U3", "Carl")
        root = await slack.say("U2", "C1", "who can help?")
        await slack.say("U3", "C1", "ask <@U1>", thread_ts=root.ts)
        await slack.say("U1", "C1", "<@UBOT> can you?", thread_ts=root.ts)
        await slack.until(lambda: answers(slack, "C1", root.ts))
    request = "\n".join(getattr(block, "text", "") for block in model.requests[0].messages[0].blocks)
    assert "> [U2] who can help?\n> [Carl (U3)] ask @u1" in request
    assert "[u1 (U1), " in request


async def test_a_message_that_waits_for_names_is_not_overtaken():
    slack, lookups = workspace()
    await lookups.explain([said("hi")], 1.0)
    marks, taken = Marks(MarkFile(Memory(), FILE), offload, _now, STAMPS), []

    async def sink(event):
        taken.append(event.text)

    async def recent(within_s, most):
        return []

    marks.open()
    async with background_tasks() as tasks:
        web = VirtualWeb(slack)
        more = {"recent": recent, "now": _now, "max_age_s": 600}
        intake = Intake(
            tasks,
            web,
            ME,
            marks,
            sink,
            SimpleNamespace(),
            lookups,
            SimpleNamespace(),
            lambda *_: None,
            **more,
        )
        for text in ("one <@U2>", "two"):
            event = {**said(text), "ts": slack.next_ts(), "channel": "D1"}
            tasks.start_soon(intake.take, "event", {"type": "event_callback", "event": event})
            await anyio.sleep(LATENCY_S / 10)
        await anyio.sleep(10)
    assert taken == ["one @u2", "two"]
