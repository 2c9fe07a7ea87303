"""Files with what is expected, which ``UPDATE_GOLDEN=1`` writes anew."""

from __future__ import annotations

import os
from pathlib import Path


def golden(file: Path, got: str) -> str:
    """Return what a file says that a test has to get; to write it anew, what it *got*."""
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(got, encoding="utf-8")
    return file.read_text(encoding="utf-8")
