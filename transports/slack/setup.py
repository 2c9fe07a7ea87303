"""Slack: an app created from a link, and its two tokens."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any
from urllib.parse import quote

import click

from bot.config.settings import Settings
from bot.config.transports import served
from bot.host.setup import Form, Members, PlatformSetup, Screen, Token
from transports.slack.manifest import manifest
from transports.slack.settings import SlackSettings, features

NEW_APP = "https://api.slack.com/apps?new_app=1&manifest_json="
"""Slack's page that creates an app, with a manifest filled in."""

LONGEST_LINK = 2000
"""Characters: terminals ignore an address behind a text that is longer."""


def workspace(settings: Settings, name: str) -> SlackSettings:
    """Return the settings of the workspace with this name; the defaults if there is none yet."""
    given = served(settings).get(name)
    return given if isinstance(given, SlackSettings) else SlackSettings()


def app_manifest(settings: Settings, given: SlackSettings) -> dict[str, object]:
    """Return the manifest of the Slack app of a workspace."""
    prompts = [prompt.model_dump() for prompt in given.suggested_prompts]
    return manifest(settings.name, features(settings, given), prompts)


def link(settings: Settings, name: str = "slack") -> str:
    """Return the address of Slack's page with our manifest filled in."""
    return NEW_APP + quote(_manifest(settings, name, separators=(",", ":")), safe=",:/")


def _manifest(settings: Settings, name: str, **form: Any) -> str:
    return json.dumps(app_manifest(settings, workspace(settings, name)), ensure_ascii=False, **form)


def _files(settings: Settings, name: str) -> dict[str, bytes]:
    return {f"{name}-manifest.json": _manifest(settings, name, indent=2).encode() + b"\n"}


def _guide(screen: Screen, settings: Settings, name: str) -> None:
    url = link(settings, name)
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


BOT, APP = "a Slack bot token", "a Slack app token"

SETUP = PlatformSetup(
    title="Slack",
    tokens=(
        Token("app_token", APP, "app token, xapp-…", "SLACK_APP_TOKEN"),
        Token("bot_token", BOT, "bot token, xoxb-…", "SLACK_BOT_TOKEN"),
    ),
    forms=(
        Form(BOT, re.compile(r"xoxb-[A-Za-z0-9-]+")),
        Form(APP, re.compile(r"xapp-[A-Za-z0-9-]+")),
        Form("a Slack user token", re.compile(r"xoxp-[A-Za-z0-9-]+")),
        Form("a Slack token of another kind", re.compile(r"xox[a-z][.-].+|xwfp-.+")),
    ),
    addresses={"api_base_url": "Address of a gateway in the platform's place."},
    files=_files,
    guide=_guide,
    people=Members(
        re.compile(r"[UW][A-Z0-9]+"),
        "U0123ABCDEF",
        "in Slack, your picture > Profile > ⋮ > Copy member ID",
        "everyone in the workspace",
    ),
    hello=lambda settings: f"In Slack: /invite @{settings.name} in a channel, then @{settings.name} hello",
)
