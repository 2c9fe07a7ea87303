"""docs/layers.md: the folders and what they import, one message's way, and the state machines.

The folders are the layers of the import contract, a test compares the way with what runs, and the machines are the
tables in the modules' docstrings.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("bot", "threads", "transports")
CORE = (
    "bot/routing/orchestrator.py",
    "threads/journal/journal.py",
    "threads/store/group_commit.py",
    "threads/actor/registry.py",
    "threads/actor/actor.py",
    "threads/actor/mailbox.py",
    "threads/store/context.py",
    "threads/delivery.py",
    "transports/shared/delivery/outbox.py",
    "threads/actor/turn.py",
    "bot/agent/loop.py",
    "bot/agent/model_calls.py",
    "bot/tools/gate.py",
)
"""Modules of the core path, in the order in which a message that uses a tool first reaches them (tested)."""

HEAD = """# Layers

`make docs` writes this page from the code. A test fails when it is out of date.

## The folders

Each folder imports only from folders below it. Folders on one line do not import each other. The build fails when an
import breaks this order, and when a new folder has no place in it.

"""

WAY = """
## One message's way

The modules of the core path in the order in which a message that uses a tool first reached them. `make core-path`
names every function that ran, and counts its lines.

"""

RULES = """
## What is enforced

The build fails when one of these does not hold (`[tool.importlinter]` in `pyproject.toml`):

"""


def page() -> str:
    machines = "\n".join(_machine(path, name, rows) for path, name, rows in machines_in(ROOT))
    rules = "\n".join(f"* {contract['name']}" for contract in _contracts())
    return f"{HEAD}{_layers()}{WAY}{_way()}{RULES}{rules}\n\n## State machines\n\n{machines}"


def _layers() -> str:
    """Return a picture of each stack of layers and a table that says what each folder holds."""
    tables = []
    for contract in _contracts():
        for container in contract.get("containers", ()):
            rows = [f"| {_row(container, layer)} |" for layer in contract["layers"]]
            names = [f'    l{place}["{layer}"]' for place, layer in enumerate(contract["layers"])]
            chain = "    " + " --> ".join(f"l{place}" for place in range(len(names)))
            picture = ["```mermaid", "flowchart TD", *names, chain, "```", ""]
            tables.append(
                "\n".join([f"### `{container}`", "", *picture, "| from top to bottom |", "|---|", *rows, ""])
            )
    return "\n".join(tables)


def _row(container: str, layer: str) -> str:
    """Return the members of a layer with the first sentence of each one's docstring."""
    cells = []
    for name in (part.strip(" ()") for part in layer.split("|")):
        folder = ROOT / container.replace(".", "/") / name
        file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        if file.exists():  # an optional layer may be one platform's alone
            about = (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").partition("\n")[0]
            cells.append(f"`{name}`: {about}" if about else f"`{name}`")
    return "<br>".join(cells)


def _way() -> str:
    nodes = [f'    m{place}["{place + 1}. {name}"]' for place, name in enumerate(CORE)]
    arrows = [f"    m{place} --> m{place + 1}" for place in range(len(CORE) - 1)]
    return "\n".join(["```mermaid", "flowchart TD", *nodes, *arrows, "```", ""])


def _contracts() -> list[dict[str, Any]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return list(project["tool"]["importlinter"]["contracts"])


Row = tuple[str, str, str]


def machines_in(root: Path) -> Iterator[tuple[str, str, list[Row]]]:
    """Return each module that has a table of states and events in its docstring: path, title, rows."""
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
            for block in text.split("\n\n"):
                rows = [[cell.strip(" `") for cell in line.strip("| ").split("|")] for line in _table(block)]
                if len(rows) > 1 and len(rows[0]) == 3 and rows[0][1] == "event":
                    title = text.partition("\n")[0].rstrip(".")
                    yield file.relative_to(root).as_posix(), title, [(a, b, c) for a, b, c in rows[1:]]


def _table(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("|") and not set(line) <= set("|-: "):
            yield line


def _machine(path: str, title: str, rows: Sequence[Row]) -> str:
    states = sorted(
        {name for row in rows for name in row[0].split(", ") if name != "any"}, key=len, reverse=True
    )
    ids: dict[str, str] = {}

    def state(name: str) -> str:
        return ids.setdefault(name, f"s{len(ids)}")

    arrows = []
    for before, event, after in rows:
        target = next(
            (name for name in states if after.startswith(name)), re.split(r"[,:;(]", after)[0].strip()
        )
        for name in before.split(", "):
            origin = state(name)
            arrows.append(f"    {origin} --> {state(target)}: {_label(event)}")
    names = [f'    state "{name}" as {place}' for name, place in ids.items()]
    diagram = "\n".join(["```mermaid", "stateDiagram-v2", *names, *arrows, "```"])
    return f"### `{path}`\n\n{title}.\n\n{diagram}\n"


def _label(event: str) -> str:
    """Return an event as a label: Mermaid ends one at a colon or semicolon, and reads marks as its own."""
    return re.sub(r"[`*<>#]", "", event).replace(":", " -").replace(";", ",")
