"""A program that matches a regular expression, so that the matching can be killed.

Python's `re` cannot be interrupted and blocks every other thread; some expressions never end. So
`bot.tools.files.search` runs this program and kills it in time. It ends by itself after `CPU_S` of work.

In: a line of JSON, ``[expression, ignore case]``; then for each text a line with its size in bytes, and the text.
Out: a line of JSON for each line that matches, ``[text, line, excerpt]``, texts counted from 0 and lines from 1; or
``"why the expression is not valid"``.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from contextlib import suppress
from io import BytesIO, TextIOWrapper

CPU_S = 60
NICE = 10
"""The bot, which answers other threads, goes first."""

MEMORY = 512_000_000
EXCERPT = 240
"""Characters of a matching line, or of an error, that are returned."""


def main() -> None:
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    with suppress(ValueError, OSError):  # a system that does not limit this
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    stdin, out = sys.stdin.buffer, sys.stdout
    try:
        pattern, ignore_case = json.loads(stdin.readline())
        compiled = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        out.write(f"{json.dumps(str(error)[:EXCERPT] or type(error).__name__)}\n")
        return
    index = 0
    while size := stdin.readline():
        text = TextIOWrapper(BytesIO(stdin.read(int(size))), "utf-8", "replace", newline="\n")
        for number, full_line in enumerate(text, 1):
            line = full_line.removesuffix("\n").removesuffix("\r")
            if found := compiled.search(line):
                start = max(0, min(found.start() - EXCERPT // 4, len(line) - EXCERPT))
                out.write(f"{json.dumps([index, number, line[start : start + EXCERPT].strip()])}\n")
        out.flush()
        index += 1


if __name__ == "__main__":
    main()
