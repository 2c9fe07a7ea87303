"""Listens on loopback inside the network of another process: `listener.py PID PORT SOCKET`.

This program imports nothing of ours. It enters the network of PID, which a process of the same user made, and sends a
listening socket back over SOCKET. No process inside the sandbox is needed: its proxy is outside.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import sys

_NEW_USER, _NEW_NET, _OWNER = 0x10000000, 0x40000000, 0xB701
"""CLONE_NEWUSER and CLONE_NEWNET of linux/sched.h, NS_GET_USERNS of linux/nsfs.h."""


def main(pid: int, port: int, answer: int) -> None:
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    owner = fcntl.ioctl(network, _OWNER)
    libc = ctypes.CDLL(None, use_errno=True)
    # The kinds are named: a unit of systemd with RestrictNamespaces refuses a call that does not.
    for namespace, kind in ((owner, _NEW_USER), (network, _NEW_NET)):
        if libc.setns(namespace, kind) < 0:
            raise OSError(ctypes.get_errno(), "the network of the command cannot be entered")
    with socket.create_server(("127.0.0.1", port), backlog=64) as listening:
        socket.send_fds(socket.socket(fileno=answer), [b"."], [listening.fileno()])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
