"""Finds the folders of threads, the last written first, without reading the messages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from threads.model import ThreadId
from threads.store.data_folder import thread_folder


@dataclass(frozen=True, slots=True)
class Folder:
    """A thread's folder; ``changed_at`` (seconds since 1970) is when its log was last written, or it itself."""

    path: Path
    changed_at: float = 0.0

    @property
    def name(self) -> str:
        """The thread's id; one that was too long for a folder stays shortened."""
        slug = [unquote(part) for part in self.path.name.split("~")]
        return ":".join([unquote(self.path.parent.name), *slug])

    @property
    def log(self) -> Path:
        return self.path / "log.jsonl"


def folders(data: Path, transport: str = "") -> list[Folder]:
    """Return the threads of one transport, or of all; only the age of each log is read."""
    found = [_looked_at(path) for path in _paths(data) if transport in ("", unquote(path.parent.name))]
    return sorted(found, key=lambda folder: (-folder.changed_at, folder.path))


def _paths(data: Path) -> Iterator[Path]:
    for transport in _subfolders(data / "threads"):
        yield from _subfolders(transport)


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _looked_at(path: Path) -> Folder:
    try:
        return Folder(path, os.stat(f"{path}/log.jsonl").st_mtime)  # noqa: PTH116 - once for each of 100,000
    except FileNotFoundError:
        pass
    with suppress(FileNotFoundError):  # nothing said yet, but a message may wait
        return Folder(path, path.stat().st_mtime)
    return Folder(path)


def find(data: Path, wanted: str) -> list[Folder]:
    """Return the thread of this id, or those whose id ends so; a link to a message in Slack or Discord will do."""
    if link := linked(wanted):
        wanted = link[1]
    if wanted.count(":") >= 3 and (path := thread_folder(data, ThreadId.parse(wanted))).is_dir():
        return [_looked_at(path)]
    last = wanted.rpartition(":")[2]
    near = [path for path in _paths(data) if last in (unquote(path.name.rpartition("~")[2]), path.name)]
    return [Folder(path) for path in near if Folder(path).name.endswith(wanted) or path.name == wanted]


_SLACK = re.compile(r"/archives/[A-Z0-9]+/p(\d+)(\d{6})")
_DISCORD = re.compile(r"/channels/[\d@me]+/(\d+)/(\d+)")


def linked(wanted: str) -> tuple[str, str] | None:
    """Return the message and the thread's root that a link leads to, or None if it is not a link."""
    address = urlsplit(wanted) if wanted.startswith("https://") else None
    if address is None:
        return None
    if slack := _SLACK.fullmatch(address.path):
        message = f"{slack[1]}.{slack[2]}"
        return message, parse_qs(address.query).get("thread_ts", [message])[0]
    if discord := _DISCORD.fullmatch(address.path):
        return discord[2], discord[1]
    return None
