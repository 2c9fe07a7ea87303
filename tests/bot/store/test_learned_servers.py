"""servers.json: what was learned of a server is believed for thirty days, counted from the first of it."""

from datetime import UTC, datetime, timedelta

import pytest

from bot.store.learned_servers import KEPT_FOR, Learned, LearnedServers, ServersFile
from tests.world import FaultyDisk, state_file

KEY = "http://127.0.0.1:1/v1 x"
BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
JUST_BEFORE = KEPT_FOR - timedelta(seconds=1)


class Clock:
    def __init__(self) -> None:
        self.time = BEGAN

    def __call__(self) -> datetime:
        return self.time


def opened(folder, clock):
    return LearnedServers(state_file(folder / "servers.json", ServersFile(), FaultyDisk()), now=clock)


def with_form(part: str):
    return lambda old: old.model_copy(update={"forms": {**old.forms, part: "none"}})


@pytest.mark.parametrize(("age", "known"), [(JUST_BEFORE, {"tools": "none"}), (KEPT_FOR, {})])
async def test_what_was_learned_is_believed_for_thirty_days(tmp_path, age, known):
    clock = Clock()
    await opened(tmp_path, clock).learn(KEY, with_form("tools"))
    clock.time += age
    assert opened(tmp_path, clock).of(KEY).forms == known


async def test_what_is_learned_later_ends_with_the_first_and_then_all_begins_anew(tmp_path):
    clock = Clock()
    servers = opened(tmp_path, clock)
    await servers.learn(KEY, with_form("tools"))
    clock.time += JUST_BEFORE
    await servers.learn(KEY, with_form("images"))
    assert servers.of(KEY).forms == {"tools": "none", "images": "none"}
    clock.time = BEGAN + KEPT_FOR
    assert servers.of(KEY) == Learned()
    await servers.learn(KEY, with_form("store"))
    clock.time += JUST_BEFORE
    assert servers.of(KEY).forms == {"store": "none"}


async def test_a_file_without_times_is_read_and_counts_from_the_start(tmp_path):
    old = f'{{"v":1,"models":{{"{KEY}":{{"forms":{{"tools":"none"}},"window":4096,"efforts":[]}}}}}}'
    (tmp_path / "servers.json").write_text(old)
    clock = Clock()
    servers = opened(tmp_path, clock)
    clock.time += JUST_BEFORE
    assert (servers.of(KEY).forms, servers.of(KEY).window) == ({"tools": "none"}, 4096)
    clock.time = BEGAN + KEPT_FOR
    assert servers.of(KEY) == Learned()
