"""Slack's times as a `Scale`: seconds since 1970, with six decimals."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from transports.shared.backfill.message_time import Scale
from transports.slack.api.json_fields import instant, is_direct

TICK = Decimal("0.000001")
"""The finest step of Slack's times."""


def at(moment: datetime) -> str:
    return f"{max(0.0, moment.timestamp()):.6f}"


def before(ts: str, seconds: float | Decimal) -> str:
    return f"{max(instant(ts) - Decimal(seconds), Decimal(0)):.6f}"


STAMPS = Scale(
    order=instant,
    at=at,
    before=before,
    just_before=lambda ts: before(ts, TICK),
    unheard=is_direct,  # a DM is opened without telling the bot; it is invited into all others
)
