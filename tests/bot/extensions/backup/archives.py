"""Backups for tests: the time, a restore, and what a folder holds."""

import os
from contextlib import contextmanager
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


@contextmanager
def nested_folders(folder, depth=1200):
    """Nest more folders than there may be function calls, file descriptors, or bytes in a path."""
    here = os.open(folder, os.O_RDONLY)

    def enter(name):
        nonlocal here
        above, here = here, os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(above)

    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        enter("d")
    yield
    for _ in range(depth):  # from within: nothing removes such a folder by its path
        enter("..")
        os.rmdir("d", dir_fd=here)
    os.close(here)
