"""The real process killed while people talk to it in Discord, and the judge shown what it must not miss."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.crash.discord.stage import DISCORD
from tests.crash.run import Report, Rounds, crash_run, judge

pytestmark = pytest.mark.anyio

Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
async def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    folder = tmp_path_factory.mktemp("discord")
    rounds = Rounds(3, seed=5, mean_s=0.7, threads=4)
    return folder, await crash_run(folder, rounds, stage=replace(DISCORD, mend_s=1.5))


async def test_kills_lose_nothing_and_answer_nothing_twice_in_discord(good):
    _, report = good
    assert report.violations == []
    assert report.exits == [-signal.SIGKILL] * 3
    assert report.counts["answered"] > 5


@pytest.mark.parametrize("questions", ["answered", "ignored"])
async def test_everybody_has_their_outcome_soon_after_the_last_death_at_the_real_rates(tmp_path, questions):
    rounds = Rounds(3, seed=7, mean_s=2, threads=8, pause_s=10, scale=1, within_s=20, questions=questions)
    report = await crash_run(tmp_path, rounds, stage=DISCORD)
    assert report.violations == []
    assert report.counts["answered"] >= 3


def answers(visible: Lines) -> dict[str, Any]:
    """Return an answer in words: of one in a file, the words are the lesser part."""
    return next(
        line for line in visible if "abcdefghi" in line["text"] and " in the file " not in line["text"]
    )


def lose_an_answer(visible: Lines) -> None:
    visible.remove(answers(visible))


def answer_twice(visible: Lines) -> None:
    visible.append({**answers(visible), "ts": "9" * 19})


def answer_nobody(visible: Lines) -> None:
    answers(visible)["nonce"] = "of nobody"


def leave_a_draft(visible: Lines) -> None:
    visible.append({**answers(visible), "ts": "9" * 19, "nonce": "", "unfinished": True})


def answer_elsewhere(visible: Lines) -> None:
    answers(visible)["thread"] = "discord:1:2:3"


def refer_to_another(visible: Lines) -> None:
    answers(visible)["refers"] = "1"


def cut_an_answer(visible: Lines) -> None:
    answer = answers(visible)
    answer["text"] = answer["text"].strip().rpartition("\n")[0]


def tell_a_raw_error(visible: Lines) -> None:
    answers(visible)["text"] += "canary-of-a-bug"


PLANTED: list[tuple[Callable[[Lines], None], str]] = [
    (lose_an_answer, "lost"),
    (answer_twice, "twice"),
    (answer_nobody, "invented"),
    (leave_a_draft, "ugly"),
    (answer_elsewhere, "crossed"),
    (refer_to_another, "crossed"),
    (cut_an_answer, "cut"),
    (tell_a_raw_error, "raw"),
]


def rewritten(path: Path, change: Callable[[Lines], None]) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(("plant", "rule"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
async def test_the_judge_reports_what_is_wrong_in_discord(good, tmp_path, plant, rule):
    folder = Path(shutil.copytree(good[0], tmp_path / "copy"))
    rewritten(folder / "visible.jsonl", plant)
    _, violations = await judge(folder, DISCORD.judge)
    assert [violation for violation in violations if violation.startswith(f"{rule}: ")], violations


async def test_a_bot_that_never_looks_for_what_it_missed_is_caught(good, tmp_path):
    folder = Path(shutil.copytree(good[0], tmp_path / "copy"))

    def miss(sent: Lines) -> None:
        asked = next(line for line in sent if line["must"] and "@me" not in line["thread"])
        sent.append({**asked, "id": "1", "ids": ["1"], "acked_at": None})

    rewritten(folder / "sent.jsonl", miss)
    _, violations = await judge(folder, DISCORD.judge)
    assert [violation for violation in violations if violation.startswith("lost: ")]


async def test_a_bot_that_answers_what_was_said_to_others_is_caught(good, tmp_path):
    folder = Path(shutil.copytree(good[0], tmp_path / "copy"))

    def overhear(sent: Lines) -> None:
        next(line for line in sent if line["must"])["beside"] = True

    rewritten(folder / "sent.jsonl", overhear)
    _, violations = await judge(folder, DISCORD.judge)
    assert [violation for violation in violations if violation.startswith("invented: ")]
