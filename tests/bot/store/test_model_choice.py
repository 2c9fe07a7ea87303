"""models.json: what threads chose, and what happens to a file that cannot be read."""

import errno

import pytest

from bot.store.model_choice import ModelChoices, ModelsFile
from tests.world import T1, T2, FaultyDisk, state_file
from threads.errors import StoreUnavailable


def opened(folder, disk=None):
    return ModelChoices(state_file(folder / "models.json", ModelsFile(), disk or FaultyDisk()))


async def test_a_choice_outlives_a_restart_and_can_be_dropped(tmp_path):
    await opened(tmp_path).choose(T1, "a/one")
    chosen = opened(tmp_path)
    assert (chosen.of(T1), chosen.of(T2)) == ("a/one", None)
    await chosen.choose(T1, None)
    assert opened(tmp_path).of(T1) is None


@pytest.mark.parametrize("data", [b"\x00\x00", b"[]", b'{"models": {"t": 7}}', b'{"models"'])
async def test_a_damaged_file_is_put_aside_and_threads_have_the_usual_model(tmp_path, data):
    (tmp_path / "models.json").write_bytes(data)
    assert opened(tmp_path).of(T1) is None
    assert data in (tmp_path / "models.json.broken").read_bytes()


async def test_a_choice_that_cannot_be_saved_changes_nothing(tmp_path):
    disk = FaultyDisk()
    chosen = opened(tmp_path, disk)
    disk.refuse["create"] = OSError(errno.ENOSPC, "full")
    with pytest.raises(StoreUnavailable):
        await chosen.choose(T1, "a/one")
    assert chosen.of(T1) is None
