"""The files of a data folder: which there are, their schemas, and when a backup copies them.

One table has all of it: a backup takes its order from it (`Step`), and a start the versions it knows. A test walks
the folder of a whole run and fails for a file that is not in the table. Patterns are relative to the folder. ``*``
stands for anything within a name, and ``**`` at the end for anything below.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from threads.store.checksummed_lines import SCHEMA_VERSION

DATA_VERSION = 1
"""The version of the whole folder. A change of a schema below raises it by one."""


class Step(IntEnum):
    """When a backup copies a file. `bot.extensions.backup.snapshot` explains the order."""

    NEVER = 0
    MARKS = 1
    PROMISES = 2
    CONVERSATIONS = 3
    OLD_CONVERSATIONS = 4
    STATE = 5
    MONEY = 6
    AUDIT = 7
    FILES = 8


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of file. ``schema`` is None for files without a schema of ours, such as those that people write."""

    pattern: str
    holds: str
    schema: int | None
    step: Step

    def covers(self, path: PurePosixPath) -> bool:
        wanted, parts = self.pattern.split("/"), path.parts
        if wanted[-1] == "**":
            wanted, parts = wanted[:-1], parts[: len(wanted) - 1]
        return len(wanted) == len(parts) and all(map(fnmatchcase, parts, wanted))

    def files(self, data: Path) -> Iterator[PurePosixPath]:
        """Return the existing files of this kind. Raises OSError."""
        return _expanded(data, PurePosixPath(), self.pattern.split("/"))


V = SCHEMA_VERSION
THREAD = "threads/*/*"

KINDS = (
    Kind("*-marks.json", "how far each channel was read", 1, Step.MARKS),
    Kind("accepted.json", "events from outside that have no turn yet", 1, Step.MARKS),
    Kind("schedules.json", "what is sent later", 1, Step.PROMISES),
    Kind("journal.jsonl", "the promises of all threads", V, Step.PROMISES),
    Kind(f"{THREAD}/context.jsonl", "what the model sees of a thread", V, Step.CONVERSATIONS),
    Kind(f"{THREAD}/context.old.jsonl", "what a compaction or /new took out", V, Step.OLD_CONVERSATIONS),
    Kind(f"{THREAD}/log.jsonl", "a thread's history for people", V, Step.OLD_CONVERSATIONS),
    Kind("schema.json", "the version of the folder", 1, Step.STATE),
    Kind("moved.json", "where the store was moved", 1, Step.STATE),
    Kind("restored.json", "which backup the folder came from", 1, Step.STATE),
    Kind("models.json", "threads that chose a model", 1, Step.STATE),
    Kind("servers.json", "what was learned of model servers", 1, Step.STATE),
    Kind("approvals.json", "open questions and standing permissions", 1, Step.STATE),
    Kind("questions.json", "questions to people, and their answers", 1, Step.STATE),
    Kind("playbooks.json", "the last run of a playbook in each thread", 1, Step.STATE),
    Kind("jobs.json", "work in the background", 1, Step.STATE),
    Kind("job-*.json", "what the conversation of a job has come to", 1, Step.STATE),
    Kind("forgotten.json", "which people and threads were forgotten", 1, Step.STATE),
    Kind("mcp.json", "what MCP servers offer", 1, Step.STATE),
    Kind("*-commands.json", "which commands Discord was told of", 1, Step.STATE),
    Kind("MEMORY.md", "what is always known", None, Step.STATE),
    Kind("IDENTITY.md", "who the bot is, written by the admin", None, Step.STATE),
    Kind("channels/*/*/MEMORY.md", "what is known in a channel", None, Step.STATE),
    Kind(f"{THREAD}/MEMORY.md", "what is known in a thread", None, Step.STATE),
    Kind("skills/**", "skills, written by the admin", None, Step.STATE),
    Kind("playbooks/**", "playbooks, written by the admin", None, Step.STATE),
    Kind("usage/*.jsonl", "every model call and its cost", V, Step.MONEY),
    Kind("audit/*.jsonl", "who judged, allowed and stopped what, and what failed", V, Step.AUDIT),
    Kind(f"{THREAD}/workspace/**", "a thread's files", None, Step.FILES),
    Kind(f"{THREAD}/outside", "that text from outside is among a thread's files", None, Step.FILES),
    Kind("attached/**", "files that `threadfast chat` was given", None, Step.FILES),
    Kind("web/**", "files of the page: what people sent there, and what the bot posted", None, Step.FILES),
    Kind("console-history", "what was typed into `threadfast chat`", None, Step.FILES),
    Kind("web-threads-*.json", "what people of the page say of their threads", 1, Step.STATE),
    Kind("web.json", "who is signed in at the page, and the key of its links", 1, Step.NEVER),
    Kind("mcp-tokens/**", "what people were granted at MCP servers: they sign in again", None, Step.NEVER),
    Kind("lock", "which process has the folder", None, Step.NEVER),
    Kind("status.sock", "where the running bot tells its status", None, Step.NEVER),
    Kind("threadfast.log*", "the log of `threadfast chat`", None, Step.NEVER),
    Kind("restoring.json", "a restore that has begun to change the folder", 1, Step.NEVER),
    Kind("restoring/**", "a restore under way", None, Step.NEVER),
    Kind("before-*/**", "what a restore replaced", None, Step.NEVER),
)

WRITTEN_BY_ADMIN = ("skills", "playbooks")
"""Folders of files that others may read."""

SIDECAR = ".broken"
"""Damaged lines of one of our files, set aside. Copied last."""


def kind_of(path: PurePosixPath) -> Kind | None:
    """Return the kind of the file with this path in the data folder, or None if it is not ours."""
    if path.name.endswith(SIDECAR):
        path = path.with_name(path.name.removesuffix(SIDECAR))
        return next(
            (
                Kind(k.pattern, "damaged lines", None, Step.FILES if k.step else Step.NEVER)
                for k in KINDS
                if k.covers(path)
            ),
            None,
        )
    return next((kind for kind in KINDS if kind.covers(path)), None)


def files_of(data: Path, step: Step) -> Iterator[PurePosixPath]:
    """Return the existing files of a step, in the order of the table. Raises OSError."""
    for kind in KINDS:
        if kind.step is step:
            yield from kind.files(data)


def _expanded(data: Path, folder: PurePosixPath, wanted: list[str]) -> Iterator[PurePosixPath]:
    try:
        with os.scandir(data / folder) as entries:
            here = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:  # there is none, or it is gone
        return
    first, *rest = wanted
    for entry in here:
        below = entry.is_dir(follow_symlinks=False)
        if first == "**":
            yield from _expanded(data, folder / entry.name, wanted) if below else [folder / entry.name]
        elif fnmatchcase(entry.name, first) and below == bool(rest):
            yield from _expanded(data, folder / entry.name, rest) if rest else [folder / entry.name]
