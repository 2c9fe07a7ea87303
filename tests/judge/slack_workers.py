"""`python -m tests.judge.slack_workers FOLDER`: the judge of a crash run in Slack over a database, without logs beside it."""

from __future__ import annotations

from pathlib import Path

from tests.judge.crash import main
from tests.judge.slack import SlackJudge


class SlackWorkersJudge(SlackJudge):
    def check_log(self, folder: Path, thread: str) -> None:
        """Look at nothing: the rows of the messages are the history."""


if __name__ == "__main__":
    main(SlackWorkersJudge)
