"""The layers that can be around a command: what is to be started for each, and the descriptors that go with it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, Protocol, get_args

from . import bubblewrap, landlock, seccomp
from .profile import Limits, environment, shell, system_paths

Name = Literal["bubblewrap", "landlock", "unsafe-host"]

LAUNCHER = Path(__file__).with_name("launcher.py")

_LANDLOCK_VERSION = 444, None, 0, 1
"""landlock_create_ruleset, asked for the kernel's version of Landlock."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A program to be started with *pass_fds*; it writes its command's exit code to ``status``.

    ``end`` closes what it watches to learn that its command's whole tree is to die; None: it is killed instead.
    """

    argv: list[str]
    environment: dict[str, str]
    pass_fds: tuple[int, ...]
    status: int
    end: Callable[[], object] | None = None


class Layer(Protocol):
    """``namespaces``: the kinds in which a command behind it differs from the bot; the self-probe looks."""

    @property
    def name(self) -> Name: ...

    @property
    def namespaces(self) -> tuple[str, ...]: ...

    def start(self, command: str, workspace: Path, limits: Limits, opened: ExitStack) -> Launch:
        """Prepare *command*; *opened* closes our ends of what goes with it."""
        ...


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    binary: str
    variant: bubblewrap.Variant = bubblewrap.VARIANTS[0]
    name: Literal["bubblewrap"] = "bubblewrap"

    @property
    def namespaces(self) -> tuple[str, ...]:
        return ("ipc", "mnt", "net", "pid", "user", "uts")

    def start(self, command: str, workspace: Path, limits: Limits, opened: ExitStack) -> Launch:
        filter_fd = _fed(opened, seccomp.program(_machine(), shared=False))
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
        # Its own environment too holds nothing: a part of it lives on inside, in view of the command.
        return Launch(argv, environment("/", "/"), (filter_fd, status_write), status)


@dataclass(frozen=True, slots=True)
class Landlock:
    """With the rules of the kernel's version *abi* of Landlock. Without *walls*: nothing but limits, on the host."""

    abi: int
    walls: bool = True

    @property
    def name(self) -> Literal["landlock", "unsafe-host"]:
        return "landlock" if self.walls else "unsafe-host"

    @property
    def namespaces(self) -> tuple[str, ...]:
        return ()

    def start(self, command: str, workspace: Path, limits: Limits, opened: ExitStack) -> Launch:
        told = landlock.plan(
            abi=self.abi,
            system=system_paths(),
            workspace=workspace,
            limits=limits,
            program=seccomp.program(_machine(), shared=True, mute=self.abi < 6),
            walls=self.walls,
        )
        plan, (status, status_write) = _fed(opened, told), _pipe(opened)
        life, life_write = os.pipe()
        opened.callback(os.close, life)
        living = opened.enter_context(ExitStack())
        living.callback(os.close, life_write)
        passed = (plan, life, status_write)
        # -I and -S: neither the environment nor the folder it stands in decides what it imports.
        argv = [sys.executable, "-I", "-S", str(LAUNCHER), *map(str, passed), shell(), "-c", command]
        return Launch(argv, environment("/", "/"), passed, status, living.close)


@cache
def landlock_abi() -> int:
    """Return the kernel's version of Landlock; 0 when it has none, or a container refuses it."""
    import ctypes  # noqa: PLC0415 - a few ms that only commands need

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    return max(
        0, int(syscall(*(ctypes.c_long(each) if each is not None else None for each in _LANDLOCK_VERSION)))
    )


def machine() -> seccomp.Machine | None:
    """Return the architecture; None where there is no system call filter for it."""
    found = platform.machine()
    return next((known for known in get_args(seccomp.Machine) if known == found), None)


def _machine() -> seccomp.Machine:
    found = machine()
    assert found, "no layer is opened without a filter"
    return found


def _pipe(opened: ExitStack) -> tuple[int, int]:
    reading, writing = os.pipe()
    opened.callback(os.close, reading)
    opened.callback(os.close, writing)
    return reading, writing


def _fed(opened: ExitStack, data: bytes) -> int:
    """Return a descriptor that reads *data*, which fits into a pipe."""
    reading, writing = os.pipe()
    opened.callback(os.close, reading)
    with os.fdopen(writing, "wb", buffering=0) as file:
        file.write(data)
    return reading
