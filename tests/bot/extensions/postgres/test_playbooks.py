"""A playbook over one database: another worker goes on where the first one ended."""

import signal

import anyio
import pytest

from tests.bot.extensions.playbooks.test_process import EVERYTHING_PASSED, SUCCESS, Model, place
from tests.bot.extensions.playbooks.test_story import asked, settings, stalled, text, unrecoverable, write
from tests.fakes import openai as o
from tests.patience import WITHIN_S
from tests.serving import KEYS, Chat, serving
from tests.stories.test_run_process import environ, running


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


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["draft", "deliver"])
async def test_another_worker_goes_on_in_the_stage_in_which_the_first_one_was_killed(tmp_path, dsn, stage):
    """Two processes over one database. The file of the second stage is written by the one and attached by the other."""
    model = Model("release-notes", killed=SUCCESS["release-notes"])
    store = {"kind": "postgres", "dsn": "env:DATABASE_URL"}
    async with place(tmp_path, "release-notes", model, store=store) as bot:
        other = tmp_path / "other" / "settings.json"
        other.parent.mkdir()
        other.write_text((tmp_path / "settings.json").read_text())
        env = environ(bot.slack, DATABASE_URL=dsn)
        model.hold = {(stage, 1 if stage == "draft" else 2)}
        async with running(tmp_path / "settings.json", env) as first:
            thread = await bot.play("release-notes", "killed")
            if stage == "deliver":
                await thread.decide("Yes")
            with anyio.fail_after(WITHIN_S):
                await model.holds.wait()
            asked, left = len(model.requests), sum(model.left().values())
            async with running(other, env):
                await bot.slack.until(lambda: len(bot.slack.sockets.links) == 2)
                model.hold = ()
                first.send_signal(signal.SIGKILL)
                await first.wait()
                if stage == "draft":
                    await thread.decide("Yes")
                outcome = await thread.outcome("release-notes")
    assert f"(release-notes went on in stage {stage}.)" in outcome
    assert f"**release-notes**: done\n{EVERYTHING_PASSED['release-notes']}\n" in outcome
    assert model.left() == {}
    assert len(model.requests) == asked + left, "nothing that was on disk is asked for again"
    assert [file.name for post in thread.posts for file in post.files] == ["release-notes.md"]
    assert len(thread.outcomes("release-notes")) == 1
