"""What `init` and `doctor` find on a real homeserver, and what the bot says where it cannot read or write."""

from __future__ import annotations

from contextlib import aclosing
from datetime import timedelta

import nio
import pytest

from bot.ports.config_error import ConfigInvalid
from tests.transports.matrix.bot import bot_in
from tests.transports.matrix.person import PASSWORD, account
from tests.transports.matrix.synapse import needs_synapse
from tests.transports.settling import until_settled
from tests.transports.web.process import free_port
from tests.world import Scripted
from transports.matrix import intake
from transports.matrix.checks import check_matrix
from transports.matrix.settings import MatrixSettings
from transports.matrix.setup import SETUP

pytestmark = needs_synapse


async def found(*given):
    async with aclosing(check_matrix(*given)) as findings:
        return {finding.name: finding async for finding in findings}


async def test_the_checks_name_what_is_wrong_and_post_a_test_that_goes_again(synapse, ann):
    bot = await account(synapse)
    alone = await found(synapse.url, bot.access_token)
    expected = {"matrix.homeserver": "ok", "matrix.token": "ok", "matrix.rooms": "warn"}
    assert {name: one.state for name, one in alone.items()} == expected
    assert f"Invite {bot.user_id}" in alone["matrix.rooms"].fix
    room = await ann.channel()
    posted = await found(synapse.url, ann.client.access_token, room)
    assert posted["matrix.post"].state == posted["matrix.rooms"].state == "ok"
    await ann.until(lambda: any(event["type"] == "m.room.redaction" for event in ann.events(room)))
    assert ann.bodies(room) == []
    assert "init matrix" in (await found(synapse.url, "syt_wrong"))["matrix.token"].found
    away = await found(f"http://127.0.0.1:{free_port()}", "syt_any")
    assert away["matrix.homeserver"].state == "fail"
    assert "homeserver in the settings" in away["matrix.homeserver"].fix


async def test_a_login_makes_a_token_of_the_form_that_init_knows(synapse):
    bot, given = await account(synapse), MatrixSettings(homeserver=synapse.url)
    token = await SETUP.log_in(given, bot.user_id, PASSWORD)
    assert SETUP.forms[0].pattern.fullmatch(token)
    assert (await found(synapse.url, token))["matrix.token"].state == "ok"
    with pytest.raises(ConfigInvalid, match="Correct the name and password"):
        await SETUP.log_in(given, bot.user_id, "wrong")
    with pytest.raises(ConfigInvalid, match="cannot be asked"):
        await SETUP.log_in(MatrixSettings(homeserver=f"http://127.0.0.1:{free_port()}"), "bot", PASSWORD)


async def test_a_room_whose_keys_are_missing_is_told_so_once(synapse, ann, tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "LOCKED_FOR", timedelta())
    bot = await account(synapse)
    async with bot_in(synapse, bot.access_token, tmp_path / "data", Scripted()):
        room = await ann.direct(bot.user_id, encrypted=True)
        await ann.until_joined(room, bot.user_id)
        await ann.say(room, "hello")
        await ann.until_shown(room, "ok")
        ann.client.blacklist_device(ann.client.device_store[bot.user_id][bot.device_id])
        for words in ("a secret", "another"):
            await ann.say(room, words)
        await ann.until_shown(room, "did not give me the key")
        ann.client.unblacklist_device(ann.client.device_store[bot.user_id][bot.device_id])
        await ann.say(room, "and now?")
        await ann.until(lambda: ann.bodies(room, by=bot.user_id).count("ok") == 2)
    assert sum("give me the key" in body for body in ann.bodies(room, by=bot.user_id)) == 1


async def test_where_it_may_not_write_no_model_is_asked_twice_and_its_person_is_told(synapse, ann, tmp_path):
    bot = await account(synapse)
    async with bot_in(synapse, bot.access_token, tmp_path / "data", model := Scripted()):
        direct = await ann.direct(bot.user_id)
        await ann.until_joined(direct, bot.user_id)
        room = await ann.channel(bot.user_id)
        await ann.until_joined(room, bot.user_id)
        changed = await ann.client.room_put_state(room, "m.room.power_levels", {"events_default": 50})
        assert isinstance(changed, nio.RoomPutStateResponse)
        for _ in range(2):
            asked = await ann.say(room, "hello", to=bot.user_id)
            await until_settled(tmp_path / "data", asked)
        await ann.until_shown(direct, "I cannot answer in https://matrix.to/")
    assert len(model.requests) == 1
