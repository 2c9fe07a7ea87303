"""git, pip, npm and curl behind the proxy, in the real sandbox, with a host on loopback."""

import shutil

import anyio
import pytest

from bot.extensions.shell.network.proxy import Proxy
from tests.bot.extensions.shell.sandbox.sandboxes import real, sandbox_named

from .stand_in import HOST, OTHER, SECRET, fill, network, serving

pytestmark = real


@pytest.fixture
def web(tmp_path):
    with serving(HOST, OTHER) as stand_in:
        if shutil.which("git"):
            fill(stand_in, tmp_path)
        yield stand_in


async def with_network(tmp_path, net, command):
    """Return the result of a command with this network, its proxy, and the lines for the audit."""
    sandbox, notes, opened = await sandbox_named("bubblewrap", tmp_path), [], []

    async def note(details):
        notes.append(details)

    async def opening():
        opened.append(1)

    proxy = Proxy(net, note, opening)
    result = await sandbox.run(command, tmp_path / "this thread", anyio.current_time() + 60, proxy)
    return result, proxy, notes


PROGRAMS = {
    "curl": ("curl -sS {base}/hello", "hello\n"),
    "git": ("git clone -q {base}/repo.git r && cat r/README", "hello from git\n"),
    "pip": (
        (
            "/usr/bin/python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore "
            "--index-url {base}/simple --target t greet && PYTHONPATH=t /usr/bin/python3 -c 'import greet'"
        ),
        "hello from greet\n",
    ),
    "npm": (
        "npm install --silent --no-audit --no-fund --registry {base}/ greet ; node -e \"require('greet')\"",
        "hello from greet\n",
    ),
}


@pytest.mark.parametrize("header", ["", SECRET], ids=["as it is", "with a credential"])
@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_program_reaches_an_allowed_host(program, header, tmp_path, web):
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed here")
    command, printed = PROGRAMS[program]
    net = network(web.authority, (HOST, web.port), header=header)
    result, proxy, notes = await with_network(
        tmp_path, net, command.format(base=f"https://{HOST}:{web.port}")
    )
    assert (result.stdout, result.exit_code) == (printed, 0), (
        result.stdout[-3000:],
        result.stderr[-3000:],
        notes,
    )
    assert not proxy.refusals
    assert {note["decision"] for note in notes} == {"allowed"}
    assert all(int(note["received"]) for note in notes), notes
    assert all(seen.get("Authorization", "") == header for _, seen in web.seen)
