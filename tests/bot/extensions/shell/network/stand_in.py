"""A host of the web on loopback: a repository for git, packages for pip and npm, and pages, by TLS or plainly."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bot.extensions.shell.network.certificates import tls_as
from bot.extensions.shell.network.echo_mask import forms_of
from bot.extensions.shell.network.proxy import Added, Network
from bot.extensions.shell.network.settings import Target
from bot.guards.egress import Egress

HOST, OTHER = "packages.example.org", "other.example.org"
SECRET = "Bearer tf-8f2e11c0ffee77d1"
WORD = SECRET.partition(" ")[2]


@dataclass
class StandIn:
    """``seen`` are the requests, each with its path and headers. ``pages`` are what it answers, by path."""

    port: int = 0
    authority: bytes = b""
    seen: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    pages: dict[str, bytes] = field(default_factory=dict)
    encoding: str = ""

    def answer(self, path: str, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        path = path.partition("?")[0]
        match path:
            case "/echo":
                text = json.dumps(dict(headers)).encode()
                return 401, {"X-Echo": headers.get("Authorization", "")}, text
            case "/drip":
                return (
                    200,
                    {"Drip": "1"},
                    f"you sent {headers.get('Authorization', 'nothing')} to us".encode(),
                )
            case "/away":
                return 302, {"Location": f"https://{OTHER}:{self.port}/echo"}, b""
            case _:
                found = self.pages.get(path)
                kind = {"Content-Type": "text/html"} if path.endswith("/") else {}
                return (404, {}, b"nothing here\n") if found is None else (200, kind, found)


@contextmanager
def serving(*hosts: str) -> Iterator[StandIn]:
    """Serve until the end of the block, by TLS as these *hosts*, plainly if there are none."""
    stand_in = StandIn()

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length)
            headers = dict(self.headers)
            stand_in.seen.append((self.path, headers))
            status, fields, body = stand_in.answer(self.path, headers)
            self.send_response(status)
            if stand_in.encoding:
                self.send_header("Content-Encoding", stand_in.encoding)
            for name, value in (fields | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            step = 3 if "Drip" in fields else len(body) or 1
            for at in range(0, len(body), step):
                self.wfile.write(body[at : at + step])
                self.wfile.flush()

        do_POST = do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that goes away is none of ours."""

    server = Server(("127.0.0.1", 0), Answer)
    stand_in.port = server.server_address[1]
    if hosts:
        context, stand_in.authority = tls_as(hosts)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def resolve(host: str, _port: int) -> list[str]:
    """Return loopback for every name that is not private on purpose."""
    return {"rebound.example.org": ["203.0.113.7"], "cloud.example.org": ["169.254.169.254"]}.get(
        host, ["127.0.0.1"]
    )


def network(
    authority: bytes, *allowed: Target, header: str = "", own: tuple[str, ...] = (HOST, OTHER)
) -> Network:
    """Return the network of these targets, with hosts of this *authority*; *header* is for the first of them."""
    outside = ssl.create_default_context(cadata=authority.decode())
    added = {allowed[0]: Added(b"Authorization", header.encode(), forms_of(header))} if header else {}
    egress, inside = Egress(own, resolve=resolve), tls_as({host for host, _ in allowed})
    return Network(frozenset(allowed), added, egress, outside, *inside)


def wheel() -> bytes:
    """Return a package of Python, `greet`."""
    files = {
        "greet.py": "print('hello from greet')\n",
        "greet-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n",
        "greet-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files["greet-1.0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in files)
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return whole.getvalue()


def npm_package() -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        for name, text in {
            "package/package.json": '{"name": "greet", "version": "1.0.0"}',
            "package/index.js": "console.log('hello from greet')\n",
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return whole.getvalue()


def fill(stand_in: StandIn, folder: Path) -> None:
    """Put a repository and two packages there."""
    base, package = f"https://{HOST}:{stand_in.port}", npm_package()
    digest = "sha512-" + base64.b64encode(hashlib.sha512(package).digest()).decode()
    version = {
        "name": "greet",
        "version": "1.0.0",
        "dist": {"tarball": f"{base}/greet/-/greet-1.0.0.tgz", "integrity": digest},
    }
    listed = {"name": "greet", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    name = "greet-1.0-py3-none-any.whl"
    stand_in.pages |= {
        "/hello": b"hello\n",
        "/simple/greet/": f'<a href="{base}/files/{name}">{name}</a>'.encode(),
        f"/files/{name}": wheel(),
        "/greet": json.dumps(listed).encode(),
        "/greet/-/greet-1.0.0.tgz": package,
    }
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]

    def git(*words: str, at: Path) -> None:
        subprocess.run(["git", *identity, *words], cwd=at, check=True, capture_output=True)

    work, bare = folder / "work", folder / "bare"
    work.mkdir()
    git("init", at=work)
    (work / "README").write_text("hello from git\n")
    git("add", ".", at=work)
    git("commit", "-m", "one", at=work)
    git("clone", "--bare", str(work), str(bare), at=folder)
    git("update-server-info", at=bare)
    stand_in.pages |= {
        f"/repo.git/{path.relative_to(bare)}": path.read_bytes() for path in bare.rglob("*") if path.is_file()
    }
