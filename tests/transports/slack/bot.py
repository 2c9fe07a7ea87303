"""A whole bot in a loopback Slack."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.fakes.slack import FakeSlack
from tests.transports.bot import bot_over, surroundings
from transports.slack.client import Options, Slack


def transport(slack: FakeSlack, data: Path, **options: object) -> Slack:
    base = Options(slack.bot_token, slack.app_token, slack.api_base_url)
    return Slack(replace(base, **options), data, **surroundings(data, "slack"))


@asynccontextmanager
async def bot_in(
    slack: FakeSlack, data: Path, model: object, *, options: dict[str, object] | None = None, **given: object
) -> AsyncIterator[Slack]:
    async with bot_over(transport(slack, data, **(options or {})), data, model, **given) as edge:
        yield edge
