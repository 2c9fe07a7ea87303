"""`python -m tests.judge.workers FOLDER`: the judge of a crash run over a database, which has no logs beside it."""

from __future__ import annotations

from pathlib import Path

from tests.judge.crash import Judge, main


class WithoutLogs(Judge):
    def check_log(self, folder: Path, thread: str) -> None:
        """Look at nothing: the rows of the messages are the history."""


if __name__ == "__main__":
    main(WithoutLogs)
