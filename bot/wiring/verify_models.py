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
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import anyio

from bot.config.settings import Settings, settings_by_key
from bot.llm.remedy import sentence
from bot.llm.verify import Verification, verify
from bot.ports.config_error import ConfigInvalid

log = logging.getLogger(__name__)

NEEDS_A_PERSON = frozenset({"auth", "payment", "model_not_found", "config_invalid"})
AT_ONCE = 4
"""Models that are asked at the same time."""

NO_MODEL = "No model can answer. Fix one with `threadfast init`, or set verify_providers to false."

Ask = Callable[[str, Settings, Mapping[str, str]], Awaitable[Verification]]


@dataclass(frozen=True, eq=False, slots=True)
class _Call:
    """One question: a model and the ``key`` of its provider, from 1; 0 if it has only one."""

    name: str
    key: int
    settings: Settings

    @property
    def title(self) -> str:
        return f"{self.name}, key {self.key}" if self.key else self.name


def _by_key(name: str, settings: Settings) -> Iterator[tuple[int, Settings]]:
    single = settings_by_key(settings, name.partition("/")[0])
    return ((place + 1 if len(single) > 1 else 0, one) for place, one in enumerate(single))


async def verify_all(
    names: Sequence[str], settings: Settings, environ: Mapping[str, str], *, ask: Ask = verify
) -> list[str]:
    """Ask each of these models, with each key. Returns a line for each that does not answer.

    Raises `ConfigInvalid` if none can answer before a person acts.
    """
    calls = [_Call(name, key, one) for name in names for key, one in _by_key(name, settings)]
    answers: dict[_Call, Verification] = {}
    room = anyio.Semaphore(AT_ONCE)

    async def one(call: _Call) -> None:
        async with room:
            answers[call] = await ask(call.name, call.settings, environ)

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(one, call)
    faults: list[str] = []
    for call in calls:
        if (answer := answers[call]).ok:
            log.info("model.verified: %s answered in %.1f s", call.title, answer.took_s)
        else:
            faults.append(f"{call.title}: {_why(call.name, answer, call.settings)}")
            log.warning("model.unverified: %s", faults[-1])
    if calls and all(_code(answer) in NEEDS_A_PERSON for answer in answers.values()):
        raise ConfigInvalid("\n".join([*faults, NO_MODEL]))
    return faults


def _code(answer: Verification) -> str:
    return "" if answer.ok or answer.error is None else answer.error.code


def _why(name: str, answer: Verification, settings: Settings) -> str:
    fix = "" if answer.error is None else sentence(name, answer.error, settings)
    return " ".join(filter(None, [fix, f"{_code(answer)}: {answer.error}"]))
