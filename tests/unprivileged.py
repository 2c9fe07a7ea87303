"""Runs Python as a user without privileges.

`run_unprivileged("-c", code)`, `run_unprivileged("-m", module, *args)` or `run_unprivileged(path, *args)` starts the
same interpreter in the repository and captures its output. If the tests run as root, the child becomes user 65534;
otherwise it runs as the same user. Its environment is PATH, LANG, *env*, and HOME and TMPDIR, which are an empty folder
that is removed afterwards.

If that user cannot reach the interpreter or the repository (in /root, say), the child gets a mount namespace, where an
open folder with only the necessary paths covers the closed one. Raises `Unreachable` if root may not mount.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp

NOBODY = 65534
REPOSITORY = Path(__file__).resolve().parent.parent
_NEWNS, _BIND, _REC, _PRIVATE = 0x20000, 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


class Unreachable(RuntimeError):
    """The user cannot reach the interpreter or the repository."""


def run_unprivileged(
    *args: str, timeout_s: float = 60.0, env: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    """Run `python *args` as nobody; raises `Unreachable` and `subprocess.TimeoutExpired`."""
    home = mkdtemp(prefix="unprivileged-")
    try:
        if os.geteuid() == 0:
            os.chown(home, NOBODY, NOBODY)
            os.chmod(home, 0o711)  # noqa: PTH101 - others may pass
        process = popen_unprivileged(
            *args, home=home, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        if process.returncode == 77 and "Unreachable" in err:
            raise Unreachable(err)
        return subprocess.CompletedProcess(args, process.returncode, out, err)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def popen_unprivileged(*args: str, home: str, env: Mapping[str, str] = {}, **popen) -> subprocess.Popen[str]:
    """Start it without waiting; *home* is a folder that user 65534 owns and others may pass (mode 0711)."""
    inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environ = inherited | {"HOME": home, "TMPDIR": home, "PYTHONDONTWRITEBYTECODE": "1"}
    environ |= {"HYPOTHESIS_STORAGE_DIRECTORY": home} | dict(env)
    argv = [sys.executable, *args]
    if os.geteuid() == 0:
        argv = [sys.executable, str(Path(__file__).resolve()), *args]
    streams = {"stdin": subprocess.DEVNULL, "text": True} | popen
    return subprocess.Popen(argv, cwd=REPOSITORY, env=environ, **streams)


def _become_nobody() -> None:
    needed = {
        str(REPOSITORY),
        sys.prefix,
        sys.base_prefix,
        sysconfig.get_paths()["stdlib"],
        os.environ["HOME"],
    }
    closed = {
        top: [path for path in needed if _beneath(path, top)] for path in needed if (top := _closed(path))
    }
    if closed:
        _call(_libc.unshare, _NEWNS)
        _call(_libc.mount, b"none", b"/", None, _REC | _PRIVATE, None)
        for top, paths in closed.items():
            _open(top, sorted(paths))
    os.chdir(REPOSITORY)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    _libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: its /proc files are its own again


def _closed(path: str) -> str:
    """Return the first folder on the way to *path* that others may not enter, or ""."""
    folders = [*reversed(Path(path).parents), Path(path)]
    return next((str(folder) for folder in folders if not folder.stat().st_mode & 0o001), "")


def _beneath(path: str, top: str) -> bool:
    return path == top or path.startswith(top + "/")


def _open(top: str, paths: list[str]) -> None:
    """Cover *top* with an open folder that has only *paths*."""
    fds = {path: os.open(path, os.O_PATH) for path in paths}
    _call(_libc.mount, b"none", top.encode(), b"tmpfs", 0, b"mode=0755")
    for path, fd in fds.items():
        if Path(path).exists():
            continue  # beneath a path that is already there
        Path(path).mkdir(0o755, parents=True)
        _call(_libc.mount, f"/proc/self/fd/{fd}".encode(), path.encode(), None, _BIND | _REC, None)


def _call(function, *args) -> None:
    if function(*args) < 0:
        code = ctypes.get_errno()
        raise Unreachable(f"{function.__name__}: {os.strerror(code)}")


if __name__ == "__main__":
    try:
        _become_nobody()
    except Unreachable as error:
        sys.stderr.write(f"Unreachable: {error}\n")
        sys.exit(77)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
