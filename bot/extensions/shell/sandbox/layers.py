"""The layers of the sandbox: the program that each starts, and the descriptors that it needs."""

from __future__ import annotations

import marshal
import os
import platform
import resource
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal

from bot.extensions.shell.network.inside import AUTHORITY, VARIABLES

from . import bubblewrap, seccomp
from .profile import Limits, environment, shell, system_paths

Name = Literal["bubblewrap", "landlock", "unsafe-host"]

LAUNCHER = Path(__file__).with_name("launcher.py")

_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_MAKE_DEVICES, _MAKE_SOCKET = 1 << 6 | 1 << 11, 1 << 9
_TRUNCATE, _DEVICE = 1 << 14, 1 << 15
"""Rights on files, from linux/landlock.h."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

_LANDLOCK_VERSION = 444, None, 0, 1
"""A call of landlock_create_ruleset that returns the kernel's version of Landlock."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A program to start with ``pass_fds``. It writes the exit code of its command to ``status``.

    ``end`` tells it to kill its command's whole tree; without ``end``, the program itself is killed. If the command
    has a network, it waits for a byte in ``gate``.
    """

    argv: list[str]
    environment: dict[str, str]
    pass_fds: tuple[int, ...]
    status: int
    end: Callable[[], object] | None = None
    gate: int = -1


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """With ``authority``, in PEM, a command has a network: it trusts that, and looks for a proxy."""

    binary: str
    variant: bubblewrap.Variant = bubblewrap.VARIANTS[0]
    authority: bytes = b""
    name: ClassVar[Literal["bubblewrap"]] = "bubblewrap"
    namespaces: ClassVar[tuple[str, ...]] = ("ipc", "mnt", "net", "pid", "user", "uts")

    def start(self, command: str, workspace: Path, limits: Limits, stack: ExitStack) -> Launch:
        filter_fd = _pipe_with(stack, seccomp.program(platform.machine(), shared=False))
        status, status_write = _pipe(stack)
        pass_fds, network, gate = [filter_fd, status_write], list[str](), -1
        if self.authority:
            wait, gate = _pipe(stack)
            pass_fds += [wait, _pipe_with(stack, self.authority)]
            network = ["--block-fd", str(wait), "--ro-bind-data", str(pass_fds[-1]), AUTHORITY]
            network += [word for pair in VARIABLES.items() for word in ("--setenv", *pair)]
        argv = bubblewrap.arguments(
            self.binary,
            self.variant,
            system=bubblewrap.resolve_links(system_paths()),
            workspace=workspace,
            limits=limits,
            shell=shell(),
            command=command,
            filter_fd=filter_fd,
            status_fd=status_write,
            network=network,
        )
        # Its own environment has no secrets either: the command can see a part of it.
        return Launch(argv, environment("/", "/"), tuple(pass_fds), status, gate=gate)


@dataclass(frozen=True, slots=True)
class Landlock:
    """Lets a command open only its workspace and the system, on hosts without namespaces. `launcher` sets it up.

    It cannot hide everything: a command can see names, sizes and times of files outside (not their content), guess
    process ids of the host, and read the workspace's path on the host. A command cannot change modes, owners or times
    by path (`chmod +x` fails; `sh script` works) or use sockets and /tmp (TMPDIR is the workspace).

    ``abi`` is the version of Landlock. Without ``confined`` the command runs on the host: it only has limits, and its
    whole tree is killed at the end.
    """

    abi: int
    confined: bool = True
    namespaces: ClassVar[tuple[str, ...]] = ()

    @property
    def name(self) -> Literal["landlock", "unsafe-host"]:
        return "landlock" if self.confined else "unsafe-host"

    def start(self, command: str, workspace: Path, limits: Limits, stack: ExitStack) -> Launch:
        plan_fd, (status, status_write) = _pipe_with(stack, self.plan(workspace, limits)), _pipe(stack)
        lifeline, lifeline_write = os.pipe()
        stack.callback(os.close, lifeline)
        alive = stack.enter_context(ExitStack())
        alive.callback(os.close, lifeline_write)
        pass_fds = (plan_fd, lifeline, status_write)
        # -I and -S: neither the environment nor its folder changes what it imports.
        argv = [sys.executable, "-I", "-S", str(LAUNCHER), *map(str, pass_fds), shell(), "-c", command]
        return Launch(argv, environment("/", "/"), pass_fds, status, alive.close)

    def plan(self, workspace: Path, limits: Limits) -> bytes:
        """Return the plan that `launcher` carries out."""
        files, net, scoped = handled_rights(max(self.abi, 1))
        readable = (_EXECUTE | _READ | _LIST) & files
        rules = [(path, readable) for path in system_paths()]
        rules += [(path, (_READ | _WRITE | _TRUNCATE) & files) for path in DEVICES]
        rules.append((str(workspace), files & ~(_MAKE_DEVICES | _MAKE_SOCKET | _DEVICE)))
        program = seccomp.program(platform.machine(), shared=True, mute=self.abi < 6)
        return marshal.dumps(
            {
                "landlock": (files, net, scoped, rules) if self.confined else None,
                "filter": program if self.confined else b"",
                "workspace": str(workspace),
                "environment": environment(str(workspace), str(workspace)),
                "processes": limits.processes,
                "limits": (
                    (resource.RLIMIT_AS, limits.address_space),
                    (resource.RLIMIT_CPU, limits.cpu_s),
                    (resource.RLIMIT_FSIZE, limits.file_size),
                    (resource.RLIMIT_NOFILE, limits.open_files),
                ),
            }
        )


Layer = Bubblewrap | Landlock
"""``namespaces`` are the kinds that a command does not share with the bot; the self-probe checks them.

``start`` prepares a command; the *stack* closes our ends of its descriptors.
"""


def handled_rights(abi: int) -> tuple[int, int, int]:
    """Return the rights on files, the network and other processes that version *abi* of Landlock controls."""
    files = (1 << (13, 14, 15, 15, 16)[min(abi, 5) - 1]) - 1
    return files, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0


@cache
def landlock_abi() -> int:
    """Return the kernel's version of Landlock, or 0 if it has none or a container refuses it."""
    import ctypes  # noqa: PLC0415 - only commands need it

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    return max(
        0, int(syscall(*(value if value is None else ctypes.c_long(value) for value in _LANDLOCK_VERSION)))
    )


def _pipe(stack: ExitStack) -> tuple[int, int]:
    reading, writing = os.pipe()
    stack.callback(os.close, reading)
    stack.callback(os.close, writing)
    return reading, writing


def _pipe_with(stack: ExitStack, data: bytes) -> int:
    """Return a descriptor to read *data* from; it fits into a pipe."""
    reading, writing = os.pipe()
    stack.callback(os.close, reading)
    with os.fdopen(writing, "wb", buffering=0) as file:
        file.write(data)
    return reading
