"""Whole stories: an event in, posts out, files on disk."""

from __future__ import annotations

import pytest

from tests.world import Platform, Scripted, message, running, says

pytestmark = pytest.mark.anyio


async def test_a_message_is_answered_and_a_redelivery_is_not(tmp_path):
    platform = Platform()
    async with running(tmp_path, platform, Scripted(says("hi ann"))) as bot:
        await bot.orchestrator.receive(message())
        await bot.orchestrator.receive(message())
        await platform.settled("m1")
        await bot.orchestrator.receive(message())
    assert platform.texts == ["hi ann"]
    assert platform.outcomes == {"m1": "answered"}
