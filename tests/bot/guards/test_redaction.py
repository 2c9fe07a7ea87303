import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.guards.redaction import MARK, MAX_LEARNED, SHAPES, Masker, mask

B62 = "abcDEF0123456789ghiJKL0123456789mnoPQR"
PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNza2FueQ\nAAAA\n-----END OPENSSH PRIVATE KEY-----"
TOKENS = [
    "xoxb-12345-67890-AbCdEf",
    "xoxe.xoxb-1-AbCdEf",
    "xapp-1-A01-23-abcdef",
    "sk-ant-api03-abc_DEF-123",
    "sk-proj-" + B62,
    "sk-test-1234567890",
    "ghp_" + B62[:36],
    "github_pat_11ABC_" + B62,
    "AKIAIOSFODNN7EXAMPLE",
    "AIza" + B62[:35],
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "MTk4NjIyNDgzNDcxOTI1MjQ4." + "Cl2FMQ." + B62[:38],
    PEM,
]


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: token[:10])
@pytest.mark.parametrize("frame", ["{}", "key {} end", "'{}',", "a={}", "({})", "…{}…", "line\\n{}\\nline"])
def test_a_token_is_masked_wherever_it_stands(token: str, frame: str) -> None:
    assert mask(frame.format(token)) == frame.format(MARK)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Bearer abc", "Authorization: Bearer [masked]"),
        ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic [masked]"),
        ("{'Authorization': 'Bot abc.def'}", "{'Authorization': 'Bot [masked]'}"),
        ('"x-api-key": "abcdefgh"', '"x-api-key": "[masked]"'),
        ("sent Bearer abcdefghijklmnop1234", "sent Bearer [masked]"),
        ("GET https://h/p?a=1&token=abc&b=2", "GET https://h/p?a=1&token=[masked]&b=2"),
        ("https://h/?api_key=abc#x", "https://h/?api_key=[masked]#x"),
        ("wss://h/link/?ticket=abc&app_id=1", "wss://h/link/?ticket=[masked]&app_id=1"),
        ("postgres://ann:s3cret@db/x", "postgres://ann:[masked]@db/x"),
        ("https://hooks.slack.com/services/T0/B0/abc", "https://hooks.slack.com/services/[masked]"),
        ("https://discord.com/api/webhooks/123/a-b_c", "https://discord.com/api/webhooks/123/[masked]"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLE", "AWS_SECRET_ACCESS_KEY=[masked]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE cut off", "[masked]"),
    ],
)
def test_what_stands_beside_a_secret_is_kept(text: str, masked: str) -> None:
    assert mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "the risk-assessment of 2026 is in disk-usage-2026",
        "sk-learn and xoxb- and ghp_short",
        "max_tokens=8192, total_tokens: 100000000000000000000000",
        '"bot_token": "env:SLACK_BOT_TOKEN"',
        "api_key: must be env:NAME",
        "headers = {'Authorization': f'Bearer {token}'}",
        "password = input('Password: ')",
        "slack:T1:C123:1700000000.1 turn 7f3a9c took 1.5 s",
        "http://127.0.0.1:11434/v1/models?limit=5",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        "the bearer of this letter",
        "a1b2c3d4-e5f6-7890-abcd-ef1234567890",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert mask(text) == text


def test_known_secrets_are_masked_whatever_their_shape() -> None:
    masker = Masker(["correct horse", "correct horse battery", "short", ""])
    assert (
        masker("a correct horse battery, a correct horse, a short one")
        == "a [masked], a [masked], a short one"
    )
    assert masker("xoxb-123-abc") == MARK
    assert Masker()("plain") == "plain"


def test_a_known_secret_is_no_pattern() -> None:
    assert Masker(["a.c*(d)[e"])("a.c*(d)[e and abcccd") == "[masked] and abcccd"


def test_no_letter_becomes_two_in_lower_case() -> None:
    """Or a place found in text in lower case would be another one in the text itself."""
    assert [c for c in map(chr, range(0x110000)) if len(c.lower()) != 1] == ["\u0130"]
    assert mask("\u0130\u0130 TOKEN: 0123456789abcdefghij") == f"\u0130\u0130 TOKEN: {MARK}"


PIECES = [
    *TOKENS, *(token[:-4] for token in TOKENS), "sk-", "xoxb-", "AKIA", "eyJ", "Bearer ", "Authorization: ", "x-api-key=", "?token=",
    "&key=", "://", "a:", "@", "=", " ", "\n", "\\n", '"', ".", "-", "_", "/", MARK, "[", "]", "ASIA", "secret: ", "A1b2C3d4" * 3,
    "-----BEGIN ", "PRIVATE KEY-----", "hooks.slack.com/services/", "/api/webhooks/1/",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join))
def test_every_match_of_a_shape_is_found_by_its_beginnings(text: str) -> None:
    plainly = text
    for shape, *_ in SHAPES:
        plainly = re.sub(shape, rf"\g<1>{MARK}", plainly)
    assert mask(text) == plainly


@given(st.text() | st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join))
def test_masking_never_raises_and_masking_twice_changes_nothing(text: str) -> None:
    once = mask(text)
    assert mask(once) == once


@pytest.mark.parametrize(
    "piece",
    [
        "sk-",
        "-eyJ",
        "M",
        "?",
        "token ",
        "\u0130",
        "authorization: ",
        "://a:",
        "token=",
        "-----BEGIN ",
        "xoxb-",
        "?a",
        "N" * 25 + ".",
        "\\n",
    ],
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    started = time.process_time()
    mask(piece * (200_000 // len(piece)))
    assert time.process_time() - started < 10


def test_a_secret_that_is_learned_is_masked_from_then_on():
    mask = Masker(["first-secret"])
    mask.learn(["second-secret", "second-secret", ""])
    assert mask("first-secret, second-secret") == f"{MARK}, {MARK}"
    assert mask.contains_secret(b"a second-secret")
    mask.learn(f"another-secret-{number}" for number in range(MAX_LEARNED))
    assert mask("first-secret, second-secret") == f"{MARK}, second-secret"
