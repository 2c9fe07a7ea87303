"""Matrix: a homeserver, and an account of its own there, of which a token is kept."""

from __future__ import annotations

import logging
import re

from bot.config.settings import Settings
from bot.config.transports import TransportSection
from bot.host.setup import Form, Members, PlatformSetup, Screen, Token
from bot.ports.config_error import ConfigInvalid
from transports.matrix.settings import MISSING, MatrixSettings

CLIENT = "https://app.element.io"
TOKEN = "a Matrix access token"  # noqa: S105 - its name
ADDRESS = "Matrix: address of the homeserver that has the account."
FORM = Form(TOKEN, re.compile(r"(?:syt|mct|mat)_[\w~+/=-]{8,}|MDAx[\w~+/=-]{20,}"), is_certain=False)
PERSON = re.compile(r"@[^\s:@]{1,250}:[^\s@]{1,250}")
PEOPLE = Members(PERSON, "@ann:example.org", "in Element, at your picture", "everyone there")


def _guide(screen: Screen, _: Settings, __: str) -> None:
    screen.title("Matrix", "an account of the bot's own")
    steps = [
        ("Register an account for the bot on your homeserver, in any app, such as app.element.io", CLIENT),
        ("Log out there: the bot logs in here once, as a device of its own, and keeps that.", ""),
    ]
    screen.steps(steps)


def _hello(_: Settings) -> str:
    return "In Matrix, write to its account directly, or invite it to a room and mention it: hello"


async def _log_in(given: TransportSection, name: str, password: str) -> str:
    """Return the token of a new device. Raises `ConfigInvalid`."""
    if MISSING:
        raise ConfigInvalid(MISSING)
    import aiohttp  # noqa: PLC0415 - `threadfast --help` needs no network
    from nio import AsyncClient, AsyncClientConfig, LoginResponse  # noqa: PLC0415

    assert isinstance(given, MatrixSettings)
    logging.getLogger("nio").setLevel(logging.CRITICAL)  # what it says is said here
    config = AsyncClientConfig(max_limit_exceeded=0, max_timeouts=0)  # or it would try for ever
    client = AsyncClient(given.homeserver.rstrip("/"), name, config=config)
    try:
        answer = await client.login(password, "Threadfast")
    except (aiohttp.ClientError, OSError) as error:
        raise ConfigInvalid(f"{given.homeserver} cannot be asked: {type(error).__name__}.") from error
    finally:
        await client.close()
    if not isinstance(answer, LoginResponse):
        raise ConfigInvalid(
            f"The homeserver does not log it in: {answer.message}. Correct the name and password."
        )
    return str(answer.access_token)


SETUP = PlatformSetup(
    "Matrix", [Token("token", TOKEN, "access token", "MATRIX_TOKEN")], [FORM], PEOPLE, _guide, _hello,
    addresses={"homeserver": ADDRESS}, asks=["homeserver"], log_in=_log_in,
)  # fmt: skip
