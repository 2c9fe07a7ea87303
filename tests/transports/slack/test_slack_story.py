"""Whole stories in Slack: somebody says something, and this is what everybody sees."""

from __future__ import annotations

import json
from functools import partial

import pytest

from bot.config.settings import Access
from bot.reports.links import linked
from bot.routing.access import allowed
from tests.fakes.slack import FakeSlack
from tests.transports.slack.bot import bot_in, transport
from tests.world import Gate, Scripted, says
from threads.model import Outgoing, ThreadId


def answers(slack, channel, root):
    return [message.text for message in slack.thread(channel, root) if message.ours]


def only_served(**lists):
    return partial(allowed, Access(**{"users": ("*",), "channels": ("*",), **lists}))


async def test_a_mention_in_a_channel_is_answered_once_in_its_thread(tmp_path):
    async with FakeSlack() as slack, bot_in(slack, tmp_path, Scripted(says("Hello **Ann**."))):
        said = await slack.say("U1", "C1", "<@UBOT> hi")
        await slack.until(lambda: len(slack.thread("C1", said.ts)) == 2)
        [_, answer] = slack.thread("C1", said.ts)
        assert answer.blocks[0] == {"type": "markdown", "text": "Hello **Ann**."}
        await slack.until(lambda: not slack.message(said.ts).reactions)
        assert slack.pings == []


@pytest.mark.parametrize("order", ["message_first", "mention_first", "message_only", "mention_only"])
async def test_the_twins_of_a_mention_are_one_message_in_any_order(tmp_path, order):
    model = Scripted()
    async with FakeSlack() as slack, bot_in(slack, tmp_path, model):
        said = await slack.say("U1", "C1", "<@UBOT> hi", order=order)
        last = await slack.say("U1", "D1", "done?")
        await slack.until(lambda: answers(slack, "C1", said.ts) and answers(slack, "D1", last.ts))
        assert len(model.requests) == 2


async def test_a_direct_message_is_answered_in_a_session_with_a_title(tmp_path):
    async with FakeSlack() as slack, bot_in(slack, tmp_path, Scripted(says("Yes."))):
        said = await slack.say("U1", "D1", "are you there?")
        await slack.until(lambda: len(slack.thread("D1", said.ts)) == 2)
        await slack.until(lambda: (its := slack.session("D1", said.ts)) and its.status == "active")
        assert slack.session("D1", said.ts).title == "are you there?"
        assert slack.status("D1", said.ts) == ""


async def test_a_typed_and_a_native_stop_end_the_turn(tmp_path):
    typed, native = Gate(says("never")), Gate(says("never"))
    async with FakeSlack() as slack, bot_in(slack, tmp_path, Scripted(typed, native)):
        said = await slack.say("U1", "C1", "<@UBOT> work")
        await typed.began.wait()
        await slack.say("U1", "C1", "stop", thread_ts=said.ts)
        await slack.until(lambda: any("Stopped." in text for text in answers(slack, "C1", said.ts)))
        direct = await slack.say("U1", "D1", "work")
        await native.began.wait()
        await slack.stop("U1", "D1", direct.ts)
        await slack.until(lambda: any("Stopped." in text for text in answers(slack, "D1", direct.ts)))
        await slack.until(lambda: (its := slack.session("D1", direct.ts)) and its.status == "active")


async def test_thumbs_are_written_to_the_audit_and_thanked_for(tmp_path):
    async with FakeSlack() as slack, bot_in(slack, tmp_path, Scripted(says("so it is"))):
        said = await slack.say("U1", "C1", "<@UBOT> is it?")
        await slack.until(lambda: answers(slack, "C1", said.ts))
        answer = slack.thread("C1", said.ts)[-1]
        await slack.press("U1", answer.ts, "feedback", "down")
        await slack.until(lambda: slack.ephemerals)
        [audit] = (tmp_path / "audit").iterdir()
        [line] = [json.loads(line) for line in audit.read_text().splitlines()]
        assert (line["kind"], line["author"], line["message_id"]) == ("feedback", "U1", answer.ts)
        assert line["details"]["verdict"] == "down"


async def test_a_slash_command_is_answered_to_its_person_alone(tmp_path):
    async with FakeSlack() as slack, bot_in(slack, tmp_path, Scripted()):
        await slack.command("U1", "C1", "/threadfast", "status")
        await slack.until(lambda: slack.ephemerals)
        await slack.command("U1", "C1", "/threadfast")
        await slack.until(lambda: len(slack.ephemerals) == 2)
        assert "Idle" in slack.ephemerals[0].text
        assert "/usage" in slack.ephemerals[1].text
        assert slack.posts() == []


async def test_a_slash_command_that_is_about_a_thread_says_where_to_say_it(tmp_path):
    model = Scripted()
    async with FakeSlack() as slack, bot_in(slack, tmp_path, model):
        for number, text in enumerate(("new", "compact", "retry", "model x/y", "what is the time?")):
            await slack.command("U1", "C1", "/threadfast", text)
            await slack.until(lambda count=number + 1: len(slack.ephemerals) == count)
        assert all("in the thread" in shown.text for shown in slack.ephemerals[:4])
        assert "mention me" in slack.ephemerals[4].text
        assert model.requests == []


async def test_the_bot_works_with_just_the_scopes_of_its_manifest(tmp_path):
    from transports.slack.manifest import Features, scopes  # noqa: PLC0415

    granted = [scope.name for scope in scopes(Features())]
    async with FakeSlack(scopes=granted) as slack, bot_in(slack, tmp_path, Scripted(says("a"), says("b"))):
        first = await slack.say("U1", "C1", "<@UBOT> hi")
        second = await slack.say("U1", "D1", "hi", files=[slack.file("a.txt", b"hello")])
        await slack.until(lambda: answers(slack, "C1", first.ts) and answers(slack, "D1", second.ts))
        assert [call.method for call in slack.calls if call.error == "missing_scope"] == []


async def test_prompts_are_suggested_when_the_messages_tab_is_opened(tmp_path):
    options = {"prompts": (("Help", "What can you do?"),)}
    async with FakeSlack() as slack, bot_in(slack, tmp_path, Scripted(), options=options):
        await slack.open_home("U1")
        await slack.until(lambda: slack.prompts)
        assert slack.prompts[0]["prompts"] == [{"title": "Help", "message": "What can you do?"}]


async def test_what_a_person_forwards_does_not_make_its_links_trusted(tmp_path):
    text = "It says: https://evil.example/?q=secret"
    forwarded = [{"is_share": True, "text": "read https://evil.example/ now", "author_name": "Eve"}]
    async with FakeSlack() as slack, bot_in(slack, tmp_path, Scripted(says(text))):
        said = await slack.say("U1", "D1", "summarise this", attachments=forwarded)
        await slack.until(lambda: answers(slack, "D1", said.ts))
        assert slack.unfurls == []


async def test_the_link_to_a_thread_is_its_permalink_can_be_pressed_and_has_no_preview(tmp_path):
    async with FakeSlack() as slack, bot_in(slack, tmp_path, Scripted()) as edge:
        said = await slack.say("U1", "C1", "<@UBOT> hi")
        link = edge.link(ThreadId("slack", "T1", "C1", said.ts))
        assert link == f"{slack.url}/archives/C1/p{said.ts.replace('.', '')}"
        assert edge.link(ThreadId("slack", "T1", "C1", "")) == f"{slack.url}/archives/C1"
        assert linked(link.replace("http:", "https:")) == (said.ts, said.ts), "`why` takes it"
        notice = Outgoing(
            ThreadId("slack", "T1", "C2", ""), "escalation:1", f"It was in {link} (ref 1)", "notice"
        )
        await edge.post(notice)
        (post,) = [message for message in slack.channels["C2"].messages.values() if message.ours]
        assert link in str(post.blocks)
        assert f"`{link}`" not in str(post.blocks)
        (call,) = [
            call for call in slack.calls if call.method == "chat.postMessage" and call.args["channel"] == "C2"
        ]
        assert (call.args["unfurl_links"], call.args["unfurl_media"]) == (False, False)


async def test_before_slack_has_said_who_we_are_a_link_leads_to_the_channel(tmp_path):
    async with FakeSlack() as slack:
        edge = transport(slack, tmp_path)
        thread = ThreadId("slack", "T1", "C1", "1700000000.000001")
        assert edge.link(thread) == "https://slack.com/app_redirect?team=T1&channel=C1"
