"""The real process is killed while people sit at their pages, and the judge misses no planted violation.

The rules about journal, conversation and log are those of all platforms.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from tests.crash.book import Book, write_about
from tests.crash.planted import Lines, Run, broken_rules, copy_of, rewrite
from tests.crash.run import Rounds, crash_run
from tests.crash.web.stage import WEB
from tests.judge.crash import CUT_AT_NEWLINE, MAILBOX
from tests.judge.web import WebJudge

Fields = dict[str, Any]


@pytest.fixture(scope="module")
async def good(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("web")
    rounds = Rounds(5, seed=5, mean_s=1.2, threads=12, questions="answered")
    return folder, await crash_run(folder, rounds, replace(WEB, mend_s=1.5))


async def test_kills_lose_nothing_and_show_nothing_twice(good):
    _, report = good
    assert report.violations == []
    assert report.exits == [-signal.SIGKILL] * 5
    assert report.counts["answered"] > 10
    assert report.counts["questions"] > 0


async def test_sigterm_takes_the_path_of_a_kill(tmp_path):
    rounds = Rounds(3, seed=3, signal=signal.SIGTERM)
    report = await crash_run(tmp_path, rounds, replace(WEB, mend_s=1.5))
    assert report.violations == []
    assert -signal.SIGTERM in report.exits


def pick(lines: Lines, **wanted: str) -> Fields:
    """Return the first line with the *wanted* fields."""
    return next(line for line in lines if wanted.items() <= line.items())


def drop(lines: Lines, **wanted: str) -> None:
    lines.remove(pick(lines, **wanted))


def change(lines: Lines, wanted: dict[str, str], **changed: object) -> None:
    pick(lines, **wanted).update(changed)


def answered(last: Lines) -> Fields:
    return next(one for one in last if any(post["kind"] == "reply" for post in one["posts"]))


def lose_an_answer(last: Lines) -> None:
    answered(last)["posts"].clear()


def show_an_answer_twice(last: Lines) -> None:
    posts = answered(last)["posts"]
    posts.append({**posts[-1], "key": "another"})


def show_a_message_twice(last: Lines) -> None:
    last.append(answered(last))


def leave_a_draft(last: Lines) -> None:
    answered(last)["draft"] = "re"


def leave_it_running(last: Lines) -> None:
    answered(last)["state"] = "running"


def change_a_text(last: Lines) -> None:
    answered(last)["text"] += "!"


def swap_two_answers(last: Lines) -> None:
    replies = [one for one in last if any(post["kind"] == "reply" for post in one["posts"])]
    first, second = next((a, b) for a, b in pairwise(replies) if a["thread"] == b["thread"])
    first["n"], second["n"] = second["n"], first["n"]


def answer_twice(texts: Lines) -> None:
    texts.append({**pick(texts, kind="reply"), "key": "another"})


def show_it_as_another(texts: Lines) -> None:
    texts[0]["texts"].append("other words")


def answer_with_another_threads_words(texts: Lines) -> None:
    pick(texts, kind="reply")["texts"][-1] += " t99m00001"


def answer_something_else(texts: Lines) -> None:
    pick(texts, kind="reply")["texts"] = ["re nothing"]


def answer_nobody(texts: Lines) -> None:
    texts.append({**pick(texts, kind="reply"), "id": "of-nobody"})


def fail_without_a_word(texts: Lines) -> None:
    pick(texts, kind="error")["texts"] = [" "]


def forget_an_end_on_the_page(pages: Lines) -> None:
    next(filter(None, (page["settled"] for page in pages))).popitem()


def leave_a_page_stale(pages: Lines) -> None:
    pages[0]["snapshots"] = 0


def end_twice(journal: Lines) -> None:
    journal.append(pick(journal, kind="settled"))


def hear_voices(journal: Lines) -> None:
    journal.append({**journal[0], "message_id": "of-nobody"})


def say_it_twice(context: Lines) -> None:
    context.append(next(line for line in context if line["message"]["source"]))


def remember_a_stranger(context: Lines) -> None:
    context[0]["message"]["blocks"][-1]["text"] = "please answer t99m00001"


def drop_a_result(context: Lines) -> None:
    del context[[line["message"]["blocks"][0]["type"] for line in context].index("tool_result")]


def unlog_an_end(log: Lines) -> None:
    log[:] = [line for line in log if line["kind"] != "settled"]


ANSWERED = {"kind": "settled", "outcome": "answered"}
JOURNAL, CONTEXT, LOG = (
    "data/journal.jsonl",
    "data/threads/web/*/context.jsonl",
    "data/threads/web/*/log.jsonl",
)
PLANTED: dict[str, list[tuple[Callable[[Lines], None], str]]] = {
    "last.jsonl": [
        (lose_an_answer, "lost"),
        (show_an_answer_twice, "twice"),
        (show_a_message_twice, "twice"),
        (leave_a_draft, "page"),
        (leave_it_running, "page"),
        (change_a_text, "page"),
        (swap_two_answers, "order"),
    ],
    "texts.jsonl": [
        (partial(drop, kind="reply"), "lost"),
        (answer_twice, "twice"),
        (show_it_as_another, "changed"),
        (answer_with_another_threads_words, "crossed"),
        (answer_something_else, "unexplained"),
        (answer_nobody, "invented"),
        (fail_without_a_word, "unexplained"),
    ],
    "pages.jsonl": [(forget_an_end_on_the_page, "page"), (leave_a_page_stale, "stale")],
    JOURNAL: [
        (partial(drop, kind="settled", by=""), "lost"),
        (end_twice, "twice"),
        (partial(change, wanted=ANSWERED, outcome="undelivered"), "undelivered"),
        (partial(change, wanted=ANSWERED, outcome="merged", by="of-nobody"), "unexplained"),
        (hear_voices, "invented"),
    ],
    CONTEXT: [
        (say_it_twice, "context"),
        (remember_a_stranger, "crossed"),
        (drop_a_result, "context"),
        (list.clear, "context"),
    ],
    LOG: [(unlog_an_end, "log")],
}


@pytest.mark.parametrize(
    ("name", "plant", "rule"), [(name, *one) for name, planted in PLANTED.items() for one in planted]
)
async def test_the_judge_reports_a_planted_violation(good, tmp_path, name, plant, rule):
    folder = copy_of(good, tmp_path)
    rewrite(max(folder.glob(name), key=lambda path: (path.stat().st_size, path)), plant)
    assert rule in await broken_rules(folder, WEB.judge)


@pytest.mark.parametrize(("waiting", "broken"), [(MAILBOX, 1), (MAILBOX + 1, 0)])
def test_only_what_found_its_mailbox_full_may_be_answered_after_a_later_message(tmp_path, waiting, broken):
    write_about(tmp_path)
    book = Book(tmp_path)
    for number in range(waiting + 2):
        book.write("sent", thread="web::p:r", id=f"m{number}", text="", said_at=time.monotonic())
    for n, number in enumerate((waiting + 1, waiting)):
        book.write("last", thread="web::p:r", id=f"m{number}", n=n)
        book.write("texts", thread="web::p:r", id=f"m{number}", key="k", kind="reply", texts=["re"])
    judge = WebJudge(tmp_path)
    later = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    judge.settled = {key: {"at": later} for key in judge.sent}
    judge.check_order()
    assert len(judge.violations) == broken


async def test_the_judge_reports_a_flipped_byte(good, tmp_path):
    folder = copy_of(good, tmp_path)
    data = bytearray((folder / JOURNAL).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / JOURNAL).write_bytes(data)
    assert "damage" in await broken_rules(folder, WEB.judge)


async def test_the_judge_reports_good_lines_that_were_put_aside(good, tmp_path):
    folder = copy_of(good, tmp_path)
    lines = (folder / JOURNAL).read_bytes().split(b"\n")[: CUT_AT_NEWLINE + 1]
    (folder / "data/journal.jsonl.broken").write_bytes(b"\n".join(lines) + b"\n")
    assert "sidecar" in await broken_rules(folder, WEB.judge)
