"""Posting to a Slack that fails at every point: nothing lost, nothing doubled, nothing left behind."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from functools import partial

import anyio
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.fakes.slack import ApiError, Cut, FakeSlack, Html, Message
from threads.background import background_tasks
from threads.errors import PostFailed, TransportRejected, TransportUnavailable
from threads.model import Choice, Outgoing, ThreadId
from transports.base.transport import Capabilities
from transports.shared.delivery.files import file_name
from transports.shared.delivery.outbox import Outbox
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.rate_limits import RateLimits
from transports.slack.api.web_api import Identity, open_web
from transports.slack.markdown.blocks import choice_block
from transports.slack.markdown.links import Links
from transports.slack.markdown.split import MAX_PART
from transports.slack.post import post_lookup, uploads
from transports.slack.post.message_pages import CUT, MAX_PARTS, MOST_PARTS, pages
from transports.slack.post.post_tags import Sent, Tag, fold, orphans, tag_of
from transports.slack.post.posting import Posting
from transports.slack.post.rewrite import DraftMessage

OUTGOING = Outgoing(ThreadId("slack", "T1", "C1", "1.0"), "k", "")
ME = Identity("T1", "UBOT", "threadfast", "BBOT", frozenset())
LINKS = Links(allowed=frozenset(), live=True)
EVIL = "see https://evil.example/?q=1 now"


class Unlimited(RateLimits):
    """The pace has tests of its own; here nothing waits."""

    async def take(self, method, channel="", *, urgent=True):
        pass

    async def try_take(self, method, channel=""):
        return True


class Chat:
    """A person's question in a channel, what answers it, and what the thread shows then."""

    def __init__(self, slack, web, channel="C1"):
        self.slack, self.web, self.channel = slack, web, channel
        self.question = self.asks()
        self.posting = Posting(web, ME)

    def asks(self):
        return self.slack.put(Message(self.channel, self.slack.next_ts(), "how?", user="U1")).ts

    def asks_there(self):
        """Ask once more, in the thread of the question."""
        said = Message(self.channel, self.slack.next_ts(), "and?", user="U1", thread_ts=self.question)
        return self.slack.put(said).ts

    @property
    def thread(self):
        return ThreadId("slack", "T1", self.channel, self.question)

    @property
    def key(self):
        return f"slack:T1:{self.channel}:{self.question}"

    def answer(self, text="an answer", **more):
        return replace(Outgoing(self.thread, self.key, text, "reply", self.question, (), "U1"), **more)

    async def post(self, text="an answer", draft=(), **more):
        return await self.posting.post(self.answer(text, **more), LINKS, draft)

    async def find(self, live=()):
        return await self.posting.find(self.thread, self.key, live=live)

    def restart(self):
        """A new process: nothing is remembered."""
        self.posting = Posting(self.web, ME)

    def shown(self):
        """What people see below the question: markdown where there are blocks, else text."""
        return [seen(message) for message in self.slack.thread(self.channel, self.question)[1:]]

    async def stream(self, text="", root=""):
        answer = await self.web.call(
            "chat.startStream",
            channel=self.channel,
            thread_ts=root or self.question,
            recipient_user_id="U1",
            recipient_team_id="T1",
            markdown_text=text or None,
        )
        return DraftMessage(answer["ts"], True, text)

    async def draft(self, text):
        answer = await self.web.call(
            "chat.postMessage",
            channel=self.channel,
            thread_ts=self.question,
            text=text,
            metadata=Tag(self.key, draft=True).metadata(),
        )
        return DraftMessage(answer["ts"], False, text)

    def outbox(self):
        chat = self

        class Through:
            name, capabilities = "slack", Capabilities(find=True)

            async def post(self, outgoing):
                return await chat.posting.post(outgoing, LINKS)

            async def find(self, thread, key):
                return await chat.posting.find(thread, key, live=())

            async def reconnected(self):
                pass

        return Outbox(Through(), anyio.lowlevel.checkpoint)


def seen(message):
    if message.files:
        return f"[{message.files[0].name}]"
    if message.blocks is None:
        return message.text
    return "".join(block.get("text", "") for block in message.blocks if block["type"] == "markdown")


def long(parts):
    """A text that falls into so many parts."""
    line = "All work and no play makes Jack a dull boy.\n\n"
    return (line * (((parts - 1) * MAX_PART + 3_000) // len(line))).strip()


def together(texts):
    return "".join("".join(texts).split())


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("transports.shared.delivery.outbox.PAUSES_S", (0.01, 0.01, 0.01))


@pytest.fixture
async def slack():
    async with FakeSlack(echo=False) as fake:
        yield fake


@pytest.fixture
async def web(slack):
    async with open_web(slack.api_base_url, slack.bot_token, Unlimited()) as web:
        yield web


@pytest.fixture
async def chat(slack, web):
    return Chat(slack, web)


# plain posts


async def test_an_answer_goes_to_the_thread_marked_and_without_previews(chat, slack):
    ts = await chat.post("**Hello** " + EVIL)
    [_, message] = slack.thread("C1", chat.question)
    assert (message.ts, message.thread_ts) == (ts, chat.question)
    assert message.metadata == Tag(chat.key).metadata()
    assert message.blocks[0]["type"] == "markdown" and "**Hello**" in message.blocks[0]["text"]
    assert "Hello" in message.text
    assert slack.unfurls == []
    assert await chat.find() == ts


async def test_a_post_tried_again_after_it_is_out_is_not_posted_again(chat):
    assert await chat.post() == await chat.post()
    assert chat.shown() == ["an answer"]


async def test_blank_text_is_no_reason_to_lose_an_ending(chat):
    await chat.post("  \n ")
    assert chat.shown() == ["…"]


async def test_choices_and_feedback_are_below_the_last_part_only(chat, slack):
    chat.posting = Posting(chat.web, ME, feedback=True)
    await chat.post(long(2), choices=(Choice("Try again", "/retry 1"),))
    first, last = [[block["type"] for block in m.blocks] for m in slack.posts()]
    assert first == ["markdown"]
    assert last == ["markdown", choice_block((Choice("Try again", "/retry 1"),))["type"], "context_actions"]


async def test_only_replies_are_judged(chat, slack):
    chat.posting = Posting(chat.web, ME, feedback=True)
    await chat.post(kind="notice")
    assert [block["type"] for block in slack.posts()[0].blocks] == ["markdown"]


async def test_a_post_with_a_blank_root_begins_a_thread_that_holds_its_other_parts(chat, slack):
    channel = replace(chat.thread, root="")
    ts = await chat.post(long(2), thread=channel, to="", reply_to="")
    first, second = slack.posts("C1")
    assert (first.ts, first.thread_ts, second.thread_ts) == (ts, None, ts)
    chat.restart()
    assert await chat.posting.find(channel, chat.key, live=()) == ts


# what Slack refuses


@pytest.mark.parametrize("code", ["invalid_blocks", "msg_blocks_too_long", "invalid_arguments"])
async def test_refused_blocks_go_out_as_plain_text_with_the_choices_spelled_out(chat, slack, caplog, code):
    slack.fail("chat.postMessage", ApiError(code))
    ts = await chat.post("**Hello**", choices=(Choice("Try again", "/retry 1"),))
    [message] = slack.posts()
    assert message.blocks is None
    assert "Hello" in message.text and "Try again: /retry 1" in message.text
    assert code in caplog.text
    assert await chat.find() == ts


async def test_a_long_text_whose_blocks_are_refused_goes_out_whole(chat, slack):
    slack.fail("chat.postMessage", ApiError("msg_too_long"), forever=True, when=lambda a: "blocks" in a)
    text = "word " * 1500
    ts = await chat.post(text)
    assert together(chat.shown()) == together([text])
    chat.restart()
    assert await chat.find() == ts


@pytest.mark.parametrize("error", ["msg_too_long", "invalid_blocks", "no_text"])
async def test_what_is_refused_in_every_form_is_given_up(chat, slack, error):
    slack.fail("chat.postMessage", ApiError(error), forever=True)
    with pytest.raises(SlackRefused, match=error):
        await chat.post()
    assert len(slack.calls_to("chat.postMessage")) == 2


@pytest.mark.parametrize("error", ["is_archived", "token_revoked", "missing_scope", "thread_not_found"])
async def test_what_no_form_would_mend_is_given_up_at_once(chat, slack, error):
    slack.fail("chat.postMessage", ApiError(error), forever=True)
    with pytest.raises(SlackRefused, match=error) as refused:
        await chat.outbox().post(chat.answer())
    assert refused.value.friendly
    assert len(slack.calls_to("chat.postMessage")) == 1


# lost answers and crashes


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_a_post_in_three_parts_goes_on_where_a_crash_stopped_it(chat, slack, lost, applied):
    text = long(3)
    slack.fail(
        "chat.postMessage",
        Cut(applied=applied),
        when=lambda args: args["metadata"]["event_payload"]["part"] == lost,
    )
    with pytest.raises(TransportUnavailable) as failed:
        await chat.post(text)
    assert failed.value.maybe_posted
    chat.restart()
    found = await chat.find()
    assert (found is not None) is (applied and lost == 2)
    before = len(slack.calls_to("chat.postMessage"))
    ts = found or await chat.post(text)
    assert len(slack.calls_to("chat.postMessage")) - before == (3 - lost - applied)
    assert together(chat.shown()) == together([text])
    assert ts == slack.posts()[0].ts


async def test_a_post_with_an_answer_that_makes_no_sense_is_looked_up(chat, slack):
    slack.fail("chat.postMessage", ApiError("x", {"ok": True, "ts": 7}, applied=True))
    ts = await chat.outbox().post(chat.answer())
    assert [message.ts for message in slack.posts()] == [ts]


async def test_posts_of_other_keys_channels_and_people_are_not_taken_for_ours(chat, slack):
    await chat.post(key=f"{chat.key}?q1")
    there = Chat(slack, chat.web, "C2")
    there.question = slack.put(Message("C2", chat.question, "same ts", user="U1")).ts
    assert await there.post()
    slack.put(
        Message("C1", slack.next_ts(), "copied", "U1", thread_ts=chat.question, metadata={"event_type": "x"})
    )
    assert await chat.find() is None


async def test_a_look_up_reads_every_page_since_the_question(chat, slack):
    ts = await chat.post()
    for _ in range(450):
        slack.put(Message("C1", slack.next_ts(), "chatter", "U2", thread_ts=chat.question))
    late = Chat(slack, chat.web)
    late.question = chat.question
    late_ts = await late.post(key=f"{chat.key}?late")
    chat.restart()
    assert await chat.find() == ts
    assert await chat.posting.find(chat.thread, f"{chat.key}?late", live=()) == late_ts
    assert len(slack.calls_to("conversations.replies")) == 3


async def test_a_look_up_without_end_says_that_it_does_not_know(chat, slack, monkeypatch):
    monkeypatch.setattr("transports.slack.api.thread_history.PAGE", 1)
    for _ in range(25):
        slack.put(Message("C1", slack.next_ts(), "chatter", "U2", thread_ts=chat.question))
    with pytest.raises(TransportUnavailable):
        await chat.find()


async def test_in_a_thread_that_is_gone_nothing_is_found(chat, slack):
    slack.message(chat.question).deleted = True
    assert await chat.find() is None


async def test_a_look_up_that_is_refused_is_a_failed_one(chat, slack):
    slack.scopes.discard("channels:history")
    with pytest.raises(PostFailed):
        await chat.find()


# drafts


async def test_a_stream_that_shows_the_answer_is_stopped_and_left_alone(chat, slack):
    chat.posting = Posting(chat.web, ME, feedback=True)
    draft = await chat.stream("an answer")
    ts = await chat.post("an answer", [draft])
    message = slack.message(ts)
    assert ts == draft.id and message.stream.state == "stopped"
    assert [block["type"] for block in message.blocks] == ["markdown", "context_actions"]
    assert message.metadata == Tag(chat.key).metadata()
    assert slack.session("C1", chat.question).status == "active"
    assert slack.calls_to("chat.update") == []
    chat.restart()
    assert await chat.find() == ts


async def test_a_stream_that_shows_the_beginning_of_the_answer_gets_the_rest_with_its_end(chat, slack):
    draft = await chat.stream("an answer")
    assert await chat.post("an answer that **goes on**", [draft]) == draft.id
    assert chat.shown() == ["an answer that **goes on**"]
    assert slack.message(draft.id).metadata == Tag(chat.key).metadata()
    assert not slack.calls_to("chat.update")


@pytest.mark.parametrize("text", ["another answer", "| a | b |\n| --- | --- |\n| 1 | 2 |"])
async def test_a_stream_that_shows_anything_else_is_written_anew(chat, slack, text):
    draft = await chat.stream(text if "|" in text else "an answer")
    ts = await chat.post(text, [draft])
    assert ts == draft.id
    assert chat.shown() == [text]
    assert slack.message(ts).metadata == Tag(chat.key).metadata()
    assert slack.calls_to("chat.update")  # only a markdown block of ours draws a table


async def test_a_crash_between_stop_and_rewrite_is_not_taken_for_an_answer(chat, slack):
    draft = await chat.stream("Half of")
    gate = slack.gate("chat.update")
    async with background_tasks() as killed:
        killed.start_soon(chat.post, "half of it", [draft])
        await gate.reached()
    slack.heal()
    chat.restart()
    assert await chat.find() is None
    await chat.post("half of it")
    assert await chat.posting.sweep(chat.thread, chat.question, again=False)
    assert chat.shown() == ["half of it"]


async def test_an_edited_draft_becomes_the_answer(chat, slack):
    draft = await chat.draft("thinking")
    ts = await chat.post("@here " + EVIL, [draft])
    assert ts == draft.id
    assert slack.unfurls == slack.pings == []
    assert [call.args["parse"] for call in slack.calls_to("chat.update")] == ["none"]
    chat.restart()
    assert await chat.find() == ts


@pytest.mark.parametrize("fault", [Cut(), Cut(applied=True), Html(503, applied=True)])
@pytest.mark.parametrize("method", ["chat.stopStream", "chat.update"])
async def test_finishing_a_draft_may_fail_once_and_is_done_again(chat, slack, method, fault):
    draft = await chat.stream("Half")
    slack.fail(method, fault)
    assert await chat.post("half and half", [draft]) == draft.id
    assert chat.shown() == ["half and half"]


@pytest.mark.parametrize("method", ["chat.stopStream", "chat.update"])
async def test_a_draft_that_cannot_be_finished_is_replaced_by_a_post(chat, slack, method):
    draft = await chat.stream("Half")
    slack.fail(method, Html(503), forever=True)
    ts = await chat.post("half and half", [draft])
    slack.heal()
    assert ts != draft.id or method == "chat.stopStream"
    assert chat.shown()[-1] == "half and half"
    assert await chat.find() == ts
    assert chat.shown() == ["half and half"]


@pytest.mark.parametrize("how", ["expired", "stopped_by_user", "stopped"])
async def test_a_stream_that_is_over_is_repaired(chat, slack, how):
    draft = await chat.stream("an ans")
    stream = slack.message(draft.id).stream
    if how == "expired":
        stream.started -= 301
    else:
        stream.state = how
    assert await chat.post("an answer", [draft]) == draft.id
    assert chat.shown() == ["an answer"]


async def test_a_message_that_still_streams_is_stopped_before_it_is_written_over(chat, slack):
    draft = replace(await chat.stream("an ans"), open=False)
    assert await chat.post("an answer", [draft]) == draft.id
    assert chat.shown() == ["an answer"]


@pytest.mark.parametrize(
    "error", ["message_not_found", "cant_update_message", "edit_window_closed", "unknown_method"]
)
async def test_a_draft_that_cannot_be_written_is_replaced(chat, slack, error):
    draft = await chat.draft("thinking")
    slack.fail("chat.update", ApiError(error), forever=True)
    ts = await chat.post("an answer", [draft])
    assert ts != draft.id
    assert chat.shown() == ["an answer"]


async def test_a_draft_whose_plain_text_is_too_long_for_an_edit_is_replaced(chat, slack):
    draft = await chat.draft("thinking")
    slack.fail("chat.update", ApiError("invalid_blocks"), forever=True)
    text = "word " * 1000
    await chat.post(text, [draft])
    assert together(chat.shown()) == together([text])
    assert len(slack.posts()) == 1


async def test_parts_take_the_drafts_in_their_order_and_the_rest_is_posted_or_deleted(chat, slack):
    one, two, three = [await chat.draft(str(n)) for n in range(3)]
    text = long(2)
    await chat.post(text, [one, two, three])
    assert [message.ts for message in slack.posts()] == [one.id, two.id]
    assert together(chat.shown()) == together([text])

    longer = Chat(slack, chat.web)
    text = long(3)
    await longer.post(text, [await longer.draft("0")])
    assert together(longer.shown()) == together([text])


async def test_a_spare_draft_that_cannot_be_deleted_becomes_a_dash(chat, slack):
    one, two = await chat.draft("1"), await chat.stream("2")
    slack.fail("chat.delete", ApiError("compliance_exports_prevent_deletion"), forever=True)
    await chat.post("an answer", [one, two])
    assert chat.shown() == ["an answer", "-"]


async def test_a_spare_draft_never_costs_the_answer(chat, slack):
    one, two = await chat.draft("1"), await chat.draft("2")
    slack.fail("chat.delete", Html(), forever=True)
    slack.fail("chat.update", Html(), forever=True, when=lambda args: args["ts"] == two.id)
    assert await chat.post("an answer", [one, two]) == one.id


# what a killed process left


async def test_what_a_killed_process_left_is_swept_and_nothing_else(chat, slack):
    before = await chat.post("of an earlier question", key="slack:T1:C1:1.000001")
    chat.question = chat.question  # the same thread
    question = slack.put(Message("C1", slack.next_ts(), "and now?", "U1", thread_ts=chat.question)).ts
    key = f"slack:T1:C1:{question}"
    orphan, dead_draft, live = await chat.stream("half"), await chat.draft("half"), await chat.stream("live")
    notice = await chat.post("a notice", key="slack:T1:C1:1.000002")
    file = Message("C1", slack.next_ts(), "", "UBOT", "BBOT", thread_ts=chat.question, subtype="file_share")
    file.files = [slack.new_file("plot.png", b"1", "image/png")]
    person = Message("C1", slack.next_ts(), "me", "U2", thread_ts=chat.question)
    robot = Message("C1", slack.next_ts(), "other bot", None, "BOTHER", thread_ts=chat.question)
    for message in (file, person, robot):
        slack.put(message)
    chat.restart()
    assert await chat.posting.find(chat.thread, key, live=[live.id]) is None
    looks = len(slack.calls_to("conversations.replies"))
    assert await chat.posting.sweep(chat.thread, question, again=False)
    assert len(slack.calls_to("conversations.replies")) == looks
    assert [message.ts for message in slack.thread("C1", chat.question)] == [
        *(chat.question, before, question, live.id, notice, file.ts, person.ts, robot.ts)
    ]
    assert slack.message(orphan.id).deleted and slack.message(dead_draft.id).deleted


async def test_an_orphan_older_than_the_question_is_left_alone(chat, slack):
    orphan = await chat.stream("half")
    question = slack.put(Message("C1", slack.next_ts(), "and now?", "U1", thread_ts=chat.question)).ts
    await chat.posting.sweep(chat.thread, question)
    assert not slack.message(orphan.id).deleted


async def test_the_first_look_takes_away_what_was_left_unfinished_but_nothing_live(chat, slack):
    orphan, live = await chat.stream("the whole answer"), await chat.draft("the")
    assert await chat.posting.find(chat.thread, chat.key, live=[live.id]) is None
    assert slack.message(orphan.id).deleted
    assert await chat.post("the whole answer", [live]) == live.id
    assert chat.shown() == ["the whole answer"]


async def test_a_look_for_a_command_beside_a_turn_takes_nothing_of_its_draft(chat, slack):
    draft = await chat.draft("half")
    assert await chat.posting.find(chat.thread, chat.key, live=(), alone=lambda: False) is None
    assert not slack.message(draft.id).deleted


async def test_a_thread_that_another_worker_had_meanwhile_is_looked_into_again(chat, monkeypatch):
    monkeypatch.setattr(Unlimited, "is_shared", True)
    assert await chat.find() is None
    later = f"slack:T1:C1:{chat.asks_there()}"
    posted = await Posting(chat.web, ME).post(chat.answer(key=later), LINKS)
    monkeypatch.setattr(post_lookup, "FRESH_S", 0.0)
    assert await chat.posting.find(chat.thread, later, live=()) == posted


async def test_a_sweep_that_a_turn_began_beside_takes_nothing_away(chat, slack):
    orphan = await chat.stream("half")
    assert not await chat.posting.sweep(chat.thread, chat.question, undisturbed=lambda: False)
    assert not slack.message(orphan.id).deleted


async def test_a_sweep_spares_what_this_process_has_finished_since_its_first_look(chat, slack):
    draft = await chat.draft("half")
    await chat.find(live=[draft.id])
    assert await chat.post("an answer", [draft]) == draft.id
    assert await chat.posting.sweep(chat.thread, chat.question, again=False)
    assert chat.shown() == ["an answer"]


# one look


async def test_one_look_into_a_thread_serves_all_its_messages(chat, slack):
    questions = [chat.question, *(chat.asks_there() for _ in range(4))]
    keys = [f"slack:T1:C1:{question}" for question in questions]
    posted = [await chat.post(f"answer to {key}", key=key) for key in keys[::2]]
    chat.restart()
    async with anyio.create_task_group() as tasks:
        found = {}

        async def look(key):
            found[key] = await chat.posting.find(chat.thread, key, live=())

        for key in keys:
            tasks.start_soon(look, key)
    assert [found[key] for key in keys] == [posted[0], None, posted[1], None, posted[2]]
    assert len(slack.calls_to("conversations.replies")) == 1


async def test_what_this_process_tried_to_post_is_looked_for_anew(chat, slack):
    chat.restart()
    assert await chat.find() is None
    slack.fail("chat.postMessage", Html(502, applied=True))
    with pytest.raises(TransportUnavailable):
        await chat.post()
    assert await chat.find() == slack.posts()[0].ts
    assert len(slack.calls_to("conversations.replies")) == 2


async def test_a_first_look_that_fails_is_made_again(chat, slack):
    ts = await chat.post()
    chat.restart()
    slack.fail("conversations.replies", Html(503))
    with pytest.raises(PostFailed):
        await chat.find()
    assert await chat.find() == ts


async def test_an_orphan_that_cannot_be_deleted_is_left_and_logged(chat, slack, caplog):
    orphan = await chat.stream("half")
    slack.fail("chat.delete", ApiError("cant_delete_message"), forever=True)
    assert await chat.posting.sweep(chat.thread, chat.question)
    assert not slack.message(orphan.id).deleted
    assert "cant_delete_message" in caplog.text


async def test_an_orphan_that_still_streams_is_stopped_first(chat, slack):
    orphan = await chat.stream("half")
    slack.fail("chat.delete", ApiError("streaming_state_conflict"))
    await chat.posting.sweep(chat.thread, chat.question)
    assert slack.message(orphan.id).deleted and slack.message(orphan.id).stream.state == "stopped"


# long answers


async def test_an_answer_of_many_parts_is_its_beginning_and_a_file(chat, slack):
    chat.posting = Posting(chat.web, ME, feedback=True)
    text = long(MAX_PARTS + 1)
    ts = await chat.post(text, [await chat.stream(""), await chat.draft("more")])
    _, first, file = slack.thread("C1", chat.question)
    name = file_name(chat.key)
    assert first.ts == ts and text.startswith(seen(first)[:500])
    assert name in str(first.blocks[1]) and first.blocks[-1]["type"] == "context_actions"
    assert [f.name for f in file.files] == [name] and file.files[0].content.decode() == text
    chat.restart()
    assert await chat.find() == ts
    assert await chat.post(text) == ts
    assert len(slack.posts()) == 2


@pytest.mark.parametrize("applied", [False, True])
async def test_a_crash_at_the_file_neither_loses_nor_doubles_it(chat, slack, applied):
    text = long(MAX_PARTS + 1)
    slack.fail("files.completeUploadExternal", Cut(applied=applied))
    ts = await chat.outbox().post(chat.answer(text))
    file, page = slack.posts()
    assert (seen(file), page.ts) == (f"[{file_name(chat.key)}]", ts)


@pytest.mark.parametrize("how", ["scope", "upload", "share"])
async def test_where_no_file_is_taken_all_parts_are_posted(chat, slack, how):
    if how == "scope":
        slack.scopes.discard("files:write")
    elif how == "upload":
        slack.fail("upload", ApiError("no"), Cut(), Cut())
        slack.heal("upload")
        slack.fail("files.getUploadURLExternal", ApiError("file_uploads_disabled"), forever=True)
    else:
        slack.fail("files.completeUploadExternal", ApiError("file_share_limit_reached"), forever=True)
    text = long(MAX_PARTS + 1)
    ts = await chat.post(text)
    assert together(chat.shown()) == together([text])
    chat.restart()
    assert await chat.find() == ts


async def test_a_file_that_was_shared_before_a_crash_is_not_shared_again(chat, slack):
    text = long(MAX_PARTS + 1)
    slack.fail("chat.postMessage", Html(503))
    with pytest.raises(TransportUnavailable):
        await chat.post(text)
    chat.restart()
    assert await chat.find() is None
    ts = await chat.post(text)
    [file, page] = slack.posts()
    assert (file.files[0].name, page.ts) == (file_name(chat.key), ts)
    chat.restart()
    assert await chat.find() == ts


async def test_a_long_answer_to_a_channel_itself_is_in_messages(chat, slack):
    text = long(MAX_PARTS + 1)
    ts = await chat.post(text, thread=replace(chat.thread, root=""), to="", reply_to="")
    assert together(map(seen, slack.posts())) == together([text])
    assert {message.thread_ts for message in slack.posts()[1:]} == {ts}


async def test_an_upload_address_that_fails_is_tried_twice_and_then_all_parts_are_posted(
    chat, slack, quick_pause
):
    text = long(MAX_PARTS + 1)
    slack.fail("upload", Cut(), Html(503))
    await chat.post(text)
    assert together(chat.shown()) == together([text])


@pytest.fixture
def quick_pause(monkeypatch):
    monkeypatch.setattr(uploads, "PAUSE_S", 0.01)


async def test_an_answer_of_many_parts_is_not_given_up_while_parts_of_it_go_out(chat, slack):
    slack.scopes.discard("files:write")
    turn = itertools.cycle([False, True])
    slack.fail("chat.postMessage", Cut(), forever=True, when=lambda _: next(turn))
    text = long(8)
    ts = await chat.outbox().post(chat.answer(text))
    assert together(chat.shown()) == together([text])
    assert slack.posts()[0].ts == ts


async def test_an_endless_answer_without_files_ends_with_a_word(chat, slack):
    slack.scopes.discard("files:write")
    ts = await chat.post(long(MOST_PARTS + 1))
    assert len(slack.posts()) == MOST_PARTS
    assert CUT in str(slack.posts()[-1].blocks)
    assert await chat.find() == ts


# for one person alone


@pytest.mark.parametrize(
    "more",
    [
        {"kind": "refusal"},
        {"kind": "notice", "reply_to": "press-1"},
        {"thread": ThreadId("slack", "T1", "C1", ""), "reply_to": "slash-1"},
    ],
)
async def test_what_is_for_one_is_shown_to_one(chat, slack, more):
    ts = await chat.post(EVIL, **more)
    assert slack.posts() == []
    [post] = slack.ephemerals
    assert (post.ts, post.user) == (ts, "U1")
    assert post.thread_ts == (None if "thread" in more else chat.question)
    assert slack.unfurls == []
    chat.restart()
    assert await chat.find() is None  # nobody can know


async def test_in_a_dm_what_is_for_one_is_an_ordinary_post(slack, web):
    chat = Chat(slack, web, "D1")
    await chat.post(kind="refusal")
    assert slack.ephemerals == [] and chat.shown() == ["an answer"]


@pytest.mark.parametrize("error", ["user_not_in_channel", "unknown_method", "messages_tab_disabled"])
async def test_where_ephemeral_is_refused_it_is_an_ordinary_post(chat, slack, error):
    slack.fail("chat.postEphemeral", ApiError(error), forever=True)
    await chat.post(kind="refusal")
    assert chat.shown() == ["an answer"]


# questions


async def test_a_closed_question_has_no_buttons_and_says_how_it_ended(chat, slack):
    key = f"{chat.key}?q1"
    ts = await chat.post(f"May I? {EVIL}", key=key, kind="notice", choices=(Choice("Yes", "/approve"),))
    await chat.posting.close_question(chat.posting.questions.pop(key), "Approved by <@U1>")
    message = slack.message(ts)
    assert "approve" not in str(message.blocks).lower().replace("approved", "")
    assert "Approved by" in str(message.blocks)
    assert message.metadata == Tag(key).metadata()
    assert slack.unfurls == []
    assert key not in chat.posting.questions
    assert chat.posting.questions.pop_all_of(chat.key) == []


# files out


async def test_a_file_is_shown_in_the_thread_under_its_name(chat, slack, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\x00\x01" * 100_000)
    await chat.posting.attach(chat.thread, chat.key, tmp_path / "a.bin", "../plot.bin")
    [file] = slack.posts()[0].files
    assert (file.name, file.content) == ("plot.bin", b"\x00\x01" * 100_000)


async def test_a_large_file_is_never_in_memory_as_a_whole(chat, slack, tmp_path, monkeypatch):
    path, size = tmp_path / "big.bin", 30_000_000
    with path.open("wb") as file:
        file.truncate(size)
    read = []
    real = anyio.AsyncFile.read

    async def counted(self, count=-1):
        chunk = await real(self, count)
        read.append(len(chunk))
        return chunk

    monkeypatch.setattr(anyio.AsyncFile, "read", counted)
    await chat.posting.attach(chat.thread, chat.key, path, "big.bin")
    assert max(read) <= uploads.CHUNK and sum(read) == size
    assert len(slack.posts()[0].files[0].content) == size


@pytest.mark.parametrize(
    "content,most,said", [(b"", 10, "empty"), (b"x" * 11, 10, "at most"), (None, 10, "read")]
)
async def test_a_file_that_cannot_be_sent_is_refused_with_the_reason(
    chat, slack, tmp_path, content, most, said, monkeypatch
):
    monkeypatch.setattr(uploads, "MAX_BYTES", most)
    if content is not None:
        (tmp_path / "f").write_bytes(content)
    with pytest.raises(TransportRejected) as refused:
        await chat.posting.attach(chat.thread, chat.key, tmp_path / "f", "f")
    assert said in refused.value.friendly
    assert slack.calls_to("files.getUploadURLExternal") == []


async def test_a_missing_scope_is_named_to_the_person(chat, slack, tmp_path):
    (tmp_path / "f").write_bytes(b"x")
    slack.scopes.discard("files:write")
    with pytest.raises(TransportRejected) as refused:
        await chat.posting.attach(chat.thread, chat.key, tmp_path / "f", "f")
    assert "files:write" in refused.value.friendly


@pytest.mark.parametrize("applied", [False, True])
async def test_a_file_whose_share_was_lost_is_shown_once(chat, slack, tmp_path, applied, monkeypatch):
    (tmp_path / "f").write_bytes(b"x")
    slack.fail("files.completeUploadExternal", Cut(applied=applied))
    monkeypatch.setattr("transports.slack.post.posting.PAUSE_S", 0.01)
    await chat.posting.attach(chat.thread, chat.key, tmp_path / "f", "f")
    assert len(slack.posts()) == 1


async def test_a_file_that_shrinks_while_it_is_sent_is_a_failed_post(
    chat, slack, tmp_path, monkeypatch, quick_pause
):
    path = tmp_path / "f"
    path.write_bytes(b"x" * 200_000)
    monkeypatch.setattr(uploads, "of_file", partial(_then, uploads.of_file, lambda: path.write_bytes(b"x")))
    with pytest.raises(PostFailed):
        await chat.posting.attach(chat.thread, chat.key, path, "f")
    assert slack.posts() == []


async def _then(work, after, *arguments):
    done = await work(*arguments)
    after()
    return done


# pure parts


@given(st.text(alphabet="xyz<& \n`", min_size=1, max_size=12), st.integers(1, 600))
@settings(max_examples=40)
def test_plain_words_leave_nothing_out_and_fit_an_edit(text, times):
    assume(not re.search("```[^\n]*x", text * times))  # the language of a code block is no word of it
    [page] = pages(replace(OUTGOING, text=text * times), LINKS, inert=True)[:1]
    assert len(page.plain) <= 4_000
    assert page.words.count("x") == page.markdown.count("x")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["metadata", "event_type", "event_payload", "key", "part", "parts", "ts", "files"]
                ),
                inner | st.just("threadfast"),
                max_size=5,
            )
        ),
        max_leaves=20,
    )
)
def test_no_record_however_odd_breaks_the_look_up(value):
    message = value if isinstance(value, dict) else {"metadata": value}
    tag_of(message)
    fold([message], "k", Sent())


def test_only_our_own_unfinished_messages_after_the_question_are_orphans():
    ours = {"ts": "5.000001", "bot_id": "B"}
    others = [
        {**ours, "ts": "1.000001"},  # the root, which a thread's record always begins with
        {**ours, "ts": "5.000002", "bot_id": "BOTHER"},
        {"ts": "5.000003", "user": "U1"},
        {**ours, "ts": "5.000004", "metadata": Tag("k").metadata()},
        {**ours, "ts": "5.000005", "subtype": "channel_join"},
        {**ours, "ts": "5.000006", "files": [{"id": "F1"}]},
        {**ours, "ts": "5.000007"},
        {"bot_id": "B"},
    ]
    assert orphans([ours, *others], {"B"}, "2.000001", {"5.000007"}) == ["5.000001"]


def test_a_tag_comes_back_as_it_was():
    for tag in (Tag("k"), Tag("k", 1, 3, "f.md", draft=True)):
        assert tag_of({"metadata": tag.metadata()}) == tag


async def test_a_rewrite_that_was_done_but_never_answered_is_not_said_twice(chat, slack):
    draft = await chat.draft("half")
    slack.fail("chat.update", Html(503, applied=True), forever=True)
    await chat.post("half and half", [draft])
    assert chat.shown() == ["half and half"]
    slack.fail("chat.delete", Html(503), forever=True)
    other = await chat.draft("more")
    with pytest.raises(TransportUnavailable):
        await chat.post("more and more", [other], key="slack:T1:C1:1760000099.000100")
    assert chat.shown().count("more and more") == 1
