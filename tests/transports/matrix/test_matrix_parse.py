"""What people write in Matrix, as messages to the bot; and what attacks the reader."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transports.matrix import render
from transports.matrix.parse import parse_message, parse_spoken, replied_to, sent_at, words_of
from transports.matrix.values import MARK, Me, Room, encoded, mark_of, newest_content, relation

ME = Me("@fast:example.org", "Fast")
CHANNEL = Room("!abc:example.org", "matrix", "example.org", direct=False, encrypted=False)
DIRECT = Room("!dm:example.org", "matrix", "example.org", direct=True, encrypted=False)
ANN = "@ann:example.org"


def said(body, *, root="", kind="m.room.message", **content):
    related = {"m.relates_to": {"rel_type": "m.thread", "event_id": root}} if root else {}
    content = {"msgtype": "m.text", "body": body, **related, **content}
    return {"type": kind, "event_id": "$e/1", "sender": ANN, "content": content, "origin_server_ts": 1000}


def heard(event, room=CHANNEL, bots=()):
    return parse_message(event, room, ME, bots)


@pytest.mark.parametrize(
    ("event", "via", "text"),
    [
        (said("Fast: help", **{"m.mentions": {"user_ids": [ME.id]}}), "mention", "help"),
        (said("help, Fast", **{"m.mentions": {}}), None, ""),
        (said("@fast:example.org help"), "mention", "help"),
        (said("breakfast is ready"), None, ""),
        (said("> <@bob:x> Fast said so\n\nnot to it"), None, ""),
        (said("and then?", root="$r"), "overheard", "and then?"),
        (said("Bob?", root="$r", **{"m.mentions": {"user_ids": ["@bob:x"]}}), None, ""),
        (said("Fast: I am a program", msgtype="m.notice"), None, ""),
    ],
)
def test_a_message_reaches_the_bot_by_its_mention_or_in_a_thread(event, via, text):
    incoming = heard(event)
    assert (incoming and incoming.via, incoming.text if incoming else "") == (via, text)


def test_a_mention_begins_a_thread_and_a_direct_room_is_one():
    incoming = heard(said("Fast: hello"))
    assert str(incoming.thread) == "matrix:example.org:!abc%3Aexample.org:$e%2F1"
    assert heard(said("hello"), DIRECT).thread.root == encoded(DIRECT.id)
    assert heard(said("hello", root="$r"), DIRECT).thread.root == "$r"


def test_a_listed_program_is_heard_if_it_names_the_bot():
    event = said("Fast: go", msgtype="m.notice")
    assert heard(event, bots={ANN}).text == "go"
    assert heard(said("go", root="$r", msgtype="m.notice"), bots={ANN}) is None


def test_a_file_is_read_with_its_words_and_an_encrypted_one_with_its_key():
    there = {"filename": "a.png", "url": "mxc://x/y", "info": {"mimetype": "image/png", "size": 5}}
    [file] = heard(said("look at it", msgtype="m.image", **there), DIRECT).files
    assert (file.name, file.media_type, file.size, file.url) == ("a.png", "image/png", 5, "mxc://x/y")
    locked = {"file": {"url": "mxc://x/z", "key": {"k": "abc"}}, "org.matrix.msc3245.voice": {}}
    heard_aloud = heard(said("voice.ogg", msgtype="m.audio", **locked), DIRECT)
    assert (heard_aloud.text, heard_aloud.files[0].voice) == ("", True)
    assert '"k": "abc"' in heard_aloud.files[0].url


@pytest.mark.parametrize(
    "content",
    [
        {
            "m.poll": {
                "question": {"m.text": [{"body": "Lunch?"}]},
                "answers": [{"m.text": [{"body": "Yes"}]}],
            }
        },
        {
            "org.matrix.msc3381.poll.start": {
                "question": {"org.matrix.msc1767.text": "Lunch?"},
                "answers": [{"org.matrix.msc1767.text": "Yes"}],
            }
        },
    ],
)
def test_a_poll_is_read(content):
    assert words_of({"type": "m.poll.start"}, content) == "Lunch?\n- Yes"


NAMES = st.sampled_from(
    ["m.relates_to", "m.mentions", "user_ids", "file", "info", "size", "url", "body", "msgtype", "m.new_content", "m.relations", "m.replace", "content", "m.poll", "answers", "question", "m.text", "event_id", "rel_type", "m.in_reply_to", "formatted_body", "filename", MARK, "choices", "geo_uri", "unsigned"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
KINDS = st.sampled_from(["m.room.message", "m.poll.start", "m.sticker", "m.reaction"])
EVENTS = st.fixed_dictionaries(
    {"type": KINDS | JSON, "content": st.dictionaries(NAMES, JSON, max_size=6) | JSON},
    optional={"event_id": JSON, "sender": JSON, "origin_server_ts": JSON, "unsigned": JSON},
)


@given(EVENTS, st.sampled_from([CHANNEL, DIRECT]))
def test_no_event_can_break_the_reader(event, room):
    parse_message(event, room, ME, {ANN})
    parse_spoken(event, ME, "Ann")
    words_of(event, newest_content(event))
    assert isinstance(replied_to(event) + relation(event, "m.thread") + sent_at(event), str)
    assert mark_of(event).get("x") is None


@given(st.text(max_size=300))
def test_html_of_a_model_has_allowed_tags_only_and_calls_nobody(text):
    shown = render.html(
        f"{text} <img src=x> [a](javascript:alert(1)) [b](https://matrix.to/#/@ann:x) ![c](http://d/e)"
    )
    assert "<img" not in shown
    assert "href" not in shown
    assert render.content(text, {})["m.mentions"] == {}


def test_only_an_allowed_host_or_an_own_address_is_a_link():
    links = {"good.example", "https://own.test/x"}
    said = "https://a.good.example/b https://own.test/x https://own.test/y [bank](https://evil.test/good.example)"
    shown = render.html(f"{said} [c](https://good.example\\@evil.test/)", links)
    assert re.findall(r'href="([^"]*)"', shown) == ["https://a.good.example/b", "https://own.test/x"]
    assert "bank (<code>https://evil.test/good.example</code>)" in shown


@pytest.mark.parametrize("words", ["x ", 'x<&"é ', "漢字。", "|a", "*a* ", "\\\n"])
def test_a_long_answer_fits_into_events_also_encrypted(words):
    for page in render.pages(words * 40_000):
        event = json.dumps(render.edit("$e", render.content(page, {})), ensure_ascii=False)
        assert len(event.encode()) * 4 / 3 < 64_000
