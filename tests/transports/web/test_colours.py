"""Code has colours, and no code holds the bot up."""

from __future__ import annotations

import anyio
import pytest

from tests.patience import WITHIN_S
from transports.web import colours
from transports.web.colours import LONGEST, Colours, lex


def test_the_parts_of_code_are_the_code():
    code = "def area(r):\n    return 3.14 * r  # near\n"
    parts = lex("python", code)
    assert "".join(text for _, text in parts) == code
    assert [(kind, text) for kind, text in parts if kind] == [
        ("k", "def"),
        ("n", "area"),
        ("k", "return"),
        ("m", "3.14"),
        ("c", "# near"),
    ]


@pytest.mark.parametrize("language", ["", "no such language", "../../x", "py\x00"])
def test_an_unknown_language_has_no_colours(language):
    assert lex(language, "x = 1") == []


def stuck(*_):
    while True:
        pass


async def test_a_lexer_that_does_not_end_is_ended_and_the_next_one_works(monkeypatch):
    made = Colours()
    with anyio.fail_after(WITHIN_S):
        with monkeypatch.context() as patch:
            patch.setattr(colours, "lex", stuck)
            patch.setattr(colours, "WITHIN_S", 0.2)
            assert await made.of("python", "x = 1") == []
        assert ("m", "1") in await made.of("python", "x = 1")


async def test_code_that_is_too_long_is_not_looked_at():
    assert await Colours().of("python", "x" * (LONGEST + 1)) == []
