"""From the wire to the sink: no mark passes what was not taken, and trouble with the disk makes no storm."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from types import SimpleNamespace

import anyio
import pytest

from tests.fakes.slack import FakeSlack
from tests.patience import WITHIN_S
from tests.sim.loop import SimLoop
from tests.transports.memory import Memory, offload
from tests.transports.slack.bot import bot_in
from tests.transports.slack.test_catch_up import FILE, ME, START, Slack, now
from tests.transports.slack.test_slack_story import answers
from tests.world import Scripted
from threads.errors import StoreUnavailable
from threads.model import ThreadId
from threads.store.mark_file import MarkFile
from transports.shared.backfill.marks import Marks
from transports.slack.events.intake import Intake
from transports.slack.events.lookups import Lookups
from transports.slack.events.timestamps import STAMPS

pytestmark = pytest.mark.anyio

VIRTUAL = ("asyncio", {"loop_factory": lambda: SimLoop(random.Random(1), START)})


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


@pytest.mark.parametrize("anyio_backend", [VIRTUAL])
async def test_events_that_a_full_disk_refuses_start_one_catch_up_and_are_all_found_by_it():
    slack, taken, looks, full = Slack(), [], [], True

    async def recent(within_s, most):
        looks.append(anyio.current_time())
        await anyio.sleep(0.1)
        return [ThreadId("slack", "T1", "C1", "1.5")]

    async def sink(event):
        if full:
            raise StoreUnavailable
        taken.append(event.id)

    marks = Marks(MarkFile(Memory(), FILE), offload, now, STAMPS)
    marks.open()
    async with anyio.create_task_group() as tasks:
        presence = SimpleNamespace()
        intake = Intake(
            tasks,
            slack,
            ME,
            marks,
            sink,
            presence,
            Lookups(slack, ME, lambda _: None),
            SimpleNamespace(),
            lambda *_: None,
            recent=recent,
            now=now,
            max_age_s=600,
        )
        said = []
        for _ in range(100):
            said.append(slack.say())
            event = slack.channels["C1"][said[-1]] | {"channel": "C1", "event_ts": said[-1]}
            with pytest.raises(StoreUnavailable):
                await intake.take("event", {"type": "event_callback", "team_id": "T1", "event": event})
            await anyio.sleep(0.5)
        assert len(looks) == slack.calls.count(("conversations.history", "C1")) <= 3  # at 0, 5 and 20 s
        full = False
    assert taken == said
