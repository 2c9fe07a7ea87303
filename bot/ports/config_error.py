"""What stops a command before it does anything: settings that are not valid. It brings nothing that takes time."""

from __future__ import annotations

from threads.errors import BotError

EX_CONFIG = 78
"""The exit code after which systemd does not restart: a person has to act (sysexits.h)."""


class ConfigInvalid(BotError):
    """The settings are not valid; ``str(error)`` lists every fault with its path."""

    code = "config_invalid"


class StoreRefused(ConnectionError):
    """The store does not serve this process, and waiting alone does not help. ``str(error)`` says why."""
