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
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    plant(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, violations = await judge(path.parent, SLACK.judge)
    assert [violation for violation in violations if violation.startswith(f"{rule}: ")], violations


async def test_a_bot_that_never_looks_for_what_it_missed_is_caught(good, tmp_path):
    folder = Path(shutil.copytree(good[0], tmp_path / "copy"))
    sent = [json.loads(line) for line in (folder / "sent.jsonl").read_text().splitlines()]
    missed = {**sent[0], "id": "1.000001", "ids": ["1.000001"], "threads": [sent[0]["thread"]], "must": True}
    (folder / "sent.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (*sent, missed)))
    _, violations = await judge(folder, SLACK.judge)
    assert [violation for violation in violations if violation.startswith("lost: ")]
