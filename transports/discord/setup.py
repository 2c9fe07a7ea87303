"""Discord: an application and its token; the checks print the link that invites the bot."""

from __future__ import annotations

import re

from bot.config.settings import Settings
from bot.host.setup import Form, Members, PlatformSetup, Screen, Token

PORTAL = "https://discord.com/developers/applications"


def _guide(screen: Screen, _: Settings, __: str) -> None:
    screen.title("Discord", "one token, from a browser")
    screen.steps(
        [
            (f"{PORTAL.removeprefix('https://')} > New Application", PORTAL),
            ("Bot, on the left: switch Message Content Intent on, Save Changes.", ""),
            ("On the same page: Reset Token, and copy it.", ""),
        ]
    )


TOKEN = "a Discord bot token"  # noqa: S105 - its name

SETUP = PlatformSetup(
    title="Discord",
    tokens=(Token("token", TOKEN, "bot token", "DISCORD_TOKEN"),),
    forms=(Form(TOKEN, re.compile(r"[\w-]+\.[\w-]+\.[\w-]{8,}"), is_certain=False),),
    addresses={
        "api_base_url": "Address of a gateway in the platform's place.",
        "gateway_url": "Discord: the same, for its socket (wss://).",
    },
    guide=_guide,
    people=Members(
        re.compile(r"\d{15,21}"),
        "123456789012345678",
        "in Discord, Settings > Advanced > Developer Mode on, then your picture > Copy User ID",
        "everyone in its servers",
    ),
    hello=lambda settings: f"In Discord, in a channel it can see: @{settings.name} hello",
)
