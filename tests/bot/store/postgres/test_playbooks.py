"""A playbook over one database: another worker goes on where the first one ended."""

import pytest

from tests.fakes import openai as o
from tests.serving import KEYS, Chat, serving
from tests.stories.test_playbooks import asked, settings, stalled, text, unrecoverable, write

pytestmark = pytest.mark.anyio


async def test_another_worker_goes_on_in_the_stage_where_the_first_one_ended(dsn, tmp_path):
    chat, store = Chat(), {"kind": "postgres", "dsn": "env:DATABASE_URL"}
    environ = {**KEYS, "DATABASE_URL": dsn}
    for folder, replies in (("a", [text("1"), stalled()]), ("b", [text("2"), text("3")])):
        data = tmp_path / folder
        data.mkdir()
        write(data, "three", unrecoverable("skip"))
        async with (
            o.FakeOpenAI(replies) as fake,
            serving(data, settings(fake, store=store), environ=environ, chat=chat),
        ):
            if folder == "a":
                await chat.send("/play three")
                await asked(fake, 2)
            else:
                await chat.settled("m1")
    assert len(fake.requests) == 2, "the first stage is not played again"
    assert "(three went on in stage two.)" in chat.posts[-1].text
    assert chat.posts[-1].text.endswith("\n\n3")
    assert not (tmp_path / "b" / "playbooks.json").exists(), "the run is in the database"
