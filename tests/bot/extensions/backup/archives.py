"""Backups for tests: the time, a restore, and what a folder holds."""

from datetime import UTC, datetime

from bot.extensions.backup import restore


def now():
    return datetime.now(UTC)


def put_back(file, data, **more):
    return restore.restore(file, data, now, on_bytes=lambda _: None, **more)


def tree(folder):
    """Return the files of a data folder by path, without those of the process and what was put aside."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("lock", "restored.json") and "before-" not in str(path)
    }
