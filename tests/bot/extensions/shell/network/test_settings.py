"""`tools.network` in settings.json: its faults, and what the doctor says of it."""

import json
import os
import subprocess
import sys

import pytest

from bot.config.extensions import named_in, settings_model
from bot.config.load import load
from bot.extensions.shell.network.checks import check_network
from bot.extensions.shell.network.settings import target_of
from bot.host.checks import Context
from bot.ports.config_error import ConfigInvalid
from bot.ports.errors import ToolDenied
from tests.bot.extensions.shell.sandbox.sandboxes import real


def write(tmp_path, **tools):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"model": "offline/demo", "tools": tools}))
    path.chmod(0o600)
    return path


FAULTS = {
    "a wildcard": ({"allow": ["*.example.org"]}, {}, 'tools.network.allow[0]: must be a host such as "git.example.org"'),
    "an address": ({"allow": ["https://example.org"]}, {}, "tools.network.allow[0]: must be a host such as"),
    "no such host": ({"allow": ["a.example.org"], "credentials": [{"host": "b.example.org", "header": "env:A"}]}, {}, "tools.network: a host of credentials is not in allow"),
    "a secret itself": ({"allow": ["a.example.org"], "credentials": [{"host": "a.example.org", "header": "Bearer x"}]}, {}, "never write the secret itself here"),
    "landlock": ({"allow": []}, {"sandbox": "landlock"}, "tools.network: only bubblewrap gives a command a network of its own"),
    "no walls": ({"allow": []}, {"sandbox": "unsafe-host"}, "tools.network: only bubblewrap gives a command a network of its own"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "tools", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_names_the_setting(given, tools, fault, tmp_path):
    with pytest.raises(ConfigInvalid) as caught:
        load(write(tmp_path, network=given, **tools), environ={})
    assert fault in str(caught.value)


def test_a_host_of_ones_own_may_have_any_port(tmp_path):
    network = {"allow": ["git.corp.example:2222", "[2001:db8::1]:443"]}
    load(write(tmp_path, network=network, private_hosts=["git.corp.example"]), environ={})


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":443",
        "a.example.org:",
        "a.example.org:99999",
        "a:b:c",
        "a.example.org:+1",
        "a.example.org.",
        "127.1",
    ],
)
def test_what_is_no_host_is_no_target(text):
    with pytest.raises(ToolDenied):
        target_of(text)


def test_while_it_is_off_nothing_of_it_is_loaded():
    code = "import bot.extensions.shell.tool, bot.extensions.shell.sandbox, sys; print(*sorted(m[29:] for m in sys.modules if m.startswith('bot.extensions.shell.network.')), 'h11' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == "inside settings False\n"


async def findings(**tools):
    fields = {"tools": {"enabled": ["shell"], **tools}}
    settings = settings_model(named_in(fields)).model_validate(fields, strict=False)
    return [finding async for finding in check_network(Context(settings, {"A": "Bearer abcdefgh"}))]


@real
async def test_the_doctor_looks_at_the_walls_the_headers_and_each_host():
    given = {"allow": ["127.0.0.1:8080"], "credentials": [{"host": "127.0.0.1:8080", "header": "env:A"}]}
    [good] = await findings(network=given, private_hosts=["127.0.0.0/8"])
    expected = ("ok", "commands reach 127.0.0.1:8080; a credential is added for 1 of them")
    assert (good.state, good.found) == expected
    [private] = await findings(network={"allow": ["127.0.0.1:8080"]})
    assert (private.state, private.found) == ("fail", "127.0.0.1:8080: 127.0.0.1 is a loopback address.")
    missing = {"allow": ["a.example.org"], "credentials": [{"host": "a.example.org", "header": "env:B"}]}
    [unset] = await findings(network=missing)
    assert unset.state == "fail" and "env:B" in unset.found
    [off] = await findings(network=given, private_hosts=["127.0.0.0/8"], sandbox="off")
    assert off.state == "fail" and "switched off" in off.found


BROKEN = {"sandbox.bubblewrap.find_binaries": tuple, "network.inside.LISTENER": "/nowhere"}


@real
@pytest.mark.parametrize("part", BROKEN)
async def test_the_doctor_says_where_the_walls_cannot_hold_it(part, monkeypatch):
    monkeypatch.setattr(f"bot.extensions.shell.{part}", BROKEN[part])
    [refused] = await findings(network={"allow": ["a.example.org"]})
    assert refused.state == "fail" and refused.found.startswith("tools.network is refused")
