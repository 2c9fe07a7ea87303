"""A message that no person typed, and that Slack has no id of, is answered in its thread like any other."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from tests.fakes.slack import FakeSlack, Message
from tests.transports.slack.test_posting import ME, Chat, Unlimited
from threads.model import Author
from threads.scheduled_messages import scheduled_id
from transports.slack.api.web_api import open_web
from transports.slack.post.post_tags import since_of
from transports.slack.post.posting import Posting

ANN = Author("U1", "ann")


@pytest.fixture
async def chat():
    async with FakeSlack() as slack, open_web(slack.api_base_url, slack.bot_token, Unlimited()) as web:
        yield Chat(slack, web)


def key_of(chat, due):
    return f"slack:T1:{chat.channel}:{scheduled_id('s1', due)}"


async def test_after_a_crash_it_is_found_without_reading_all_of_a_long_thread(chat):
    slack = chat.slack
    for ago in range(900, 300, -1):
        ts = f"{time.time() - ago:.6f}"
        slack.put(Message("C1", ts, "chatter", "U2", thread_ts=chat.question))
    key = key_of(chat, datetime.now(UTC))
    ts = await chat.post(key=key, reply_to=key.rpartition(":")[2])
    chat.posting = Posting(chat.web, ME)
    before = len(slack.calls_to("conversations.replies"))
    assert await chat.posting.find(chat.thread, key, live=()) == ts
    assert len(slack.calls_to("conversations.replies")) == before + 1


async def test_what_a_killed_process_left_unfinished_of_its_answer_is_swept(chat):
    key = key_of(chat, datetime.now(UTC))
    slack = chat.slack
    slack.put(Message("C1", slack.next_ts(), "half an ans", "UBOT", thread_ts=chat.question, bot_id="BBOT"))
    assert await chat.posting.find(chat.thread, key, live=()) is None
    assert await chat.posting.sweep(chat.thread, since_of(key), again=False)
    assert chat.shown() == []


def test_it_is_looked_for_from_a_minute_before_it_was_due():
    due = datetime(2026, 11, 22, 11, tzinfo=UTC)
    assert since_of(f"slack:T1:C1:{scheduled_id('s1', due)}") == f"{int(due.timestamp()) - 60}.000000"
    assert since_of(f"slack:T1:C1:{scheduled_id('s1', due)}?q1a2b") == f"{int(due.timestamp()) - 60}.000000"
    assert since_of("slack:T1:C1:press-1") == ""
