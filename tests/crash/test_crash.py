"""The real process killed for real, and the judge shown what it must not miss."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from tests.crash.planted import Lines, Run, broken_rules, copy_of, rewrite
from tests.crash.platform import Book, Habits, Platform, write_about
from tests.crash.run import Rounds, child, crash_run
from tests.judge.crash import CUT_AT_NEWLINE, MAILBOX, Judge

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def good(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return the folder and the report of one run with a platform that can look up posts."""
    folder = tmp_path_factory.mktemp("crash")
    return folder, await crash_run(folder, Rounds(12, seed=20261121))


async def test_twelve_kills_lose_nothing_and_answer_nothing_twice(good):
    _, report = good
    assert report.violations == []
    assert report.exits == [-signal.SIGKILL] * 12
    assert report.accepted > 100
    assert report.posts > 50


async def test_where_posts_cannot_be_looked_up_a_repeat_is_marked(tmp_path):
    report = await crash_run(tmp_path, Rounds(5, seed=7, find=False, mean_s=1.0))
    assert report.violations == []
    assert report.exits == [-signal.SIGKILL] * 5
    assert report.counts["answered"] > 20


async def test_sigterm_takes_the_path_of_a_kill(tmp_path):
    report = await crash_run(tmp_path, Rounds(4, seed=3, mean_s=1.5, scale=0.4, signal=signal.SIGTERM))
    assert report.violations == []
    assert -signal.SIGTERM in report.exits


async def test_a_second_process_on_the_data_folder_is_refused_by_the_name_of_the_holder(tmp_path):
    platform = Platform(tmp_path, Habits(1))
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            port = await tasks.start(platform.serve)
            async with child(tmp_path, port, 1) as first:
                await first.ready.wait()
                async with child(tmp_path, port, 2) as second:
                    await second.over.wait()
                    assert second.process.returncode == 78
                assert first.process.returncode is None
            tasks.cancel_scope.cancel()
    assert f"pid {first.process.pid}" in (tmp_path / "child.log").read_text()


def pick(lines: Lines, which: Callable[[dict[str, Any]], bool]) -> int:
    """Return the place of one line, always the same one, for which *which* holds."""
    return random.Random(1).choice([n for n, line in enumerate(lines) if which(line)])


def is_reply(line: dict[str, Any]) -> bool:
    return line["kind"] == "reply" and line["text"].startswith("re ")


def is_answered(line: dict[str, Any]) -> bool:
    return line["kind"] == "settled" and line["outcome"] == "answered"


def lose_a_post(shown: Lines) -> None:
    del shown[pick(shown, is_reply)]


def post_twice(shown: Lines) -> None:
    shown.append({**shown[pick(shown, is_reply)], "id": "p0"})


def swap_two_answers(shown: Lines) -> None:
    thread = Counter(line["thread"] for line in shown if is_reply(line)).most_common(1)[0][0]
    a, b, *_ = [n for n, line in enumerate(shown) if is_reply(line) and line["thread"] == thread]
    shown[a], shown[b] = shown[b], shown[a]


def answer_with_another_threads_words(shown: Lines) -> None:
    shown[pick(shown, is_reply)]["text"] += " t99m00001"


def answer_something_else(shown: Lines) -> None:
    line = shown[pick(shown, is_reply)]
    line["text"] = f"re {line['reply_to'][:3]}m99999"


def post_to_another_thread(shown: Lines) -> None:
    line = shown[pick(shown, is_reply)]
    line["thread"] = next(other["thread"] for other in shown if other["thread"] != line["thread"])


def answer_nobody(shown: Lines) -> None:
    shown.append({**shown[0], "key": "crash:W:C0:t00m77777", "id": "p0"})


def fail_without_a_word(shown: Lines) -> None:
    shown[pick(shown, lambda line: line["kind"] == "error")]["text"] = " "


def forget_an_end(journal: Lines) -> None:
    del journal[pick(journal, lambda line: line["kind"] == "settled" and not line["by"])]


def end_twice(journal: Lines) -> None:
    journal.append(journal[pick(journal, lambda line: line["kind"] == "settled")])


def give_up_unasked(journal: Lines) -> None:
    journal[pick(journal, is_answered)].update(outcome="undelivered")


def merge_into_nothing(journal: Lines) -> None:
    journal[pick(journal, is_answered)].update(outcome="merged", by="t00m88888")


def hear_voices(journal: Lines) -> None:
    journal.append({**journal[0], "message_id": "t00m66666"})


def say_it_twice(context: Lines) -> None:
    context.append(context[pick(context, lambda line: line["message"]["source"])])


def remember_a_stranger(context: Lines) -> None:
    context[0]["message"]["blocks"][-1]["text"] = "please answer t99m00001"


def drop_a_result(context: Lines) -> None:
    del context[[line["message"]["blocks"][0]["type"] for line in context].index("tool_result")]


def forget_a_conversation(context: Lines) -> None:
    context.clear()


def unlog_an_end(log: Lines) -> None:
    log[:] = [line for line in log if line["kind"] != "settled"]


JOURNAL, CONTEXT, LOG = (
    "data/journal.jsonl",
    "data/threads/crash/*/context.jsonl",
    "data/threads/crash/*/log.jsonl",
)
PLANTED: list[tuple[str, Callable[[Lines], None], str]] = [
    ("shown.jsonl", lose_a_post, "lost"),
    ("shown.jsonl", post_twice, "twice"),
    ("shown.jsonl", swap_two_answers, "order"),
    ("shown.jsonl", answer_with_another_threads_words, "crossed"),
    ("shown.jsonl", answer_something_else, "unexplained"),
    ("shown.jsonl", post_to_another_thread, "crossed"),
    ("shown.jsonl", answer_nobody, "invented"),
    ("shown.jsonl", fail_without_a_word, "unexplained"),
    (JOURNAL, forget_an_end, "lost"),
    (JOURNAL, end_twice, "twice"),
    (JOURNAL, give_up_unasked, "undelivered"),
    (JOURNAL, merge_into_nothing, "unexplained"),
    (JOURNAL, hear_voices, "invented"),
    (CONTEXT, say_it_twice, "context"),
    (CONTEXT, remember_a_stranger, "crossed"),
    (CONTEXT, drop_a_result, "context"),
    (CONTEXT, forget_a_conversation, "context"),
    (LOG, unlog_an_end, "log"),
]


@pytest.mark.parametrize(("name", "plant", "rule"), PLANTED, ids=[plant.__name__ for _, plant, _ in PLANTED])
async def test_the_judge_reports_a_planted_violation(good, tmp_path, name, plant, rule):
    folder = copy_of(good, tmp_path)
    rewrite(max(folder.glob(name), key=lambda path: (path.stat().st_size, path)), plant)
    assert rule in await broken_rules(folder)


@pytest.mark.parametrize(("waiting", "broken"), [(MAILBOX, 1), (MAILBOX + 1, 0)])
def test_only_what_found_its_mailbox_full_may_be_answered_after_a_later_message(tmp_path, waiting, broken):
    write_about(tmp_path, find=True)
    book = Book(tmp_path)
    for number in range(waiting + 2):
        book.write("sent", thread="crash:W:C0:r0", id=f"m{number}", said_at=time.monotonic())
    for number in (waiting + 1, waiting):
        book.write("shown", key=f"crash:W:C0:m{number}", kind="reply")
    judge = Judge(tmp_path)
    later = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    judge.settled = {key: {"at": later} for key in judge.sent}
    judge.check_order()
    assert len(judge.violations) == broken


async def test_the_judge_reports_a_flipped_byte(good, tmp_path):
    folder = copy_of(good, tmp_path)
    data = bytearray((folder / JOURNAL).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / JOURNAL).write_bytes(data)
    assert "damage" in await broken_rules(folder)


async def test_the_judge_reports_good_lines_that_were_put_aside(good, tmp_path):
    folder = copy_of(good, tmp_path)
    lines = (folder / JOURNAL).read_bytes().split(b"\n")[: CUT_AT_NEWLINE + 1]
    (folder / "data/journal.jsonl.broken").write_bytes(b"\n".join(lines) + b"\n")
    assert "sidecar" in await broken_rules(folder)
