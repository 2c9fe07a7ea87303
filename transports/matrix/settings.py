"""The settings of one Matrix account: ``transports.matrix``, or another name with ``"kind": "matrix"``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from bot.config.settings import Names, Secret, Url, setting
from bot.config.transports import TransportSection, TransportSettings

MISSING = "" if find_spec("nio") else 'Matrix needs more packages: pip install "threadfast[matrix]".'
"""What to do where the extra is not installed, a blank where it is."""


class MatrixSettings(TransportSection):
    kind: Literal["matrix"] = setting("matrix", "Needed under another name than its own.")
    homeserver: Url = setting("https://matrix.org", "Address of the account's homeserver.")
    token: Secret = setting("env:MATRIX_TOKEN", "Reference to the access token.")
    streaming: Literal["edits", "progress", "off"] = setting(
        "edits", "While a turn runs: the text as it grows, what its tools do, or nothing."
    )
    reactions: bool = setting(True, "Mark messages that ended in another way than an answer.")
    typing: bool = setting(True, "Show that the bot has read a message, and is typing.")
    bots: Names = setting((), "Ids of other bots that it answers when they mention it.")


SETTINGS = TransportSettings(MatrixSettings, secrets=("token",))
