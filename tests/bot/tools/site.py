"""A web site on loopback that does as it is told, down to the byte; the guard sees it at a public address."""

import datetime as dt
import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bot.guards.egress import Egress
from threads.background import background_tasks

PUBLIC = "93.184.215.14"
Script = Callable[[ByteStream], Awaitable[None]]


def page(
    body: bytes | str = b"hello", kind: str = "text/plain", status: str = "200 OK", *, length=None, **headers
) -> bytes:
    body = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"Content-Type: {kind}"] if kind else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    return page(b"", "", status, Location=location)


async def hanging(stream: ByteStream) -> None:
    """Never answer: wait until the other side leaves."""
    await stream.receive()


@dataclass
class Site:
    """Answers with what ``pages`` has for a path: bytes, or a function that plays with the connection."""

    pages: dict[str, bytes | Script] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)
    reached: list[tuple[str, int]] = field(default_factory=list)
    left: anyio.Event = field(default_factory=anyio.Event)
    ports: dict[str, int] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        return [head.split(" ")[1] for head in self.heads]

    def clear(self) -> None:
        for record in (self.pages, self.heads, self.reached):
            record.clear()

    def egress(self) -> Egress:
        return Egress(resolve=self._resolve, connect=self._connect)

    async def _resolve(self, host, port):
        return self.names.get(host, [PUBLIC])

    async def _connect(self, address, port):
        self.reached.append((address, port))
        return await anyio.connect_tcp(
            "127.0.0.1", self.ports["tls" if port == 443 and "tls" in self.ports else "plain"]
        )

    async def serve(self, stream: ByteStream, tls: ssl.SSLContext | None) -> None:
        try:
            async with stream:
                if tls:
                    stream = await TLSStream.wrap(
                        stream, server_side=True, ssl_context=tls, standard_compatible=False
                    )
                head = b""
                while b"\r\n\r\n" not in head:
                    head += await stream.receive()
                self.heads.append(head.decode())
                answer = self.pages.get(self.paths[-1], page("nothing", status="404 Not Found"))
                if isinstance(answer, bytes):
                    await stream.send(answer)
                else:
                    await answer(stream)
                if tls:
                    await stream.aclose()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, ssl.SSLError):
            self.left.set()


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None, names: Mapping[str, list[str]] | None = None):
    """Run a site for the block; a name that is not in *names* leads to `PUBLIC`."""
    site = Site(names=dict(names or {}))
    async with AsyncExitStack() as opened, background_tasks() as tasks:
        for name, context in {"plain": None, **({"tls": tls} if tls else {})}.items():
            listener = await opened.enter_async_context(
                await anyio.create_tcp_listener(local_host="127.0.0.1")
            )
            site.ports[name] = listener.extra(anyio.abc.SocketAttribute.local_port)
            tasks.start_soon(partial(listener.serve, partial(site.serve, tls=context)))
        yield site


def certificate(file) -> ssl.SSLContext:
    """Return the context of a server that is "site.example", `PUBLIC` and loopback to clients that trust *file*."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    names = [
        x509.DNSName("site.example"),
        *map(x509.IPAddress, map(ipaddress.ip_address, (PUBLIC, "127.0.0.1"))),
    ]
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    file.write_bytes(
        signed.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server
