"""A thread of any length gives its root and its newest lines, in a few calls."""

from __future__ import annotations

import math

import anyio
import pytest

from tests.fakes.slack import Gate, Message
from tests.sim.loop import virtual_time
from tests.transports.slack.virtual import VirtualWeb, count_calls, virtual_slack
from transports.slack.api import thread_history
from transports.slack.api.thread_history import ENOUGH, MOST_TRIES, PAGE, TRIED_WITHIN_S, Section, newest

ROOT = "1700000000.000000"
LINES = 5_000


anyio_backend = virtual_time


def thread(times):
    """Return a workspace with a thread whose replies came so many seconds after its root, and its Web API."""
    slack = virtual_slack()
    slack.put(Message("C1", ROOT, "root", "U1"))
    for number, seconds in enumerate(times):
        ts = f"{1_700_000_000 + seconds:.6f}"
        slack.put(Message("C1", ts, f"line {number}", "U2", thread_ts=ROOT))
    return slack, VirtualWeb(slack)


def texts(section):
    return [one["text"] for one in [*section.root, *section.replies]]


SHAPES = {
    "one a minute": [60.0 * n for n in range(1, LINES + 1)],
    "slower and slower": [float(n**2) for n in range(1, LINES + 1)],
    "faster and faster": [1e6 * math.sqrt(n) for n in range(1, LINES + 1)],
    "a year, and most of it in the last hour": [
        *(7_000.0 * n for n in range(1, LINES // 2)),
        *(31_536_000 + n for n in range(LINES // 2 + 1)),
    ],
    "bursts": [86_400.0 * (n // 40) + n % 40 + 1 for n in range(LINES)],
}


@pytest.mark.parametrize("times", SHAPES.values(), ids=SHAPES)
async def test_a_thread_of_5000_lines_gives_its_root_and_its_newest_lines_in_a_few_calls(times):
    slack, web = thread(times)
    found = await newest(web, "C1", ROOT, "", "")
    said = texts(found)
    assert said[0] == "root"
    assert len(said) > ENOUGH
    assert said[1:] == [f"line {n}" for n in range(LINES - len(said) + 1, LINES)]
    assert found.left_out == LINES - len(found.replies)
    assert count_calls(slack) == {"conversations.replies": len(slack.calls)}
    assert len(slack.calls) <= 5


@pytest.mark.parametrize("quiet_s", [3_600, 30_000, 86_400, 31_536_000])
@pytest.mark.parametrize("pace_s", [0.1, 10, 600])
async def test_a_question_in_a_thread_that_was_quiet_for_long_comes_with_its_last_lines(pace_s, quiet_s):
    last = LINES * pace_s
    slack, web = thread([*(n * pace_s for n in range(1, LINES + 1)), last + quiet_s])
    found = await newest(web, "C1", ROOT, "", f"{1_700_000_000 + last + quiet_s:.6f}")
    assert texts(found)[0] == "root"
    assert texts(found)[-1] == f"line {LINES - 1}"
    assert len(found.replies) >= ENOUGH
    assert len(slack.calls) <= MOST_TRIES + 1


async def test_a_search_that_takes_too_long_gives_what_it_has():
    slack, web = thread([n / 10 for n in range(1, LINES + 1)])
    slack.fail("conversations.replies", Gate(), forever=True, when=lambda args: "oldest" in args)
    began = anyio.current_time()
    found = await newest(web, "C1", ROOT, "", "1800000000.000000")
    assert texts(found) == ["root", *(f"line {n}" for n in range(PAGE))]
    assert anyio.current_time() - began <= TRIED_WITHIN_S + 1


async def test_the_lines_end_before_a_message_and_later_ones_are_not_read():
    times = SHAPES["one a minute"]
    _, web = thread(times)
    found = await newest(web, "C1", ROOT, "", f"{1_700_000_000 + times[3_000]:.6f}")
    assert texts(found)[-1] == "line 2999"


@pytest.mark.parametrize("count", [0, 1, PAGE])
async def test_what_fits_a_page_takes_one_call(count):
    slack, web = thread([60.0 * n for n in range(1, count + 1)])
    found = await newest(web, "C1", ROOT, "", "")
    assert texts(found) == ["root", *(f"line {n}" for n in range(count))]
    assert (found.left_out, len(slack.calls)) == (0, 1)


async def test_lines_after_a_message_take_one_call_and_come_without_the_root():
    times = SHAPES["one a minute"]
    slack, web = thread(times)
    after, before = (f"{1_700_000_000 + times[n]:.6f}" for n in (4_000, 4_010))
    found = await newest(web, "C1", ROOT, after, before)
    assert texts(found) == [f"line {n}" for n in range(4_001, 4_010)]
    assert (found.left_out, len(slack.calls)) == (0, 1)


async def test_of_many_lines_after_a_message_the_newest_come_and_the_rest_is_counted():
    times = SHAPES["one a minute"]
    slack, web = thread(times)
    found = await newest(web, "C1", ROOT, f"{1_700_000_000 + times[1_000]:.6f}", "")
    assert len(texts(found)) >= ENOUGH
    assert texts(found)[-1] == f"line {LINES - 1}"
    assert found.left_out == PAGE, "at least so many"
    assert len(slack.calls) <= MOST_TRIES + 1


async def test_a_thread_that_is_gone_has_no_lines():
    assert await newest(VirtualWeb(virtual_slack()), "C1", ROOT, "", "") == Section()


async def test_a_deleted_root_says_so(monkeypatch):
    monkeypatch.setattr(thread_history, "PAGE", 5)
    slack, web = thread([1.0, 2.0])
    slack.message(ROOT).deleted = True
    assert texts(await newest(web, "C1", ROOT, "", "")) == ["This message was deleted.", "line 0", "line 1"]
