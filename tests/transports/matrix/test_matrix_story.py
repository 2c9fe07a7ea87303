"""Whole stories on a real homeserver: somebody says something with a client that is not ours, and this is what they see."""

from __future__ import annotations

import stat
from functools import partial

import anyio
import nio
import pytest

from tests.patience import WITHIN_S
from tests.transports.matrix.bot import bot_in
from tests.transports.matrix.person import account
from tests.transports.matrix.synapse import Synapse, needs_synapse
from tests.transports.settling import until_settled
from tests.world import Counting, Gate, Scripted, Streams, calls, says

pytestmark = needs_synapse

MARK = "org.threadfast.post"


@pytest.fixture
async def account_of_bot(synapse):
    return await account(synapse)


@pytest.fixture
def bot(synapse, account_of_bot, tmp_path):
    """Run a bot on its account for a block, over the same data each time."""
    running = partial(bot_in, synapse, account_of_bot.access_token, tmp_path / "data")
    running.id = account_of_bot.user_id
    return running


async def room_of(ann, bob, bot, **how):
    """Open a room with the bot, while that runs."""
    room = await ann.channel(bot.id, bob.id, **how)
    await bob.join(room)
    await ann.until_joined(room, bot.id)
    return room


async def direct(ann, bot, **how):
    room = await ann.direct(bot.id, **how)
    await ann.until_joined(room, bot.id)
    return room


def answers(person, room, bot, thread=None):
    return person.bodies(room, thread, by=bot.id)


async def test_a_mention_opens_a_thread_where_it_goes_on_without_one_and_nobody_else_is_answered(
    ann, bob, bot
):
    async with bot(model := Scripted()):
        room = await room_of(ann, bob, bot)
        await bob.say(room, "just talking")
        root = await ann.say(room, "hello", to=bot.id)
        await ann.until_shown(room, "ok", root)
        await bob.say(room, "what do you think?", thread=root, to=ann.id)
        await bob.say(room, "and now for the bot", thread=root)
        await bob.until(lambda: len(answers(bob, room, bot, root)) == 2)
        other = await bob.say(room, "by a link alone", to=bot.id, modern=False)
        await bob.until_shown(room, "ok", other)
        named = await bob.say(
            room, f"{bot.id[1:].partition(':')[0]}: by its name", thread="", **{"m.mentions": {}}
        )
        third = await ann.say(room, "the last", to=bot.id)
        await ann.until_shown(room, "ok", third)
    assert [request.messages[-1].text.rpartition("]")[2] for request in model.requests] == [
        "hello", "and now for the bot", "by a link alone", "the last",
    ]  # fmt: skip
    assert answers(ann, room, bot, named) == answers(ann, room, bot, "") == []


async def test_what_was_said_to_others_in_a_thread_is_read_at_the_next_turn(ann, bob, bot):
    async with bot(model := Scripted()):
        room = await room_of(ann, bob, bot)
        root = await ann.say(room, "hello", to=bot.id)
        await ann.until_shown(room, "ok", root)
        await bob.say(room, "what do you think?", thread=root, to=ann.id)
        await bob.say(room, "and now for the bot", thread=root)
        await bob.until(lambda: len(answers(bob, room, bot, root)) == 2)
    assert "what do you think?" in str(model.requests[1].messages)


async def test_a_direct_room_is_one_conversation_and_all_in_it_is_for_the_bot(ann, bot, somebody):
    async with bot(model := Scripted(says("one"), says("two"))):
        room = await direct(ann, bot)
        await ann.say(room, "first")
        await ann.until_shown(room, "one", "")
        async with somebody(device_of=ann) as phone:
            await phone.until(lambda: room in phone.client.rooms)
            await phone.say(room, "second, from my phone")
        await ann.until_shown(room, "two", "")
    assert "first" in str(model.requests[1].messages)


async def test_an_edit_replaces_a_waiting_message_and_a_redaction_withdraws_it(ann, bob, bot, tmp_path):
    held = Gate(says("first"))
    async with bot(model := Scripted(held)):
        room = await room_of(ann, bob, bot)
        root = await ann.say(room, "one", to=bot.id)
        await held.began.wait()
        changed = await ann.say(room, "old words", thread=root, to=bot.id)
        gone = await ann.say(room, "never mind", thread=root, to=bot.id)
        await ann.edit(room, changed, "new words", to=bot.id)
        await bob.edit(room, changed, "forged words", to=bot.id)
        await ann.redact(room, gone)
        assert (await until_settled(tmp_path / "data", gone))[gone] == "withdrawn"
        held.open.set()
        await until_settled(tmp_path / "data", changed)
    read = str(model.requests[-1].messages)
    assert "new words" in read
    assert not any(words in read for words in ("old words", "forged words", "never mind"))


async def test_an_edit_that_calls_the_bot_makes_a_message_one_to_it(ann, bob, bot):
    async with bot(Scripted()):
        room = await room_of(ann, bob, bot)
        said = await ann.say(room, "hello all")
        await ann.edit(room, said, "hello", to=bot.id)
        await ann.until_shown(room, "ok", said)


@pytest.mark.parametrize("how", ["typed", "sign"])
async def test_a_stop_by_a_word_or_a_sign_ends_the_turn_and_what_was_shown_says_so(
    ann, bob, bot, tmp_path, how
):
    async with bot(Streams("word " * 30, "the end")):
        room = await room_of(ann, bob, bot)
        root = await ann.say(room, "work", to=bot.id)
        draft = await ann.until_shown(room, "word", root)
        assert draft.content[MARK]["final"] is False
        await (ann.say(room, "/stop", thread=root) if how == "typed" else ann.react(room, draft.id, "🛑"))
        assert (await until_settled(tmp_path / "data", root))[root] == "stopped"
        await ann.until(lambda: "stopped" in answers(ann, room, bot, root)[0])
        await ann.until(lambda: "🛑" in ann.shown(room)[0].reactions)
    assert "the end" not in "".join(answers(ann, room, bot))


async def test_the_text_grows_in_one_message_that_the_answer_takes_over_while_the_bot_is_typing(
    ann, bob, bot
):
    async with bot(Streams("word " * 30, "the end")):
        room = await room_of(ann, bob, bot)
        root = await ann.say(room, "hi", to=bot.id)
        await ann.until(lambda: ann.typing.get(room) == [bot.id])
        await ann.until(lambda: ann.receipts.get((room, bot.id)) == root)
        await ann.until_shown(room, "the end", root)
        [answer] = ann.shown(room, root)
        assert answer.edited
        await ann.until(lambda: not ann.typing[room])


async def test_a_long_answer_comes_whole_in_order_and_calls_nobody(ann, bob, bot):
    lines = [f"line {number} of the long answer." for number in range(1_200)]
    hostile = (
        f"@room {ann.id} [you](https://matrix.to/#/{ann.id}) <b>x</b> ![i](https://evil.example/i.png) **so**"
    )
    async with bot(Scripted(says("\n".join(lines)), says(hostile))):
        room = await room_of(ann, bob, bot)
        root = await ann.say(room, "much", to=bot.id)
        await ann.until_shown(room, lines[-1], root)
        shown = "\n".join(answers(ann, room, bot, root)).splitlines()
        assert [line for line in shown if line] == lines
        await ann.say(room, "more", thread=root)
        answer = await ann.until_shown(room, "@room", root)
    assert answer.content["m.mentions"] == {}
    assert "<strong>so</strong>" in answer.html
    assert not any(words in answer.html for words in ("href", "<img", "<b>"))


async def test_what_was_said_in_an_absence_is_answered_also_behind_a_gap(ann, bob, bot):
    async with bot(Counting()):
        room, alone = await room_of(ann, bob, bot), await direct(bob, bot)
        joined = await ann.say(room, "before", to=bot.id)
        await ann.until_shown(room, "ok", joined)
    root = await ann.say(room, "while you were away", to=bot.id)
    for number in range(120):
        await bob.say(room, f"chatter {number}")
    await bob.say(alone, "are you there?")
    await ann.say(room, "go on", thread=joined)
    async with bot(model := Counting()):
        await ann.until_shown(room, "ok", root)
        await bob.until_shown(alone, "ok", "")
        await ann.until(lambda: len(answers(ann, room, bot, joined)) == 2)
    assert len(model.requests) == 3


async def test_an_answer_comes_although_the_homeserver_takes_few_messages(tmp_path, somebody):
    slow = {"per_second": 0.5, "burst_count": 2}
    async with Synapse(tmp_path, rc_message=slow) as server, somebody(synapse=server) as ann:
        made = await account(server)
        async with bot_in(server, made.access_token, tmp_path / "data", Scripted(says("line\n" * 12_000))):
            room = await ann.direct(made.user_id)
            await ann.until_joined(room, made.user_id)
            root = await ann.say(room, "much")
            await until_settled(tmp_path / "data", root)
        await ann.until(lambda: "".join(ann.bodies(room, by=made.user_id)).count("line") == 12_000)


async def test_the_bot_comes_only_where_somebody_may_have_it(ann, bob, bot):
    async with bot(Scripted(), options={"may_invite": lambda who, _: who == ann.id}):
        refused = await bob.direct(bot.id)
        room = await ann.direct(bot.id)
        await ann.until_joined(room, bot.id)
        await ann.say(room, "hi")
        await ann.until_shown(room, "ok", "")
        assert (
            bot.id not in bob.client.rooms[refused].users or bot.id in bob.client.rooms[refused].invited_users
        )


async def test_what_is_said_between_an_invitation_and_its_answer_is_read(ann, bob, bot):
    async with bot(Scripted()):
        pass
    room = await ann.channel(bot.id, bob.id)
    await bob.join(room)
    root = await ann.say(room, "are you coming?", to=bot.id)
    for number in range(60):
        await bob.say(room, f"chatter {number}")
    async with bot(Scripted()):
        await ann.until_shown(room, "ok", root)


async def test_an_encrypted_room_is_read_over_a_restart_and_its_files_go_both_ways(ann, bot, tmp_path):
    def step(name):
        async def call():
            [attachment] = (tmp_path / "data").rglob("*-notes.txt")
            return calls(name, id=name, path=f"attachments/{attachment.name}")

        return call

    async with bot(Scripted(says("one"))):
        room = await direct(ann, bot, encrypted=True)
        await ann.say(room, "first")
        await ann.until_shown(room, "one")
    await ann.say(room, "while you were away")
    async with bot(model := Scripted(says("two"), step("read_file"), step("attach"), says("done"))):
        await ann.until_shown(room, "two")
        await ann.upload(room, "notes.txt", b"the secret word is plum", text="what does it say?")
        await ann.until_shown(room, "done")
        file = await ann.until_shown(room, "notes.txt")
        assert file.content["file"]["key"]
        assert await ann.content(file) == b"the secret word is plum"
    assert "plum" in str(model.requests[-2].messages[-1].results[0].content)
    page = await ann.client.room_messages(room)
    assert all(event.decrypted for event in page.chunk if isinstance(event, nio.RoomMessage))
    keys = tmp_path / "data" / "matrix-keys"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (keys, *keys.iterdir())} == {0o700, 0o600}


async def test_keys_that_a_killed_process_has_uploaded_are_its_own_after_a_restart(
    ann, bot, monkeypatch, caplog
):
    uploaded, receive = anyio.Event(), nio.AsyncClient.receive_response

    async def die(client, response):
        if client.user_id == bot.id and isinstance(response, nio.KeysUploadResponse):
            uploaded.set()
            await anyio.sleep_forever()
        await receive(client, response)

    with monkeypatch.context() as patched:
        patched.setattr(nio.AsyncClient, "receive_response", die)
        async with bot(Scripted()):
            with anyio.fail_after(WITHIN_S):
                await uploaded.wait()
    async with bot(Scripted()):
        room = await direct(ann, bot, encrypted=True)
        await ann.say(room, "hello")
        await ann.until_shown(room, "ok")
    assert "keys_failed" not in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"msgtype": 5, "body": ["x"], "m.mentions": [], "m.relates_to": "x"},
        {
            "msgtype": "m.text",
            "body": None,
            "m.mentions": {"user_ids": "x"},
            "m.relates_to": {"rel_type": "m.thread", "event_id": 7},
        },
        {"msgtype": "m.text", "body": "x", "m.relates_to": {"m.in_reply_to": {"event_id": "$gone"}}},
        {
            "msgtype": "m.text",
            "body": "* x",
            "m.new_content": [],
            "m.relates_to": {"rel_type": "m.replace", "event_id": "$gone"},
        },
        {"msgtype": "m.file", "body": {}, "url": 3, "info": {"size": -1}, "file": {"url": "mxc://x/y"}},
        {
            "msgtype": "m.file",
            "body": "x",
            "file": {"url": "mxc://x/y", "key": {"k": "?"}, "iv": 1, "hashes": []},
        },
    ],
    ids=range(7),
)
async def test_no_message_that_a_client_can_make_stops_the_bot(ann, bot, content):
    async with bot(Scripted()):
        room = await direct(ann, bot)
        for kind in ("m.room.message", "m.reaction", "m.sticker", "m.poll.start"):
            await ann.client.room_send(room, kind, content)
        last = await ann.say(room, "are you there?")
        await ann.until(lambda: answers(ann, room, bot)[-1:] and ann.receipts.get((room, bot.id)) == last)


async def test_a_room_that_throws_the_bot_out_costs_only_itself_and_an_upgraded_one_is_followed(
    ann, bob, bot, tmp_path
):
    held = Gate(says("too late"))
    async with bot(Scripted(held)):
        room, old = await room_of(ann, bob, bot), await room_of(ann, bob, bot)
        root = await ann.say(room, "work", to=bot.id)
        await held.began.wait()
        await ann.client.room_kick(room, bot.id)
        held.open.set()
        assert (await until_settled(tmp_path / "data", root))[root] == "undelivered"
        path = f"/_matrix/client/v3/rooms/{old}/upgrade"
        upgraded = await ann.client.send("POST", path, '{"new_version":"10"}', ann.headers)
        new = (await upgraded.json())["replacement_room"]
        await ann.until(lambda: new in ann.client.rooms)
        await ann.invite(new, bot.id)
        await ann.until_joined(new, bot.id)
        again = await ann.say(new, "and here?", to=bot.id)
        await ann.until_shown(new, "ok", again)
