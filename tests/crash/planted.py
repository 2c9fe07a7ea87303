"""What the tests of the judges share: a finished run is copied, spoiled in one place, and judged again."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.crash.run import Report, judge

Lines = list[dict[str, Any]]
Run = tuple[Path, Report]
"""The folder of a finished run, and its report."""


def read(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def rewrite(path: Path, change: Callable[[Lines], None]) -> None:
    """Change the lines of a file. A line that had a checksum gets a correct one, as the bot would write it."""
    lines, data = read(path), b""
    change(lines)
    for line in lines:
        fields = {name: value for name, value in line.items() if name != "crc"}
        body = json.dumps(fields, separators=(",", ":")).encode()
        data += b'%b,"crc":"%08x"}\n' % (body[:-1], zlib.crc32(body[:-1])) if "crc" in line else body + b"\n"
    path.write_bytes(data)


def copy_of(run: Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run[0], tmp_path / "copy"))


async def broken_rules(folder: Path, module: str) -> set[str]:
    """Return the rules that the judge finds broken."""
    _, violations = await judge(folder, module)
    return {violation.partition(":")[0] for violation in violations}
