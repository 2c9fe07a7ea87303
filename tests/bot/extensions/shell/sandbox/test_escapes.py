"""Attempts to escape, behind every layer of this host."""

import json
import os
import shlex
import socket
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from .sandboxes import NAMES, PYTHON, ran, real, sandbox_named, with_python

pytestmark = real

START = """
import ctypes, json, os, resource, socket, struct, sys
P = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def call(*numbers):
    number = numbers[0] if os.uname().machine == "x86_64" else numbers[1]
    result = libc.syscall(*(each if not isinstance(each, int) else ctypes.c_long(each) for each in (number, *numbers[2:])))
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result
"""
EACH = """
codes, found = json.loads(sys.argv[2]), {}
for name, code in codes.items():
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        try:
            exec(code)
            result = "OPEN"
        except BaseException as error:
            result = f"{type(error).__name__}: {error}"
        os.write(writing, result.encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as file:
        found[name] = file.readline() or "killed"
    os.waitpid(pid, 0)
print(json.dumps(found))
"""

# Each ends without an exception only if it got through. The second column: whether it does so with no walls at all,
# for this user on this kind of host (then the probe itself is proven), None where that depends on the host.
PROBES = {
    "read another thread's file": (True, "open(P['secret']).read()"),
    "list another thread's folder": (True, "os.listdir(P['folder'])"),
    "read it through a symlink of one's own": (True, "os.symlink(P['secret'], 'link'); open('link').read()"),
    "give it a second name inside": (None, "os.link(P['secret'], 'second')"),
    "write a new file outside": (True, "open(P['folder'] + '/new', 'w')"),
    "write to a file outside": (True, "open(P['secret'], 'a').write('x')"),
    "cut a file outside": (True, "os.truncate(P['other'], 0)"),
    "delete a file outside": (True, "os.unlink(P['doomed'])"),
    "move a file in": (True, "os.rename(P['movable'], 'moved')"),
    "make a folder outside": (True, "os.mkdir(P['folder'] + '/made')"),
    "change the mode of a file outside": (True, "os.chmod(P['secret'], 0o600)"),
    "change the times of a file outside": (True, "os.utime(P['secret'], (1, 1))"),
    "change the owner of a file outside": (True, "os.chown(P['secret'], os.getuid(), -1)"),
    "give a file outside an attribute": (None, "os.setxattr(P['secret'], 'user.x', b'1')"),
    "watch a folder outside": (True, "call(254, 27, call(294, 26, 0), os.fsencode(P['folder']), 0x100)"),
    "write to the system": (False, "open('/usr/new', 'w')"),
    "write to /etc": (False, "open('/etc/new', 'w')"),
    "see a secret in the own environment": (True, "assert 'CANARY' in os.environ"),
    "read the bot's environment": (True, "assert b'HOME' in open(f\"/proc/{P['bot']}/environ\", 'rb').read()"),
    "read the bot's open files": (True, "os.open(f\"/proc/{P['bot']}/fd/{P['fd']}\", os.O_RDONLY)"),
    "read the bot's memory": (None, "open(f\"/proc/{P['bot']}/mem\", 'rb')"),
    "send the bot a signal": (True, "os.kill(P['bot'], 0)"),
    "send the bot a signal by a descriptor": (True, "import signal; signal.pidfd_send_signal(os.pidfd_open(P['bot']), 0)"),
    "limit the bot": (True, "resource.prlimit(P['bot'], resource.RLIMIT_NICE, (0, 0))"),
    "slow the bot down": (True, "os.setpriority(os.PRIO_USER, os.getuid(), 19); assert os.getpriority(0, P['bot']) == 19"),
    "tie the bot to one core": (True, "os.sched_setaffinity(P['bot'], {next(iter(os.sched_getaffinity(0)))})"),
    "connect to a service of this host": (True, "socket.create_connection(('127.0.0.1', P['port']), 2)"),
    "send this host a datagram": (
        True,
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', P['udp'])); s.send(b'x'); s.settimeout(1); s.recv(9)",
    ),
    "connect to a unix socket by its path": (True, "socket.socket(socket.AF_UNIX).connect(P['unix'])"),
    "connect to an abstract unix socket": (True, "socket.socket(socket.AF_UNIX).connect('\\0' + P['abstract'])"),
    "point a pair of sockets at a unix socket": (
        True,
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.connect(P['datagrams'])",
    ),
    "open a vsock": (None, "socket.socket(40, socket.SOCK_STREAM)"),
    "open a netlink socket": (True, "socket.socket(16, socket.SOCK_RAW)"),
    "open a packet socket": (False, "socket.socket(17, socket.SOCK_RAW)"),
    "mount": (False, "os.mkdir('m'); assert libc.mount(b'none', b'm', b'tmpfs', 0, None) == 0"),
    "mount by the new calls": (False, "call(430, 430, b'tmpfs', 0)"),
    "make a user namespace": (None, "call(272, 97, 0x10000000)"),
    "make a user namespace by clone": (
        None,
        "pid = call(56, 220, 0x10000000 | 17, 0, 0, 0, 0)\nif not pid: os._exit(0)",
    ),
    "call clone3": (
        True,
        "pid = call(435, 435, ctypes.create_string_buffer(struct.pack('8Q', 0, 0, 0, 0, 17, 0, 0, 0)), 64)\nif not pid: os._exit(0)",
    ),
    "trace": (True, "call(101, 117, 0, 0, 0, 0)"),
    "use io_uring": (None, "call(425, 425, 1, ctypes.create_string_buffer(120))"),
    "use bpf": (None, "call(321, 280, 0, ctypes.create_string_buffer(struct.pack('4I', 2, 4, 4, 1), 128), 128)"),
    "use the kernel's keys": (None, "call(250, 219, 0, -3, 0)"),
    "use userfaultfd": (None, "call(323, 282, 1)"),
    "measure performance": (None, "call(298, 241, ctypes.create_string_buffer(struct.pack('4I', 1, 112, 0, 0), 112), 0, -1, -1, 0)"),
    "keep memory in nameless files": (True, "os.memfd_create('x')"),
    "keep memory in System V segments": (True, "call(29, 194, 0, 4096, 0o1600)"),
    "open the memory of the machine": (False, "open('/dev/mem', 'rb')"),
    "allocate five gigabytes": (False, "import mmap; mmap.mmap(-1, 5 * 2**30)"),
    "write a file of one gigabyte": (False, "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); os.truncate(os.open('big', os.O_CREAT | os.O_RDWR), 2**30)"),
    "dump a core": (False, "assert resource.getrlimit(resource.RLIMIT_CORE)[1] != 0"),
    "use the calls of another architecture": (False, "assert call(0x40000000 + 39, 0x40000000 + 39) > 0"),
    # the last one: from here on there is no room for more
    "run 600 processes": (
        False,
        "import time\nfor _ in range(600):\n  if not os.fork():\n    os.close(writing); time.sleep(20); os._exit(0)",
    ),
}  # fmt: skip

STAYS_OPEN = {
    # What Landlock cannot close. A probe that is closed one day fails here, to be moved above.
    "learn the size of a file outside": "assert os.stat(P['secret']).st_size",
    "learn that a process exists": "os.stat(f\"/proc/{P['bot']}\")",
}


@pytest.fixture
def targets(tmp_path, monkeypatch):
    """Make files and sockets to reach; this process stands for the bot."""
    with_python(monkeypatch)
    other = tmp_path / "other thread"
    other.mkdir()
    for name in ("secret", "other", "doomed", "movable"):
        (other / name).write_text("a secret")
    with ExitStack() as opened:
        near = Path(opened.enter_context(TemporaryDirectory()))  # the path of a socket has to be short
        stream = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        datagrams = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("127.0.0.1", 0))
        abstract = f"threadfast-{os.getpid()}-{tmp_path.name}"
        for kind, address in (
            (socket.SOCK_STREAM, str(near / "unix")),
            (socket.SOCK_STREAM, "\0" + abstract),
            (socket.SOCK_DGRAM, str(near / "datagrams")),
        ):
            listening = opened.enter_context(socket.socket(socket.AF_UNIX, kind))
            listening.bind(address)
            if kind == socket.SOCK_STREAM:
                listening.listen()
        held = opened.enter_context((other / "secret").open())
        targets = {
            "secret": str(other / "secret"),
            "other": str(other / "other"),
            "doomed": str(other / "doomed"),
            "movable": str(other / "movable"),
            "folder": str(other),
            "bot": os.getpid(),
            "fd": held.fileno(),
            "port": stream.getsockname()[1],
            "udp": datagrams.getsockname()[1],
            "unix": str(near / "unix"),
            "datagrams": str(near / "datagrams"),
            "abstract": abstract,
        }

        def command(codes):
            arguments = " ".join(shlex.quote(json.dumps(each)) for each in (targets, codes))
            return f"{PYTHON} {shlex.quote(START + EACH)} {arguments}"

        yield command, datagrams


async def tried(sandbox, command, probes, tmp_path):
    """Return what came of each probe: "OPEN", or what it ran against."""
    result = await ran(sandbox, command(probes), tmp_path / "this thread", 60)
    assert result.exit_code == 0, result
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", NAMES)
async def test_no_probe_gets_through(name, targets, tmp_path, monkeypatch):
    command, datagrams = targets
    monkeypatch.setenv("CANARY", "a secret of the bot")
    sandbox = await sandbox_named(name, tmp_path)
    found = await tried(sandbox, command, {probe: code for probe, (_, code) in PROBES.items()}, tmp_path)
    assert len(found) == len(PROBES)
    assert not [probe for probe, result in found.items() if result == "OPEN"]
    assert not {
        probe: result
        for probe, result in found.items()
        if result.startswith(("NameError", "Syntax", "TypeError"))
    }
    datagrams.setblocking(False)
    with pytest.raises(BlockingIOError):
        datagrams.recv(1)
    assert (tmp_path / "other thread" / "secret").read_text() == "a secret"
    left = {each.name for each in (tmp_path / "other thread").iterdir()}
    assert left == {"secret", "other", "doomed", "movable"}


async def test_what_landlock_cannot_close_is_what_its_docstring_says(targets, tmp_path):
    command, _ = targets
    sandbox = await sandbox_named("landlock", tmp_path)
    found = await tried(sandbox, command, STAYS_OPEN, tmp_path)
    assert set(found.values()) == {"OPEN"}, found


@pytest.mark.parametrize("name", NAMES)
async def test_ordinary_work_can_be_done(name, targets, tmp_path):
    command, _ = targets
    sandbox = await sandbox_named(name, tmp_path)
    script = """set -e
mkdir -p a/b; echo text > a/b/file; cp -r a c; mv c d; ln -s a/b/file link; cat link; rm -r d; touch a/b/file
printf '1\\n2\\n3\\n' | sort -r | head -1; seq 3 | while read n; do echo $n; done
sleep 0.01 & wait; (exit 3) || echo failed $?; echo "$(date +%Y | wc -c)"; tar cf - a | tar tf - | wc -l
"""
    result = await ran(sandbox, script, tmp_path / "this thread")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.split() == ["text", "3", "1", "2", "3", "failed", "3", "5", "3"]
    useful = {
        "thread": "import threading; t = threading.Thread(target=print); t.start(); t.join()",
        "pair": "a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'",
    }
    assert set((await tried(sandbox, command, useful, tmp_path)).values()) == {"OPEN"}


async def test_without_walls_the_same_probes_get_through(targets, tmp_path, monkeypatch):
    command, _ = targets
    sandbox = await sandbox_named("unsafe-host", tmp_path)
    opens = {name: code for name, (does, code) in PROBES.items() if does and name not in PROVEN_ELSEWHERE}
    found = await tried(sandbox, command, opens, tmp_path)
    assert set(found.values()) == {"OPEN"}, found


PROVEN_ELSEWHERE = {
    "see a secret in the own environment",  # closed without walls too
    "send this host a datagram",  # nobody answers: it is looked for in the socket
    "slow the bot down", "tie the bot to one core", "limit the bot",  # this process would be slow from then on
}  # fmt: skip
