"""The system call filter around a command, as the bytes that the kernel takes (classic BPF, `seccomp(2)`).

A call in the wrong architecture or in the x32 form ends the process. A refused call fails with EPERM; a call that
programs can do without, with ENOSYS or EOPNOTSUPP.

| filter     | refuses                                                                                         |
|------------|-------------------------------------------------------------------------------------------------|
| each       | namespaces, mounts, kernel modules, tracing, keys, bpf, io_uring, memory that no limit counts,  |
|            | input of terminals, sockets other than unix and internet, disk space without writing to it      |
| ``shared`` | for a command that sees the host's files and processes. Also: every socket but a connected pair, |
|            | changes of owner, mode, times or attributes by path, limits and priorities of other processes,  |
|            | queues and semaphores of the host, watching of folders                                          |
| ``mute``   | for a kernel that cannot keep signals in. Also: every signal but to the own process group       |
"""

from __future__ import annotations

import struct
from errno import ENOSYS, EOPNOTSUPP, EPERM

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The architectures that have a filter, with their AUDIT_ARCH of linux/audit.h."""

_X32 = 0x40000000
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}: linux/sched.h."""

Numbers = dict[str, tuple[int | None, int | None]]
"""System calls with their numbers on x86_64 and aarch64: the kernel's unistd_64.h and asm-generic/unistd.h."""

_REFUSED: Numbers = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "setns": (308, 268),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "lookup_dcookie": (212, 18),
    "vhangup": (153, 58),
    "uselib": (134, None),
    "modify_ldt": (154, None),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "shmget": (29, 194),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
}

_MISSING: Numbers = {"clone3": (435, 435), "memfd_create": (319, 279), "memfd_secret": (447, 447)}
"""clone3 hides its flags from a filter, and no limit of a process counts memory files."""

_REFUSED_SHARED: Numbers = {
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "truncate": (76, 45),
    "inotify_add_watch": (254, 27),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "semget": (64, 190),
    "msgget": (68, 186),
}

_REFUSED_MUTE: Numbers = {
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}

_BY_ARGUMENT: Numbers = {
    "unshare": (272, 97),
    "clone": (56, 220),
    "socketpair": (53, 199),
    "ioctl": (16, 29),
    "utimensat": (280, 88),
    "fallocate": (285, 47),
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "fcntl": (72, 25),
    "kill": (62, 129),
}
"""Allowed or refused by their arguments, see `_rules`; fallocate is always refused."""

NUMBERS: Numbers = _REFUSED | _MISSING | _REFUSED_SHARED | _REFUSED_MUTE | _BY_ARGUMENT

_UNIX, _INTERNET, _INTERNET6 = 1, 2, 10
_STREAM, _SEQPACKET = 1, 5
_TIOCSTI, _TIOCLINUX, _FIOSETOWN, _SIOCSPGRP = 0x5412, 0x541C, 0x8901, 0x8902
_F_SETOWN, _F_SETOWN_EX, _F_NOTIFY = 8, 15, 1026

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ERRNO = 0x00050000

Step = tuple[int, int, int, int]
_ALLOW: Step = (_RETURN, 0, 0, 0x7FFF0000)
_KILL: Step = (_RETURN, 0, 0, 0x80000000)


def program(machine: str, *, shared: bool, mute: bool = False) -> bytes:
    """Return the filter for commands on one of `MACHINES`; see the table above for *shared* and *mute*."""
    column = 0 if machine == "x86_64" else 1
    steps: list[Step] = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, MACHINES[machine]), _KILL]
    steps.append((_LOAD, 0, 0, 0))
    if machine == "x86_64":
        steps += [(_AT_LEAST, 0, 1, _X32), _KILL]
    for name, block in _rules(shared=shared, mute=mute).items():
        if (number := NUMBERS[name][column]) is not None:
            steps += [(_EQUAL, 0, len(block), number), *block]
    steps.append(_ALLOW)
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


def _rules(*, shared: bool, mute: bool) -> dict[str, list[Step]]:
    """Return the steps for each call that is not simply allowed. Every block ends in a verdict."""
    rules = {name: _refuse() for name in _REFUSED}
    rules |= {name: _refuse(ENOSYS) for name in _MISSING}
    # It takes disk space that no file size shows; programs write instead.
    rules["fallocate"] = _refuse(EOPNOTSUPP)
    no_new_namespaces = [_argument(0), (_ANY_BIT, 0, 1, _NEW_NAMESPACES), *_refuse(), _ALLOW]
    rules |= {
        "clone": no_new_namespaces,
        "unshare": no_new_namespaces,
        "socket": _only(0, _UNIX, _INTERNET, _INTERNET6),
        "socketpair": _only(0, _UNIX),
        "ioctl": _unless(1, _TIOCSTI, _TIOCLINUX),
    }
    if shared:
        rules |= {name: _refuse() for name in _REFUSED_SHARED}
        own = ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
        rules |= {name: _only(0, 0) for name in own}
        rules |= {
            # A datagram pair could be connected to another socket of the host.
            "socketpair": [*_must(0, _UNIX), *_must(1, _STREAM, _SEQPACKET, mask=0xF), _ALLOW],
            "setpriority": [*_must(0, 0), *_must(1, 0), _ALLOW],
            "ioprio_set": [*_must(0, 1), *_must(1, 0), _ALLOW],
            # A null pointer as the path: the call then works on an open file.
            "utimensat": [*_must(1, 0), *_must(1, 0, high=True), _ALLOW],
            "fcntl": _unless(1, _F_SETOWN, _F_SETOWN_EX, _F_NOTIFY),
            "ioctl": _unless(1, _TIOCSTI, _TIOCLINUX, _FIOSETOWN, _SIOCSPGRP),
        }
    if mute:
        rules |= {name: _refuse() for name in _REFUSED_MUTE} | {"kill": _only(0, 0)}
    return rules


def _refuse(errno: int = EPERM) -> list[Step]:
    return [(_RETURN, 0, 0, _ERRNO | errno)]


def _argument(index: int, *, high: bool = False) -> Step:
    return (_LOAD, 0, 0, 16 + 8 * index + (4 if high else 0))


def _must(index: int, *values: int, mask: int = 0, high: bool = False) -> list[Step]:
    """Refuse unless an argument, after *mask*, is one of *values*; else continue."""
    masked = [(_AND, 0, 0, mask)] if mask else []
    return [_argument(index, high=high), *masked, *_skip_if(*values), *_refuse()]


def _only(index: int, *values: int) -> list[Step]:
    return [*_must(index, *values), _ALLOW]


def _unless(index: int, *values: int) -> list[Step]:
    return [_argument(index), *_skip_if(*values), _ALLOW, *_refuse()]


def _skip_if(*values: int) -> list[Step]:
    """Skip one step after these if the loaded argument is one of *values*."""
    return [(_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
