"""What people see in a message, and what the model reads of it: one row for each kind that a platform documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Shape = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """``shape`` is an example, as the platform sends it; ``reads`` is what the model reads of it, "" for nothing.

    ``why`` says why the model reads nothing, or less than people see.
    """

    kind: str
    sees: str
    shape: Shape
    reads: str
    why: str = ""
