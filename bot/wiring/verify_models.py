"""`verify_providers`: every model that may be asked is asked once before the bot serves.

| what answers                                              | then                                         |
|-----------------------------------------------------------|----------------------------------------------|
| all                                                       | it serves                                    |
| some do not                                               | a warning for each; it serves                 |
| none, and for one of them that may pass (limits, network) | warnings; it serves                          |
| none, and each needs a person (key, account, name)        | `ConfigInvalid`: the start is refused, with 78 |
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio

from bot.config.settings import Settings
from bot.llm.verify import Verification, verify
from bot.ports.config_error import ConfigInvalid
from bot.wiring.remedy import sentence

log = logging.getLogger(__name__)

NEEDS_A_PERSON = frozenset({"auth", "payment", "model_not_found", "config_invalid"})
AT_ONCE = 4
"""Models that are asked at the same time."""

NO_MODEL = "No model can answer. Fix one with `threadfast init`, or set verify_providers to false."

Ask = Callable[[str, Settings, Mapping[str, str]], Awaitable[Verification]]


async def verify_all(
    names: Sequence[str], settings: Settings, environ: Mapping[str, str], *, ask: Ask = verify
) -> list[str]:
    """Ask each of these models. Returns a line for each that does not answer.

    Raises `ConfigInvalid` if none can answer before a person acts.
    """
    answers: dict[str, Verification] = {}
    room = anyio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with room:
            answers[name] = await ask(name, settings, environ)

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(one, name)
    faults: list[str] = []
    for name in names:
        if (answer := answers[name]).ok:
            log.info("model.verified: %s answered in %.1f s", name, answer.took_s)
        else:
            faults.append(f"{name}: {_why(name, answer, settings)}")
            log.warning("model.unverified: %s", faults[-1])
    if names and all(_code(answers[name]) in NEEDS_A_PERSON for name in names):
        raise ConfigInvalid("\n".join([*faults, NO_MODEL]))
    return faults


def _code(answer: Verification) -> str:
    return "" if answer.ok or answer.error is None else answer.error.code


def _why(name: str, answer: Verification, settings: Settings) -> str:
    fix = "" if answer.error is None else sentence(name, answer.error, settings)
    return " ".join(filter(None, [fix, f"{_code(answer)}: {answer.error}"]))
