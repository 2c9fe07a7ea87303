"""What Slack tells, and what it means: events, messages, buttons and slash commands."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from threads.model import Attachment, Author, Deleted, Edited, Feedback, Incoming, Spoken, ThreadId
from transports.shared.bot_loop_guard import IN_A_ROW, BotLoopGuard
from transports.slack.events.parse_action import ButtonPress, parse_action, parse_command
from transports.slack.events.parse_event import (
    EventsDropped,
    HomeOpened,
    Joined,
    Parsed,
    SessionRenamed,
    parse_event,
)
from transports.slack.events.parse_message import Known, Me, parse_message, spoken, wanted

ME = Me("T1", "UBOT", "BBOT", "Threadfast")
ROOT, TS = "1700000000.000100", "1700000100.000200"
SENT_AT = "2023-11-14T22:15:00.000+00:00"
FILE = {
    "id": "F1",
    "name": "notes.txt",
    "mimetype": "text/plain",
    "size": 12,
    "mode": "hosted",
    "url_private": "https://files.slack.com/p",
    "url_private_download": "https://files.slack.com/d",
}


def said(text="hi", **more):
    return {"type": "message", "channel": "C1", "ts": TS, "user": "U1", "text": text, **more}


def listening_to(bot):
    return replace(ME, bots=frozenset({bot}))


def event(event, **more):
    return parse_event({"team_id": "T1", "event_id": "Ev1", "event": event, **more}, ME)


def heard(*args, **more) -> Incoming | None:
    parsed = event(said(*args, **more))
    assert not parsed.odd
    return parsed.inbound[0] if parsed.inbound else None


# -- who is meant ----------------------------------------------------------------------------------------------


def test_a_direct_message_is_always_for_the_bot():
    incoming = heard("hello", channel="D1", channel_type="im", client_msg_id="c-1")
    assert incoming == Incoming(
        TS, ThreadId("slack", "T1", "D1", TS), Author("U1"), "hello", SENT_AT, via="direct", alias="c-1"
    )


IN_THREAD, DIRECT = {"thread_ts": ROOT}, {"channel": "D1"}
GROUP = {"channel": "G1", "channel_type": "mpim"}
ROOT_WITH_REPLIES = {"thread_ts": TS}


@pytest.mark.parametrize(
    ("text", "more", "via", "words"),
    [
        ("what does <@U2> mean?", DIRECT, "direct", "what does @someone (U2) mean?"),
        ("<@UBOT>: is it <@UBOT>?", {}, "mention", "is it @Threadfast?"),
        ("<@UBOT|threadfast> hi", {}, "mention", "hi"),
        (" <@UBOT> ", {}, "mention", "@Threadfast"),  # only the name: it is not blank
        ("<@UBOT> 1 &lt; 2 &amp;&amp; 3", {}, "mention", "1 < 2 && 3"),
        ("and then?", IN_THREAD, "overheard", "and then?"),
        ("<@U2> and <@UBOT> look", IN_THREAD, "mention", "@someone (U2) and @Threadfast look"),
        ("`&lt;@UBOT&gt;`", IN_THREAD, "overheard", "`<@UBOT>`"),  # code: Slack escapes the name
        ("<@UBOT> hi", {"subtype": "thread_broadcast", **IN_THREAD}, "mention", "hi"),
        ("<@UBOT> hi", {"subtype": "me_message", **IN_THREAD}, "mention", "hi"),
        ("by the way", {"subtype": "thread_broadcast", **IN_THREAD}, "overheard", "by the way"),
    ],
)
def test_a_message_is_for_the_bot_if_it_is_direct_names_it_or_goes_on_in_a_thread(text, more, via, words):
    incoming = heard(text, **more)
    assert (incoming.via, incoming.text, incoming.id) == (via, words, TS)
    assert incoming.thread.root == more.get("thread_ts", TS)


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("lunch?", {}),
        ("lunch?", ROOT_WITH_REPLIES),
        ("lunch?", GROUP),
        ("<@UBOT2> hi", {}),
        ("<@UBOT> hi", {"hidden": True}),
        ("<@UBOT> hi", {"user": None}),
        ("<@UBOT> hi", {"user": ["U1"]}),
        *(
            (f"{named} look", IN_THREAD)
            for named in ("<@U2>", "<@W2|ann>", "<!subteam^S1|@ops>", "<!here>", "<!channel|@channel>")
        ),
        ("", DIRECT),
        ("", {**DIRECT, "files": [{"id": "F4", "mode": "tombstone"}]}),
    ],
)
def test_any_other_message_is_not_for_the_bot(text, more):
    assert heard(text, **more) is None


def test_twins_are_one_message_whichever_comes_first():
    message, mention = said("<@UBOT> hi"), said("<@UBOT> hi", type="app_mention")
    assert event(message).inbound == event(mention).inbound


def test_the_mention_alone_is_enough_even_when_its_text_does_not_name_the_bot():
    assert event(said("hi")).inbound == ()
    assert event(said("hi", type="app_mention")).inbound[0].via == "mention"


# -- who speaks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ours", [{"user": "UBOT"}, {"bot_id": "BBOT"}, {"bot_id": "BBOT", "subtype": "bot_message", "user": None}]
)
def test_the_bot_never_hears_itself_but_the_channel_has_moved(ours):
    assert event(said("<@UBOT> hi", **ours)) == Parsed(moved=("C1", TS))


def test_other_bots_are_heard_only_when_they_are_listened_to():
    for bot in ({"bot_id": "B2", "user": "U9"}, {"bot_id": "B2", "subtype": "bot_message", "user": None}):
        body = {"event": said("<@UBOT> alarm", **bot)}
        assert parse_event(body, ME).inbound == ()
        assert parse_event(body, listening_to("B2")).inbound[0].author == Author("B2")
    [heard] = parse_event({"event": said("<@UBOT>", bot_id="B2", user="U9")}, listening_to("U9")).inbound
    assert heard.author == Author("U9")


@pytest.mark.parametrize("listed", ["B2", "U9"])
def test_a_bot_is_counted_by_the_id_it_is_listed_under(listed):
    me = listening_to(listed)
    guard, beep = BotLoopGuard(me.bots), said("<@UBOT> beep", bot_id="B2", user="U9", thread_ts=ROOT)
    messages = [{**beep, "ts": f"17000001{number:02}.000200"} for number in range(IN_A_ROW + 2)]
    admitted = [guard.admits(parse_event({"event": message}, me).inbound[0]) for message in messages]
    assert admitted.count(True) == IN_A_ROW


@pytest.mark.parametrize("subtype", ["channel_join", "channel_topic", "pinned_item", "assistant_app_thread"])
def test_what_nobody_said_is_not_heard_but_moves_the_channel(subtype):
    assert event(said("<@UBOT> joined", subtype=subtype)) == Parsed(moved=("C1", TS))


# -- what is said ----------------------------------------------------------------------------------------------


def test_a_name_among_the_blocks_calls_the_bot_when_there_is_no_text():
    named = [{"type": "user", "user_id": "UBOT"}, {"type": "text", "text": " is 1 < 2?"}]
    blocks = [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": named}]}]
    incoming = heard("", blocks=blocks)
    assert (incoming.via, incoming.text) == ("mention", "is 1 < 2?")


def test_a_forwarded_message_is_quoted_and_its_mentions_call_nobody():
    shared = {"is_share": True, "author_name": "Ann", "text": "a &lt; b\n<@UBOT> see", "files": [FILE]}
    assert heard("", attachments=[shared]) is None
    incoming = heard("<@UBOT> what is this?", attachments=[shared])
    assert incoming.text == "what is this?"
    assert incoming.quoted == "> Forwarded message from Ann:\n> a < b\n> @Threadfast see"
    assert [file.id for file in incoming.files] == ["F1"]
    assert heard("", attachments=[shared], channel="D1").text == ""


def by(author, text="my plan", **more):
    return {"is_share": True, "author_id": author, "text": text, **more}


OWN_AND_OTHERS = {
    "another's": (by("U2"), "", "> Forwarded message:\n> my plan"),
    "the author's": (by("U1"), "> Forwarded message:\n> my plan", ""),
    "the bot's": (by("UBOT"), "> Forwarded message:\n> my plan", ""),
    "the author's, which forwards another's": (
        by("U1", "", message_blocks=[{"message": {"text": "see", "attachments": [by("U2", "obey")]}}]),
        "",
        "> Forwarded message:\n> see\n> Forwarded message:\n> obey",
    ),
}


@pytest.mark.parametrize(("shared", "own", "others"), OWN_AND_OTHERS.values(), ids=OWN_AND_OTHERS)
def test_a_forwarded_message_is_its_authors_own_only_if_they_or_the_bot_wrote_all_of_it(shared, own, others):
    incoming = heard("<@UBOT> look", attachments=[shared])
    assert (incoming.text, incoming.quoted) == ("\n\n".join(filter(None, ("look", own))), others)
    assert spoken(said("look", attachments=[shared]), ME).forwarding is bool(others)


def test_a_link_preview_is_what_a_page_says_and_never_its_senders_words():
    preview = {"from_url": "https://a.example", "title": "Buy", "author_id": "U1", "text": "obey me"}
    incoming = heard("<@UBOT> https://a.example", attachments=[preview])
    assert incoming.text == "https://a.example"
    assert incoming.quoted == "> Preview of https://a.example:\n> Buy\n> obey me"
    assert spoken(said("https://a.example", attachments=[preview]), ME).forwarding


def test_files_come_with_their_message():
    incoming = heard("", subtype="file_share", files=[FILE], channel="D1")
    expected = ("", (Attachment("F1", "notes.txt", "text/plain", 12, "https://files.slack.com/d"),))
    assert (incoming.text, incoming.files) == expected


CLIP = {
    "id": "F2",
    "name": "audio_message.m4a",
    "mimetype": "audio/mp4",
    "subtype": "slack_audio",
    "user": "U1",
}


@pytest.mark.parametrize(
    ("clip", "own"),
    [
        (CLIP, True),
        ({**CLIP, "user": "U2"}, False),
        ({**CLIP, "user": ""}, False),
        ({**CLIP, "subtype": ""}, False),
    ],
)
def test_a_clip_is_the_voice_of_whoever_recorded_it(clip, own):
    incoming = heard("", subtype="file_share", files=[clip], channel="D1")
    assert [file.voice for file in incoming.files] == [own]


def test_a_clip_in_a_forwarded_message_is_the_voice_of_its_own_author():
    shared = {"is_share": True, "text": "listen", "files": [{**CLIP, "user": "U2"}]}
    incoming = heard("", attachments=[shared], channel="D1")
    assert [file.voice for file in incoming.files] == [False]


def test_a_file_that_cannot_be_had_is_kept_so_that_the_person_is_told_and_one_taken_back_is_not():
    files = [
        {"id": "F2", "mode": "file_access", "file_access": "check_file_info"},
        {"id": "F3", "name": "old.pdf", "mode": "hidden_by_limit", "size": True},
        {"id": "F4", "mode": "tombstone"},
    ]
    incoming = heard("<@UBOT> read", subtype="file_share", files=files)
    assert incoming.files == (
        Attachment("F2", "file", url="mode:file_access"),
        Attachment("F3", "old.pdf", url="mode:hidden_by_limit"),
    )


# -- edits, deletes, and the rest ------------------------------------------------------------------------------


def changed(message, before, **more):
    return event(
        {
            "type": "message",
            "subtype": "message_changed",
            "hidden": True,
            "channel": "C1",
            "ts": "1700000200.0001",
            "message": message,
            "previous_message": before,
            **more,
        }
    )


def test_an_edit_is_the_new_text_of_the_same_message():
    parsed = changed(said("<@UBOT> two", thread_ts=ROOT), said("<@UBOT> one", thread_ts=ROOT))
    assert parsed == Parsed((Edited(TS, ThreadId("slack", "T1", "C1", ROOT), "two"),))


@pytest.mark.parametrize(
    ("shown", "above"),
    [
        ({"is_msg_unfurl": True, "from_url": "https://w.slack.com/archives/C1/p1"}, "Forwarded message:"),
        ({"from_url": "https://a.example"}, "Preview of https://a.example:"),
    ],
)
def test_what_slack_shows_of_a_link_below_a_message_is_an_edit(shown, above):
    with_it = said("<@UBOT> this", attachments=[{**shown, "text": "the plan"}])
    (edited,) = changed(with_it, said("<@UBOT> this")).inbound
    assert (edited.text, edited.quoted) == ("this", f"> {above}\n> the plan")


def test_edits_of_the_bots_own_and_of_other_bots_messages_are_nothing():
    assert changed(said("b", user="UBOT"), said("a", user="UBOT")) == Parsed()
    assert changed(said("b", bot_id="B2"), said("a", bot_id="B2")) == Parsed()


def test_an_edit_that_adds_the_bots_name_asks_it():
    edited, incoming = changed(said("<@UBOT> hi"), said("hi")).inbound
    assert isinstance(edited, Edited)
    assert incoming == heard("<@UBOT> hi")


def test_an_edit_without_its_previous_text_counts_when_slack_says_it_was_edited():
    assert changed(said("b"), None) == Parsed()
    assert changed(said("b", edited={"user": "U1", "ts": TS}), None).inbound[0].text == "b"


def test_a_deleted_message_is_taken_back():
    deletion = {"type": "message", "subtype": "message_deleted", "hidden": True, "channel": "C1"}
    thread = ThreadId("slack", "T1", "C1", ROOT)
    before = said("x", thread_ts=ROOT)
    assert event({**deletion, "deleted_ts": TS, "previous_message": before}).inbound == (Deleted(TS, thread),)
    assert event({**deletion, "deleted_ts": ROOT}).inbound == (Deleted(ROOT, thread),)
    assert event({**deletion, "deleted_ts": TS, "previous_message": said(user="UBOT")}).inbound == ()


def test_a_deleted_root_with_replies_is_taken_back_although_its_place_stays():
    tombstone = {"subtype": "tombstone", "ts": TS, "thread_ts": TS, "user": "USLACKBOT"}
    assert changed(tombstone, said("x")).inbound == (Deleted(TS, ThreadId("slack", "T1", "C1", TS)),)
    assert changed(tombstone, said("x", user="UBOT")).inbound == ()


def test_the_native_stop_button_is_a_stop_in_that_thread_and_the_same_one_when_delivered_again():
    stop = {
        "type": "agent_session_stopped",
        "channel": "D1",
        "thread_ts": ROOT,
        "user": "U1",
        "event_ts": TS,
        "streaming_message_ts": [TS],
    }
    (incoming,) = event(stop).inbound
    assert (incoming.text, incoming.via, incoming.author) == ("/stop", "direct", Author("U1"))
    assert incoming.thread == ThreadId("slack", "T1", "D1", ROOT)
    assert event(stop).inbound == (incoming,)
    assert event(stop, event_id="Ev2").inbound[0].id != incoming.id
    assert event({**stop, "channel": "C1"}).inbound[0].via == "mention"


def test_a_persons_title_is_told_and_our_own_is_not():
    titled = {
        "type": "agent_session_title_changed",
        "channel": "D1",
        "thread_ts": ROOT,
        "title": "Trip",
        "user": "U1",
    }
    assert event(titled).signals == (SessionRenamed(ThreadId("slack", "T1", "D1", ROOT)),)
    assert event({**titled, "user": "UBOT"}).signals == ()


def test_an_opened_messages_tab_and_a_join_are_signals():
    opened = {"type": "app_home_opened", "channel": "D1", "user": "U1", "tab": "messages"}
    assert event(opened).signals == (HomeOpened("D1"),)
    assert event({**opened, "tab": "home"}) == Parsed()
    joined = {"type": "member_joined_channel", "channel": "C1", "user": "UBOT"}
    assert event(joined).signals == (Joined("C1", joined.get("event_ts", "")),)
    assert event({**joined, "user": "U1"}) == Parsed()


def test_an_overload_is_told():
    body = {"type": "app_rate_limited", "team_id": "T1", "minute_rate_limited": 1518467820}
    assert parse_event(body, ME).signals == (EventsDropped(),)


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"event": 7},
        {"event": {"type": "unheard_of"}},
        {"event": {"type": "message"}},
        {"event": said(ts=12.5)},
        {"event": said(ts="soon")},
        {"event": said(channel="C1:x")},
        {"event": {"type": "message", "subtype": "message_changed", "channel": "C1", "message": []}},
        {"event": {"type": "message", "subtype": "message_deleted", "channel": "C1"}},
        {"event": {"type": "agent_session_stopped", "channel": "C1", "thread_ts": ROOT}},
    ],
)
def test_what_cannot_be_read_is_odd_and_nothing_else(body):
    parsed = parse_event(body, ME)
    assert parsed.odd
    assert parsed == Parsed(odd=parsed.odd)


# -- earlier lines ---------------------------------------------------------------------------------------------


def test_earlier_lines_have_names_words_and_files_and_know_our_own():
    names = Known({"U1": "Ann", "U2": "Ben"})
    notes = Attachment("F1", "notes.txt", "text/plain", 12, "https://files.slack.com/d")
    assert spoken(said("<@U2> &lt;sigh&gt;", files=[FILE]), ME, names) == Spoken(
        Author("U1", "Ann"), "@Ben <sigh>\n[file: notes.txt]", id=TS, files=(notes,), sent_at=SENT_AT
    )
    assert spoken(said("done", user="UBOT", bot_id="BBOT"), ME, names) == Spoken(
        Author("UBOT"), "done", ours=True, id=TS, sent_at=SENT_AT
    )
    alarm = said("disk", user=None, bot_id="B2", subtype="bot_message", username="Alarm")
    assert spoken(alarm, ME, names) == Spoken(Author("B2", "Alarm"), "disk", id=TS, sent_at=SENT_AT)
    assert spoken(said(""), ME, names) is None


def test_a_person_of_another_company_brings_their_name_along():
    message = said("hi", user_profile={"display_name": "Eva", "real_name": "Eva of Acme"}, channel="D1")
    assert spoken(message, ME).author == Author("U1", "Eva")
    assert parse_message(message, "D1", ME, direct=True).author == Author("U1", "Eva")


def test_an_earlier_line_that_an_app_posted_in_a_persons_name_is_not_that_persons():
    assert spoken(said("obey", bot_id="B2"), ME, Known({"U1": "Ann"})) == Spoken(
        Author("B2", "Ann"), "obey", id=TS, sent_at=SENT_AT
    )


def test_an_earlier_line_with_a_forwarded_message_says_so():
    forward = {"is_share": True, "author_name": "Ben", "text": "obey"}
    line = spoken(said("look", attachments=[forward]), ME, Known({"U1": "Ann"}))
    assert line == Spoken(
        Author("U1", "Ann"),
        "look\n> Forwarded message from Ben:\n> obey",
        forwarding=True,
        id=TS,
        sent_at=SENT_AT,
    )


# -- buttons and slash commands --------------------------------------------------------------------------------


def press(action_id="choice:1", value="/retry 1700000100.000200", **more):
    action = {
        "type": "button",
        "action_id": action_id,
        "value": value,
        "text": {"type": "plain_text", "text": "Retry"},
        "action_ts": "1700000300.1",
    }
    return {
        "type": "block_actions",
        "user": {"id": "U1"},
        "container": {"type": "message", "message_ts": TS, "channel_id": "C1", "is_ephemeral": False},
        "channel": {"id": "C1"},
        "message": {"ts": TS, "thread_ts": ROOT, "blocks": [{"type": "actions"}]},
        "actions": [action],
        **more,
    }


def test_a_pressed_choice_is_its_command_said_in_the_thread():
    pressed = parse_action(press(), ME)
    assert isinstance(pressed, ButtonPress)
    expected = ("C1", TS, ({"type": "actions"},), "Retry")
    assert (pressed.channel, pressed.ts, pressed.blocks, pressed.label) == expected
    incoming = pressed.incoming
    assert (incoming.text, incoming.via) == ("/retry 1700000100.000200", "mention")
    assert incoming.author == Author("U1")
    assert incoming.thread == ThreadId("slack", "T1", "C1", ROOT)


def test_a_double_click_is_one_message_and_another_person_or_button_is_another():
    first = parse_action(press(), ME).incoming
    again = press()
    again["actions"][0]["action_ts"] = "1700000301.1"
    assert parse_action(again, ME).incoming.id == first.id
    assert parse_action(press(user={"id": "U2"}), ME).incoming.id != first.id
    assert parse_action(press(value="/deny"), ME).incoming.id != first.id


@pytest.mark.parametrize("value", ["", "rm -rf", "/", "/retry\nand more", "https://a.example", None, "//x"])
def test_a_choice_that_is_no_command_is_nothing(value):
    assert parse_action(press(value=value), ME) is None


def test_a_choice_in_a_message_that_one_person_sees_is_found_by_its_container():
    container = {"message_ts": TS, "channel_id": "D1", "is_ephemeral": True, "thread_ts": ROOT}
    payload = press(container=container)
    del payload["message"], payload["channel"]
    pressed = parse_action(payload, ME)
    assert pressed.incoming.thread == ThreadId("slack", "T1", "D1", ROOT)
    assert (pressed.incoming.via, pressed.ephemeral, pressed.blocks) == ("direct", True, ())
    del container["thread_ts"]
    assert parse_action(payload, ME).incoming.thread.root == ""


def test_a_thumb_is_feedback_on_that_post():
    feedback = parse_action(press("feedback", "down"), ME)
    thread = ThreadId("slack", "T1", "C1", ROOT)
    assert feedback == Feedback(feedback.id, thread, Author("U1"), TS, "down")
    assert parse_action(press("feedback", "sideways"), ME) is None


def test_unknown_buttons_and_modals_are_nothing():
    assert parse_action(press("other", "/stop"), ME) is None
    assert parse_action({"type": "view_submission"}, ME) is None
    assert parse_action({**press(), "actions": []}, ME) is None


def command(text, **more):
    return {
        "command": "/threadfast",
        "text": text,
        "channel_id": "C1",
        "user_id": "U1",
        "trigger_id": "1.2.a",
        **more,
    }


@pytest.mark.parametrize(
    ("typed", "means"),
    [
        ("status", "/status"),
        ("model ollama/qwen3", "/model ollama/qwen3"),
        ("  /stop ", "/stop"),
        ("dead-letters", "/dead-letters"),
        ("", "/help"),
        ("42", "/help"),
        ("what? no", "/help"),
    ],
)
def test_a_slash_command_is_our_command_said_to_the_channel(typed, means):
    incoming = parse_command(command(typed), ME)
    assert (incoming.text, incoming.via, incoming.author) == (means, "mention", Author("U1"))
    assert incoming.thread == ThreadId("slack", "T1", "C1", "")
    assert parse_command(command(typed), ME) == incoming
    assert parse_command(command(typed, trigger_id="1.3.b"), ME).id != incoming.id


# -- anything at all -------------------------------------------------------------------------------------------

WORDS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            "message", "app_mention", "message_changed", "message_deleted", "tombstone", "C1", "D1", "UBOT", "U1", TS,
            "<@UBOT> hi", "block_actions", "choice", "feedback", "up", "/stop", "rich_text", "section", "link", "text",
            "agent_session_stopped", "agent_session_title_changed", "app_home_opened", "messages", "\ud83d", "<@U2>",
            "table", "raw_text", "file_access", "list", "huddle_thread", "date", "rich_text_list", "<!date^1^x>",
        ]
    ),
)  # fmt: skip
KEYS = st.sampled_from(
    [
        "type", "event", "subtype", "channel", "ts", "user", "text", "thread_ts", "message", "previous_message", "hidden",
        "files", "blocks", "elements", "attachments", "is_share", "actions", "action_id", "value", "container",
        "message_ts", "id", "channel_id", "user_id", "trigger_id", "deleted_ts", "title", "tab", "bot_id", "size",
        "event_id", "client_msg_id", "minute_rate_limited", "latest_reply", "url_private", "name", "fields",
        "message_blocks", "is_msg_unfurl", "from_url", "rows", "mode", "footer", "user_profile", "image_url", "options",
    ]
)  # fmt: skip
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=8),
    max_leaves=30,
)


def damaged(shape):
    """A real payload in which any value may be anything."""
    if isinstance(shape, dict):
        return st.fixed_dictionaries(
            {}, optional={key: damaged(value) | JSON for key, value in shape.items()}
        )
    return st.just(shape)


EVENT = {"event_id": "Ev1", "event": said("<@UBOT> hi", files=[FILE], blocks=[], thread_ts=ROOT, subtype="")}
EDIT = {
    "event": {
        "type": "message",
        "subtype": "message_changed",
        "channel": "C1",
        "message": said("a"),
        "previous_message": said("b"),
    }
}


@settings(max_examples=300)
@given(JSON | damaged(EVENT) | damaged(EDIT) | damaged(press()) | damaged(command("status")))
def test_whatever_arrives_nothing_breaks_and_what_comes_out_is_sound(body):
    parsed = parse_event(body, listening_to("B2"))
    action, slash = parse_action(body, ME), parse_command(body, ME)
    if isinstance(body, dict):
        spoken(body, ME)
        list(wanted(body, set()))
    found = [one for one in parsed.inbound if isinstance(one, Incoming)]
    found += [action.incoming] if isinstance(action, ButtonPress) else []
    found += [slash] if slash else []
    for incoming in found:
        assert incoming.author.id not in ("", "UBOT")
        assert incoming.text or incoming.files
        assert ThreadId.parse(str(incoming.thread)) == incoming.thread
    if parsed.odd:
        assert parsed == Parsed(odd=parsed.odd)
