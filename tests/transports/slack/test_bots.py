"""A bot is counted by Slack's several ids for it, whichever of them it is listed under."""

from __future__ import annotations

import pytest

from transports.shared.bot_loop_guard import IN_A_ROW, BotLoopGuard
from transports.slack.events.parse_message import Me, parse_message


@pytest.mark.parametrize("listed", ["B2", "UB2"])
def test_a_bot_is_counted_by_the_id_it_is_listed_under(listed):
    me = Me("T1", "UBOT", "BBOT", bots=frozenset({listed}))
    cap = BotLoopGuard(me.bots)
    heard = []
    for number in range(IN_A_ROW + 2):
        message = {
            "ts": f"{1760000000 + number}.000100",
            "thread_ts": "1760000000.000100",
            "text": "<@UBOT> beep",
        }
        incoming = parse_message({**message, "user": "UB2", "bot_id": "B2"}, "C1", me, direct=False)
        heard.append(cap.admits(incoming))
    assert heard.count(True) == IN_A_ROW
