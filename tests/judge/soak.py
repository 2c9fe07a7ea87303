"""`python -m tests.judge.soak slack|discord|web FOLDER`: the judges of the crash runs, for one platform of a bot with three.

A question that the bot asks in a thread is no outcome of a message: in Slack it is told by its key, which ends in ``?``
and an id, in Discord by its words; it only has to speak of its own thread.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.judge.crash import Judge, main
from tests.judge.discord import DiscordJudge
from tests.judge.records import Fields
from tests.judge.slack import SlackJudge
from tests.judge.visible import VisibleJudge
from tests.judge.web import WebJudge

ASKS = "May I use"


class _OfOne(Judge):
    """What a judge reads of the files of all, as far as it is of its platform."""

    platform: str

    def ours(self, found: Iterator[Fields]) -> Iterator[Fields]:
        return (line for line in found if line["thread_id"].startswith(f"{self.platform}:"))

    def lines(self, path: Path) -> Iterator[Fields]:
        found = super().lines(path)
        return self.ours(found) if path.name == "journal.jsonl" else found

    def check_thread(self, folder: Path) -> None:
        if folder.parent.name == self.platform:
            super().check_thread(folder)


class _OfChat(_OfOne, VisibleJudge):
    """What there is beside what people were told: questions."""

    def set_questions_aside(self, questions: list[Fields]) -> None:
        self.counts["questions"] = len(questions)
        for one in questions:
            thread = self.same.get(t := self.thread_of({**one, "key": ""}), t)
            self.check_names(one["text"], thread, f"the question {one['ts']}")
        asked = {one["ts"] for one in questions}
        self.visible = [one for one in self.visible if one["ts"] not in asked]

    def raw_journal(self) -> Iterator[Fields]:
        return self.ours(super().raw_journal())


class OfSlack(_OfChat, SlackJudge):
    notes = (*SlackJudge.notes, "questions")

    def gather(self) -> None:
        questions = [one for one in self.visible if "?" in (one["tag"] or {}).get("key", "")]
        self.set_questions_aside(questions)
        super().gather()


class OfDiscord(_OfChat, DiscordJudge):
    notes = (*DiscordJudge.notes, "questions")

    def gather(self) -> None:
        questions = [one for one in self.visible if one["text"].startswith(ASKS)]
        self.set_questions_aside(questions)
        super().gather()


class OfWeb(_OfOne, WebJudge):
    platform = "web"


if __name__ == "__main__":
    kind = {"slack": OfSlack, "discord": OfDiscord, "web": OfWeb}[sys.argv.pop(1)]
    main(kind)
