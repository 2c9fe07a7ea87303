"""What happens in a crash run, written down for the judge."""

from __future__ import annotations

import json
import time
from pathlib import Path


class Book:
    """JSON lines in a folder, one file for each kind of thing that happens."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, **fields: object) -> None:
        with (self._folder / f"{name}.jsonl").open("a", encoding="ascii") as file:
            file.write(json.dumps(fields) + "\n")


def write_about(folder: Path, **about: object) -> None:
    """Write what the judge has to know of a run. ``clock`` added to an instant of the platform is the time of day."""
    about["clock"] = time.time() - time.monotonic()
    (folder / "run.json").write_text(json.dumps(about))
