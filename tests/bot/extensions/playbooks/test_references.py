"""What a playbook may refer to."""

import pytest

from bot.extensions.playbooks.references import TOOLS
from tests.hostile.bench import open_harness

pytestmark = [pytest.mark.anyio, pytest.mark.needs]


SEARXNG = {"service": "searxng", "url": "http://127.0.0.1:1"}


async def test_a_playbook_knows_the_tools_of_every_group(tmp_path, monkeypatch):
    given = {"model": "offline/demo", "tools": {"enabled": list(TOOLS), "web_search": SEARXNG}}
    async with open_harness(tmp_path, monkeypatch, **given) as harness:
        groups = harness.tools.groups
    assert {group: tuple(sorted(t for t, g in groups.items() if g == group)) for group in TOOLS} == TOOLS
