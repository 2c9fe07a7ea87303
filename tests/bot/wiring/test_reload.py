"""A settings file that changes while the bot runs: what is taken up, when, and what is told of one that is not."""

from __future__ import annotations

import json
import logging
import os
from contextlib import asynccontextmanager

import anyio
import pytest

from bot.config.load import SettingsFile, load
from bot.config.scopes import CurrentSettings, Place
from bot.ports.config_error import ConfigInvalid
from bot.wiring.reload import LOOK_S, Reload
from tests.sim.loop import virtual_time
from tests.world import inline
from threads.background import background_tasks

anyio_backend = virtual_time

GOOD = {"model": "offline/demo", "system": "Old."}
NEW = {**GOOD, "system": "New."}


class Bench:
    """A running reload of one file, and what it told."""

    def __init__(self, path):
        self.path, self.told, self.checked = path, [], []
        loaded = load(path, environ={})
        self.current = CurrentSettings(loaded.settings)
        self.reload = Reload(self.current, SettingsFile(path), {}, lambda settings: settings)
        self.later, self.fault = [], ""

    async def check(self, settings):
        self.checked.append(settings)
        if self.fault:
            raise ConfigInvalid(self.fault)
        return self.later

    @property
    def system(self):
        return self.current.at(Place()).settings.system

    async def looks(self, times=3):
        await anyio.sleep(times * LOOK_S)


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "settings.json", GOOD)
    return tmp_path / "settings.json"


def write(path, document):
    path.write_text(document if isinstance(document, str) else json.dumps(document))


@asynccontextmanager
async def watching(path):
    bench = Bench(path)
    async with background_tasks() as tasks:
        bench.reload.start(tasks, inline, bench.check, bench.told.append)
        await bench.looks()
        yield bench


def in_place(path, document):
    write(path, document)


def as_editors_do(path, document):
    write(path.with_suffix(".tmp"), document)
    path.with_suffix(".tmp").replace(path)


def by_a_link(path, document):
    write(path.with_suffix(".next"), document)
    link = path.with_suffix(".link")
    link.symlink_to(path.with_suffix(".next"))
    link.replace(path)


@pytest.mark.parametrize("change", [in_place, as_editors_do, by_a_link])
async def test_a_change_counts_a_moment_after_it_whoever_makes_it(path, change):
    async with watching(path) as bench:
        change(path, NEW)
        await bench.looks()
        assert bench.system == "New."
        change(path, GOOD) if change is not by_a_link else as_editors_do(path, GOOD)
        await bench.looks()
        assert bench.system == "Old."
        assert bench.told == []


async def test_a_change_between_the_reading_of_a_start_and_its_first_look_counts_too(path):
    bench = Bench(path)
    write(path, NEW)
    async with background_tasks() as tasks:
        bench.reload.start(tasks, inline, bench.check, bench.told.append)
        await bench.looks()
    assert bench.system == "New."


async def test_a_file_that_is_being_written_is_not_read_before_it_rests(path):
    async with watching(path) as bench:
        for end in range(5, len(json.dumps(NEW)) + 1, 5):
            write(path, json.dumps(NEW)[:end])
            await bench.looks(1)
        write(path, NEW)
        await bench.looks()
        assert bench.told == []
        assert bench.system == "New."


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        pytest.param('{"system": "New."', "not valid JSON", id="cut"),
        pytest.param({**NEW, "max_tokens": "many"}, "max_tokens", id="a wrong value"),
        pytest.param({**NEW, "sistem": ""}, 'the nearest known one is "system"', id="an unknown key"),
        pytest.param({**NEW, "scopes": {"slack:T1": {"model": "no/where"}}}, "no provider", id="a model"),
        pytest.param(None, "does not exist", id="no file"),
    ],
)
async def test_a_faulty_file_changes_nothing_and_is_told_once(path, caplog, document, fault):
    async with watching(path) as bench:
        before = bench.current.at(Place())
        with caplog.at_level(logging.WARNING):
            path.unlink() if document is None else write(path, document)
            await bench.looks(10)
            if document is not None:
                os.utime(path)  # touched, and still the same
            await bench.looks(10)
        assert bench.current.at(Place()) is before
        [told] = bench.told
        assert fault in told
        assert str(path.parent) not in told
        assert [record.message.partition(":")[0] for record in caplog.records] == ["settings.rejected"]
        assert bench.reload.trouble
        write(path, NEW)
        await bench.looks()
        assert (bench.system, bench.reload.trouble) == ("New.", "")


async def test_a_file_whose_models_cannot_be_used_changes_nothing(path):
    async with watching(path) as bench:
        bench.fault = "scopes.slack:T1.model: its key is not set"
        write(path, NEW)
        await bench.looks()
        assert bench.system == "Old."
        assert "its key is not set" in bench.told[0]
        assert bench.checked[-1].system == "New.", "what is checked is what would hold"


async def test_what_needs_a_restart_is_said_and_the_rest_counts(path, caplog):
    async with watching(path) as bench:
        bench.later = ["tools.enabled (browser)"]
        with caplog.at_level(logging.INFO):
            write(path, {**NEW, "name": "other"})
            await bench.looks(10)
        assert (bench.system, bench.current.settings.name) == ("New.", "threadfast")
        [record] = caplog.records
        assert record.message == (
            "settings.reloaded: changed now: system; at the next start: name, tools.enabled (browser)"
        )
        assert (record.changed, record.restart) == (["system"], ["name", "tools.enabled (browser)"])


async def test_a_file_that_was_only_touched_is_not_news(path, caplog):
    async with watching(path) as bench:
        before = bench.current.at(Place())
        with caplog.at_level(logging.INFO):
            os.utime(path)
            await bench.looks()
        assert len(bench.checked) == 2
        assert caplog.records == []
        assert bench.current.at(Place()) is before


async def test_the_data_folder_of_the_command_line_is_no_change(path, tmp_path):
    file = SettingsFile(path, tmp_path / "elsewhere")
    assert file.load({}).data == tmp_path / "elsewhere"


async def test_no_secret_of_a_faulty_file_is_told(path, caplog):
    async with watching(path) as bench:
        write(path, {**NEW, "transports": {"slack": {"bot_token": "xoxb-canary-0123456789"}}})
        with caplog.at_level(logging.INFO):
            await bench.looks()
        assert bench.system == "Old."
        assert "canary" not in f"{bench.told}{caplog.text}"
