"""What people paste is cleaned and known by its form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.extensions.setup import tokens

SLACK = "xoxb-1234-5678-abcDEF"


@pytest.mark.parametrize(
    "pasted",
    [
        SLACK,
        f"  {SLACK}\n",
        f"'{SLACK}'",
        f'"{SLACK}",',
        f"`{SLACK}`",
        f"\u200b{SLACK}\ufeff",
        f"SLACK_BOT_TOKEN={SLACK}",
        f'export SLACK_BOT_TOKEN="{SLACK}"',
        f"bot_token: {SLACK}",
        f"Authorization: Bearer {SLACK}",
        f"\r\n\r\n{SLACK}\r\n",
    ],
)
def test_what_comes_along_with_a_pasted_secret_is_taken_off(pasted):
    assert tokens.words(pasted) == [SLACK]


def test_two_secrets_in_one_paste_are_two():
    assert tokens.words(f"{SLACK}\nxapp-1-A1-2-f\n") == [SLACK, "xapp-1-A1-2-f"]
    assert tokens.words(f"{SLACK} xapp-1-A1-2-f") == [SLACK, "xapp-1-A1-2-f"]


@pytest.mark.parametrize(
    ("secret", "kind"),
    [
        (SLACK, "a Slack bot token"),
        ("xapp-1-A1-2-f", "a Slack app token"),
        ("xoxp-1-2-3", "a Slack user token"),
        ("xoxe.xoxb-1-abc", "a Slack token of another kind"),
        ("sk-ant-api03-abc", tokens.ANTHROPIC),
        ("sk-proj-abc", tokens.OPENAI),
        ("sk-or-v1-abc", ""),
        ("MTIzNDU2Nzg5MDEyMzQ1Njc4.GAbCdE.abcdefghijklmnopqrstuvwxyz-_0123456789", "a Discord bot token"),
        ("123456789012345678", "an id"),
        ("A0123456789", "an id"),
        ("0123456789abcdef0123456789abcdef", "a signing secret, public key or client secret"),
        ("https://api.slack.com/apps", "a web address"),
        ("whatever", ""),
    ],
)
@pytest.mark.needs("slack", "discord")
def test_a_secret_is_known_by_its_form(secret, kind):
    assert tokens.kind(secret) == kind


@given(st.text())
def test_any_text_gives_words_without_blanks(text):
    assert all(word and not any(letter.isspace() for letter in word) for word in tokens.words(text))


@pytest.mark.parametrize("secret", ["clé", "a\x07b", "", "x" * 5000])
def test_what_no_header_can_carry_is_not_usable(secret):
    assert not tokens.usable(secret)
