"""The real process killed while people talk to it in Slack, and the judge shown what it must not miss."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.crash.run import Report, Rounds, crash_run, judge
from tests.crash.slack.stage import SLACK
from threads.wording import MAYBE_REPEAT

pytestmark = pytest.mark.anyio

Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
async def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    folder = tmp_path_factory.mktemp("slack")
    rounds = Rounds(3, seed=5, mean_s=0.7, threads=4)
    return folder, await crash_run(folder, rounds, stage=replace(SLACK, mend_s=1.5))


async def test_kills_lose_nothing_and_answer_nothing_twice_in_slack(good):
    _, report = good
    assert report.violations == []
    assert report.exits == [-signal.SIGKILL] * 3
    assert report.counts["answered"] > 5


@pytest.mark.parametrize("questions", ["answered", "ignored"])
async def test_everybody_has_their_outcome_soon_after_the_last_death_at_the_real_rates(tmp_path, questions):
    rounds = Rounds(3, seed=7, mean_s=2, threads=8, pause_s=10, scale=1, within_s=20, questions=questions)
    report = await crash_run(tmp_path, rounds, stage=SLACK)
    assert report.violations == []
    assert report.counts["answered"] > 5


def rewrite(path: Path, change: Callable[[Lines], None]) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def is_answer(line: dict[str, Any]) -> bool:
    return "abcdefghi" in line["text"] and line["tag"].get("key", "kept") != "kept"


def lose_an_answer(visible: Lines) -> None:
    visible.remove(next(filter(is_answer, visible)))


def answer_twice(visible: Lines) -> None:
    visible.append({**next(filter(is_answer, visible)), "ts": "9999999999.000000"})


def leave_a_draft(visible: Lines) -> None:
    answer = next(filter(is_answer, visible))
    visible.append({**answer, "ts": "9999999999.000000", "tag": {}})


def answer_elsewhere(visible: Lines) -> None:
    next(filter(is_answer, visible))["root"] = "1000000000.000000"


def cut_an_answer(visible: Lines) -> None:
    answer = next(filter(is_answer, visible))
    answer["text"] = answer["text"].strip().rpartition("\n")[0]


def tell_a_raw_error(visible: Lines) -> None:
    next(filter(is_answer, visible))["text"] += "canary-of-a-bug"


PLANTED: list[tuple[Callable[[Lines], None], str]] = [
    (lose_an_answer, "lost"),
    (answer_twice, "twice"),
    (leave_a_draft, "ugly"),
    (answer_elsewhere, "crossed"),
    (cut_an_answer, "cut"),
    (tell_a_raw_error, "raw"),
]


@pytest.mark.parametrize(("plant", "rule"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
async def test_the_judge_reports_what_is_wrong_in_slack(good, tmp_path, plant, rule):
    path = Path(shutil.copytree(good[0], tmp_path / "copy")) / "visible.jsonl"
    rewrite(path, plant)
    _, violations = await judge(path.parent, SLACK.judge)
    assert [violation for violation in violations if violation.startswith(f"{rule}: ")], violations


async def test_a_bot_that_never_looks_for_what_it_missed_is_caught(good, tmp_path):
    folder = Path(shutil.copytree(good[0], tmp_path / "copy"))
    missed = {"id": "1.000001", "ids": ["1.000001"], "must": True}
    rewrite(
        folder / "sent.jsonl",
        lambda sent: sent.append({**sent[0], **missed, "threads": [sent[0]["thread"]]}),
    )
    _, violations = await judge(folder, SLACK.judge)
    assert [violation for violation in violations if violation.startswith("lost: ")]


@pytest.mark.parametrize(("refused", "rules"), [(2, {"twice"}), (3, set())])
async def test_a_marked_repeat_is_forgiven_only_where_all_look_ups_may_have_been_refused(
    good, tmp_path, refused, rules
):
    folder = Path(shutil.copytree(good[0], tmp_path / "copy"))
    lines = [json.loads(line) for line in (folder / "visible.jsonl").read_text().splitlines()]
    answer = next(filter(is_answer, lines))
    thread = f"slack:T1:{answer['channel']}:{answer['root']}"
    again = {**answer, "ts": "9999999999.000000", "text": f"{answer['text']}\n\n{MAYBE_REPEAT}"}
    rewrite(folder / "visible.jsonl", lambda visible: visible.append(again))
    refusal = {"thread": thread, "call": "conversations.replies", "error": "Cut"}

    def refuse(told: Lines) -> None:
        told[:] = [one for one in told if one["thread"] != thread] + [refusal] * refused

    rewrite(folder / "refused.jsonl", refuse)
    _, violations = await judge(folder, SLACK.judge)
    assert {violation.partition(":")[0] for violation in violations} == rules, violations


async def test_a_message_that_was_sent_twice_may_be_answered_under_either_time(good, tmp_path):
    folder = Path(shutil.copytree(good[0], tmp_path / "copy"))
    answered = {path.name.split("~")[-1] for path in folder.glob("data/threads/slack/*")}

    def send_before(sent: Lines) -> None:
        threads = [one["thread"] for one in sent]
        once = next(
            one
            for one in sent
            if one["ids"] == [one["id"]] and one["id"] in answered and threads.count(one["thread"]) == 1
        )
        first = once["thread"].replace(once["id"], "1.000001")
        once |= {"id": "1.000001", "ids": ["1.000001", once["id"]]}
        once |= {"thread": first, "threads": [first, *once["threads"]]}

    rewrite(folder / "sent.jsonl", send_before)
    _, violations = await judge(folder, SLACK.judge)
    assert violations == []
