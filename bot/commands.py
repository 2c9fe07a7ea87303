"""Commands in threads: `/stop`, `!stop`, a bare "stop", and the rest. Control never queues behind a turn."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, assert_never, get_args

from threads import wording
from threads.records import Owed
from threads.registry import Registry

Name = Literal["stop", "status", "new", "help"]

HELP = """/stop  end what I am doing here and drop what waits
/status  what I am doing here
/new  put this conversation aside and start over
/help  this list"""

_COMMAND = re.compile(r"[/!]([a-z][a-z-]{0,20})(?:\s.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """``name`` is empty when there is no such command; ``typed`` is what the person wrote."""

    name: Name | Literal[""]
    typed: str


def parse(text: str) -> Command | None:
    """Return the command that a message is, or ``None`` when it is for the model."""
    said = text.strip().lower()
    if said == "stop":
        return Command("stop", said)
    match = _COMMAND.fullmatch(said)
    if match is None:
        return None
    typed = match[1]
    return next((Command(name, typed) for name in get_args(Name) if name == typed), Command("", typed))


async def obey(command: Command, owed: Owed, registry: Registry, model: str) -> str:
    """Carry out a command and return what to tell the person. Raises `StoreUnavailable`."""
    thread = owed.incoming.thread
    match command.name:
        case "stop":
            return wording.stopped(*await registry.stop(owed))
        case "status":
            running, waiting = registry.status(thread)
            return f"{'Working on a message' if running else 'Idle'}; {waiting} waiting. Model: {model}."
        case "new":
            if await registry.forget(thread):
                return "I put our conversation aside. This is a fresh start."
            return "I still have something to answer here. Say /stop first, then /new."
        case "help":
            return HELP
        case "":
            close = get_close_matches(command.typed, get_args(Name), n=1)
            hint = f" Did you mean /{close[0]}?" if close else ""
            return f"I do not know /{command.typed}.{hint} /help lists what I know."
        case _:
            assert_never(command.name)
