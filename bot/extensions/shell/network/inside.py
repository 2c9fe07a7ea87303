"""What a command with a network gets: the proxy in its environment, listening on loopback inside its namespaces."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import anyio

from bot.ports.errors import SandboxFailed

LISTENER = Path(__file__).with_name("listener.py")
PORT = 3128
"""Always the same: each command has a network of its own."""

AUTHORITY = "/etc/threadfast-authority.pem"
"""Where the sandbox has the one authority that its programs need: all TLS in it is with our proxy."""

VARIABLES = (
    dict.fromkeys("HTTP_PROXY HTTPS_PROXY http_proxy https_proxy".split(), f"http://127.0.0.1:{PORT}")  # noqa: SIM905
    | dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1")
    | dict.fromkeys(("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO"), AUTHORITY)
    | dict.fromkeys(("PIP_CERT", "NODE_EXTRA_CA_CERTS", "npm_config_cafile", "CARGO_HTTP_CAINFO"), AUTHORITY)
)


async def listen_inside(pid: int) -> socket.socket:
    """Return a socket that listens in the network of a process. Raises `SandboxFailed` and OSError."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        end = theirs.fileno()
        argv = [sys.executable, "-I", "-S", str(LISTENER), *map(str, (pid, PORT, end))]
        done = await anyio.run_process(argv, stdin=subprocess.DEVNULL, check=False, env={}, pass_fds=(end,))
        if done.returncode:
            last = "".join(done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:])
            raise SandboxFailed(f"The network of a command could not be set up ({last[:200]}).")
        _, sockets, _, _ = socket.recv_fds(ours, 1, 1)
        return socket.socket(fileno=sockets[0])
