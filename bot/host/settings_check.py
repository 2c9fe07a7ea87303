"""What is wrong with the settings, without starting anything."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bot.host.invocation import find_settings
from bot.ports.config_error import ConfigInvalid

if TYPE_CHECKING:
    from bot.config.load import Loaded


@dataclass(frozen=True, slots=True)
class Examined:
    """The settings, None if they cannot be read, with their faults and what is odd in them."""

    loaded: Loaded | None
    faults: list[str]
    warnings: list[str] = field(default_factory=list)

    @property
    def json(self) -> dict[str, object]:
        """What `check --json` prints: without the line that says where to correct it."""
        faults = [line for line in self.faults if not line.startswith("Correct this in ")]
        return {"ok": not faults, "faults": faults, "warnings": self.warnings}


def examine(settings_file: Path | None) -> Examined:
    """Read the settings, the secrets that they refer to, and what extensions read. Nothing is contacted."""
    from bot.config.load import check_start
    from bot.config.load import load as read
    from bot.host.extension import extensions_of
    from bot.host.model_settings import model_faults, model_warnings

    try:
        loaded = read(find_settings(settings_file), environ=os.environ)
        settings = loaded.settings
        theirs = [f"{one.name}: {fault}" for one in extensions_of(settings) for fault in one.faults(settings)]
        faults = check_start(settings, loaded.environ, transports=True) + model_faults(settings)
        return Examined(loaded, faults + theirs, model_warnings(settings))
    except ConfigInvalid as error:
        return Examined(None, str(error).splitlines())
