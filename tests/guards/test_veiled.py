"""Text that is shown while it grows: every cut of it hides its secrets, and shows all the rest."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.guards.secrets import MARK, Masker
from bot.guards.veiled import Veiled, suspicion
from threads.model import TextDelta, TextReset, ThinkingDelta, ToolStarted

pytestmark = pytest.mark.anyio

LITERAL = "correct-horse-battery"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----"
SECRETS = [
    LITERAL,
    "xoxb-123456789-abcdefghij",
    "sk-ant-0123456789abcdefghij",
    "Authorization: Bearer abcdef0123456789abcdef",
    "https://user:hunter22secret@example.com/x",
    "api_key = 0123456789abcdefghij0123",
    KEY,
]


async def shown(pieces, end=ToolStarted("x")):
    events = []

    async def tell(event):
        events.append(event)

    veiled = Veiled(tell, Masker([LITERAL]), suspicion([LITERAL]))
    for piece in pieces:
        await veiled(TextDelta(piece))
    await veiled(end)
    assert not any(isinstance(event, TextReset) for event in events)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_a_secret_in_pieces_is_never_shown(secret, size):
    text = f"Here it is: {secret} and so on.\nNext line."
    seen = await shown([text[at : at + size] for at in range(0, len(text), size)])
    assert seen == Masker([LITERAL])(text)
    assert MARK in seen


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from([*SECRETS, "word", "a longer line of words", "token", "=", "\n", " ", "-----BEGIN x"])
    ),
    st.randoms(),
)
async def test_whatever_is_said_in_whatever_pieces_no_secret_is_shown_and_nothing_is_made_up(parts, random):
    text = " ".join(parts)
    pieces, at = [], 0
    while at < len(text):
        size = random.randint(1, 12)
        pieces.append(text[at : at + size])
        at += size
    seen = await shown(pieces)
    for secret in (LITERAL, "abcdefghij", "MIIE", "hunter22secret"):
        assert secret not in seen
    if not any(word in text for word in ("BEGIN", *SECRETS)):
        assert seen == text


async def test_ordinary_text_is_shown_word_by_word_at_once():
    events = []

    async def tell(event):
        events.append(event)

    veiled = Veiled(tell, Masker(), suspicion())
    for piece in ("One ", "two ", "thr", "ee."):
        await veiled(TextDelta(piece))
    assert [event.text for event in events] == ["One ", "two "]
    await veiled.finish()
    assert events[-1].text == "three."


async def test_a_reset_forgets_what_was_held_back_and_thinking_is_masked():
    events = []

    async def tell(event):
        events.append(event)

    veiled = Veiled(tell, Masker([LITERAL]), suspicion([LITERAL]))
    await veiled(TextDelta("held"))
    await veiled(TextReset())
    await veiled(TextDelta("new "))
    await veiled(ThinkingDelta(f"I know {LITERAL}"))
    assert events == [TextReset(), TextDelta("new "), ThinkingDelta(f"I know {MARK}")]
