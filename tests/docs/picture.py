"""docs/chat.svg and docs/page.png: a real chat in a real pseudo-terminal, and the page. `make picture` runs this.

Both run in an empty folder with `offline/demo`, so the pictures need no key and show nothing of this machine.
"""

from __future__ import annotations

import os
import pty
import sys
import tempfile
import termios
from codecs import getincrementaldecoder
from html import escape
from pathlib import Path

import anyio

from tests.transports.console.screen import Screen
from tests.transports.web.chromium import browsing, say
from tests.transports.web.process import process_serving
from threads.background import background_tasks

TARGET = Path(__file__).parents[2] / "docs" / "chat.svg"
PAGE = TARGET.with_name("page.png")
ROWS, COLUMNS = 24, 84
CHAT = (
    ("write notes.txt Ship on Friday.", "notes.txt"),
    ("read notes.txt", "· reading notes.txt"),
    ("attach notes.txt", "· attach"),
    ("/usage", "this month"),
)
"""What is typed, and a text that its answer shows."""
LINE, LETTER, MARGIN, TITLE = 18, 8.4, 16, 34


async def terminal_lines() -> list[str]:
    """Return the lines of the terminal after the last answer."""
    with tempfile.TemporaryDirectory() as home:
        master, slave = pty.openpty()

        def answer(keys: str) -> None:
            os.write(master, keys.encode())

        screen, environ = Screen(ROWS, COLUMNS, answer), {"PATH": os.environ["PATH"]}
        termios.tcsetwinsize(slave, (ROWS, COLUMNS))
        process = await anyio.open_process(
            [sys.executable, "-m", "bot", "chat"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=home,
            start_new_session=True,
            env={**environ, "HOME": home, "TERM": "xterm", "PYTHONPATH": str(TARGET.parents[1])},
        )
        os.close(slave)
        decode = getincrementaldecoder("utf-8")().decode

        async def watch() -> None:
            while True:
                await anyio.wait_readable(master)
                screen.write(decode(os.read(master, 65_536)))
                screen.flush()

        try:
            async with background_tasks() as tasks:
                tasks.start_soon(watch)
                await screen.shows("main>")
                for words, expected in CHAT:
                    answer(f"{words}\r")
                    await screen.shows(expected)
                    await anyio.sleep(1)  # the answer's last lines, and the prompt again
        finally:
            process.kill()
            await process.wait()
            os.close(master)
        return [line.replace(home, ".") for line in screen.text.splitlines()]


def as_svg(lines: list[str]) -> str:
    """Return the lines as a picture of a terminal window; what a person typed is bright, what a tool did is dim."""
    width, height = round(COLUMNS * LETTER) + 2 * MARGIN, len(lines) * LINE + TITLE + MARGIN
    colours = {"main>": "#9ece6a", "·": "#7a88b8"}
    size = f'width="{width}" height="{height}"'
    shapes = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="A chat in the terminal">',
        f'<rect {size} rx="8" fill="#1a1b26"/>',
    ]
    for place, fill in enumerate(("#f7768e", "#e0af68", "#9ece6a")):
        shapes.append(f'<circle cx="{MARGIN + 20 * place}" cy="17" r="6" fill="{fill}"/>')
    shapes.append('<g font-family="monospace" font-size="14" xml:space="preserve">')
    for y, line in enumerate(lines, 1):
        fill = next((colour for start, colour in colours.items() if line.startswith(start)), "#c0caf5")
        shapes.append(f'<text x="{MARGIN}" y="{TITLE + y * LINE - 5}" fill="{fill}">{escape(line)}</text>')
    return "\n".join([*shapes, "</g>", "</svg>", ""])


async def photograph(target: Path) -> None:
    """Talk to the demo on the page, up to its question, and save what a browser shows."""
    settings = {"model": "offline/demo", "tools": {"policy": {"write_file": "ask"}}}
    window = {"viewport": {"width": 1000, "height": 620}, "color_scheme": "light"}
    with tempfile.TemporaryDirectory() as home:
        async with process_serving(Path(home), settings, {}) as site, browsing(site, **window) as page:
            await say(page, "hello")
            await page.wait_for_selector(".post.reply")
            await say(page, "write notes.txt Ship on Friday.")
            await page.wait_for_selector("text=Allow once")
            await page.screenshot(path=target)


if __name__ == "__main__":
    anyio.run(photograph, PAGE)
    TARGET.write_text(as_svg(anyio.run(terminal_lines)), encoding="utf-8")
