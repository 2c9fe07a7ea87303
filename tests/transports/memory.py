"""A disk in memory: what is renamed to its place is there, and nothing else is."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Memory:
    files: dict[Path, bytes] = field(default_factory=dict)
    broken: bool = False

    def read(self, path):
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def create(self, path):
        if self.broken:
            raise OSError(28, "No space left on device")
        self.files[path] = b""
        return _Open(self, path)

    def rename(self, source, target):
        self.files[target] = self.files.pop(source)

    def unlink(self, path):
        self.files.pop(path, None)

    def fsync_folder(self, path): ...

    def mkdir(self, *paths): ...


@dataclass
class _Open:
    disk: Memory
    path: Path

    def write(self, data):
        self.disk.files[self.path] += bytes(data)
        return len(data)

    def fsync(self): ...

    def close(self): ...


async def offload(function, *arguments):
    return function(*arguments)
