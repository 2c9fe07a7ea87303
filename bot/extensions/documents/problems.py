"""What is said of a file that cannot be read, or not all of it: a code from the child, a sentence for people."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

Problem = Literal[
    "", "empty", "unknown", "other_program", "password", "scanned", "damaged", "too_large", "late", "busy", "pixels",
    "unseen",
]  # fmt: skip

WHY: dict[Problem, str] = {
    "": "",
    "empty": "it is empty.",
    "unknown": "I have no way to read files of this kind.",
    "other_program": "only its own program reads it. Saved as .docx, .xlsx, .pptx, .eml or PDF I can read it.",
    "password": "it is protected by a password.",
    "scanned": "it holds no text, only pictures of its pages.",
    "damaged": "it is damaged, or not what it claims to be.",
    "too_large": "there is too much in it.",
    "late": "it took too long to read.",
    "busy": "I had too many other files to read. Send it again in a while.",
    "pixels": "it has more pixels than I can take.",
    "unseen": "I cannot see pictures of this kind. As JPEG or PNG I can.",
}
"""What a person or a model reads about a file that gives nothing, after "I could not read …: "."""

LeftOut = Literal[
    "rest", "listed", "characters", "pages", "scans", "pictures", "attachments", "embedded", "frames"
]

LEFT_OUT: dict[LeftOut, str] = {
    "rest": "what comes after its beginning",
    "listed": "the content of its files, which are only listed",
    "characters": "characters that are damaged",
    "pages": "parts that are damaged",
    "scans": "pages that are pictures",
    "pictures": "pictures",
    "attachments": "attachments that I cannot read whole",
    "embedded": "files that are embedded in it",
    "frames": "all but the first of its pictures",
}
"""What a file can lack in what is read of it."""


def left_out(codes: Collection[LeftOut]) -> str:
    """Return the sentence about what is missing, blank if nothing is."""
    *others, last = [words for code, words in LEFT_OUT.items() if code in codes] or [""]
    named = f"{', '.join(others)} and {last}" if others else last
    return f"some of it is left out: {named}." if named else ""
