"""What goes wrong in Slack is told, logged and survived: bad input, bad answers, and what was missed while down."""

from __future__ import annotations

import logging

from tests.fakes.slack import Cut, FakeSlack, Html, Message
from tests.transports.settling import until_settled
from tests.transports.slack.bot import bot_in
from tests.transports.slack.test_slack_story import answers
from tests.world import Scripted, Streams, says
from threads.model import Choice, Outgoing, ThreadId, TurnSettled, message_key
from transports.shared.live import background_calls
from transports.slack import client


async def assert_answers(slack):
    """Prove that the bot still answers."""
    said = await slack.say("U3", "D3", "still there?")
    await slack.until(lambda: answers(slack, "D3", said.ts))


async def test_odd_events_are_acknowledged_and_nothing_breaks(tmp_path):
    async with FakeSlack() as slack, bot_in(slack, tmp_path, Scripted()):
        for event in (
            {"type": "message"},
            {"type": "message", "channel": 7, "ts": None, "user": []},
            {"type": "message", "channel": "C1", "ts": "not a time", "user": "U1", "text": "x"},
            {"type": "message", "subtype": "message_changed", "channel": "C1"},
            {"type": "app_mention", "channel": "C1", "user": "U1"},
            {"type": "galaxy_exploded", "where": "here"},
            {"type": "agent_session_stopped"},
            {"type": "member_joined_channel"},
            {},
        ):
            await slack.event(event).delivered()
        await slack.sockets.deliver("interactive", {"type": "block_actions"}).delivered()
        await slack.sockets.deliver("interactive", {"type": "view_submission", "view": {}}).delivered()
        await slack.sockets.deliver("slash_commands", {}).delivered()
        await slack.rate_limit_events().delivered()
        await assert_answers(slack)


async def test_what_was_said_while_the_bot_was_down_is_answered_when_it_comes_back(tmp_path):
    model = Scripted(says("one"))
    async with FakeSlack(offline="drop") as slack:
        async with bot_in(slack, tmp_path, model):
            root = await slack.say("U1", "C1", "<@UBOT> hi")
            direct = await slack.say("U1", "D1", "hi")
            await until_settled(tmp_path, root.ts, direct.ts)
            await slack.until(lambda: (tmp_path / "slack-marks.json").exists())
        missed = [
            slack.say("U1", "C1", "<@UBOT> a new question", quiet=True),
            slack.say("U2", "C1", "a follow-up", thread_ts=root.ts, quiet=True),
            slack.say("U1", "D1", "direct", quiet=True),
            slack.say("U2", "D2", "a first direct one", quiet=True),
        ]
        ignored = slack.say("U1", "C1", "just talking", quiet=True)
        async with bot_in(slack, tmp_path, Scripted()):
            found = await until_settled(tmp_path, *(said.ts for said in missed))
        assert {found[said.ts] for said in missed} == {"answered"}
        assert ignored.ts not in found


async def test_a_missing_scope_is_said_at_the_start(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    async with FakeSlack() as slack:
        slack.scopes.discard("reactions:write")
        async with bot_in(slack, tmp_path, Scripted()):
            await assert_answers(slack)
    assert "reactions:write" in caplog.text


async def test_a_slash_command_where_the_bot_is_no_member_is_answered_to_its_person_alone(tmp_path):
    async with FakeSlack() as slack, bot_in(slack, tmp_path, Scripted()):
        slack.channel("C9", member=False)
        await slack.command("U1", "C9", "/threadfast", "help")
        await slack.until(lambda: slack.responses)
        assert "/usage" in slack.responses[0]["text"]
        assert slack.responses[0]["response_type"] == "ephemeral"
        assert slack.posts() == []


async def test_an_answer_to_one_person_alone_goes_out_although_its_process_was_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("threads.delivery.FIND_TRIES", 1)
    async with FakeSlack() as slack:
        slack.channel("C9", member=False)
        gate = slack.gate("response_url")
        async with bot_in(slack, tmp_path, Scripted()):
            await slack.command("U1", "C9", "/threadfast", "help")
            await gate.reached()
        assert slack.responses == []
        async with bot_in(slack, tmp_path, Scripted()):
            await slack.until(lambda: slack.responses)
        assert "/usage" in slack.responses[0]["text"]
        assert slack.posts() == []


async def test_a_draft_that_nobody_knows_of_goes_though_slack_cannot_be_asked_at_first(tmp_path, monkeypatch):
    monkeypatch.setattr(background_calls, "AGAIN_S", (0.1, 0.1))
    async with FakeSlack() as slack, bot_in(slack, tmp_path, Streams("word " * 30, "the end")):
        slack.fail("chat.postMessage", Cut(applied=True))
        slack.fail("conversations.replies", Html(503), Html(503))
        said = await slack.say("U1", "C1", "<@UBOT> hi")
        await until_settled(tmp_path, said.ts)
        await slack.until(lambda: len(answers(slack, "C1", said.ts)) == 1)
        assert "the end" in answers(slack, "C1", said.ts)[0]


async def test_a_question_that_is_found_again_does_not_keep_what_a_killed_process_left(tmp_path, monkeypatch):
    monkeypatch.setattr(client, "TIDY_AFTER_S", 0.0)
    async with FakeSlack() as slack, bot_in(slack, tmp_path, Scripted()) as edge:
        said = await slack.say("U1", "C1", "<@UBOT> hi")
        await until_settled(tmp_path, said.ts)
        thread = ThreadId("slack", "T1", "C1", said.ts)
        key = f"{message_key(thread, said.ts)}?q1"
        await edge.post(Outgoing(thread, key, "May I?", choices=(Choice("Yes", "/approve q1"),)))
        assert await edge.find(thread, key)
        left = slack.put(Message("C1", slack.next_ts(), "half", "UBOT", "BBOT", thread_ts=said.ts))
        edge.show(thread, said.ts, TurnSettled("answered", again=True, interrupted=True))
        await slack.until(lambda: slack.message(left.ts).deleted)
