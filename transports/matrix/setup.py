"""Matrix: a homeserver, and the access token of an account that is the bot's own."""

from __future__ import annotations

import re

from bot.config.settings import Settings
from bot.host.setup import Form, Members, PlatformSetup, Screen, Token

CLIENT = "https://app.element.io"
LOGIN = (
    'curl -X POST HOMESERVER/_matrix/client/v3/login -d \'{"type": "m.login.password", "identifier": '
    '{"type": "m.id.user", "user": "NAME"}, "password": "…", "initial_device_display_name": "Threadfast"}\''
)
TOKEN = "a Matrix access token"  # noqa: S105 - its name


def _guide(screen: Screen, _: Settings, __: str) -> None:
    screen.title("Matrix", "an account of its own, and one token")
    screen.steps(
        [
            ("Make an account for the bot on your homeserver, in any client, such as app.element.io", CLIENT),
            (f"Log in once more for a token that only the bot uses: {LOGIN}", ""),
            (
                "Copy access_token from the answer. Do not log in again at each start: the token is the device.",
                "",
            ),
        ]
    )


def _hello(settings: Settings) -> str:
    return f"In Matrix, invite {settings.name} to a room, or write to it directly: hello"


SETUP = PlatformSetup(
    title="Matrix",
    tokens=(Token("token", TOKEN, "access token", "MATRIX_TOKEN"),),
    forms=(Form(TOKEN, re.compile(r"(?:syt|mct|mat|MDAx)[\w.~+/=-]{8,}"), is_certain=False),),
    addresses={"homeserver": "Matrix: address of the homeserver that has the account."},
    guide=_guide,
    people=Members(
        re.compile(r"@[^\s:@]{1,250}:[^\s@]{1,250}"),
        "@ann:example.org",
        "in Element, your picture at the top left",
        "everyone who can invite it",
    ),
    hello=_hello,
)
