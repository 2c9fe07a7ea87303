"""The folder of skills, and the part of the system prompt that lists them.

`<data>/skills/<name>/SKILL.md` has a name and a description as YAML front matter, then the text; other files may lie
beside it. They are trusted like the system prompt, and nothing here writes to them. A changed file is parsed again.
While it cannot be used, or is being written, its last good version counts.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from bot.agent.prompt.cached_file import State, state_of
from bot.agent.prompt.memory_lines import visible_text
from bot.agent.prompt.owner_files import LOOSE, FileMissing, FileUnusable, changeable, opened, text_of

log = logging.getLogger(__name__)

SKILL = "SKILL.md"

LARGEST_HEAD = 8_000
"""Characters of the front matter."""

MOST_LISTED, MOST_FILES, DEEPEST = 50, 50, 3
"""Skills in the system prompt; files of one skill that are listed, in so many levels of folders."""

LONGEST_LINE, LONGEST_DESCRIPTION = 200, 4_000
"""Characters of a description: in the system prompt, and in the file."""

HEADING = """\
# Skills

How-tos by the people who run you, one a line. Load the one that fits with `load_skill` before you begin; its text \
counts like these instructions."""

BAD_NAME = "its folder must be named with small letters, digits, - and _"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_BORDER = re.compile(r"^-{3,}\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Skill:
    """``text`` is the part below the front matter; ``digest`` is the SHA-256 of the whole file."""

    name: str
    description: str
    text: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A parsed SKILL.md: its last good version, and its present problem."""

    state: State
    skill: Skill | None
    problem: str = ""


def skill_of(name: str, text: str) -> Skill:
    """Return the skill in the text of *name*/SKILL.md; raises `FileUnusable`."""
    values, body = _split(text)
    description = values.get("description")
    if values.get("name") != name:
        raise FileUnusable("the name in its front matter is not the name of its folder")
    if not isinstance(description, str) or not (summary := " ".join(visible_text(description).split())):
        raise FileUnusable("it has no description")
    if len(summary) > LONGEST_DESCRIPTION:
        raise FileUnusable(f"its description has more than {LONGEST_DESCRIPTION:,} characters")
    if not body:
        raise FileUnusable("there is nothing below its front matter")
    return Skill(name, summary, body)


def _split(text: str) -> tuple[dict[str, object], str]:
    """Return the values of the YAML at the head of a file, all as text, and the text below it."""
    import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 - slow, and only needed if there are skills

    before, *rest = _BORDER.split(text, 2)
    if before.strip() or not rest:
        raise FileUnusable("it does not begin with front matter (---)")
    if len(rest[0]) > LARGEST_HEAD:
        raise FileUnusable(f"its front matter has more than {LARGEST_HEAD:,} characters")
    try:
        values = yaml.load(rest[0], Loader=yaml.BaseLoader) if len(rest) == 2 else None  # noqa: S506
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise FileUnusable(f"its front matter is not valid YAML: {error.problem}{line}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise FileUnusable("its front matter is not valid YAML") from error
    if not isinstance(values, dict) or not values:
        raise FileUnusable("its front matter has no end (---), or nothing in it")
    return values, rest[1].strip()


def _cut(description: str) -> str:
    return description if len(description) <= LONGEST_LINE else f"{description[: LONGEST_LINE - 1]}…"


class Skills:
    """The skills below *folder*; *offered* are the names to use, or empty for all. Blocking.

    ``found`` and ``problems`` (sentences for the operator) are those of the last `scan`.
    """

    def __init__(self, folder: Path, offered: Sequence[str] = ()) -> None:
        self.found: tuple[Skill, ...] = ()
        self.problems: tuple[str, ...] = ()
        self._folder, self._offered = folder, frozenset(offered)
        self._parsed: Mapping[str, _Parsed] = {}

    def scan(self) -> tuple[Skill, ...]:
        """Read new and changed files and return all skills, sorted by name. Each problem is logged once."""
        names, problems = self._names()
        parsed = {name: self._parse(name) for name in names}
        for name, skill in parsed.items():
            problems += [f"skill {name}: {skill.problem}"] if skill.problem else []
            if any(map(changeable, (self._folder / name, self._folder / name / SKILL))):
                problems.append(f"skill {name}: {LOOSE}")
        for problem in problems:
            if problem not in self.problems:
                log.warning("skill.problem: %s", problem)
        self._parsed, self.problems = parsed, tuple(problems)
        self.found = tuple(entry.skill for entry in parsed.values() if entry.skill)
        return self.found

    def instructions(self) -> str:
        """Return the text for the system prompt: the same bytes for the same skills."""
        skills = self.scan()
        lines = [f"- {skill.name}: {_cut(skill.description)}" for skill in skills[:MOST_LISTED]]
        if (more := len(skills) - MOST_LISTED) > 0:
            lines.append(f"({more} more are not listed)")
        return "\n".join([HEADING, "", *lines]) if lines else ""

    def load(self, name: str) -> Skill:
        """Return the current version of a skill; raises `FileUnusable`."""
        for skill in self.scan():
            if skill.name == name:
                return skill
        raise FileUnusable("there is no such skill")

    def files(self, skill: Skill) -> list[str]:
        """Return the other files of a skill, sorted; the first `MOST_FILES` of them."""
        try:
            found = (path for path in _below(self._folder / skill.name, DEEPEST) if path != SKILL)
            return list(islice(found, MOST_FILES))
        except OSError as error:
            log.warning("skill.unlisted: the files of skill %s cannot be listed: %s", skill.name, error)
            return []

    def read(self, skill: Skill, path: str) -> tuple[str, str]:
        """Return the text of another file of a skill, and its digest; raises `FileUnusable`."""
        parts = path.split("/")
        if not {"", ".", ".."}.isdisjoint(parts):
            raise FileUnusable("the path must be that of a file in the skill's own folder")
        with opened(self._folder, (skill.name, *parts)) as fd:
            return text_of(fd)

    def _names(self) -> tuple[list[str], list[str]]:
        """Return the names of the skills' folders, and the problems of other names."""
        try:
            with os.scandir(self._folder) as found:
                folders = {one.name for one in found if one.is_dir() and not one.name.startswith(".")}
        except FileNotFoundError:
            folders = set()
        except OSError as error:
            return [], [f"skills: the folder cannot be read: {error.strerror}"]
        wanted = self._offered or folders
        problems = [f"skills: {LOOSE}"] if changeable(self._folder) else []
        problems += [
            f"skill {_printable(name)}: there is no such folder" for name in sorted(wanted - folders)
        ]
        names = sorted(wanted & folders)
        problems += [f"skill {_printable(name)}: {BAD_NAME}" for name in names if not _NAME.fullmatch(name)]
        return [name for name in names if _NAME.fullmatch(name)], problems

    def _parse(self, name: str) -> _Parsed:
        """Return a skill and its problem; an unchanged file is not read again."""
        state: State = (0, 0, 0, 0)
        before = self._parsed.get(name)
        try:
            with opened(self._folder, (name, SKILL)) as fd:
                state = state_of(os.fstat(fd))
                if before and before.state == state:
                    return before
                text, digest = text_of(fd)
                return _Parsed(state, replace(skill_of(name, text), digest=digest))
        except FileMissing as error:
            return _Parsed(state, None, str(error))
        except FileUnusable as error:
            return _Parsed(state, before.skill if before else None, str(error))


def _printable(name: str) -> str:
    return visible_text(name)[:80]


def _below(folder: Path, depth: int, within: str = "") -> Iterator[str]:
    """Yield the plain files in a folder and *depth* - 1 levels below, sorted, without hidden ones; raises OSError."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_file(follow_symlinks=False):
            yield within + entry.name
        elif depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _below(folder / entry.name, depth - 1, f"{within}{entry.name}/")
