"""The real process is killed while people sit at their pages, and the judge misses no planted violation."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.planted import Lines, Run, broken_rules, copy_of, rewrite
from tests.crash.run import Rounds, crash_run
from tests.crash.web.stage import WEB

pytestmark = pytest.mark.anyio

Fields = dict[str, Any]


@pytest.fixture(scope="module")
async def good(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("web")
    rounds = Rounds(3, seed=5, mean_s=0.7, threads=6, questions="answered")
    return folder, await crash_run(folder, rounds, stage=WEB)


async def test_kills_lose_nothing_and_show_nothing_twice(good):
    _, report = good
    assert report.violations == []
    assert report.exits == [-signal.SIGKILL] * 3
    assert report.counts["answered"] > 5
    assert report.counts["questions"] > 0


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


PLANTED: dict[Callable[[Lines], None], str] = {
    lose_an_answer: "lost",
    show_an_answer_twice: "twice",
    show_a_message_twice: "twice",
    leave_a_draft: "page",
    leave_it_running: "page",
    change_a_text: "page",
}


@pytest.mark.parametrize("plant", PLANTED)
async def test_the_judge_reports_what_is_wrong_on_the_last_page(good, tmp_path, plant):
    folder = copy_of(good, tmp_path)
    rewrite(folder / "last.jsonl", plant)
    assert PLANTED[plant] in await broken_rules(folder, WEB.judge)


async def test_an_answer_that_became_another_is_caught(good, tmp_path):
    folder = copy_of(good, tmp_path)
    rewrite(folder / "texts.jsonl", lambda texts: texts[0]["texts"].append("other words"))
    assert "changed" in await broken_rules(folder, WEB.judge)


async def test_a_page_that_was_not_told_of_an_outcome_is_caught(good, tmp_path):
    folder = copy_of(good, tmp_path)
    rewrite(folder / "pages.jsonl", lambda pages: next(filter(None, (p["settled"] for p in pages))).popitem())
    assert "page" in await broken_rules(folder, WEB.judge)


async def test_a_page_without_a_snapshot_since_the_last_restart_is_caught(good, tmp_path):
    folder = copy_of(good, tmp_path)
    rewrite(folder / "pages.jsonl", lambda pages: pages[0].update(snapshots=0))
    assert "stale" in await broken_rules(folder, WEB.judge)
