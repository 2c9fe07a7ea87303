"""The page as the commands start it, and the links to it."""

from __future__ import annotations

import pytest

from bot.config.extensions import settings_model
from bot.ports.config_error import ConfigInvalid
from tests.transports.web.site import Visitor, serving_page
from tests.world import inline
from threads.store.disk import PosixDisk
from threads.store.json_file import JsonFiles
from transports.web import page
from transports.web.sessions import Person

Settings = settings_model()


async def make_link(settings, person, port=None):
    return await page.make_link(JsonFiles(PosixDisk(), settings.data, inline), settings, person, port)


async def test_a_link_of_the_command_line_opens_the_page_once(tmp_path):
    async with serving_page(tmp_path) as site, Visitor(site) as ada:
        link = await make_link(Settings(data=tmp_path), Person(id="ada", name="Ada"))
        address, _, secret = link.partition("#")
        assert address == f"{site.url}/enter"
        answers = [await ada.post("/api/enter", json={"link": secret, "sure": True}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 403]


async def test_a_link_to_a_page_that_was_never_served_says_so(tmp_path):
    with pytest.raises(ConfigInvalid, match="start the bot first"):
        await make_link(Settings(data=tmp_path), Person(id="ada"))


@pytest.mark.parametrize("person", ["", "a:b", "../x", "a b", "x" * 65])
async def test_a_link_is_for_an_id_that_a_thread_can_carry(tmp_path, person):
    with pytest.raises(ConfigInvalid, match="a person's id"):
        await make_link(Settings(data=tmp_path), Person(id=person))


async def test_nobody_gets_a_link_who_may_not_use_the_page_and_an_older_one_says_so_and_stays(tmp_path):
    access = {"users": ["ada"], "admins": []}
    async with serving_page(tmp_path, {"access": access}) as site, Visitor(site) as bob:
        settings = Settings.model_validate({"data": tmp_path, "access": access}, strict=False)
        for person in ("bob", "nobody"):
            with pytest.raises(ConfigInvalid, match=f"{person} may not use this bot.*access.users"):
                await make_link(settings, Person(id=person))
        assert await make_link(settings, Person(id="ada"))
        assert await make_link(settings, Person(id="you"))  # who started this page
        given = site.link("bob")
        for _ in range(2):
            answer = await bob.post("/api/enter", json={"link": given})
            assert (answer.status_code, "bob may not use" in answer.json()["error"]) == (403, True)


async def test_a_link_names_the_port_that_is_served(tmp_path):
    async with serving_page(tmp_path, port=0) as site:
        at = Settings.model_validate({"data": tmp_path, "transports": {"web": {"port": 1}}}, strict=False)
        assert (await make_link(at, Person(id="ada"))).startswith(f"{site.url}/enter#")
        assert ":2/enter#" in await make_link(at, Person(id="ada"), 2)
