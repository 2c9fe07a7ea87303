"""A command of the admin's that has a word on each tool call before it runs: `tools.hook`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from pydantic.fields import FieldInfo

from bot.config.parts import SettingsPart
from bot.config.settings import Section, setting
from bot.host.extension import Extension, Host, Running

if TYPE_CHECKING:
    from bot.host.checks import Check, Context


class HookSettings(Section):
    """`tools.hook`."""

    command: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = Field(
        description="A program and its arguments. It reads a call as JSON and prints what it decides."
    )
    timeout_s: Annotated[float, Field(gt=0, le=120)] = setting(
        10.0, "Seconds after which a call without a decision is denied."
    )


HOOK = SettingsPart[HookSettings | None](
    "tools.hook",
    HookSettings | None,
    FieldInfo(
        default=None, description="A command that allows, denies or asks about each tool call; null for none."
    ),
)


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running | None]:
    if (given := HOOK.of(host.settings)) is None:
        yield None
        return
    from bot.extensions.tool_hook.hook import Hook  # noqa: PLC0415 - only where there is one

    yield Running(review=Hook(given, host.environ).review, facts={"tool hook": given.command[0]})


def _checks(context: Context) -> Sequence[Check]:
    from bot.extensions.tool_hook.checks import check_hook  # noqa: PLC0415
    from bot.host.checks import Check  # noqa: PLC0415

    return [Check("tool hook", check_hook)] if HOOK.of(context.settings) else []


extension = Extension(
    "tool_hook",
    "lets a command of the admin's decide on each tool call",
    page="docs/operations.md",
    settings=(HOOK,),
    open=_open,
    checks=_checks,
)
