"""What the other tests of Matrix stand on: the real homeserver, and the people in its rooms."""

from __future__ import annotations

import nio
import pytest

from tests.transports.matrix.synapse import Synapse, needs_synapse

pytestmark = needs_synapse


@pytest.mark.parametrize("encrypted", [False, True])
async def test_people_see_what_others_write_edit_withdraw_and_send(ann, bob, encrypted):
    room = await ann.direct(bob.id, encrypted=encrypted)
    await bob.until(lambda: room in bob.invitations)
    await bob.join(room)
    await ann.until_joined(room, bob.id)
    root = await ann.say(room, "hello", to=bob.id)
    await bob.until_shown(room, "hello")
    reply = await bob.say(room, "old", thread=root)
    await bob.edit(room, reply, "new")
    await ann.edit(room, reply, "forged")
    await ann.react(room, reply, "👍")
    file = await ann.upload(room, "plum.txt", b"plum", thread=root)
    gone = await ann.say(room, "never mind", thread=root)
    await ann.redact(room, gone)
    await bob.read(room, file, root)
    await ann.until(lambda: ann.receipts.get((room, bob.id)) == file)
    await ann.say(room, "the end")
    await bob.until_shown(room, "the end")
    [edited, sent] = bob.shown(room, root)
    assert (edited.body, edited.edited, edited.reactions) == ("new", 1, {"👍": {ann.id}})
    assert await bob.content(sent) == b"plum"
    assert len(bob.shown(room)) == 4


async def test_what_was_acknowledged_outlives_a_kill_and_a_repeated_transaction_is_one_message(
    tmp_path, somebody
):
    async with Synapse(tmp_path) as server, somebody(synapse=server) as ann, somebody(synapse=server) as bob:
        room = await ann.channel(public=True)
        for number in range(30):
            await ann.say(room, f"line {number}")
        content = {"msgtype": "m.text", "body": "once"}
        first = await ann.client.room_send(room, "m.room.message", content, tx_id="the-key")
        await server.kill()
        await server.start()
        again = await ann.client.room_send(room, "m.room.message", content, tx_id="the-key")
        assert again.event_id == first.event_id
        await bob.join(room)
        assert bob.bodies(room) == [*(f"line {number}" for number in range(30)), "once"]


async def test_a_low_limit_is_told_as_one(tmp_path, somebody):
    async with (
        Synapse(tmp_path, rc_message={"per_second": 0.01, "burst_count": 2}) as server,
        somebody(synapse=server) as ann,
    ):
        ann.client.config = nio.AsyncClientConfig(max_limit_exceeded=0)
        room, content = await ann.channel(), {"msgtype": "m.text", "body": "more"}
        answers = [await ann.client.room_send(room, "m.room.message", content) for _ in range(5)]
        assert answers[-1].status_code == "M_LIMIT_EXCEEDED"
        assert answers[-1].retry_after_ms > 0
