"""`python -m tests.judge.slack_workers FOLDER`: the judge of a crash run in Slack over a database."""

from __future__ import annotations

from tests.judge.crash import main
from tests.judge.slack import SlackJudge
from tests.judge.workers import WithoutLogs


class SlackWorkersJudge(WithoutLogs, SlackJudge):
    """Both."""


if __name__ == "__main__":
    main(SlackWorkersJudge)
