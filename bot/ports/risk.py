"""How much harm a tool call can do. It is here alone, so that the settings load without the tools."""

from __future__ import annotations

from typing import Literal

Risk = Literal["read", "write", "exec", "net"]
