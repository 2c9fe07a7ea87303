"""A real homeserver for the tests: Synapse over SQLite, on loopback, in a process that can be killed.

It lives in an environment of its own, which `make synapse` makes.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Self

import anyio.to_thread
import pytest

from tests.patience import WITHIN_S
from tests.transports.web.process import ROOT, free_port

PYTHON = Path(os.environ.get("TEST_SYNAPSE", ROOT / ".venv-synapse/bin/python"))
HOMESERVER = PYTHON.with_name("synapse_homeserver")
"""Its command, which is there when all that it needs is."""

needs_synapse = pytest.mark.skipif(
    not (HOMESERVER.exists() and (ROOT / "transports/matrix").exists()),
    reason="no Synapse: `make synapse` installs it, and TEST_SYNAPSE can name another Python that has it",
)

IN_MATRIX = pytest.param("on a homeserver", marks=needs_synapse, id="homeserver")
"""Tells a story in Matrix too: a value of the fixture `chat`."""

NAME = "home.test"
"""The name of the homeserver, which is the second half of a person's."""

FORGOTTEN = """
    CREATE TABLE IF NOT EXISTS instance_map (instance_id INTEGER PRIMARY KEY, instance_name TEXT NOT NULL UNIQUE)
"""
"""What Synapse has in PostgreSQL alone. Without it, some kills left a SQLite server whose every sync was a 500."""

PLENTY = {"per_second": 10_000, "burst_count": 10_000}
UNLIMITED = {
    "rc_message": PLENTY,
    "rc_registration": PLENTY,
    "rc_login": {"address": PLENTY, "account": PLENTY, "failed_attempts": PLENTY},
    "rc_joins": {"local": PLENTY},
    "rc_joins_per_room": PLENTY,
    "rc_invites": {"per_room": PLENTY, "per_user": PLENTY, "per_issuer": PLENTY},
    "rc_room_creation": PLENTY,
    "rc_media_create": PLENTY,
}


class Synapse:
    """A homeserver that lets anybody register. *limits* replace the ones that let everything through."""

    def __init__(self, folder: Path, **limits: object) -> None:
        self._folder, self.port = folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        settings = {
            "server_name": NAME,
            "listeners": [
                {
                    "type": "http",
                    "port": self.port,
                    "bind_addresses": ["127.0.0.1"],
                    "resources": [{"names": ["client"]}],
                }
            ],
            "federation_domain_whitelist": [],
            "trusted_key_servers": [],
            "database": {"name": "sqlite3", "args": {"database": str(folder / "synapse.db")}},
            "media_store_path": str(folder / "media"),
            "log_config": str(folder / "log.json"),
            "report_stats": False,
            "signing_key": f"ed25519 a_test {base64.b64encode(bytes(32)).decode().rstrip('=')}",
            "macaroon_secret_key": "test",
            "bcrypt_rounds": 4,
            "enable_registration": True,
            "enable_registration_without_verification": True,
            **UNLIMITED,
            **limits,
        }
        (folder / "homeserver.json").write_text(json.dumps(settings))
        file = {"class": "logging.FileHandler", "filename": str(folder / "synapse.log")}
        root = {"level": "WARNING", "handlers": ["file"]}
        log = {"version": 1, "disable_existing_loggers": False, "handlers": {"file": file}, "root": root}
        (folder / "log.json").write_text(json.dumps(log))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.kill()

    async def start(self) -> None:
        """See `begin`."""
        await anyio.to_thread.run_sync(self.begin)

    async def kill(self) -> None:
        """See `end`."""
        await anyio.to_thread.run_sync(self.end)

    def begin(self) -> None:
        """Start over the same data, and return when clients are served. Blocking.

        Raises AssertionError with its last words if it does not serve in time.
        """
        address = f"threadfast-synapse-{os.getpid()}-{self.port}"
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready,
            (self._folder / "out").open("ab") as out,
        ):
            ready.settimeout(WITHIN_S)
            ready.bind(f"\0{address}")
            command = [str(HOMESERVER), "-c", str(self._folder / "homeserver.json")]
            env = {"PATH": os.environ["PATH"], "NOTIFY_SOCKET": f"@{address}"}
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
            try:
                ready.recv(100)  # it tells nothing before it serves
            except TimeoutError:
                raise AssertionError((self._folder / "out").read_text()[-2000:]) from None
        with closing(sqlite3.connect(self._folder / "synapse.db", isolation_level=None)) as database:
            database.execute(FORGOTTEN)

    def end(self) -> None:
        """Kill it as the kernel would. What it had acknowledged is there after `begin`. Blocking."""
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
