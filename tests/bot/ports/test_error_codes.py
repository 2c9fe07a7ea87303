"""The codes of errors: each of them names something that happens, and no code is a name for nothing."""

import importlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot import wording as sentences
from bot.ports.errors import AllProvidersFailed, ModelUnavailable, ToolDenied, ToolError, report
from bot.ports.tool import error_body
from threads import wording
from threads.errors import BotError

ROOT = Path(__file__).parents[3]
PACKAGES = ("bot", "threads", "transports")
MADE = re.compile(r"\bRule\(\s*([A-Z]\w+)|(?<!class )\b([A-Z]\w+)\(|\b(?:raise|if|else|or)\s+([A-Z]\w+)")
"""What is raised, made, or handed on to be raised."""
CODES = re.compile(
    r'"code": "(\w+)"|\bcut(?:: [^=]+)? = "(\w+)"|\b(?:CapabilityMissing|Ending|retry_fields|_put_commit)\(([^()]*)'
)
"""Codes that stand by themselves, and the arguments of calls that take one."""


def leaves(kind: type[BotError] = BotError) -> Iterator[type[BotError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from leaves(below)


@pytest.fixture(scope="module")
def raised() -> set[str]:
    for name in ("bot.ports.errors", "threads.store.data_folder", "transports.shared.link.supervisor"):
        importlib.import_module(name)
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    source = "\n".join(path.read_text("utf-8") for path in paths)
    made = {name for names in MADE.findall(source) for name in names}
    codes = {code for found in CODES.findall(source) for code in re.findall(r"\w+", " ".join(found))}
    return codes | {leaf.code for leaf in leaves() if leaf.__name__ in made}


@pytest.mark.needs
def test_every_code_is_raised_somewhere(raised):
    assert {leaf.code for leaf in leaves()} - raised <= {"internal"}, "such a code tells nobody anything"
    assert BotError.code == "internal", "what has no name of its own"


@pytest.mark.usefixtures("raised")
def test_one_function_says_everywhere_whether_there_is_a_way_on():
    for leaf in leaves():
        coded = ToolError("no") if issubclass(leaf, ToolError) else BotError("no")
        coded.code, coded.ways = leaf.code, leaf.ways
        told = report(coded, "", datetime.now(UTC))
        if told.ways or leaf.retryable:
            assert told.recoverable, f"{leaf.code} can be tried again, and no report may deny it"
        if isinstance(coded, ToolError):
            assert error_body(coded)["error"]["recoverable"] == told.recoverable, leaf.code
    outage = AllProvidersFailed(ModelUnavailable("down"), [])
    assert report(outage, "", datetime.now(UTC)).recoverable
    assert not report(ToolDenied("no"), "", datetime.now(UTC)).recoverable


@pytest.mark.needs
@pytest.mark.parametrize(
    "table",
    [
        *(wording.FRIENDLY, sentences.FRIENDLY, sentences.REASONS),
        *(sentences.WORTH_RETRYING, sentences.MENDABLE, sentences.PASSING),
    ],
)
def test_every_code_that_a_sentence_is_for_is_raised_somewhere(table, raised):
    assert set(table) - raised <= {"internal"}
