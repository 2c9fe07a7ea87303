"""Starts a command behind Landlock and a system call filter: `launcher.py PLAN LIFELINE STATUS COMMAND…`.

This program imports nothing of ours. It is the subreaper of the command: a process that loses its parent becomes its
child, so none escapes.

| event                                | what it does                                            |
|--------------------------------------|---------------------------------------------------------|
| the command ends                     | kills the rest of the tree, writes the code to STATUS   |
| LIFELINE is closed: a stop, or no bot    | kills the whole tree                                    |
| the sandbox cannot be set up         | writes the error to STATUS; the command does not start  |
"""

# pathlib and contextlib would make every command start later:
# ruff: noqa: PTH116, PTH123, PTH208, SIM105
from __future__ import annotations

# `signal` without its enums, which would cost each command 5 ms.
import _signal as signal  # type: ignore[import-not-found]
import ctypes
import marshal
import os
import resource
import select
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import would make every command start later
    from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""The same numbers on every architecture."""

_FILE_RIGHTS = 1 | 2 | 4 | 1 << 14 | 1 << 15


def main(arguments: list[str]) -> None:
    plan_fd, lifeline, status = map(int, arguments[:3])
    for fd in (plan_fd, lifeline, status):
        os.set_inheritable(fd, False)
    _call(_libc.prctl, _PR_SET_SUBREAPER, 1, 0, 0, 0)
    wakeup, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with open(plan_fd, "rb") as file:
        plan = marshal.loads(file.read())  # noqa: S302 - written by the process that started this one
    child = _start(plan, arguments[3:], status)
    exit_code = _wait(child, lifeline, wakeup)
    _end_tree()
    if exit_code is not None:
        os.write(status, b'{"exit-code": %d}\n' % exit_code)


def _start(plan: dict[str, Any], command: list[str], status: int) -> int:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    processes = plan["processes"] + _own_tasks()
    if child := os.fork():
        return child
    try:
        _call(_libc.prctl, _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.setsid()
        os.chdir(plan["workspace"])
        _call(_libc.prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if plan["landlock"]:
            _landlock(*plan["landlock"])
        for kind, value in (*plan["limits"], (resource.RLIMIT_NPROC, processes)):
            _limit(kind, value)
        if plan["filter"]:
            _seccomp(plan["filter"])
        os.execve(command[0], command, plan["environment"])  # noqa: S606 - the sandbox is set up
    except BaseException as error:  # noqa: BLE001 - the fork reports any error and ends
        os.write(status, b'{"failed": "%s"}\n' % type(error).__name__.encode())
        os.write(2, f"{error}\n".encode("utf-8", "replace"))
    os._exit(125)


def _wait(child: int, lifeline: int, wakeup: int) -> int | None:
    """Return the command's exit code, or None if LIFELINE was closed."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    exit_code = None
    while exit_code is None:
        if lifeline in {fd for fd, _ in poll.poll()}:
            return None
        try:
            os.read(wakeup, 4096)
        except BlockingIOError:
            pass
        while True:
            pid, code = _reap()
            if pid <= 0:
                break
            if pid == child:
                exit_code = code
    return exit_code


def _reap() -> tuple[int, int]:
    """Return an ended child and its code (128 + N for signal N), (0, 0) if all run, (-1, 0) if there are none."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return -1, 0
    code = os.waitstatus_to_exitcode(status) if pid else 0
    return pid, 128 - code if code < 0 else code


def _end_tree() -> None:
    """Kill until no child is left: as the subreaper of the whole tree, this process then has none."""
    while True:
        while (pid := _reap()[0]) > 0:
            pass
        if pid < 0:
            return
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        select.select([], [], [], 0.002)


def descendants(root: int, proc: str = "/proc") -> list[int]:
    """Return the processes that descend from *root*, without itself."""
    children: dict[int, list[int]] = {}
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                with open(f"{proc}/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):  # ended since it was listed
                continue
            children.setdefault(parent, []).append(int(name))
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def _own_tasks() -> int:
    """Return how many tasks this user has, because the kernel's limit counts them all."""
    uid, count = os.getuid(), 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == uid:
                    count += os.stat(f"/proc/{name}/task").st_nlink - 2
            except OSError:
                continue
    return count


def _limit(kind: int, value: int) -> None:
    if (hard := resource.getrlimit(kind)[1]) != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _landlock(files: int, net: int, scoped: int, rules: list[tuple[str, int]]) -> None:
    size = 24 if scoped else 16 if net else 8
    attributes = ctypes.create_string_buffer(struct.pack("<QQQ", files, net, scoped), 24)
    ruleset = _call(_libc.syscall, _CREATE_RULESET, attributes, size, 0)
    for path, rights in rules:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        allowed = -1 if stat.S_ISDIR(os.fstat(fd).st_mode) else _FILE_RIGHTS
        beneath = ctypes.create_string_buffer(struct.pack("<Qi", rights & allowed, fd), 12)
        _call(_libc.syscall, _ADD_RULE, ruleset, 1, beneath, 0)
        os.close(fd)
    _call(_libc.syscall, _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _seccomp(program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))
    filter_ = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _call(_libc.prctl, _PR_SET_SECCOMP, 2, ctypes.create_string_buffer(filter_, len(filter_)), 0, 0)


def _call(function: ctypes._NamedFuncPointer, *arguments: object) -> int:
    result = function(*(ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)


if __name__ == "__main__":
    main(sys.argv[1:])
