"""Discord: an application and its token; the checks print the link that invites the bot."""

from __future__ import annotations

import re

from bot.admin.setup import tokens
from bot.admin.setup.dialog import Screen
from bot.admin.setup.platforms import Field, Members, Platform
from bot.config.settings import Settings

PORTAL = "https://discord.com/developers/applications"


def _guide(screen: Screen, _: Settings) -> None:
    screen.title("Discord", "one token, from a browser")
    screen.steps(
        [
            (f"{PORTAL.removeprefix('https://')} > New Application", PORTAL),
            ("Bot, on the left: switch Message Content Intent on, Save Changes.", ""),
            ("On the same page: Reset Token, and copy it.", ""),
        ]
    )


def _hello(settings: Settings) -> str:
    return f"In Discord, in a channel it can see: @{settings.name} hello"


DISCORD = Platform(
    name="discord",
    title="Discord",
    fields=(Field("token", tokens.DISCORD, "bot token", "DISCORD_TOKEN", "--token-file"),),
    files=lambda _: {},
    guide=_guide,
    people=Members(
        re.compile(r"\d{15,21}"),
        "123456789012345678",
        "in Discord, Settings > Advanced > Developer Mode on, then your picture > Copy User ID",
        "everyone in its servers",
    ),
    hello=_hello,
)
