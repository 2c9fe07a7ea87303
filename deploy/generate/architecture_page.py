"""deploy/architecture.md: the rooms and who may enter which, one message's way, and the state machines.

Nothing here is drawn by hand: the rooms are the imports of the code, the way is what ran when a message was sent
through the real bot, the rules are the import contract, and the machines are the tables of the modules' docstrings.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import grimp

from benchmarks.core_path import CORE, functions_of_one_message

ROOT = Path(__file__).parents[2]
PACKAGES = ("bot", "threads", "transports")
PLATFORMS = ("slack", "discord", "console")
WORDS = ("bot.errors", "bot.settings_model", "bot.kept")
WIRING = ("bot.app", "bot.run", "bot.chat", "bot.lineup", "bot.workbench", "bot.resubmit")

HEAD = """# Architecture

Made from the code by `make docs`; a test fails when it is out of date. The words are explained in the README.

## The rooms

An arrow goes from who imports to what is imported; `threads`, which everybody knows and which knows nobody, and the
words that the rooms of `bot` share (errors, settings) are left out.

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
    rules = "\n".join(f"* {contract}" for contract in _contracts())
    return f"{HEAD}{_rooms()}{WAY}{_way()}{RULES}{rules}\n\n## State machines\n\n{machines}"


def room(module: str) -> str:
    """Return the room of a module: a package of ours, or a part of one."""
    parts = module.split(".")
    if parts[0] == "transports":
        return ".".join(parts[:2]) if parts[1:2] and parts[1] in PLATFORMS else "transports"
    if parts[0] == "threads":
        return "threads"
    if module in WORDS:
        return "words"
    if module in WIRING:
        return "wiring"
    if module in {"bot.__main__", "bot"}:
        return "bot.cli"
    return ".".join(parts[:2]) if (ROOT / "bot" / (parts[1:2] or ["-"])[0]).is_dir() else "the brain"


def _rooms() -> str:
    graph = grimp.build_graph(*PACKAGES)
    edges: Counter[tuple[str, str]] = Counter()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            pair = room(module), room(imported)
            if pair[0] != pair[1] and not {"words", "threads"} & set(pair):
                edges[pair] += 1
    names = sorted({name for pair in edges for name in pair})
    ids = {name: f"r{place}" for place, name in enumerate(names)}
    lines = [f'    {ids[name]}["{name}"]' for name in names]
    lines += [f"    {ids[a]} --> {ids[b]}" for a, b in sorted(edges)]
    return "\n".join(["```mermaid", "flowchart TD", *lines, "```", ""])


def _way() -> str:
    ran = [Path(code.co_filename).relative_to(ROOT).as_posix() for code in functions_of_one_message()]
    path = [name for name in dict.fromkeys(ran) if name in CORE]
    nodes = [f'    m{place}["{place + 1}. {name}"]' for place, name in enumerate(path)]
    arrows = [f"    m{place} --> m{place + 1}" for place in range(len(path) - 1)]
    return "\n".join(["```mermaid", "flowchart TD", *nodes, *arrows, "```", ""])


def _contracts() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return [contract["name"] for contract in project["tool"]["importlinter"]["contracts"]]


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
