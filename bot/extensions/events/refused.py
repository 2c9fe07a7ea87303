"""A request that starts nothing."""

from __future__ import annotations


class Refused(Exception):
    """Has the status of HTTP, and why, for whoever sent it."""
