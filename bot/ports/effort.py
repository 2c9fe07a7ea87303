"""How much a model reasons before it answers. The settings need it, and no other part of `bot.ports.model`."""

from __future__ import annotations

from typing import Literal, get_args

Effort = Literal["off", "low", "medium", "high"]
"""Reasoning is paid for like the answer."""

EFFORTS: tuple[Effort, ...] = get_args(Effort)
