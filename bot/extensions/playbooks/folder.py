"""The playbooks in the folder `playbooks` of the data folder, read anew each time. Only their owner changes them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

from bot.agent.prompt.owner_files import LOOSE, FileMissing, FileUnusable, changeable, opened, text_of
from bot.config.settings import Settings
from bot.extensions.playbooks.definition import NAME, Playbook
from bot.extensions.playbooks.parsing import PlaybookInvalid, parse_playbook
from bot.extensions.playbooks.references import Known

FOLDER = "playbooks"
KINDS = (".yaml", ".yml", ".md")
MOST_FILES = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: its playbook, or its faults."""

    file_name: str
    playbook: Playbook | None
    faults: tuple[str, ...] = ()


class Library:
    """The playbooks of a folder. All that they refer to must be *known*. Blocking."""

    def __init__(self, folder: Path, known: Known | None = None) -> None:
        self._folder, self._known = folder, known

    @classmethod
    def of(cls, settings: Settings) -> Library:
        """Return the playbooks of a bot with these settings."""
        return cls(settings.data / FOLDER, Known.of(settings))

    def read_all(self) -> list[Entry]:
        """Return every playbook or its faults, sorted by file name."""
        return [self._read(name) for name in self._files()]

    def find(self, name: str) -> Playbook | str:
        """Return a playbook, or a sentence on why there is none."""
        for file_name in self._files():
            if file_name.rpartition(".")[0] == name:
                entry = self._read(file_name)
                return entry.playbook or f"The playbook {name} has faults:\n" + "\n".join(entry.faults)
        known = [entry.playbook.name for entry in self.read_all() if entry.playbook]
        close = get_close_matches(name, known, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        return f"I know no playbook of that name.{hint} /play lists them."

    def problems(self) -> list[str]:
        """Return a line for each fault of each file."""
        return [f"{entry.file_name}: {fault}" for entry in self.read_all() for fault in entry.faults]

    def _files(self) -> list[str]:
        try:
            with os.scandir(self._folder) as found:
                return sorted(entry.name for entry in found if entry.name.endswith(KINDS))[:MOST_FILES]
        except OSError:
            return []  # the doctor looks at the folder's rights

    def _read(self, file_name: str) -> Entry:
        if not NAME.fullmatch(file_name.rpartition(".")[0]):
            fault = "must be named with small letters, digits, - and _, at most 40 of them"
            return Entry(ascii(file_name[:60])[1:-1], None, (fault,))
        if changeable(self._folder) or changeable(self._folder / file_name):
            return Entry(file_name, None, (LOOSE,))
        try:
            with opened(self._folder, (file_name,)) as fd:
                text, _ = text_of(fd)
            return Entry(file_name, parse_playbook(file_name, text, self._known))
        except FileMissing:
            return Entry(file_name, None, ("there is no such file any more",))
        except FileUnusable as error:
            return Entry(file_name, None, (str(error),))
        except PlaybookInvalid as error:
            return Entry(file_name, None, error.faults)


def examples() -> dict[str, str]:
    """Return the playbooks that come with the program: their texts by file name."""
    folder = files("bot.extensions.playbooks").joinpath("examples")
    return {
        file.name: file.read_text("utf-8") for file in sorted(folder.iterdir(), key=lambda file: file.name)
    }
