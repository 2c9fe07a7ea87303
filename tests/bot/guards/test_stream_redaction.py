"""Text that is shown while it grows: every cut of it hides its secrets, and shows all the rest."""

from itertools import accumulate, cycle, islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.guards.redaction import MARK, Masker
from bot.guards.stream_redaction import LONGEST, StreamMasker, boundary_finder
from threads.model import TextDelta, TextReset, ThinkingDelta, ToolStarted

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


def listening(*literals, mask=None):
    """Return a masker of a stream, and the events that it passes on."""
    events = []

    async def listener(event):
        events.append(event)

    return StreamMasker(listener, mask or Masker(literals), boundary_finder(literals)), events


async def shown(pieces, end=ToolStarted("x")):
    masker, events = listening(LITERAL)
    for piece in pieces:
        await masker(TextDelta(piece))
    await masker(end)
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
    st.lists(st.integers(1, 12), min_size=1),
)
async def test_whatever_is_said_in_whatever_pieces_no_secret_is_shown_and_nothing_is_made_up(parts, sizes):
    text = " ".join(parts)
    at = [0, *accumulate(islice(cycle(sizes), len(text)))]
    seen = await shown([text[start:end] for start, end in pairwise(at) if start < len(text)])
    for secret in (LITERAL, "abcdefghij", "MIIE", "hunter22secret"):
        assert secret not in seen
    assert seen == Masker([LITERAL])(text)


async def test_a_literal_of_several_words_is_shown_in_no_part():
    literal = "a horse, a battery\tand a staple"
    masker, events = listening(literal)
    for letter in f"a horse, a cat; {literal} it was":
        await masker(TextDelta(letter))
    await masker.finish()
    assert "".join(event.text for event in events) == f"a horse, a cat; {MARK} it was"


async def test_a_key_longer_than_what_is_held_back_is_shown_in_no_part():
    key = KEY.replace("MIIE", "MIIE0123456789\n" * (2 * LONGEST // 15))
    assert await shown([f"{key[at : at + 9]}" for at in range(0, len(key), 9)]) == MARK
    assert await shown([key, " and on"]) == f"{MARK} and on"


@pytest.mark.parametrize(
    "word", ["word ", "token ", "token: ", "https://x.y/?token=a ", "password", "-----BEGIN "]
)
async def test_what_was_said_before_is_not_looked_at_again(word):
    """However long a line: what is masked at each piece is that piece, and at most what a secret may go on after."""
    masked = 0

    def count(text):
        nonlocal masked
        masked += len(text)
        return text

    masker, events = listening(LITERAL, mask=count)
    for number in range(2000):
        await masker(TextDelta(word))
        passed = sum(len(event.text) for event in events)
        said = (number + 1) * len(word)
        assert said - passed <= LONGEST + len(word), "no more than that is held back"
    await masker.finish()
    assert masked <= 4 * 2000 * len(word), "a long word is looked at twice, so that no secret in it is cut"


async def test_ordinary_text_is_shown_word_by_word_at_once():
    masker, events = listening()
    for piece in ("One ", "two ", "thr", "ee."):
        await masker(TextDelta(piece))
    assert [event.text for event in events] == ["One ", "two "]
    await masker.finish()
    assert events[-1].text == "three."


async def test_a_reset_forgets_what_was_held_back_and_thinking_is_masked():
    masker, events = listening(LITERAL)
    await masker(TextDelta("held"))
    await masker(TextReset())
    await masker(TextDelta("new "))
    await masker(ThinkingDelta(f"I know {LITERAL}"))
    assert events == [TextReset(), TextDelta("new "), ThinkingDelta(f"I know {MARK}")]
