"""Ways out of a command that may reach one host: each is tried in the real sandbox, on both of its layers."""

import json
import os
import shlex
import socket
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bot.guards.egress import Egress
from tests.bot.extensions.shell.sandbox.sandboxes import PYTHON, ran, real, sandbox_named, with_python
from tests.bot.extensions.shell.sandbox.test_escapes import EACH, START

from .stand_in import HOST, OTHER, network, serving
from .test_programs import with_network

pytestmark = real

ASK = """
import ssl, subprocess
W = P['web']; U = f"http://{P['host']}:{P['plain']}"
def say(text, more=b""):
    s = socket.create_connection(("127.0.0.1", 3128), 3)
    s.sendall(text.encode() if isinstance(text, str) else text)
    s.settimeout(1)
    got = b""
    try:
        while piece := s.recv(9999):
            got += piece
    except TimeoutError:
        pass
    return got
def get(target, *fields, path="", method="GET"):
    lines = [f"{method} {target}{path} HTTP/1.1", *(fields or ("Host: " + P['host'],)), "", ""]
    reply = say("\\r\\n".join(lines))
    assert b" 200 " in reply.partition(b"\\r\\n")[0], reply
    return reply
def tunnel(target, name="", path="/echo", said=None):
    s = socket.create_connection(("127.0.0.1", 3128), 3)
    s.sendall(f"CONNECT {target} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
    reply = s.recv(9999)
    assert b" 200 " in reply.partition(b"\\r\\n")[0], reply
    if said is None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        s = context.wrap_socket(s, server_hostname=name or None)
    s.sendall(said or f"GET {path} HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n".encode())
    s.settimeout(2)
    got = b""
    while piece := s.recv(9999):
        got += piece
    assert got
    return got
def enter(path):
    assert not libc.setns(os.open(path, os.O_RDONLY), 0)
def run(*words):
    subprocess.run(words, check=True, capture_output=True, timeout=5)
"""

CONTROLS = {
    "a tunnel": "tunnel(f'{P[\"host\"]}:{W}', P['host'])",
    "in capitals": "tunnel(f'{P[\"host\"].upper()}:{W}', P['host'])",
    "plainly": "assert b'hello' in get(U + '/hello')",
}
"""What has to get through, so that the ways below do not fail for another reason."""

DIRECT = {
    "an address of the internet": "socket.create_connection(('203.0.113.7', 80), 2)",
    "the allowed host without the proxy": "socket.create_connection(('127.0.0.1', W), 2)",
    "a service of this host on IPv6": "socket.create_connection(('::1', P['six']), 2)",
    "a name service over UDP": "s = socket.socket(2, 2); s.sendto(b'x' * 30, ('192.0.2.53', 53)); s.settimeout(1); s.recv(9)",
    "a datagram to this host": "s = socket.socket(2, 2); s.sendto(b'x', ('127.0.0.1', P['udp'])); s.settimeout(1); s.recv(9)",
    "a look-up": "socket.getaddrinfo('example.org', 80)",
    "a raw socket": "socket.socket(2, socket.SOCK_RAW, 1)",
    "a packet socket": "socket.socket(17, socket.SOCK_RAW)",
    "a netlink socket": "socket.socket(16, socket.SOCK_RAW)",
    "a vsock": "socket.socket(40, socket.SOCK_STREAM)",
    "an abstract unix socket": "socket.socket(1).connect('\\0' + P['abstract'])",
    "the bot's status socket": "socket.socket(1).connect(P['unix'])",
    "an inherited descriptor": "import stat; assert any(stat.S_ISSOCK(os.stat(f'/proc/self/fd/{fd}').st_mode) for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}'))",
    "a socket of another process": "pid = os.pidfd_open(1)\nfor fd in range(64):\n  try: call(438, 438, pid, fd, 0); break\n  except OSError: pass\nelse: raise OSError('none')",
    "the root of another process": "open('/proc/1/root' + P['secret']).read()",
    "the bot's own network": "enter(f'/proc/{P[\"bot\"]}/ns/net')",
    "the network of the first process": "enter('/proc/1/ns/net')",
    "nsenter": "run('nsenter', '-t', '1', '-n', 'true')",
    "a network of its own": "run('unshare', '-rn', 'true')",
    "ptrace": "call(101, 117, 16, 1, 0, 0)",
    "io_uring": "call(425, 425, 1, ctypes.create_string_buffer(120))",
    "bpf": "call(321, 280, 0, ctypes.create_string_buffer(struct.pack('4I', 2, 4, 4, 1), 128), 128)",
    "a tunnel device": "open('/dev/net/tun', 'r+b', buffering=0)",
    "another address for loopback": "import fcntl; s = socket.socket(2, 2); fcntl.ioctl(s, 0x8916, struct.pack('16sHHI8x', b'lo', 2, 0, 0x0100000a))",
    "bash": "run('bash', '-c', f'exec 3<>/dev/tcp/127.0.0.1/{W}')",
}  # fmt: skip

BY_THE_PROXY = {
    "another host": "tunnel(f'{P[\"other\"]}:{W}', P['other'])",
    "another port": "tunnel(f'{P[\"host\"]}:{P[\"six\"]}', P['host'])",
    "the port that is not named": "get(f'http://{P[\"host\"]}/hello')",
    "a name with an allowed end": "tunnel(f'evil{P[\"host\"]}:{W}', P['host'])",
    "a name with an allowed beginning": "tunnel(f'{P[\"host\"]}.{P[\"other\"]}:{W}', P['host'])",
    "a name below": "tunnel(f'www.{P[\"host\"]}:{W}', P['host'])",
    "a trailing dot": "tunnel(f'{P[\"other\"]}.:{W}', P['other'])",
    "a NUL in a name": "tunnel(f'{P[\"host\"]}\\0.{P[\"other\"]}:{W}', P['other'])",
    "a user name": "tunnel(f'{P[\"host\"]}:{W}@{P[\"other\"]}:{W}', P['other'])",
    "a user name, plainly": "get(f'http://{P[\"host\"]}:{P[\"plain\"]}@{P[\"other\"]}:{P[\"plain\"]}/hello')",
    "a backslash": "get(f'http://{P[\"other\"]}:{P[\"plain\"]}\\\\@{P[\"host\"]}:{P[\"plain\"]}/hello')",
    "a decimal address": "tunnel(f'2130706433:{W}', P['host'])",
    "an octal address": "tunnel(f'0177.0.0.1:{W}', P['host'])",
    "a hexadecimal address": "tunnel(f'0x7f.0x0.0x0.0x1:{W}', P['host'])",
    "loopback": "tunnel(f'127.0.0.1:{W}', P['host'])",
    "loopback on IPv6": "tunnel(f'[::1]:{W}', P['host'])",
    "an IPv4 address in IPv6": "tunnel(f'[::ffff:127.0.0.1]:{W}', P['host'])",
    "wide digits": "tunnel(f'\\uff11\\uff12\\uff17.0.0.1:{W}', P['host'])",
    "the metadata service": "get('http://169.254.169.254/latest/')",
    "an allowed name of the metadata service": "tunnel('cloud.example.org:443', 'cloud.example.org')",
    "an allowed name of a private address": "tunnel('private.example.org:443', 'private.example.org')",
    "another host's name in TLS": "assert P['other'].encode() in tunnel(f'{P[\"host\"]}:{W}', P['other'])",
    "another host's address in a tunnel": "assert b' 200 ' in tunnel(f'{P[\"host\"]}:{W}', P['host'], f'http://{P[\"other\"]}:{W}/hello')",
    "something else than TLS": "tunnel(f'{P[\"host\"]}:{W}', said=b'SSH-2.0-x\\r\\n')",
    "another host in the Host field": "assert P['other'].encode() in say(f'GET {U}/echo HTTP/1.1\\r\\nHost: {P[\"other\"]}\\r\\n\\r\\n')",
    "no host in the address": "get('/hello', 'Host: ' + P['other'])",
    "https without a tunnel": "get(f'https://{P[\"host\"]}:{W}/hello')",
    "the proxy itself": "get('http://127.0.0.1:3128/')",
    "a second request behind the first": "assert say(f'GET {U}/hello HTTP/1.1\\r\\nHost: x\\r\\n\\r\\nGET http://{P[\"other\"]}:{P[\"plain\"]}/hello HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n').count(b'HTTP/1.1 ') > 1",
    "a request in the body of another": "assert say(f'POST {U}/hello HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\nGET /smuggled HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n').count(b'HTTP/1.1 ') > 1",
    "data behind CONNECT": "assert b'hello' in say(f'CONNECT {P[\"host\"]}:{P[\"plain\"]} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\nGET /hello HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')",
    "a line break in the target": "assert say(f'CONNECT {P[\"other\"]}:{W}\\n{P[\"host\"]}:{W} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n').startswith(b'HTTP/1.1 200')",
    "SOCKS": "assert say(b'\\x05\\x01\\x00').startswith(b'\\x05')",
    "a redirect": "run('curl', '-sSfkL', f'https://{P[\"host\"]}:{W}/away')",
}  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Make hosts and sockets to reach. Yields the command of probes, the network, and the two hosts on loopback."""
    with_python(monkeypatch)
    (tmp_path / "secret").write_text("a secret")
    with ExitStack() as opened:
        web = opened.enter_context(serving(HOST, OTHER))
        plain = opened.enter_context(serving())
        web.pages["/hello"] = plain.pages["/hello"] = b"hello\n"
        six = opened.enter_context(socket.create_server(("::1", 0), family=socket.AF_INET6))
        udp = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        near, abstract = Path(opened.enter_context(TemporaryDirectory())), f"threadfast-ways-{os.getpid()}"
        for address in (str(near / "status.sock"), "\0" + abstract):
            listening = opened.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(address)
            listening.listen()
        targets = {
            "host": HOST, "other": OTHER, "web": web.port, "plain": plain.port, "six": six.getsockname()[1],
            "udp": udp.getsockname()[1], "abstract": abstract, "unix": str(near / "status.sock"),
            "secret": str(tmp_path / "secret"), "bot": os.getpid(),
        }  # fmt: skip
        names = [
            (HOST, web.port),
            (HOST, plain.port),
            ("cloud.example.org", 443),
            ("private.example.org", 443),
        ]

        def command(codes):
            words = " ".join(shlex.quote(json.dumps(each)) for each in (targets, codes))
            return f"{PYTHON} {shlex.quote(START + ASK + EACH)} {words}"

        yield command, network(web.authority, *names), web, plain


def assert_closed(result, ways):
    assert result.exit_code == 0, result
    found = json.loads(result.stdout)
    assert {*found} == {*ways}
    assert not [way for way, what in found.items() if what == "OPEN"]
    assert not {way: what for way, what in found.items() if what.startswith(("NameError", "Syntax", "TypeE"))}


async def test_what_is_allowed_gets_through(place, tmp_path):
    command, net, _, _ = place
    result, proxy, _ = await with_network(tmp_path, net, command(CONTROLS))
    assert json.loads(result.stdout) == dict.fromkeys(CONTROLS, "OPEN"), proxy.refusals


@pytest.mark.parametrize("ways", [DIRECT, BY_THE_PROXY], ids=["direct", "by the proxy"])
async def test_no_way_out_of_bubblewrap_is_open(ways, place, tmp_path):
    command, net, web, plain = place
    result, proxy, notes = await with_network(tmp_path, net, command(ways))
    assert_closed(result, ways)
    assert not [one for stand_in in (web, plain) for one in stand_in.seen if OTHER in one[1]["Host"]]
    assert not [path for path, _ in plain.seen if path == "/smuggled"]
    both = {"content-length", "transfer-encoding"}
    assert not [fields for _, fields in plain.seen if both <= {*map(str.lower, fields)}]
    assert all(told.startswith("Refused by tools.network: ") for told in proxy.refusals)
    told = {note[part] for note in notes for part in ("host", "reason") if note["decision"] == "refused"}
    known = {OTHER, "127.0.0.1", "cloud.example.org", "A request in a tunnel has to name a path."}
    assert ways is DIRECT or told >= known


async def test_no_way_out_of_landlock_is_open(place, tmp_path):
    command, _, web, plain = place
    sandbox = await sandbox_named("landlock", tmp_path)
    ways = DIRECT | BY_THE_PROXY | CONTROLS
    assert_closed(await ran(sandbox, command(ways), tmp_path / "this thread", 60), ways)
    assert not web.seen + plain.seen


async def test_without_walls_the_same_ways_are_open(place, tmp_path):
    command, *_ = place
    ways = {way: DIRECT[way] for way in OPEN_WITHOUT_WALLS}
    result = await ran(await sandbox_named("unsafe-host", tmp_path), command(ways), tmp_path / "this thread")
    assert json.loads(result.stdout) == dict.fromkeys(ways, "OPEN")


OPEN_WITHOUT_WALLS = (
    *("the allowed host without the proxy", "a service of this host on IPv6", "a netlink socket", "bash"),
    *("an abstract unix socket", "the bot's status socket"),
)


async def test_a_name_is_resolved_once_and_the_address_that_was_checked_is_connected_to(place, tmp_path):
    command, net, *_ = place
    answers, connected = iter([["93.184.216.34"], ["127.0.0.1"]]), []

    async def resolve(_host, _port):
        return next(answers)

    async def connect(address, port):
        connected.append((address, port))
        raise OSError

    net = replace(
        net, egress=Egress(resolve=resolve, connect=connect), allowed=frozenset({("a.example.org", 443)})
    )
    way = {"rebinding": "tunnel('a.example.org:443', 'a.example.org')"}
    result, _, notes = await with_network(tmp_path, net, command(way))
    assert_closed(result, way)
    assert connected == [("93.184.216.34", 443)]
    assert notes[0]["reason"] == "a.example.org cannot be reached."
