"""What a running tool does, in a few words for people."""

from __future__ import annotations

LONGEST_LABEL = 120

VERBS = {
    "read_file": "reading",
    "write_file": "writing",
    "edit_file": "editing",
    "list_files": "looking through",
    "attach": "attaching",
    "shell": "running",
    "web_fetch": "reading",
    "browser": "browsing",
    "load_skill": "looking up",
    "recall": "remembering",
    "ask_person": "asking",
}
"""The verbs of common tools; any other tool is "using" and its name."""


def label(name: str, summary: str) -> str:
    """Return a line such as "reading notes.md"; the transport must escape it."""
    verb = VERBS.get(name) or f"using {name}"
    about = summary or ("files" if name in VERBS else "")
    line = " ".join(f"{verb} {about}".split())
    return line if len(line) <= LONGEST_LABEL else f"{line[: LONGEST_LABEL - 1]}…"
