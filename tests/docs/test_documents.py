"""What the documents name is there: commands with their flags, make's targets, files, settings, events, figures."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from bot.cli import main
from bot.config.extensions import settings_model
from bot.extensions.metrics.metrics import Metrics
from docs.generate.settings_page import settings_in
from tests.bot.observe.watching import STATUS

ROOT = Path(__file__).parents[2]
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "deploy/README.md")
}

SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)")
COMMENT = re.compile(r"(?:^|\s)#.*")
ENDS = re.compile(r"&&|\|\||[|;]|\d*>>?|\s-- ")
TARGET = re.compile(r"\bmake ([a-z][a-z-]*)")
SOURCE = re.compile(r"(?:bot|threads|transports|deploy|docs|tests|benchmarks)/[\w./-]+")
DOTTED = re.compile(r"[a-z][a-z_]*(?:\.[a-z][a-z_0-9]*)+")
FIGURE = re.compile(r"\b(?:threadfast|process)_[a-z_]+")
PROGRAM = frozenset({"threadfast", ".venv/bin/threadfast", "/usr/local/bin/threadfast"})
AFTER = frozenset({"-u", "-fu", "-t", "-o", "start", "stop", "restart", "status", "edit", "add"})
"""Words after which ``threadfast`` is a user, a unit or an image."""
ENDINGS = frozenset(
    [
        "md",
        "json",
        "jsonl",
        "py",
        "sh",
        "yaml",
        "conf",
        "service",
        "timer",
        "log",
        "sock",
        "lock",
        "broken",
        "toml",
        "old",
    ]
)


@dataclass(frozen=True)
class Code:
    """What a document shows as code: spans in its prose, lines of its blocks without their comments."""

    spans: list[str]
    lines: list[str]

    @property
    def all(self) -> list[str]:
        return self.spans + self.lines


def code_in(text: str) -> Code:
    spans, lines, inside = list[str](), list[str](), False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
        elif inside:
            lines.append(COMMENT.sub("", line))
        else:
            spans += SPAN.findall(line)
    return Code(spans, lines)


def commands_in(piece: str) -> Iterator[list[str]]:
    """Return the words after each ``threadfast`` that is called there."""
    for call in ENDS.split(piece):
        try:
            words = shlex.split(call)
        except ValueError:  # no command: an apostrophe
            continue
        for place, word in enumerate(words):
            if word.removeprefix("ExecStart=") in PROGRAM and (not place or words[place - 1] not in AFTER):
                yield words[place + 1 :]


def faults_of(words: list[str]) -> list[str]:
    """Return what of a call is not there."""
    command: click.Command = main
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        if name.isupper():  # stands for any
            return []
        found = command.get_command(click.Context(command), name)
        if found is None:
            return [f"no command {name}"]
        command = found
    params = command.get_params(click.Context(command))
    options = [option for option in params if isinstance(option, click.Option)]
    flags = {flag: option for option in options for flag in option.opts}
    takes = sum(isinstance(parameter, click.Argument) for parameter in params)
    faults = []
    while rest:
        word = rest.pop(0)
        flag, _, value = word.partition("=")
        if flag in {"-h", "--help", "…"}:
            continue
        if not flag.startswith("-"):
            takes -= 1
            faults += [f"{command.name} takes no {word}"] if takes < 0 else []
        elif flag not in flags:
            faults.append(f"{command.name} has no {flag}")
        elif not (flags[flag].is_flag or flags[flag].count or value) and rest:
            rest.pop(0)
    return faults


@pytest.fixture(scope="module")
def settings() -> set[str]:
    paths = {path for path, _ in settings_in(settings_model())}
    return paths | {path.rpartition(".")[0] for path in paths} | set(settings_model().model_fields)


@pytest.fixture(scope="module")
def events() -> set[str]:
    return set(re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs/events.md").read_text("utf-8"), re.MULTILINE))


@pytest.fixture(scope="module")
def findings() -> str:
    places = [*(ROOT / "bot/extensions/doctor").glob("*.py"), *(ROOT / "transports").glob("*/checks.py")]
    return "".join(place.read_text("utf-8") for place in places)


@pytest.fixture(params=DOCUMENTS, scope="module")
def text(request: pytest.FixtureRequest) -> str:
    return DOCUMENTS[request.param].read_text("utf-8")


@pytest.fixture(scope="module")
def code(text: str) -> Code:
    return code_in(text)


def test_every_command_exists_with_its_flags(code):
    calls = [words for piece in code.all for words in commands_in(piece)]
    faults = [f"threadfast {' '.join(words)}: {fault}" for words in calls for fault in faults_of(words)]
    assert not faults


def test_nothing_is_installed_outside_of_an_environment(code):
    """Debian and Ubuntu refuse a bare pip (PEP 668)."""
    assert [piece for piece in code.all if re.match(r"(?:python3 -m )?pip install \S", piece)] == []


def test_every_target_of_make_exists(code):
    there = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {name for piece in code.all for name in TARGET.findall(piece)}
    assert named - there == set()


def test_every_link_leads_to_a_file(request, text):
    folder = DOCUMENTS[request.node.callspec.params["text"]].parent
    missing = [link for link in LINK.findall(text) if "://" not in link and not (folder / link).exists()]
    assert not missing


def test_every_path_of_the_source_exists(code):
    named = {span for span in code.spans if SOURCE.fullmatch(span)}
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_every_dotted_name_is_a_setting_an_event_or_a_check_of_doctor(code, settings, events, findings):
    names = {span for span in code.spans if DOTTED.fullmatch(span) and span.rpartition(".")[2] not in ENDINGS}
    unknown = {name for name in names - settings - events if f'"{name}"' not in findings}
    assert {name for name in unknown if not _is_ours(name)} == set()


def _is_ours(name: str) -> bool:
    """Say whether it is a module or something in one, such as `bot.observe.logs`."""
    top = ROOT / name.replace(".", "/")
    return top.exists() or top.with_suffix(".py").exists() or top.parent.with_suffix(".py").exists()


def test_every_figure_is_one_that_the_bot_tells(text):
    told = set(re.findall(r"^# TYPE (\S+)", Metrics().render(STATUS).body.decode(), re.MULTILINE))
    assert set(FIGURE.findall(" ".join(code_in(text).spans))) - told == set()


def test_every_command_is_named_in_the_readme():
    code = code_in(DOCUMENTS["README.md"].read_text("utf-8"))
    named = {words[0] for piece in code.all for words in commands_in(piece) if words}
    assert set(main.list_commands(click.Context(main))) - named == set()


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ("threadfast statsu", "no command statsu"),
        ("echo hello | threadfast chat --loud", "chat has no --loud"),
        ("sudo -u threadfast threadfast threads list all", "list takes no all"),
    ],
)
def test_what_is_not_there_is_found(call, fault):
    assert [each for words in commands_in(call) for each in faults_of(words)] == [fault]
