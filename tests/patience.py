"""How long tests wait for what has to come."""

from __future__ import annotations

WITHIN_S = 100.0
"""The bound of a wait that an event ends. It catches what hangs: a slow machine takes longer, and fails nothing."""
