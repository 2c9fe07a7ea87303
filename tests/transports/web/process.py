"""`threadfast web` as a process of its own, which can be killed and started again over the same port and data."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.streams.text import TextReceiveStream

from tests.patience import CODE, WITHIN_S

ROOT = Path(__file__).parents[3]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


class Process:
    """What a test needs of a `tests.transports.web.site.Site`, of a process that runs or not."""

    def __init__(self, folder: Path, settings: Mapping[str, object], environ: Mapping[str, str]) -> None:
        self.folder, self.port, self._environ = folder, free_port(), environ
        self._link = ""
        self._process: anyio.abc.Process | None = None
        self.write(json.dumps({"data": "data", "transports": {"web": {"titles": False}}, **settings}))

    def write(self, text: str) -> None:
        """Replace its settings.json."""
        new = self.folder / "settings.new"
        new.write_text(text)
        new.replace(self.folder / "settings.json")

    def hang_up(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGHUP)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def link(self, person: str = "you", name: str = "") -> str:
        """Return the secret of the link that the last start printed."""
        return self._link

    async def start(self) -> None:
        """Start it, and return when its page can be reached."""
        command = [sys.executable, "-c", CODE, "web", "--no-open", "--port", str(self.port)]
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        env = {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **self._environ}
        with (self.folder / "log").open("ab") as log:
            self._process = await anyio.open_process(command, cwd=self.folder, env=env, stderr=log)
        text = ""
        with anyio.fail_after(WITHIN_S):
            async for piece in TextReceiveStream(self._process.stdout):
                text += piece
                if "\n" in text.partition("#")[2]:
                    break
        assert "#" in text, (self.folder / "log").read_text()
        self._link = text.partition("#")[2].split()[0]

    async def kill(self) -> None:
        """End it as kill -9 does."""
        if self._process and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        if self._process:
            with anyio.CancelScope(shield=True):
                await self._process.aclose()

    async def restart(self) -> None:
        await self.kill()
        await self.start()


@asynccontextmanager
async def process_serving(
    folder: Path, settings: Mapping[str, object], environ: Mapping[str, str]
) -> AsyncIterator[Process]:
    """Serve the page in a process of its own until the block ends."""
    process = Process(folder, settings, environ)
    try:
        await process.start()
        yield process
    finally:
        await process.kill()
