"""A pooler of transactions before a PostgreSQL, as pgbouncer is one: few sessions, and each transaction gets any of them.

Like pgbouncer it takes no start-up options, gives a session the name of its client, and passes on a statement that
waited for a session although its sender has gone.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

PORT = 6432
ENDS = (b"S", b"Q")
"""The messages after which a server answers that it is ready."""

Session = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pooler:
    """``transactions`` counts those that each session carried out. While ``holds`` is clear, none gets a session."""

    def __init__(self, dsn: str, folder: Path, sessions: int = 2) -> None:
        parts = dict(part.split("=") for part in dsn.split())
        self._server = f"{parts['host']}/.s.PGSQL.5432"
        self._start = {"user": parts["user"], "database": parts["dbname"]}
        self.dsn = f"host={folder} port={PORT} user={parts['user']} dbname={parts['dbname']}"
        self._path, self._sessions = folder / f".s.PGSQL.{PORT}", sessions
        self._free, self._greeting = deque[Session](), b""
        self._freed = asyncio.Condition()
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.waiting, self.transactions = 0, list[int]()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Pooler]:
        self._free.extend([await self._session() for _ in range(self._sessions)])
        server = await asyncio.start_unix_server(self._serve, self._path)
        try:
            yield self
        finally:
            server.close()
            for _, writer in self._free:
                writer.close()

    async def _session(self) -> Session:
        reader, writer = await asyncio.open_unix_connection(self._server)
        words = b"".join(f"{name}\0{value}\0".encode() for name, value in self._start.items()) + b"\0"
        writer.write(struct.pack("!ii", len(words) + 8, 196608) + words)
        self._greeting = b""
        while not self._greeting.endswith(b"Z\0\0\0\5I"):
            self._greeting += await _message(reader)
        return reader, writer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                [length] = struct.unpack("!i", await reader.readexactly(4))
                words = (await reader.readexactly(length - 4))[4:].split(b"\0")
                if len(words) > 1:
                    break
                writer.write(b"N")  # no TLS here
            given = dict(zip(words[::2], words[1::2], strict=False))
            if b"options" in given:
                text = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0"
                writer.write(b"E" + struct.pack("!i", len(text) + 4) + text)
                return writer.close()
            writer.write(self._greeting)
            name = given.get(b"application_name", b"")
            while (asked := await _until(reader, ENDS)) is not None:
                await self._carry_out(name, asked, writer)
        writer.close()
        return None

    async def _carry_out(self, name: bytes, asked: bytes, client: asyncio.StreamWriter) -> None:
        self.waiting += 1
        await self.goes_on.wait()
        async with self._freed:
            await self._freed.wait_for(lambda: self._free)
            session = self._free.popleft()  # the one that has rested longest: never the one of a moment ago
        self.waiting -= 1
        rename = b"SET application_name = '" + name + b"'\0"
        rename = b"Q" + struct.pack("!i", len(rename) + 4) + rename
        while await _ask(session, rename) is None:
            session[1].close()
            session = await self._session()  # the server ended that one while it was idle
        answer = await _ask(session, asked)
        if answer is None:  # the server ended it
            client.close()
            session[1].close()
            session = await self._session()
        else:
            client.write(answer)
        async with self._freed:
            self._free.append(session)
            self._freed.notify_all()


async def _ask(session: Session, asked: bytes) -> bytes | None:
    reader, writer = session
    writer.write(asked)
    return await _until(reader, (b"Z",))


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


async def _until(reader: asyncio.StreamReader, kinds: tuple[bytes, ...]) -> bytes | None:
    """Return all up to a message of these kinds, None if the other end is gone."""
    found = b""
    try:
        while True:
            message = await _message(reader)
            found += message
            if message[:1] in kinds:
                return found
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
