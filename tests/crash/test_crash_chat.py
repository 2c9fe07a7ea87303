"""The real process is killed while people talk to it in Slack, Discord and Matrix, and no judge misses a planted violation."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from bot.config.built_in_extensions import BUILT_IN
from tests.crash.discord.stage import DISCORD
from tests.crash.matrix.stage import MATRIX
from tests.crash.planted import Lines, Run, broken_rules, copy_of, read, rewrite
from tests.crash.run import FORGETS_S, Rounds, Stage, crash_run
from tests.crash.slack.stage import SLACK
from tests.judge.crash import FORGOTTEN
from tests.judge.visible import ROW
from tests.patience import WITHIN_S
from tests.transports.matrix.synapse import NAME, needs_synapse
from threads.wording import MAYBE_REPEAT

Fields = dict[str, Any]


@dataclass(frozen=True)
class Chat:
    """A platform, and how its record shows an answer, a draft, and an answer in the wrong thread."""

    stage: Stage
    is_answer: Callable[[Fields], bool]
    latest: str
    """A later timestamp than any of the run."""
    draft: Fields
    elsewhere: Fields
    least_answered: int
    forgets: float = 0
    rounds: int = 3
    mean_s: float = 0.7

    def answer(self, visible: Lines) -> Fields:
        return next(filter(self.is_answer, visible))


def has_all_rows(text: str) -> bool:
    """Return whether *text* is a whole answer, not one part of several."""
    rows = ROW.findall(text)
    return bool(rows) and [rows[0][0], rows[-1][0]] == ["1", rows[0][1]]


def is_slack_answer(line: Fields) -> bool:
    return has_all_rows(line["text"]) and line["tag"].get("key", "kept") != "kept"


def is_discord_answer(line: Fields) -> bool:
    """Of an answer in a file, the words are only the smaller part."""
    return has_all_rows(line["text"]) and " in the file " not in line["text"]


def is_matrix_answer(line: Fields) -> bool:
    return bool(line["mark"].get("final")) and has_all_rows(line["text"])


CHATS = {
    "slack": Chat(
        SLACK,
        is_slack_answer,
        "9999999999.000000",
        {"tag": {}},
        {"root": "1000000000.000000"},
        least_answered=6,
        forgets=0.7 if BUILT_IN["retention"].is_here else 0,
    ),
    "discord": Chat(
        DISCORD,
        is_discord_answer,
        "9" * 19,
        {"nonce": "", "unfinished": True},
        {"thread": "discord:1:2:3"},
        least_answered=3,
    ),
    "homeserver": Chat(
        MATRIX,
        is_matrix_answer,
        "$later",
        {"mark": {}},
        {"thread": f"matrix:{NAME}:!another:$another"},
        least_answered=3,
        rounds=6,
        mean_s=3,
    ),
}
IN_MATRIX = pytest.param("homeserver", marks=needs_synapse)


@pytest.fixture(scope="module", params=["slack", "discord", IN_MATRIX])
def chat(request: pytest.FixtureRequest) -> Chat:
    return CHATS[request.param]


@pytest.fixture(scope="module")
async def good(chat: Chat, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp(chat.stage.name)
    rounds = Rounds(chat.rounds, seed=5, mean_s=chat.mean_s, threads=4, forgets=chat.forgets)
    return folder, await crash_run(folder, rounds, replace(chat.stage, mend_s=1.5))


only_slack = pytest.mark.parametrize("chat", ["slack"], indirect=True, scope="module")
only_matrix = pytest.mark.parametrize("chat", [IN_MATRIX], indirect=True, scope="module")
only_discord = pytest.mark.parametrize("chat", ["discord"], indirect=True, scope="module")


async def test_kills_lose_nothing_and_answer_nothing_twice(good, chat):
    _, report = good
    assert report.violations == []
    assert report.exits == [-signal.SIGKILL] * chat.rounds
    assert report.counts["answered"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("chat", ["slack", "discord"], indirect=True, scope="module")
@pytest.mark.parametrize("questions", ["answered", "ignored"])
async def test_everybody_has_their_outcome_soon_after_the_last_death_at_the_real_rates(
    tmp_path, chat, questions
):
    rounds = Rounds(
        3, seed=7, mean_s=2, threads=8, pause_s=10, scale=1, within_s=WITHIN_S, questions=questions
    )
    report = await crash_run(tmp_path, rounds, chat.stage)
    assert report.violations == []
    assert report.counts["answered"] >= chat.least_answered


def lose_an_answer(chat: Chat, visible: Lines) -> None:
    visible.remove(chat.answer(visible))


def answer_twice(chat: Chat, visible: Lines) -> None:
    visible.append({**chat.answer(visible), "ts": chat.latest})


def leave_a_draft(chat: Chat, visible: Lines) -> None:
    visible.append({**chat.answer(visible), "ts": chat.latest, **chat.draft})


def answer_elsewhere(chat: Chat, visible: Lines) -> None:
    chat.answer(visible).update(chat.elsewhere)


def cut_an_answer(chat: Chat, visible: Lines) -> None:
    answer = chat.answer(visible)
    answer["text"] = answer["text"].strip().rpartition("\n")[0]


def tell_a_raw_error(chat: Chat, visible: Lines) -> None:
    chat.answer(visible)["text"] += "canary-of-a-bug"


def answer_nobody(chat: Chat, visible: Lines) -> None:
    chat.answer(visible)["nonce"] = "of nobody"


def refer_to_another(chat: Chat, visible: Lines) -> None:
    chat.answer(visible)["refers"] = "1"


PLANTED = {
    lose_an_answer: "lost",
    answer_twice: "twice",
    leave_a_draft: "ugly",
    answer_elsewhere: "crossed",
    cut_an_answer: "cut",
    tell_a_raw_error: "raw",
}
PLANTED_IN_DISCORD = {answer_nobody: "invented", refer_to_another: "crossed"}


@pytest.mark.parametrize("plant", PLANTED)
async def test_the_judge_reports_what_is_wrong(good, chat, tmp_path, plant):
    folder = copy_of(good, tmp_path)
    rewrite(folder / "visible.jsonl", lambda visible: plant(chat, visible))
    assert PLANTED[plant] in await broken_rules(folder, chat.stage.judge)


@only_discord
@pytest.mark.parametrize("plant", PLANTED_IN_DISCORD)
async def test_the_judge_reports_what_is_wrong_in_discord_alone(good, chat, tmp_path, plant):
    folder = copy_of(good, tmp_path)
    rewrite(folder / "visible.jsonl", lambda visible: plant(chat, visible))
    assert PLANTED_IN_DISCORD[plant] in await broken_rules(folder, chat.stage.judge)


async def test_a_bot_that_never_looks_for_what_it_missed_is_caught(good, chat, tmp_path):
    folder = copy_of(good, tmp_path)
    missed = {"id": "1.000001", "ids": ["1.000001"], "must": True, "acked_at": None}

    def miss(sent: Lines) -> None:
        heard = next(line for line in sent if line["must"] and "@me" not in line["thread"])
        sent.append({**heard, **missed, "threads": [heard["thread"]]})

    rewrite(folder / "sent.jsonl", miss)
    assert "lost" in await broken_rules(folder, chat.stage.judge)


async def test_a_history_may_be_gone_only_where_a_thread_was_quiet_for_its_time(good, chat, tmp_path):
    folder = copy_of(good, tmp_path)
    for log in folder.glob("data/threads/*/*/log.jsonl"):
        log.unlink()
    rewrite(folder / "run.json", lambda about: about[0].update(forgets=3600.0))
    assert "log" in await broken_rules(folder, chat.stage.judge)
    rewrite(folder / "run.json", lambda about: about[0].update(forgets=0.0, died_at=0.0))
    assert "log" in await broken_rules(folder, chat.stage.judge)


async def test_what_somebody_had_forgotten_may_be_in_no_file(good, chat, tmp_path):
    folder, place = copy_of(good, tmp_path), "root" if chat.stage.name == "slack" else "thread"
    visible = read(folder / "visible.jsonl")
    answers = list(filter(chat.is_answer, visible))
    rows = [ROW.findall(one["text"]) for one in answers]
    n = max(
        n
        for n, one in enumerate(answers)
        if rows[n][0][0] == "1" and rows[n][-1][0] == rows[n][-1][1]  # all of it
        if f"re {rows[n][0][2]}\n" in one["text"]  # to one message alone
        if any(one[place] == other[place] for other in answers[:n])
    )
    last, wish = answers[n], rows[n][0][2]
    last["text"] = f"{FORGOTTEN} of this thread: 1 message and 0 files."
    rewrite(folder / "visible.jsonl", lambda lines: lines.__setitem__(slice(None), visible))

    def say_it_late(sent: Lines) -> None:
        next(one for one in sent if one["token"] == wish)["said_at"] += 3600.0

    rewrite(folder / "sent.jsonl", say_it_late)
    assert "told" in await broken_rules(folder, chat.stage.judge)


@only_slack
@pytest.mark.slow
@pytest.mark.needs("retention")
@pytest.mark.parametrize(
    ("fault", "rules"), [("greedy", {"context", "log", "lost"}), ("amnesiac", {"twice"})]
)
async def test_a_bot_that_forgets_what_it_owes_or_what_it_knows_is_caught(tmp_path, chat, fault, rules):
    rounds = Rounds(6, seed=5, mean_s=2, threads=10, forgets=FORGETS_S)
    report = await crash_run(tmp_path, rounds, replace(chat.stage, options=("--broken", fault)))
    assert rules & {violation.partition(":")[0] for violation in report.violations}


@only_discord
async def test_a_bot_that_answers_what_was_said_to_others_is_caught(good, chat, tmp_path):
    folder = copy_of(good, tmp_path)

    def overhear(sent: Lines) -> None:
        next(line for line in sent if line["must"])["beside"] = True

    rewrite(folder / "sent.jsonl", overhear)
    assert "invented" in await broken_rules(folder, chat.stage.judge)


@only_matrix
async def test_no_post_in_matrix_may_be_a_repeat(good, chat, tmp_path):
    folder = copy_of(good, tmp_path)

    def repeat(visible: Lines) -> None:
        chat.answer(visible)["text"] += f"\n\n{MAYBE_REPEAT}"

    rewrite(folder / "visible.jsonl", repeat)
    assert "twice" in await broken_rules(folder, chat.stage.judge)


@only_matrix
@pytest.mark.slow
async def test_a_bot_that_sends_each_message_as_a_new_one_is_caught(tmp_path, chat):
    rounds = Rounds(20, seed=5, threads=10)
    report = await crash_run(tmp_path, rounds, replace(chat.stage, options=("--broken", "keyless")))
    assert "twice" in {violation.partition(":")[0] for violation in report.violations}


@only_slack
@pytest.mark.parametrize(("refused", "rules"), [(2, {"twice"}), (3, set())])
async def test_a_marked_repeat_is_forgiven_only_where_all_look_ups_may_have_been_refused(
    good, chat, tmp_path, refused, rules
):
    folder = copy_of(good, tmp_path)
    answer = chat.answer(read(folder / "visible.jsonl"))
    thread = f"slack:T1:{answer['channel']}:{answer['root']}"
    again = {**answer, "ts": chat.latest, "text": f"{answer['text']}\n\n{MAYBE_REPEAT}"}
    rewrite(folder / "visible.jsonl", lambda visible: visible.append(again))
    refusal = {"thread": thread, "call": "conversations.replies", "error": "Cut"}

    def refuse(refusals: Lines) -> None:
        refusals[:] = [one for one in refusals if one["thread"] != thread] + [refusal] * refused

    rewrite(folder / "refused.jsonl", refuse)
    assert await broken_rules(folder, chat.stage.judge) == rules


@only_slack
async def test_a_message_that_was_sent_twice_may_be_answered_under_either_time(good, chat, tmp_path):
    folder = copy_of(good, tmp_path)
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
    assert await broken_rules(folder, chat.stage.judge) == set()
