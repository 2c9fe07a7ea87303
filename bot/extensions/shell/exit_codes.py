"""What the exit code of a failed command means, in words for the model. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping

SIGNALS: Mapping[str, tuple[str, str]] = {
    "SIGKILL": ("as the system does when memory runs out", "Work on smaller pieces."),
    "SIGXFSZ": (
        "because a file grew larger than a file may be here",
        "Write less, or several smaller files.",
    ),
    "SIGXCPU": ("because it used up its time on the processor", "Do less at once."),
    "SIGSEGV": ("because it read memory that is not its own: the program has a bug", ""),
    "SIGABRT": ("by itself, because something was wrong in it", ""),
    "SIGPIPE": ("because nobody read its output any more", ""),
}
"""Why a process ends by a signal, and what to do."""

READ_OUTPUT = "Read stdout and stderr."

PROGRAMS: Mapping[tuple[str, int], str] = {
    **{(name, 1): "nothing matched" for name in ("grep", "egrep", "fgrep", "rg", "pgrep")},
    **{(name, 1): "they differ" for name in ("diff", "cmp")},
    **{(name, 1): "the condition is false" for name in ("test", "[", "[[")},
    **{(name, 1): "there is no such command" for name in ("which", "command")},
    ("timeout", 124): "the time was over",
    ("xargs", 123): "one of its commands failed",
    ("pytest", 1): "a test failed",
    ("pytest", 5): "no test was found",
}
"""What programs say with an exit code that others use for a failure."""

_WORD = re.compile(r"[^\s;&|()<>\"'`]+")


def explain_exit(code: int, command: str) -> tuple[str, str]:
    """Return what *code* says about *command*, and what to do next. 128 + N is a death by signal N."""
    if name := _signal(code):
        why, suggestion = SIGNALS.get(name, ("", ""))
        told = f"The command was ended by {name} (exit code {code})"
        return f"{told}, {why}." if why else f"{told}.", suggestion or READ_OUTPUT
    told = f"The command ended with exit code {code}"
    if code == 126:
        return f"{told}: something that it calls is there but cannot be run.", "Use `sh FILE` for a script."
    if code == 127:
        return f"{told}: something that it calls is not installed here, or not at that path.", READ_OUTPUT
    words = (word.rpartition("/")[2] for word in _WORD.findall(command))
    meanings = {word: PROGRAMS[word, code] for word in words if (word, code) in PROGRAMS}
    said = [f"From `{word}`, that means that {meaning}." for word, meaning in meanings.items()]
    return " ".join([f"{told}.", *said]), READ_OUTPUT


def _signal(code: int) -> str:
    """Return the name of the signal that an exit code stands for, or a blank."""
    try:
        return signal.Signals(code - 128).name
    except ValueError:
        return ""
