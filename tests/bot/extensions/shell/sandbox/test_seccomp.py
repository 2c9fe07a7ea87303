"""The system call filter, judged by a small interpreter of the kernel's filter language."""

import errno
import struct
from pathlib import Path

import pytest

from bot.extensions.shell.sandbox.seccomp import NUMBERS, program

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS, EOPNOTSUPP = (0x50000 | number for number in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP))
WALLS = {
    "bubblewrap": {"shared": False},
    "landlock": {"shared": True},
    "mute": {"shared": True, "mute": True},
}


def verdict(code: bytes, machine: str, name: str | int, *arguments: int, arch: int | None = None) -> int:
    number = name if isinstance(name, int) else NUMBERS[name][machine == "aarch64"]
    about = struct.pack(
        "<IIQ6Q", number, ARCH[machine] if arch is None else arch, 0, *arguments, *[0] * (6 - len(arguments))
    )
    steps = [struct.unpack_from("<HBBI", code, at) for at in range(0, len(code), 8)]
    value, at = 0, 0
    while True:
        what, yes, no, k = steps[at]
        at += 1
        match what:
            case 0x20:
                assert k % 4 == 0 and k < 64
                (value,) = struct.unpack_from("<I", about, k)
            case 0x54:
                value &= k
            case 0x15:
                at += yes if value == k else no
            case 0x35:
                at += yes if value >= k else no
            case 0x45:
                at += yes if value & k else no
            case 0x06:
                return k
            case _:
                raise AssertionError(what)


CASES = [
    # call and arguments, then the verdict behind bubblewrap, behind Landlock, and where signals cannot be kept in
    ("mount", (), EPERM, EPERM, EPERM),
    ("ptrace", (), EPERM, EPERM, EPERM),
    ("bpf", (), EPERM, EPERM, EPERM),
    ("keyctl", (), EPERM, EPERM, EPERM),
    ("kexec_load", (), EPERM, EPERM, EPERM),
    ("userfaultfd", (), EPERM, EPERM, EPERM),
    ("io_uring_setup", (), EPERM, EPERM, EPERM),
    ("setns", (), EPERM, EPERM, EPERM),
    ("clone3", (), ENOSYS, ENOSYS, ENOSYS),
    ("memfd_create", (), ENOSYS, ENOSYS, ENOSYS),
    ("fallocate", (3, 1, 0, 10**9), EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP),
    ("clone", (0x11,), ALLOW, ALLOW, ALLOW),
    ("clone", (0x10000011,), EPERM, EPERM, EPERM),
    ("clone", (0x00020000,), EPERM, EPERM, EPERM),
    ("clone", (0x02000000,), EPERM, EPERM, EPERM),
    ("clone", (0x003D0F00,), ALLOW, ALLOW, ALLOW),  # a thread
    ("unshare", (0x40000000,), EPERM, EPERM, EPERM),
    ("unshare", (0x400,), ALLOW, ALLOW, ALLOW),
    ("socket", (1, 1), ALLOW, EPERM, EPERM),
    ("socket", (2, 1), ALLOW, EPERM, EPERM),
    ("socket", (10, 2), ALLOW, EPERM, EPERM),
    ("socket", (16, 3), EPERM, EPERM, EPERM),
    ("socket", (17, 3), EPERM, EPERM, EPERM),
    ("socket", (40, 1), EPERM, EPERM, EPERM),
    ("socket", (0xFFFFFFFF00000002, 1), ALLOW, EPERM, EPERM),  # the kernel too looks at the lower half alone
    ("socketpair", (1, 1), ALLOW, ALLOW, ALLOW),
    ("socketpair", (1, 0o2000000 | 1), ALLOW, ALLOW, ALLOW),
    ("socketpair", (1, 5), ALLOW, ALLOW, ALLOW),
    ("socketpair", (1, 2), ALLOW, EPERM, EPERM),
    ("socketpair", (2, 1), EPERM, EPERM, EPERM),
    ("connect", (), ALLOW, EPERM, EPERM),
    ("fchmodat", (), ALLOW, EPERM, EPERM),
    ("fchmodat2", (), ALLOW, EPERM, EPERM),
    ("fchownat", (), ALLOW, EPERM, EPERM),
    ("setxattr", (), ALLOW, EPERM, EPERM),
    ("truncate", (), ALLOW, EPERM, EPERM),
    ("utimensat", (3, 0), ALLOW, ALLOW, ALLOW),
    ("utimensat", (3, 0x1000), ALLOW, EPERM, EPERM),
    ("utimensat", (3, 0x100000000), ALLOW, EPERM, EPERM),
    ("prlimit64", (0,), ALLOW, ALLOW, ALLOW),
    ("prlimit64", (7,), ALLOW, EPERM, EPERM),
    ("setpriority", (0, 0), ALLOW, ALLOW, ALLOW),
    ("setpriority", (0, 7), ALLOW, EPERM, EPERM),
    ("setpriority", (2, 0), ALLOW, EPERM, EPERM),
    ("ioprio_set", (1, 0), ALLOW, ALLOW, ALLOW),
    ("ioprio_set", (3, 0), ALLOW, EPERM, EPERM),
    ("ioctl", (0, 0x5401), ALLOW, ALLOW, ALLOW),
    ("ioctl", (0, 0x5412), EPERM, EPERM, EPERM),
    ("ioctl", (0, 0xFFFFFFFF00005412), EPERM, EPERM, EPERM),
    ("ioctl", (0, 0x8901), ALLOW, EPERM, EPERM),
    ("fcntl", (0, 4), ALLOW, ALLOW, ALLOW),
    ("fcntl", (0, 8), ALLOW, EPERM, EPERM),
    ("kill", (0, 9), ALLOW, ALLOW, ALLOW),
    ("kill", (7, 9), ALLOW, ALLOW, EPERM),
    ("kill", (0xFFFFFFFF, 9), ALLOW, ALLOW, EPERM),
    ("tgkill", (7, 7, 9), ALLOW, ALLOW, EPERM),
]  # fmt: skip


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(("name", "arguments", *WALLS), CASES)
def test_each_call_gets_its_verdict(machine, name, arguments, bubblewrap, landlock, mute):
    expected = dict(zip(WALLS, (bubblewrap, landlock, mute), strict=True))
    if NUMBERS[name][machine == "aarch64"] is None:
        pytest.skip("there is no such call")
    for walls, options in WALLS.items():
        assert verdict(program(machine, **options), machine, name, *arguments) == expected[walls], walls


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("options", WALLS.values(), ids=WALLS)
def test_a_foreign_architecture_ends_the_process_and_what_is_unnamed_is_allowed(machine, options):
    code = program(machine, **options)
    assert verdict(code, machine, 1, arch=0x40000003) == KILL
    assert verdict(code, machine, "mount", arch=ARCH["aarch64" if machine == "x86_64" else "x86_64"]) == KILL
    if machine == "x86_64":
        assert verdict(code, machine, 0x40000000) == KILL
        assert verdict(code, machine, 0x400000A5) == KILL
        assert verdict(code, machine, 0) == verdict(code, machine, 1) == ALLOW
    assert len(code) // 8 < 4096, "the kernel takes no more"


HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}


@pytest.mark.parametrize("machine", HEADERS)
def test_the_numbers_are_the_kernels(machine):
    header = Path(HEADERS[machine])
    if not header.exists():
        pytest.skip("no headers of the kernel here")
    known = {}
    for line in header.read_text().splitlines():
        match line.replace("__NR3264_", "__NR_").split():
            case ["#define", name, number] if name.startswith("__NR_") and number.isdigit():
                known[name.removeprefix("__NR_")] = int(number)
    for name, numbers in NUMBERS.items():
        assert known.get(name, numbers[machine == "aarch64"]) == numbers[machine == "aarch64"], name
