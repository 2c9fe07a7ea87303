"""The layers of the sandbox: the program that each starts, and the descriptors that it needs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal, Protocol, get_args

from . import bubblewrap, landlock, seccomp
from .profile import Limits, environment, shell, system_paths

Name = Literal["bubblewrap", "landlock", "unsafe-host"]

LAUNCHER = Path(__file__).with_name("launcher.py")

_LANDLOCK_VERSION = 444, None, 0, 1
"""A call of landlock_create_ruleset that returns the kernel's version of Landlock."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A program to start with ``pass_fds``. It writes the exit code of its command to ``status``.

    ``end`` tells it to kill its command's whole tree; without ``end``, the program itself is killed.
    """

    argv: list[str]
    environment: dict[str, str]
    pass_fds: tuple[int, ...]
    status: int
    end: Callable[[], object] | None = None


class Layer(Protocol):
    """``namespaces`` are the kinds that a command does not share with the bot; the self-probe checks them."""

    @property
    def name(self) -> Name: ...

    @property
    def namespaces(self) -> tuple[str, ...]: ...

    def start(self, command: str, workspace: Path, limits: Limits, opened: ExitStack) -> Launch:
        """Prepare *command*; *opened* closes our ends of its descriptors."""
        ...


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    binary: str
    variant: bubblewrap.Variant = bubblewrap.VARIANTS[0]
    name: ClassVar[Literal["bubblewrap"]] = "bubblewrap"
    namespaces: ClassVar[tuple[str, ...]] = ("ipc", "mnt", "net", "pid", "user", "uts")

    def start(self, command: str, workspace: Path, limits: Limits, opened: ExitStack) -> Launch:
        filter_fd = _pipe_with(opened, seccomp.program(_machine(), shared=False))
        status, status_write = _pipe(opened)
        argv = bubblewrap.arguments(
            self.binary,
            self.variant,
            system=bubblewrap.links(system_paths()),
            workspace=workspace,
            limits=limits,
            shell=shell(),
            command=command,
            filter_fd=filter_fd,
            status_fd=status_write,
        )
        # Its own environment holds nothing either: the command can see a part of it.
        return Launch(argv, environment("/", "/"), (filter_fd, status_write), status)


@dataclass(frozen=True, slots=True)
class Landlock:
    """Uses version ``abi`` of Landlock. Without ``walls`` the command runs on the host, with limits only."""

    abi: int
    walls: bool = True
    namespaces: ClassVar[tuple[str, ...]] = ()

    @property
    def name(self) -> Literal["landlock", "unsafe-host"]:
        return "landlock" if self.walls else "unsafe-host"

    def start(self, command: str, workspace: Path, limits: Limits, opened: ExitStack) -> Launch:
        plan = landlock.plan(
            abi=self.abi,
            system=system_paths(),
            workspace=workspace,
            limits=limits,
            program=seccomp.program(_machine(), shared=True, mute=self.abi < 6),
            walls=self.walls,
        )
        plan_fd, (status, status_write) = _pipe_with(opened, plan), _pipe(opened)
        life, life_write = os.pipe()
        opened.callback(os.close, life)
        living = opened.enter_context(ExitStack())
        living.callback(os.close, life_write)
        passed = (plan_fd, life, status_write)
        # -I and -S: neither the environment nor its folder changes what it imports.
        argv = [sys.executable, "-I", "-S", str(LAUNCHER), *map(str, passed), shell(), "-c", command]
        return Launch(argv, environment("/", "/"), passed, status, living.close)


@cache
def landlock_abi() -> int:
    """Return the kernel's version of Landlock, or 0 if it has none or a container refuses it."""
    import ctypes  # noqa: PLC0415 - only commands need it

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    return max(
        0, int(syscall(*(value if value is None else ctypes.c_long(value) for value in _LANDLOCK_VERSION)))
    )


def machine() -> seccomp.Machine | None:
    """Return the architecture, or None if there is no system call filter for it."""
    found = platform.machine()
    return next((known for known in get_args(seccomp.Machine) if known == found), None)


def _machine() -> seccomp.Machine:
    found = machine()
    assert found, "no layer starts without a filter"
    return found


def _pipe(opened: ExitStack) -> tuple[int, int]:
    reading, writing = os.pipe()
    opened.callback(os.close, reading)
    opened.callback(os.close, writing)
    return reading, writing


def _pipe_with(opened: ExitStack, data: bytes) -> int:
    """Return a descriptor to read *data* from; it fits into a pipe."""
    reading, writing = os.pipe()
    opened.callback(os.close, reading)
    with os.fdopen(writing, "wb", buffering=0) as file:
        file.write(data)
    return reading
