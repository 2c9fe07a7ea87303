"""What every transport promises, as checks that any transport can run on itself.

The wheel has this module as ``threadfast_testing``. A check gets a transport that serves, and a thread of it in which
somebody has said hello. It raises AssertionError, or whatever the transport raised where it should not have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from threads.errors import FileUnavailable, PostFailed
from threads.model import (
    Attachment,
    Choice,
    Outgoing,
    QuestionClosed,
    Resumed,
    StagesChanged,
    StageShown,
    Taken,
    TextDelta,
    TextReset,
    ThinkingDelta,
    ThreadId,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnSettled,
    TurnStarted,
    UsageCounted,
    Waiting,
)
from transports.base.transport import Transport

WITHIN_S = 100.0

EVENTS: list[TurnEvent] = [
    Taken("hi", "U1"),
    TurnStarted("hi", "U1"),
    ThinkingDelta("hm"),
    TextDelta("an answer"),
    TextReset(),
    Waiting("rate limited", 20, 2, 6),
    Waiting("your decision", float("inf")),
    Resumed(),
    ToolStarted("read_file", "notes.md", "c1"),
    ToolFinished("read_file", ok=False, call_id="c1"),
    UsageCounted("offline/demo", 1200, 0.5, None),
    QuestionClosed("k?q1", approved=True, by="U1"),
    StagesChanged("triage", (StageShown("assess", "passed"), StageShown("plan", "running"))),
    TurnSettled("answered"),
]


async def a_post_has_an_id_and_is_found_by_its_key_if_the_platform_can(
    edge: Transport, thread: ThreadId
) -> None:
    key = f"{thread.transport}:{thread.workspace}:{thread.channel}:{thread.root}"
    post = Outgoing(thread, key, "hello", "error", thread.root, (Choice("Try again", "/retry m1"),), to="U1")
    posted = await edge.post(post)
    assert posted
    found = await edge.find(thread, key)
    assert found == (posted if edge.capabilities.find else None)
    assert await edge.find(thread, f"{key}9") is None


async def it_is_connected_and_says_so_at_once(edge: Transport, _: ThreadId) -> None:
    assert edge.state == "connected"
    with anyio.fail_after(WITHIN_S):
        await edge.reconnected()


async def no_event_of_a_turn_can_break_it(edge: Transport, thread: ThreadId) -> None:
    for event in (*EVENTS, *reversed(EVENTS), *EVENTS):
        for message_id in (thread.root, "press-1", "", "odd id \x00"):
            edge.show(thread, message_id, event)
    assert await edge.post(Outgoing(thread, "k", "still there", "notice"))


async def what_it_does_not_have_it_says_in_the_domains_words(edge: Transport, thread: ThreadId) -> None:
    try:
        async with edge.download(Attachment("F1", "x.txt", url="http://127.0.0.1:9/other")):
            raise AssertionError("a file of another host was opened")
    except FileUnavailable:
        pass
    if not edge.capabilities.files:
        with TemporaryDirectory() as folder:
            try:
                await edge.attach(thread, "k", Path(folder) / "x", "x")
            except PostFailed:
                pass
            else:
                raise AssertionError("it takes no files, and took one")
    earlier = await edge.earlier(thread, "9999999999.000000")
    assert [line.text for line in earlier.lines] == (["hello"] if edge.capabilities.earlier else [])


CHECKS: tuple[Callable[[Transport, ThreadId], Awaitable[None]], ...] = (
    a_post_has_an_id_and_is_found_by_its_key_if_the_platform_can,
    it_is_connected_and_says_so_at_once,
    no_event_of_a_turn_can_break_it,
    what_it_does_not_have_it_says_in_the_domains_words,
)
