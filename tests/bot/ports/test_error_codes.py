"""The codes of errors: each of them names something that happens, and no code is a name for nothing."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.ports import wording as sentences
from threads import wording
from threads.errors import BotError

ROOT = Path(__file__).parents[3]
SOURCES = [
    path for package in ("bot", "threads", "transports") for path in sorted((ROOT / package).rglob("*.py"))
]
TAKES_A_CODE = {"CapabilityMissing", "Ending", "retry_fields", "_put_commit"}
"""Calls that make something with a code out of its name."""


def leaves(kind: type[BotError] = BotError) -> Iterator[type[BotError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from leaves(below)


def made_in(tree: ast.Module) -> Iterator[str]:
    """Return the names of what a module raises, makes, or hands on to be raised; and the codes it gives itself."""
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Name(id=name)) | ast.Call(func=ast.Name(id=name)):
                yield name
            case ast.IfExp(body=ast.Name(id=name), orelse=ast.Name(id=other)):
                yield from (name, other)
            case ast.BoolOp(values=[*values]):
                yield from (value.id for value in values if isinstance(value, ast.Name))
        match node:
            case ast.Call(
                func=ast.Name(id=name) | ast.Attribute(attr=name), args=[*given], keywords=[*named]
            ) if name in TAKES_A_CODE:
                values = [*given, *(keyword.value for keyword in named)]
                yield from (value.value for value in values if isinstance(value, ast.Constant))
            case ast.Call(func=ast.Name(id="Rule"), args=[ast.Name(id=name), *_]):
                yield name
            case ast.Dict(keys=[*keys], values=[*values]):
                for key, value in zip(keys, values, strict=True):
                    if (
                        isinstance(key, ast.Constant)
                        and key.value == "code"
                        and isinstance(value, ast.Constant)
                    ):
                        yield value.value
            case ast.Assign(targets=[ast.Attribute(attr="cut")], value=ast.Constant(value=code)):
                yield code
            case ast.AnnAssign(target=ast.Name(id="cut"), value=ast.Constant(value=code)):
                yield code


@pytest.fixture(scope="module")
def raised() -> set[str]:
    for name in ("bot.ports.errors", "threads.store.data_folder", "transports.shared.link.supervisor"):
        importlib.import_module(name)
    made = {name for path in SOURCES for name in made_in(ast.parse(path.read_text("utf-8")))}
    return made | {leaf.code for leaf in leaves() if leaf.__name__ in made}


def test_every_code_is_raised_somewhere(raised):
    assert {leaf.code for leaf in leaves()} - raised <= {"internal"}, "such a code tells nobody anything"
    assert BotError.code == "internal", "what has no name of its own"


@pytest.mark.parametrize(
    "table",
    [wording.FRIENDLY, sentences.FRIENDLY, sentences.REASONS, sentences.WORTH_RETRYING, sentences.PASSING],
)
def test_every_code_that_a_sentence_is_for_is_raised_somewhere(table, raised):
    assert set(table) - raised <= {"internal"}
