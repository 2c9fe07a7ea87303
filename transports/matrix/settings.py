"""The settings of one Matrix account: ``transports.matrix``, or another name with ``"kind": "matrix"``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from pydantic import Field

from bot.config.settings import Names, Secret, Url
from bot.config.transports import TransportSection, TransportSettings

MISSING = "" if find_spec("nio") else 'Matrix needs more packages: pip install "threadfast[matrix]".'
"""What to do where the extra is not installed, a blank where it is."""


class MatrixSettings(TransportSection):
    kind: Literal["matrix"] = Field(default="matrix", description="Needed under another name than its own.")
    homeserver: Url = Field(default="https://matrix.org", description="Address of the account's homeserver.")
    token: Secret = Field(default="env:MATRIX_TOKEN", description="Reference to the access token.")
    streaming: Literal["edits", "progress", "off"] = Field(
        default="edits", description="While a turn runs: the text as it grows, what its tools do, or nothing."
    )
    reactions: bool = Field(
        default=True, description="Mark messages that ended in another way than an answer."
    )
    typing: bool = Field(default=True, description="Show that the bot has read a message, and is typing.")
    bots: Names = Field(default=(), description="Ids of other bots that it answers when they mention it.")


SETTINGS = TransportSettings(MatrixSettings, secrets=("token",))
