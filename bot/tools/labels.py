"""What a running tool does, in a few plain words for people. Pure."""

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
}
"""Of the tools that people meet most; another is "using" and its name."""


def label(name: str, summary: str) -> str:
    """Return a line such as "reading notes.md"; a transport still has to escape it."""
    verb = VERBS.get(name) or f"using {name}"
    about = summary or ("files" if name in VERBS else "")
    line = " ".join(f"{verb} {about}".split())
    return line if len(line) <= LONGEST_LABEL else f"{line[: LONGEST_LABEL - 1]}…"
