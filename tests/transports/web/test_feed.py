"""A page that reads a feed sees each event once, however often its connection is lost."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.transports.web.patient import Page
from transports.web.feed import (
    MOST_FEEDS,
    MOST_MESSAGES,
    MOST_NOTED,
    MOST_RINGS,
    RING_EVENTS,
    Feed,
    Feeds,
    Ring,
)


def texts(lines):
    return [json.loads(line)["text"] for line in lines]


def drafts(feed):
    """Return the answers so far that a page without a past is told."""
    page = Page()
    for event in feed.noted():
        page.apply(event)
    return [message.draft for message in page.messages.values()]


@given(st.lists(st.one_of(st.integers(0, 999), st.just("look")), max_size=60))
def test_what_is_read_in_pieces_is_what_was_written(steps):
    ring, written, read, seen = Ring(), [], [], 0
    for step in [*steps, "look"]:
        if step == "look":
            read += texts(ring.since(seen))
            seen = ring.last
        else:
            ring.append({"op": "delta", "text": step})
            written.append(step)
    assert read == written


def test_who_has_fallen_behind_the_ring_is_told_so():
    ring = Ring()
    for number in range(RING_EVENTS + 5):
        ring.append({"op": "delta", "text": number})
    assert ring.since(4) is None
    assert len(ring.since(5)) == RING_EVENTS
    assert ring.since(ring.last + 1) is None
    assert ring.since(-1) is None


def test_a_ring_is_bounded_in_bytes():
    ring = Ring()
    for _ in range(50):
        ring.append({"op": "post", "text": "x" * 100_000})
    assert ring.since(0) is None
    assert len(ring.since(ring.last - 5)) == 5


def test_a_snapshot_of_a_running_turn_has_its_text_in_one_piece():
    feed = Feed()
    for event in ("message", "started"):
        feed.publish({"op": event, "id": "m", "text": "hi"})
    for text in ("Hel", "lo ", "you"):
        feed.publish({"op": "delta", "id": "m", "text": text})
    assert drafts(feed) == ["Hello you"]


def test_text_that_was_taken_back_is_not_in_a_snapshot():
    feed = Feed()
    feed.publish({"op": "delta", "id": "m", "text": "wrong"})
    feed.publish({"op": "reset", "id": "m"})
    feed.publish({"op": "delta", "id": "m", "text": "right"})
    assert drafts(feed) == ["right"]


def test_a_settled_message_keeps_its_post_and_its_tools_but_no_draft():
    feed = Feed()
    for op in ("message", "started", "tool", "tool_done", "delta", "wait", "post", "settled"):
        feed.publish({"op": op, "id": "m", "text": ""})
    assert [e["op"] for e in feed.noted()] == ["message", "started", "tool", "tool_done", "post", "settled"]
    assert not feed.running


def test_old_messages_are_forgotten():
    feed = Feed()
    for number in range(MOST_MESSAGES + 10):
        feed.publish({"op": "started", "id": f"m{number}"})
        feed.publish({"op": "settled", "id": f"m{number}"})
    assert len({e["id"] for e in feed.noted()}) == MOST_MESSAGES


def test_feeds_of_quiet_threads_are_forgotten_and_running_ones_are_not():
    feeds = Feeds()
    feeds.of("busy").publish({"op": "started", "id": "m"})
    with feeds.of("open").ring.watch(lambda: None):
        for number in range(MOST_FEEDS + 5):
            feeds.of(f"t{number}")
        assert {"busy", "open"} <= set(feeds.known)
    assert len(feeds.known) <= MOST_FEEDS


def test_a_page_of_a_thread_at_rest_that_many_others_followed_gets_a_snapshot_of_all_it_knows():
    feeds = Feeds()
    told = [{"op": op, "id": "m1"} for op in ("started", "post", "settled")]
    for event in told:
        feeds.of("old").publish(event)
    for number in range(MOST_RINGS):
        feeds.of(f"t{number}").publish({"op": "started", "id": "m"})
    old = feeds.known["old"]
    assert old.ring.since(old.ring.last - 1) is None
    assert old.ring.since(old.ring.last) == []
    assert list(old.noted()) == told
    assert feeds.known["t0"].ring.since(0), "a running one stays whole"


def test_a_settled_message_takes_what_is_told_of_it_later():
    feed = Feed()
    for op in ("started", "settled", "closed"):
        feed.publish({"op": op, "id": "m1"})
    assert [event["op"] for event in feed.noted()] == ["started", "settled", "closed"]


def test_what_an_earlier_process_settled_is_left_to_the_log():
    feed = Feed()
    feed.publish({"op": "settled", "id": "m1", "outcome": "answered"})
    assert list(feed.noted()) == []
    assert not feed.running


def test_a_reset_feed_gives_every_page_a_snapshot():
    feed = Feed()
    feed.publish({"op": "started", "id": "m1"})
    seen = feed.ring.last
    feed.ring.reset()
    assert feed.ring.since(seen) is None
    assert feed.ring.since(feed.ring.last) == []


def test_who_serves_a_message_tells_of_it_and_what_another_worker_told_before_is_forgotten():
    feed = Feed()
    feed.publish({"op": "delta", "id": "m1", "text": "half of"}, "b")
    seen = feed.ring.last
    feed.publish({"op": "edit", "id": "m1", "text": "hi"})
    feed.publish({"op": "started", "id": "m1"}, "c")
    assert feed.ring.since(seen) is None
    assert [event["op"] for event in feed.noted()] == ["started"]
    assert feed.own() == {}
    feed.publish({"op": "started", "id": "m1"})
    assert list(feed.own()) == ["m1"]
    feed.publish({"op": "started", "id": "m2"}, "c")
    feed.forget_others()
    assert list(feed.own()) == ["m1"] == list(dict.fromkeys(event["id"] for event in feed.noted()))


def test_a_long_thought_leaves_room_for_the_answer_in_a_snapshot():
    feed = Feed()
    for op in ["started", *["thinking"] * MOST_NOTED, "delta", "thinking", "delta"]:
        feed.publish({"op": op, "id": "m", "text": op})
    assert drafts(feed) == ["deltadelta"]
