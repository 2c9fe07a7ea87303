"""Who takes part on which platform, and how each is started."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.child import ROOT
from benchmarks.versus import environments
from benchmarks.wire.wires import DiscordWire, SlackWire, Where, Wire

OURS, BEFORE, BARE = "ours", "ours before", "bare loop"

SLACK_RATES = """
from transports.slack.api import rate_limits
fast = lambda rate: rate_limits.Rate(rate.per_minute * 1000, rate.burst * 1000, rate.first * 1000)
real = {"chat.appendStream": rate_limits.TIER_4, "chat.update": rate_limits.RATES["chat.update"]}
rate_limits.RATES = {method: fast(rate) for method, rate in rate_limits.RATES.items()} | real
rate_limits.TIER_4, rate_limits.CHANNEL = fast(rate_limits.TIER_4), fast(rate_limits.CHANNEL)
"""
"""Slack's rates stop nothing but the pace of what grows: that is one of the things that are measured."""

NOT_ON_DISCORD = {
    "nanobot": "it answers in the channel, where all people are one conversation: there are no threads to compare",
    "Chat SDK": "its adapter gives discord.js no address, so its gateway cannot be a fake",
}
RUN = "from bot.cli import main\nmain()\n"


@dataclass(frozen=True, slots=True)
class Started:
    """How a bot is started; ``folder`` is where it runs."""

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path


@dataclass(frozen=True, slots=True)
class Contender:
    """``wire`` makes its platform, ``start`` says how to run it there with a data folder and a model's address.

    Both may raise `environments.LeftOut`.
    """

    name: str
    wire: Callable[[], Wire]
    start: Callable[[Any, Path, str], Started]
    tools: bool = True
    """Whether it has a tool to call."""
    streams_in: Where = "direct"
    """Where it shows an answer as it grows."""


def slack_contenders(before: Path | None, peers: Path) -> list[Contender]:
    ours = [Contender(name, SlackWire, _threadfast_on_slack(tree)) for name, tree in _trees(before).items()]
    return [
        *ours,
        Contender(BARE, SlackWire, _bare_on_slack),
        Contender("nanobot", SlackWire, _peer_on_slack(environments.nanobot_on_slack, peers)),
        Contender(
            "Chat SDK, no agent",
            SlackWire,
            _peer_on_slack(environments.chat_sdk_on_slack, peers),
            tools=False,
            streams_in="channel",  # it streams in threads alone
        ),
    ]


def discord_contenders(before: Path | None) -> list[Contender]:
    ours = [
        Contender(name, DiscordWire, _threadfast_on_discord(tree)) for name, tree in _trees(before).items()
    ]
    peers = [Contender(name, DiscordWire, _left_out(reason)) for name, reason in NOT_ON_DISCORD.items()]
    return [*ours, Contender(BARE, DiscordWire, _bare_on_discord), *peers]


def _left_out(reason: str) -> Callable[[DiscordWire, Path, str], Started]:
    def start(*_: object) -> Started:
        raise environments.LeftOut(reason)

    return start


def _trees(before: Path | None) -> dict[str, Path]:
    return {OURS: ROOT} | ({BEFORE: before} if before else {})


def _threadfast_on_discord(tree: Path) -> Callable[[DiscordWire, Path, str], Started]:
    def start(discord: DiscordWire, data: Path, model_url: str) -> Started:
        where = {"api_base_url": discord.api_base_url, "gateway_url": discord.gateway_url}
        tokens = {"DISCORD_TOKEN": discord.token}
        return _threadfast(tree, "", {"discord": where}, tokens, data, model_url)

    return start


def _bare_on_discord(discord: DiscordWire, data: Path, model_url: str) -> Started:
    where = {"DISCORD_API": discord.api_base_url, "DISCORD_GATEWAY": discord.gateway_url}
    return _bare("bare_discord", {**where, "DISCORD_TOKEN": discord.token}, data, model_url)


def _threadfast_on_slack(tree: Path) -> Callable[[SlackWire, Path, str], Started]:
    def start(slack: SlackWire, data: Path, model_url: str) -> Started:
        transports = {"slack": {"api_base_url": slack.api_base_url}}
        return _threadfast(tree, SLACK_RATES, transports, _slack_tokens(slack), data, model_url)

    return start


def _threadfast(
    tree: Path, rates: str, transports: Any, tokens: Mapping[str, str], data: Path, model_url: str
) -> Started:
    settings = {
        "data": str(data / "data"),
        "model": "loopback/instant",
        "providers": {"loopback": {"base_url": model_url, "free": True}},
        "limits": {"messages_per_minute_per_user": None},
        "transports": transports,
    }
    (data / "data").mkdir()
    file = data / "settings.json"
    file.write_text(json.dumps(settings))
    command = [sys.executable, "-c", rates + RUN, "run", "--settings", str(file)]
    return Started(command, {**_environment(data), **tokens, "PYTHONPATH": str(tree)}, tree)


def _peer_on_slack(
    install: Callable[[Path], Sequence[str]], peers: Path
) -> Callable[[SlackWire, Path, str], Started]:
    def start(slack: SlackWire, data: Path, model_url: str) -> Started:
        where = {"SLACK_API": slack.api_base_url, **_slack_tokens(slack)}
        return _peer(install(peers), where, data, model_url)

    return start


def _bare_on_slack(slack: SlackWire, data: Path, model_url: str) -> Started:
    return _bare("bare_slack", {"SLACK_API": slack.api_base_url, **_slack_tokens(slack)}, data, model_url)


def _bare(module: str, where: Mapping[str, str], data: Path, model_url: str) -> Started:
    return _peer([sys.executable, "-m", f"benchmarks.wire.peers.{module}"], where, data, model_url)


def _peer(command: Sequence[str], where: Mapping[str, str], data: Path, model_url: str) -> Started:
    python = {"PYTHONPATH": str(ROOT), "MODEL_URL": model_url}
    return Started(command, {**_environment(data), **where, **python}, data)


def _slack_tokens(slack: SlackWire) -> dict[str, str]:
    return {"SLACK_BOT_TOKEN": slack.bot_token, "SLACK_APP_TOKEN": slack.app_token}


def _environment(home: Path) -> dict[str, str]:
    """Return a home of its own without keys and proxies; the timezone database and certificates stay."""
    kept = {name: os.environ[name] for name in ("VIRTUAL_ENV",) if name in os.environ}
    return {**environments.environment(home), **kept}
