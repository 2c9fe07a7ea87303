"""From the wire to the sink: no mark passes what was not taken, and trouble with the disk makes no storm."""

from __future__ import annotations

from datetime import UTC, datetime

import anyio
import pytest

from tests.fakes.slack import FakeSlack
from tests.patience import WITHIN_S
from tests.transports.slack.bot import bot_in
from tests.transports.slack.test_slack_story import answers
from tests.world import Scripted


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_is_said_first_on_a_new_link_does_not_hide_what_was_missed_before_it(tmp_path):
    wall = [datetime.now(UTC).timestamp() - 300]

    def clock():
        wall[0] += 0.001
        return wall[0]

    async with FakeSlack(offline="keep", wall=clock) as slack, bot_in(slack, tmp_path, Scripted()):
        first = await slack.say("U1", "C1", "<@UBOT> hi")
        await slack.until(lambda: answers(slack, "C1", first.ts))
        slack.sockets.links[0].reset()
        await slack.until(lambda: not slack.sockets.links)
        missed = slack.say("U1", "C1", "<@UBOT> are you there?", quiet=True)
        wall[0] += 60  # beyond what is read again before a mark
        await slack.say("U2", "C1", "just talking")  # comes in one write with the greeting
        with anyio.fail_after(WITHIN_S):
            await slack.until(lambda: answers(slack, "C1", missed.ts))
