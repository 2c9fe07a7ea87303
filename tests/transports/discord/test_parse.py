"""What a message of Discord's means, read from the objects that the real library makes of the wire."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transports.discord.payloads import (
    ANN,
    BOB,
    BOT,
    BOT_ROLE,
    CHANNEL,
    DIRECT,
    DM,
    GUILD,
    ID,
    IN_THREAD,
    ME,
    NEWS,
    OPS,
    OTHER_BOT,
    SENT_AT,
    TEXT,
    THREAD,
    WEBHOOK,
    file,
    forwarding,
    heard,
    member,
    message,
    replying,
    said,
    user,
)
from threads.model import Attachment, Author, Edited, Incoming, Spoken, ThreadId
from transports.discord.events.parse_message import parse_edit, parse_message, parse_spoken

AT_BOT = f"<@{BOT}>"
EARLIER = "1174000000000000000"
EDITED_AT = "2023-11-14T22:20:00+00:00"
STICKER = {"id": "1", "name": "Wave", "format_type": 1}


def parsed(data, place=CHANNEL, *, root="", bots=(), **more) -> Incoming | None:
    return parse_message(message(data, **more), place, ME, root=root, bots=frozenset(bots))


def direct(data) -> Incoming:
    data = {name: value for name, value in data.items() if name not in ("guild_id", "member")}
    found = parsed({**data, "channel_id": DM}, DIRECT)
    assert found is not None
    return found


def overheard(data) -> Incoming | None:
    return parsed({**data, "channel_id": THREAD}, IN_THREAD)


# -- who is meant ----------------------------------------------------------------------------------------------


def test_a_direct_message_is_always_for_the_bot():
    assert direct(said("hello", channel=DM)) == Incoming(
        ID, ThreadId("discord", "@me", DM, DM), Author(ANN, "Ann"), "hello", SENT_AT, via="direct"
    )


def test_a_direct_message_that_names_others_is_still_for_the_bot():
    assert (
        direct(said(f"what does <@{BOB}> mean?", channel=DM, mentions=[BOB])).text == "what does @Bob mean?"
    )


@pytest.mark.parametrize("named", [AT_BOT, f"<@!{BOT}>", f"<@&{BOT_ROLE}>", f"  {AT_BOT}:", f"{AT_BOT},"])
def test_a_mention_begins_a_thread_and_is_taken_without_the_bots_name(named):
    incoming = parsed(said(f"{named} is it <@{BOT}>?"))
    assert (incoming.via, incoming.text) == ("mention", "is it @Threadfast?")
    assert incoming.thread == ThreadId("discord", GUILD, TEXT, ID)


@pytest.mark.parametrize(
    ("data", "via"),
    [
        (said("and then?"), "overheard"),
        (said(f"<@{BOB}> and {AT_BOT} look", mentions=[BOB]), "mention"),
        (said("@everyone hello", mention_everyone=True), "overheard"),
        (said(f"why does `<@{BOB}>` not ping?"), "overheard"),
        (said(f"<@{BOB}> look", mentions=[BOB]), None),
        (said(f"<@&{OPS}> look"), None),
        (said("", sticker_items=[STICKER]), None),
        (said(""), None),  # so is a message of a guild without the intent
    ],
)
def test_in_a_thread_a_message_is_for_the_bot_unless_it_names_others(data, via):
    incoming = overheard(data)
    assert (incoming and incoming.via) == via
    assert incoming is None or incoming.thread == ThreadId("discord", GUILD, TEXT, THREAD)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f" {AT_BOT} ", "@Threadfast"),  # only the name: it is not blank
        ("lunch?", None),
        ("@everyone @here hello", None),
        (f"`{AT_BOT}` and ```\n{AT_BOT}\n```", None),
        (f"<@{BOT}1> hi", None),
    ],
)
def test_in_a_channel_a_message_is_for_the_bot_only_if_it_names_it(text, words):
    incoming = parsed(said(text, mention_everyone="@everyone" in text))
    assert (incoming and incoming.text) == words


# -- replies ---------------------------------------------------------------------------------------------------


def test_a_reply_that_pings_its_author_names_them():
    to = said("a thought", BOB, id_=EARLIER, channel=THREAD)
    assert overheard(replying(to, "indeed", mentions=[BOB])) is None
    assert overheard(replying(to, "indeed")).via == "overheard"


def test_a_reply_ping_of_the_bot_alone_is_no_mention_in_a_channel_but_a_reply_to_it_is_for_it():
    assert parsed(said("hm", mentions=[BOT])) is None
    answer = said("42", BOT, id_=EARLIER)
    for pinged in ([], [BOT]):
        incoming = parsed(replying(answer, "why?", mentions=pinged), root="1170000000000000000")
        expected = ("mention", "why?", "1170000000000000000")
        assert (incoming.via, incoming.text, incoming.thread.root) == expected


def test_a_reply_to_the_bot_brings_none_of_its_own_files_back():
    answer = said("here", BOT, id_=EARLIER, attachments=[file()])
    assert parsed(replying(answer, "thanks")).files == ()


def test_a_reply_to_the_bot_that_names_others_is_for_them():
    answer = said("42", BOT, id_=EARLIER)
    assert parsed(replying(answer, f"<@{BOB}> look", mentions=[BOB, BOT]), root="1170000000000000000") is None


def test_a_reply_to_the_bot_whose_conversation_was_not_found_begins_one():
    assert parsed(replying(said("42", BOT, id_=EARLIER), "why?")).thread.root == ID


def test_a_reply_to_the_bot_in_a_thread_is_a_mention():
    answer = said("42", BOT, id_=EARLIER, channel=THREAD)
    assert overheard(replying(answer, "why?", mentions=[BOT])).via == "mention"


def test_a_reply_to_somebody_else_quotes_them_and_brings_their_files():
    to = said(f"see <@{BOB}>\nand this", BOB, id_=EARLIER, mentions=[BOB], attachments=[file()])
    incoming = parsed(replying(to, f"{AT_BOT} what does this mean?"))
    assert incoming.text == "what does this mean?"
    assert incoming.quoted == "> In reply to Bob:\n> see @Bob\n> and this\n> [file: notes.txt]"
    assert [found.id for found in incoming.files] == [f"{TEXT}/{EARLIER}/1174110000000000001"]


def test_a_long_message_that_was_replied_to_is_quoted_in_part():
    quoted = parsed(replying(said("x" * 12_000, BOB, id_=EARLIER), f"{AT_BOT} why?")).quoted
    assert quoted.endswith("x… (cut: 2,000 more characters)")


@pytest.mark.parametrize("command", ["/stop", "!model x", "stop", "Stop"])
def test_a_command_stays_one_though_it_replies_to_somebody(command):
    to = said("a question", channel=THREAD, id_=EARLIER)
    assert overheard(replying(to, command)).text == command


def test_a_reply_to_what_was_deleted_or_is_not_given_along_says_so():
    to = said("gone", BOB, id_=EARLIER)
    for along, words in ((False, "it is deleted"), (..., "I cannot read it")):
        text = parsed(replying(to, f"{AT_BOT} why?", given=along)).text
        assert text == f"why?\n\n> In reply to a message:\n> [{words}]"


SPEAKING = {"attachments": [file("voice.ogg")], "flags": 1 << 13}
OWN_AND_OTHERS = {
    "another's": (said("my plan", BOB, id_=EARLIER), "", "> In reply to Bob:\n> my plan"),
    "the author's": (said("my plan", id_=EARLIER), "> In reply to Ann:\n> my plan", ""),
    "the bot's": (said("my plan", BOT, id_=EARLIER), "", ""),
    "the author's, which forwards another's": (
        {**forwarding({"content": "obey"}), "id": EARLIER},
        "",
        "> In reply to Ann:\n> > Forwarded message:\n> > obey",
    ),
}


@pytest.mark.parametrize(("to", "own", "others"), OWN_AND_OTHERS.values(), ids=OWN_AND_OTHERS)
def test_what_a_message_replies_to_is_its_authors_own_only_if_they_wrote_all_of_it(to, own, others):
    incoming = parsed(replying(to, f"{AT_BOT} look"), root=EARLIER)
    assert (incoming.text, incoming.quoted) == ("\n\n".join(filter(None, ("look", own))), others)


@pytest.mark.parametrize(("author", "own"), [(ANN, True), (BOB, False)])
def test_a_voice_message_that_is_replied_to_is_the_voice_of_its_own_author(author, own):
    to = said("", author, id_=EARLIER, **SPEAKING)
    assert [one.voice for one in parsed(replying(to, f"{AT_BOT} listen")).files] == [own]


# -- who speaks ------------------------------------------------------------------------------------------------


def test_the_bot_never_hears_itself():
    assert parsed(said(f"{AT_BOT} hi", BOT), bots=[BOT]) is None


@pytest.mark.parametrize(
    ("author", "more"), [(OTHER_BOT, {}), (WEBHOOK, {"webhook_id": WEBHOOK}), (user(BOB, bot=True), {})]
)
def test_other_bots_and_webhooks_are_heard_only_when_they_are_listed_and_name_the_bot(author, more):
    id_ = author if isinstance(author, str) else author["id"]
    assert parsed(said(f"{AT_BOT} alarm", author, **more)) is None
    assert parsed(said(f"{AT_BOT} alarm", author, **more), bots=[id_]).author.id == id_
    assert parsed(said(f"<@&{BOT_ROLE}> alarm", author, **more), bots=[id_]) is None
    assert overheard({**said("alarm", author), "channel_id": THREAD, **more}) is None


def test_a_bot_that_replies_to_the_bot_without_naming_it_is_not_heard():
    answer = said("42", BOT, id_=EARLIER)
    assert parsed(replying(answer, "why?", OTHER_BOT, mentions=[BOT]), root=EARLIER, bots=[OTHER_BOT]) is None


@pytest.mark.parametrize("type_", [6, 7, 18, 20, 21, 46, 99])
def test_what_nobody_said_is_not_heard(type_):
    assert parsed(said(f"{AT_BOT} joined", type=type_)) is None


def test_an_author_has_a_name_and_roles_also_when_the_guild_is_not_known_yet():
    data = {**said(f"{AT_BOT} hi"), "member": member(OPS, nick="Annie\n\u202eA")}
    assert parsed(data).author == Author(ANN, "Annie \u202eA", (OPS,))
    assert parsed(data, guilds=False).author.roles == (OPS,)


def test_a_name_of_300_characters_is_cut():
    incoming = parsed({**said(f"{AT_BOT} hi", user(ANN, global_name="x" * 300))})
    assert incoming.author.name == "x" * 100


# -- what is said ----------------------------------------------------------------------------------------------


def test_names_channels_emojis_moments_and_commands_are_as_a_person_reads_them():
    text = f"<@{BOB}> <@&{OPS}> <#{TEXT}> <:ok:123> <a:run:124> <t:1700000000:R> </model:125> <id:guide> <@7>"
    assert direct(said(text, mentions=[BOB])).text.startswith(f"@Bob @{OPS} #{TEXT}")  # it knows no guild
    assert parsed(said(f"{AT_BOT} {text}", mentions=[BOB])).text == (
        "@Bob @ops #general :ok: :run: 2023-11-14 22:13 UTC /model <id:guide> @7"
    )


def test_a_message_of_only_an_attachment_is_for_the_bot_where_it_is_meant():
    data = said("", attachments=[file()])
    at = "https://cdn.discordapp.com/attachments/1/1174110000000000001/notes.txt?ex=1"
    [found] = direct(data).files
    assert found == Attachment(f"{DM}/{ID}/1174110000000000001", "notes.txt", "text/plain", 12, at)
    assert overheard(data).text == ""
    assert parsed(data) is None


SPOKEN = {"flags": 1 << 13}


def test_a_voice_message_is_its_authors_voice():
    [found] = direct(said("", attachments=[file("voice-message.ogg")], **SPOKEN)).files
    assert found.voice
    [found] = direct(said("", attachments=[file("voice-message.ogg")])).files
    assert not found.voice


def test_the_recording_of_another_is_not_the_authors_voice():
    snapshot = {"message": {**said("", attachments=[file("voice-message.ogg")]), **SPOKEN}}
    forwarded = direct(said("", message_snapshots=[snapshot], **SPOKEN))
    assert [one.voice for one in forwarded.files] == [False]


def test_a_file_with_an_odd_name_size_or_type_is_taken_as_well_as_can_be():
    odd = file("x" * 300 + "\ud800\n", size=-1, content_type=None)
    [found] = direct(said("", attachments=[odd])).files
    assert (found.name, found.media_type, found.size) == ("x" * 300 + "?", "", 0)
    [found] = direct(said("", attachments=[file("\n", size="big")])).files
    assert (found.name, found.size) == ("file", 0)


def test_a_forwarded_message_is_quoted_with_its_files():
    held = {"content": f"first\nsecond <#{TEXT}>", "attachments": [file()]}
    incoming = parsed(forwarding(held, text=AT_BOT))
    assert (incoming.text, incoming.quoted) == ("", "> Forwarded message:\n> first\n> second #general")
    assert [found.id for found in incoming.files] == [f"{TEXT}/{ID}/1174110000000000001"]
    assert overheard(forwarding(held)).quoted.startswith("> Forwarded message:")


def test_previews_of_a_persons_links_are_not_their_words_but_a_bots_embeds_are():
    embed = {"type": "rich", "title": "Alarm", "fields": [{"name": "host", "value": "db1"}]}
    page = {**embed, "url": "https://a.example"}
    incoming = parsed(said(f"{AT_BOT} look", embeds=[page, embed, {"type": "link"}]))
    assert incoming.text == "look"
    assert incoming.quoted == (
        "> Preview of https://a.example:\n> Alarm (https://a.example)\n> host: db1\n\n"
        "> Preview of a link:\n> Alarm\n> host: db1"
    )
    assert parse_spoken(message(said("look", embeds=[page])), ME).forwarding
    assert (
        parsed(said(f"{AT_BOT} look", OTHER_BOT, embeds=[embed]), bots=[OTHER_BOT]).text
        == "look\nAlarm\nhost: db1"
    )
    to = said("", OTHER_BOT, id_=EARLIER, embeds=[embed])
    assert parsed(replying(to, f"{AT_BOT} why?")).quoted.endswith("> Alarm\n> host: db1")


# -- earlier lines ---------------------------------------------------------------------------------------------


def test_an_earlier_line_tells_who_said_it_and_what():
    line = parse_spoken(message(said(f"see <@{BOB}>", mentions=[BOB], attachments=[file()])), ME)
    expected = (Author(ANN, "Ann"), "see @Bob\n[file: notes.txt]", False, ID)
    assert (line.author, line.text, line.ours, line.id) == expected
    assert [one.id for one in line.files] == [f"{TEXT}/{ID}/1174110000000000001"]
    ours = Spoken(Author(BOT, "Threadfast"), "42", ours=True, id=ID, sent_at=SENT_AT)
    assert parse_spoken(message(said("42", BOT)), ME) == ours
    assert parse_spoken(message(said("alarm", WEBHOOK, webhook_id=WEBHOOK)), ME).author.name == "Hook"
    assert parse_spoken(message(said("done", OTHER_BOT, type=20)), ME).text == "done"


def test_an_earlier_line_with_a_forwarded_message_says_so():
    assert parse_spoken(message(forwarding({"content": "obey"})), ME).forwarding
    assert not parse_spoken(message(said("hello")), ME).forwarding


def test_a_message_without_words_is_no_line():
    assert parse_spoken(message(said("")), ME) is None


def test_the_first_line_of_a_thread_is_the_message_it_was_opened_from():
    to = said("a question", BOB, id_=EARLIER)
    pointer = {**replying(to, "", OTHER_BOT), "type": 21, "channel_id": THREAD}
    first = parse_spoken(message(pointer), ME)
    assert first == Spoken(
        Author(BOB, "Bob"), "a question", id=EARLIER, sent_at="2023-11-14T14:56:51.865+00:00"
    )
    gone = parse_spoken(message({**pointer, "referenced_message": None}), ME).text
    assert gone == "[The message that this thread was opened from is deleted, or hidden from me.]"


# -- edits -------------------------------------------------------------------------------------------------------


def edit(data, place=CHANNEL, **more):
    return parse_edit(heard({"edited_timestamp": EDITED_AT, **data}, "MESSAGE_UPDATE"), place, ME, **more)


def edited(text="hi", *args, **more):
    return edit({**said(text, *args, **more), "edited_timestamp": EDITED_AT})


def test_an_edit_is_the_new_text():
    data = {**said("and now?", channel=THREAD), "edited_timestamp": EDITED_AT}
    assert edit(data, IN_THREAD) == (Edited(ID, ThreadId("discord", GUILD, TEXT, THREAD), "and now?"),)


def test_an_update_that_only_adds_a_preview_changes_what_is_quoted_and_asks_nothing_anew():
    page = {"type": "link", "url": "https://a.example", "title": "a page"}
    [edited] = edit(said(f"{AT_BOT} look", embeds=[page]))
    expected = ("look", "> Preview of https://a.example:\n> a page (https://a.example)")
    assert (edited.text, edited.quoted) == expected


def test_edits_of_the_bot_itself_and_of_other_bots_are_nothing():
    assert edited("42", BOT) == edited("42", OTHER_BOT) == ()


def test_an_edit_that_adds_the_bots_name_soon_is_a_message_too():
    text, incoming = edited(f"{AT_BOT} is it?")
    assert text == Edited(ID, ThreadId("discord", GUILD, TEXT, ID), "is it?")
    assert incoming == parsed(said(f"{AT_BOT} is it?"))
    late = {**said(f"{AT_BOT} is it?"), "edited_timestamp": "2023-11-14T22:44:00+00:00"}
    assert edit(late) == (text,)


def test_an_edit_in_a_chain_of_replies_stays_in_its_conversation():
    data = {**replying(said("42", BOT, id_=EARLIER), "why?"), "edited_timestamp": EDITED_AT}
    assert {event.thread.root for event in edit(data, root=EARLIER)} == {EARLIER}


def test_an_edit_of_what_was_overheard_does_not_address_the_bot():
    data = {**said("and now?", channel=THREAD), "edited_timestamp": EDITED_AT}
    assert len(edit(data, IN_THREAD, root=THREAD)) == 1
    data = {**said("lunch?"), "edited_timestamp": EDITED_AT}
    assert len(edit(data, root=ID)) == 1


# -- odd payloads ----------------------------------------------------------------------------------------------

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=9), st.lists(st.none(), max_size=2)
)
RICH = replying(
    said(f"see {AT_BOT}", BOB, id_=EARLIER, embeds=[{"type": "rich", "title": "x", "fields": []}]),
    f"{AT_BOT} <#{NEWS}> <t:99999999999> hi",
    mentions=[BOT, BOB],
    attachments=[file()],
    sticker_items=[STICKER],
    message_snapshots=forwarding({"content": "old", "attachments": [file()]})["message_snapshots"],
    edited_timestamp=EDITED_AT,
)
PATHS = [
    *((name,) for name in RICH),
    *(("author", name) for name in RICH["author"]),
    *(("member", name) for name in RICH["member"]),
    *(("attachments", 0, name) for name in RICH["attachments"][0]),
    *(("sticker_items", 0, name) for name in RICH["sticker_items"][0]),
    *(("message_snapshots", 0, "message", name) for name in RICH["message_snapshots"][0]["message"]),
    *(("referenced_message", name) for name in RICH["referenced_message"]),
    *(("message_reference", name) for name in RICH["message_reference"]),
    *(("mentions", 0, name) for name in RICH["mentions"][0]),
]


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(PATHS), st.one_of(st.just(...), ODD), max_size=4), st.booleans())
def test_no_payload_that_the_library_can_read_is_a_surprise(changes, guilds):
    data = copy.deepcopy(RICH)
    for path, value in changes.items():
        at = data
        for step in path[:-1]:
            at = at[step] if isinstance(at, (dict, list)) and at and (step in at or step == 0) else {}
        if value is ... and isinstance(at, dict):
            at.pop(path[-1], None)
        elif isinstance(at, dict):
            at[path[-1]] = value
    try:
        event = heard(data, "MESSAGE_UPDATE", guilds=guilds)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return  # the library itself does not take it
    for place in (CHANNEL, IN_THREAD, DIRECT):
        incoming = parse_message(event.message, place, ME, bots=frozenset({BOB}))
        parse_edit(event, place, ME)
        assert incoming is None or all(
            isinstance(field, str) for field in (incoming.text, incoming.author.name, incoming.author.id)
        )
    parse_spoken(event.message, ME)


@given(st.text(alphabet=st.sampled_from("<@!&#:t/0123456789>` \nab"), max_size=60))
def test_any_text_is_read(text):
    assert isinstance(direct(said(text + "x")).text, str)
