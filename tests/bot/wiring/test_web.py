"""The page as the commands start it, and the links to it."""

from __future__ import annotations

import pytest

from bot.config.settings import Settings, Transports, Web
from bot.ports.config_error import ConfigInvalid
from bot.wiring.web import make_link
from tests.transports.web.site import Visitor, serving_page
from transports.web.sessions import Person

pytestmark = pytest.mark.anyio


async def test_a_link_of_the_command_line_opens_the_page_once(tmp_path):
    async with serving_page(tmp_path) as site, Visitor(site) as ada:
        port = site.web.address.port
        link = await make_link(Settings(data=tmp_path), {}, Person(id="ada", name="Ada"), port)
        address, _, secret = link.partition("#")
        assert address == f"{site.url}/enter"
        answers = [await ada.post("/api/enter", json={"link": secret, "sure": True}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 403]


async def test_a_link_to_a_page_that_was_never_served_says_so(tmp_path):
    with pytest.raises(ConfigInvalid, match="start the bot first"):
        await make_link(Settings(data=tmp_path), {}, Person(id="ada"))


@pytest.mark.parametrize("person", ["", "a:b", "../x", "a b", "x" * 65])
async def test_a_link_is_for_an_id_that_a_thread_can_carry(tmp_path, person):
    with pytest.raises(ConfigInvalid, match="a person's id"):
        await make_link(Settings(data=tmp_path), {}, Person(id=person))


async def test_a_link_has_to_name_the_port(tmp_path):
    any_port = Settings(data=tmp_path, transports=Transports(web=Web(port=0)))
    with pytest.raises(ConfigInvalid, match="--port"):
        await make_link(any_port, {}, Person(id="ada"))
