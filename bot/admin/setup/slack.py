"""Slack: an app created from a link, and its two tokens."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any
from urllib.parse import quote

import click

from bot.admin.setup import tokens
from bot.admin.setup.dialog import Screen
from bot.admin.setup.platforms import Field, Members, Platform
from bot.config.settings import Settings

NEW_APP = "https://api.slack.com/apps?new_app=1&manifest_json="
"""Slack's page that creates an app, with a manifest filled in."""

MANIFEST = "slack-manifest.json"
LONGEST_LINK = 2000
"""Characters: terminals ignore an address behind a text that is longer."""


def link(settings: Settings) -> str:
    """Return the address of Slack's page with our manifest filled in."""
    return NEW_APP + quote(_manifest(settings, separators=(",", ":")), safe=",:/")


def _manifest(settings: Settings, **form: Any) -> str:
    from bot.wiring.run import slack_manifest  # noqa: PLC0415 - slow, and only with a platform

    return json.dumps(slack_manifest(settings)[0], ensure_ascii=False, **form)


def _guide(screen: Screen, settings: Settings) -> None:
    url = link(settings)
    screen.title("Slack", "two tokens, from a browser")
    generate = "App-Level Tokens > Generate Token and Scopes > Add Scope: connections:write > Generate"
    screen.steps(
        [
            ("Open this link: the app, filled in", url if len(url) <= LONGEST_LINK else ""),
            ("Choose your workspace, Next, Create.", ""),
            (f"{generate}. Copy it: xapp-…", ""),
            ("Install App, on the left > Install > Allow. Copy the Bot User OAuth Token: xoxb-…", ""),
        ]
    )
    _open(screen, url)


def _open(screen: Screen, url: str) -> None:
    """Open the page here, or print its long address on request."""
    here = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    question = f"{'[o]pen that page, ' if here else ''}[p]rint its address, or Enter to go on"
    answer = screen.ask(question, str.lower, "o" if here else "")
    if answer == "p":
        screen.address(url)
    elif answer == "o" and here:
        click.launch(url)


def _hello(settings: Settings) -> str:
    return f"In Slack: /invite @{settings.name} in a channel, then @{settings.name} hello"


SLACK = Platform(
    name="slack",
    title="Slack",
    fields=(
        Field("app_token", tokens.APP, "app token, xapp-…", "SLACK_APP_TOKEN", "--app-token-file"),
        Field("bot_token", tokens.BOT, "bot token, xoxb-…", "SLACK_BOT_TOKEN", "--bot-token-file"),
    ),
    files=lambda settings: {MANIFEST: _manifest(settings, indent=2).encode() + b"\n"},
    guide=_guide,
    people=Members(
        re.compile(r"[UW][A-Z0-9]+"),
        "U0123ABCDEF",
        "in Slack, your picture > Profile > ⋮ > Copy member ID",
        "everyone in the workspace",
    ),
    hello=_hello,
)
