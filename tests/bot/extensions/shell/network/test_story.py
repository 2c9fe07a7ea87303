"""A chat in which commands reach one host by name, and nothing else. The whole program, the real sandbox."""

import json

import pytest

from bot.guards.egress import Resolver
from bot.reports.files import FileReader
from bot.reports.message_story import stories
from bot.tools.files.workspace import OUTSIDE_MARK
from tests.bot.extensions.shell.sandbox.sandboxes import real
from tests.fakes import anthropic as a
from tests.serving import KEYS, anthropic
from tests.serving import serving as bot

from .stand_in import HOST, OTHER, SECRET, WORD, resolve, serving

pytestmark = real


@pytest.fixture
def web(monkeypatch):
    async def looked_up(_resolver, host, port):
        return await resolve(host, port)

    monkeypatch.setattr(Resolver, "__call__", looked_up)
    with serving(HOST, OTHER) as stand_in:
        stand_in.pages["/hello"] = b"hello from outside\n"
        yield stand_in


def settings(fake, tmp_path, web):
    (tmp_path / "ca.pem").write_bytes(web.authority)
    host = f"{HOST}:{web.port}"
    given = {"allow": [host], "credentials": [{"host": host, "header": "env:PACKAGES"}]}
    own = {
        "enabled": ["shell"],
        "policy": {"shell": "allow"},
        "after_outside_text": "allow",
        "private_hosts": [HOST],
    }
    return {
        "model": "anthropic/claude-x",
        "providers": anthropic(fake.base_url),
        "budget": {"mode": "soft"},
        "ca_file": tmp_path / "ca.pem",
        "tools": own | {"network": given},
    }


def result_in(seen):
    return json.dumps(seen.json["messages"][-1])


async def test_a_command_reaches_the_allowed_host_with_a_header_that_it_never_sees(tmp_path, web):
    base = f"https://{HOST}:{web.port}"
    command = (
        f"curl -sS {base}/hello; curl -sS {base}/echo; env; cat /proc/*/environ; curl -sS https://{OTHER}/"
    )
    calls = iter([a.Tool("t1", "shell", {"command": command}), a.Text("Done.")])
    data = tmp_path / "data"
    async with a.FakeAnthropic(lambda _: a.answer(next(calls))) as fake:
        given = settings(fake, tmp_path, web)
        async with bot(data, given, environ=KEYS | {"PACKAGES": SECRET}) as chat:
            assert (await chat.say("fetch it")).text == "Done."
    offered = next(tool for tool in fake.requests[0].json["tools"] if tool["name"] == "shell")
    assert f"Network to nothing but {HOST}:{web.port}, by the proxy" in offered["description"]
    result = result_in(fake.requests[1])
    assert "hello from outside" in result
    assert f"Refused by tools.network: {OTHER}:443 is not in tools.network.allow." in result
    assert [headers["Authorization"] for _, headers in web.seen] == [SECRET, SECRET]
    assert WORD not in result + "".join(
        file.read_text(errors="replace") for file in data.rglob("*") if file.is_file()
    )
    assert [*data.rglob(OUTSIDE_MARK)], "what it fetched is text from outside"

    [story] = stories(FileReader(data), "m1")
    told = [event.what for event in story.events if event.kind == "network"]
    assert sum(f"host {HOST}, port {web.port}, decision allowed" in one for one in told) == 2
    assert any(
        f"host {OTHER}, port 443, decision refused, reason {OTHER}:443 is not in" in one for one in told
    )


async def test_where_the_walls_cannot_hold_it_the_setting_is_refused_and_nothing_is_open(
    tmp_path, web, monkeypatch
):
    monkeypatch.setattr("bot.extensions.shell.sandbox.bubblewrap.find_binaries", tuple)
    command = f"curl -sS https://{HOST}:{web.port}/hello"
    calls = iter([a.Tool("t1", "shell", {"command": command}), a.Text("Done.")])
    async with a.FakeAnthropic(lambda _: a.answer(next(calls))) as fake:
        given = settings(fake, tmp_path, web)
        async with bot(tmp_path / "data", given, environ=KEYS | {"PACKAGES": SECRET}) as chat:
            await chat.say("fetch it")
            assert (
                "tools.network is refused, and commands have no network" in (await chat.say("/status")).text
            )
    assert "No network, no input" in json.dumps(fake.requests[0].json["tools"])
    assert "exit_code" in result_in(fake.requests[1]) and "hello from outside" not in result_in(
        fake.requests[1]
    )
    assert not web.seen


async def test_a_command_ends_with_its_connections(tmp_path, web):
    hang = f"printf 'CONNECT {HOST}:{web.port} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3; cat <&3"
    command = f"exec 3<>/dev/tcp/127.0.0.1/3128; {hang}"
    calls = iter([a.Tool("t1", "shell", {"command": command, "timeout_s": 1}), a.Text("Done.")])
    async with a.FakeAnthropic(lambda _: a.answer(next(calls))) as fake:
        given = settings(fake, tmp_path, web)
        given["tools"]["network"] = {"allow": [f"{HOST}:{web.port}"]}
        async with bot(tmp_path / "data", given) as chat:
            assert (await chat.say("hang")).text == "Done."
    assert "stopped after 1 s" in result_in(fake.requests[1])
    [story] = stories(FileReader(tmp_path / "data"), "m1")
    assert [event.what for event in story.events if event.kind == "network"]
