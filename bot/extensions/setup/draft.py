"""The changes of a setup. Nothing is on disk until `SettingsDraft.write`, which writes all of them or none.

| step | on disk                                                             | killed or failed here      |
|------|---------------------------------------------------------------------|----------------------------|
| 1    | every file under a temporary name, fsynced: a full disk fails here  | nothing has changed        |
| 2    | secrets take their names in ``credentials/``                        | nobody refers to them yet  |
| 3    | the JSON Schema, then the old settings as ``settings.json.bak``     | the old settings are whole |
| 4    | settings.json takes its name                                        | done                       |

The next run overwrites what a killed one left, and finds the secrets that it stored.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from pydantic import JsonValue
from pydantic_core import from_json

from bot.config.load import (
    CREDENTIALS,
    MAX_FILE_BYTES,
    MAX_SECRET_BYTES,
    Loaded,
    json_schema,
    load_bytes,
    resolve_secret,
)
from bot.ports.config_error import ConfigInvalid
from threads.store.disk import PosixDisk, temporary_of, write_new

SCHEMA = "settings.schema.json"
PRIVATE, PUBLIC = 0o600, 0o666
"""Modes; the umask takes from the second."""

CHANGED = "settings.json has changed in the meantime and was left alone; run this again"


@dataclass(frozen=True, slots=True)
class SettingsDraft:
    """The settings at *path* as they will be, and ``secrets`` by the names of their files.

    ``before`` is what was read; None when there was no file.
    """

    path: Path
    environ: Mapping[str, str]
    before: bytes | None = None
    document: dict[str, JsonValue] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    files: dict[str, bytes] = field(default_factory=dict, repr=False)
    """More files beside the settings, by name."""
    options: dict[str, str] = field(default_factory=dict)
    """Places of the settings that an option of the command line filled, with that option."""

    @classmethod
    def open(cls, path: Path, environ: Mapping[str, str]) -> Self:
        """Read the settings at *path*, if any. Raises `ConfigInvalid` for those that cannot be used."""
        path = path.absolute()
        try:
            before = path.read_bytes() if path.exists() else None
        except OSError as error:
            raise ConfigInvalid(f"{path}: {error.strerror}") from error
        if before is None:
            return cls(path, environ)
        if len(before) > MAX_FILE_BYTES:
            raise ConfigInvalid(f"{path}: is larger than {MAX_FILE_BYTES:,} bytes")
        load_bytes(before, path, environ=environ)
        return cls(path, environ, before, from_json(before.removeprefix(b"\xef\xbb\xbf")))

    def copy(self) -> SettingsDraft:
        """Return an independent copy."""
        return replace(
            self,
            document=deepcopy(self.document),
            secrets=dict(self.secrets),
            files=dict(self.files),
            options=dict(self.options),
        )

    @property
    def credentials(self) -> Path:
        given = self.environ.get("CREDENTIALS_DIRECTORY")
        return Path(given) if given else self.path.parent / CREDENTIALS

    def get(self, *keys: str) -> JsonValue:
        """Return the value at this place of the settings, or None."""
        value: JsonValue = self.document
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def put(self, value: JsonValue, *keys: str, option: str = "") -> None:
        """Set *value* at this place, and create the sections above it. *option* is the option that gave it."""
        if option:
            self.options[".".join(keys)] = option
        section = self.document
        for key in keys[:-1]:
            inner = section.get(key)
            if not isinstance(inner, dict):
                inner = section[key] = {}
            section = inner
        section[keys[-1]] = value

    def store_secret(self, name: str, secret: str) -> str:
        """Add a secret, to be stored in a file of that name, and return the reference to it."""
        self.secrets[name] = secret
        return f"file:{name}"

    def stored_secret(self, name: str) -> str:
        """Return the secret stored under this name, or ``""``."""
        if name in self.secrets:
            return self.secrets[name]
        try:
            with (self.credentials / name).open("rb") as file:
                return file.read(MAX_SECRET_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError):
            return ""  # missing or unusable: the setup asks for it

    def find_secret(self, reference: str, name: str, variable: str) -> tuple[str, str]:
        """Return a secret and the reference to it; ``""`` for a reference that has to be made, ``""`` twice for none.

        | a secret is taken from                                | with the reference        |
        |-------------------------------------------------------|---------------------------|
        | where the settings say, if that is another place      | *reference*               |
        | the environment                                       | ``""``                    |
        | ``credentials/``, from an earlier run                 | ``file:`` and its *name*  |
        """
        if reference != f"file:{name}":
            with suppress(ConfigInvalid):  # other places are searched, then a person is asked
                return resolve_secret(reference, self.loaded().environ), reference
        if fresh := self.environ.get(variable, "").strip():
            return fresh, ""
        stored = self.stored_secret(name)
        return stored, f"file:{name}" if stored else ""

    def loaded(self) -> Loaded:
        """Return the settings as they would be read. Raises `ConfigInvalid`, naming options where those are wrong."""
        try:
            return load_bytes(self._text(), self.path, environ=self.environ)
        except ConfigInvalid as error:
            lines = str(error).splitlines()
            options = [self.options.get(line.partition(": ")[0]) for line in lines]
            given = [f"{o}: {line.partition(': ')[2]}" for o, line in zip(options, lines, strict=True) if o]
            if not given:
                raise
            raise ConfigInvalid("\n".join(given)) from error

    def write_obstacle(self) -> str:
        """Return why nothing could be written, as far as that can be known before, or ``""``."""
        folder = next(place for place in (self.path.parent, *self.path.parent.parents) if place.exists())
        if not folder.is_dir():
            return f"{folder} is not a folder"
        for place in (folder, self.credentials):
            if place.exists() and not os.access(place, os.R_OK | os.W_OK | os.X_OK):
                return f"{place} cannot be written to; name another place with --settings"
        return ""

    def write(self) -> list[Path]:
        """Write the files that changed, and return them. Raises OSError and `ConfigInvalid`."""
        if not (targets := self._targets()):
            return []
        if self.before != (self.path.read_bytes() if self.path.exists() else None):
            raise ConfigInvalid(CHANGED)
        self._make_folders()
        disk = PosixDisk()
        try:
            for path, data, mode in targets:
                write_new(disk, temporary_of(path), data)
                temporary_of(path).chmod(mode)
                self._give(temporary_of(path), path)
        except OSError:
            for path, _, _ in targets:
                with suppress(OSError):  # what stays is overwritten by the next run
                    temporary_of(path).unlink(missing_ok=True)
            raise
        for path, _, _ in targets:
            disk.rename(temporary_of(path), path)
        for folder in {path.parent for path, _, _ in targets}:
            disk.fsync_folder(folder)
        return [path for path, _, _ in targets]

    def _targets(self) -> list[tuple[Path, bytes, int]]:
        """Return each file that has to be written, with its bytes and mode, in the order of the table."""
        real = Path(os.path.realpath(self.path))  # a link to settings elsewhere stays a link
        shared = _mode(real)
        kept = [(self.credentials / name, f"{secret}\n".encode()) for name, secret in self.secrets.items()]
        files = dict(self.files)
        if self._whole()["$schema"] == f"./{SCHEMA}":
            files[SCHEMA] = json.dumps(json_schema(), indent=1).encode() + b"\n"
        public_files = [(self.path.parent / name, data) for name, data in files.items()]
        targets = [(path, data, PRIVATE) for path, data in kept if _differs(path, data, private=True)]
        targets += [(path, data, shared) for path, data in public_files if _differs(path, data)]
        if self.before is None or from_json(self.before.removeprefix(b"\xef\xbb\xbf")) != self._whole():
            if self.before is not None:
                targets.append((real.with_name(real.name + ".bak"), self.before, shared))
            targets.append((real, self._text(), shared))
        return targets

    def _whole(self) -> dict[str, JsonValue]:
        return {"$schema": f"./{SCHEMA}", **self.document}

    def _text(self) -> bytes:
        return json.dumps(self._whole(), indent=2, ensure_ascii=False).encode() + b"\n"

    def _make_folders(self) -> None:
        disk = PosixDisk()
        if not self.path.parent.exists():
            disk.mkdir(self.path.parent)
        if not self.secrets:
            return
        if not self.credentials.exists():
            disk.mkdir(self.credentials)
            self._give(self.credentials)
        if stat.S_IMODE(self.credentials.stat().st_mode) & 0o077:
            self.credentials.chmod(0o700)

    def _give(self, made: Path, *like: Path) -> None:
        """Give a file that root created to the owner of the other files: the service must read it."""
        if os.geteuid() == 0:
            owner = next(place for place in (*like, self.path, self.path.parent) if place.exists()).stat()
            with suppress(PermissionError):  # a root that may not give things away, as in some containers
                os.chown(made, owner.st_uid, owner.st_gid)


def owned_by_another(folder: Path) -> bool:
    """Return whether this is root and the folder exists and belongs to another user."""
    return os.geteuid() == 0 and folder.exists() and folder.stat().st_uid != 0


def _mode(path: Path) -> int:
    """Return the mode of a file that is there, or what the umask leaves."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0o077)
    os.umask(mask)
    return PUBLIC & ~mask


def _differs(path: Path, data: bytes, *, private: bool = False) -> bool:
    try:
        return path.read_bytes() != data or (private and bool(path.stat().st_mode & 0o077))
    except OSError:
        return True
