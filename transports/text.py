"""Text as the edges need it: pure functions that no single platform owns."""

from __future__ import annotations

_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)])
_CONTROLS.pop(ord("\n"))
_CONTROLS.pop(ord("\t"))


def without_controls(text: str) -> str:
    """Drop every C0 and C1 control but newline and tab: what is left cannot steer a terminal."""
    return text.translate(_CONTROLS)
