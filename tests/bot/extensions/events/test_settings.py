"""The settings of events, and what `check` and `doctor` find in them."""

import json

import anyio
import pytest
from click.testing import CliRunner

from bot.cli import main
from bot.config.extensions import settings_model
from bot.extensions.events.checks import check_events
from bot.extensions.events.extension import extension
from bot.host.checks import Context
from bot.ports.status import NoStatus
from tests.bot.extensions.events.sender import SECRET

SOURCE = {"channel": "slack:T1:C1", "secret": "env:CI"}
FAULTS = {
    "a host of others": ({"host": "0.0.0.0", "port": 1}, "events.host: other machines can reach"),
    "a plain address": ({"public_url": "http://hooks.example.org"}, "events.public_url: must be an https"),
    "a command": ({"sources": {"ci": {**SOURCE, "prompt": "/model x"}}}, "ci.prompt: must not be a command"),
    "a stop": ({"sources": {"ci": {**SOURCE, "prompt": " Stop "}}}, "ci.prompt: must not be a command"),
    "two orders": ({"sources": {"ci": {**SOURCE, "prompt": "x", "playbook": "y"}}}, "exclude each other"),
    "a secret itself": ({"sources": {"ci": {**SOURCE, "secret": "whsec_abc"}}}, "never write the secret"),
    "no channel": ({"sources": {"ci": {"channel": "C1"}}}, "transport:workspace:channel"),
    "an odd name": ({"sources": {"C I": SOURCE}}, "must be of a-z"),
    "a playbook with words": ({"sources": {"ci": {**SOURCE, "playbook": "a b"}}}, "must be of a-z"),
}


@pytest.mark.parametrize(("given", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_of_the_settings_is_told(tmp_path, given, fault):
    (path := tmp_path / "settings.json").write_text(json.dumps({"events": given}))
    checked = CliRunner().invoke(main, ["check", "--settings", str(path)])
    assert checked.exit_code == 78
    assert fault in checked.output


GIVEN = {
    "access": {"users": ["U1", "event:ci"], "channels": ["*"], "admins": ["U9"]},
    "transports": {"slack": {}},
    "events": {"sources": {"ci": SOURCE}},
}


async def found(tmp_path, environ=None, running=False, **changes):
    settings = settings_model().model_validate({**GIVEN, **changes, "data": tmp_path}, strict=False)
    state = {"running_bot": NoStatus("mute", 1)} if running else {}
    context = Context(settings, {"CI": SECRET} if environ is None else environ, **state)
    return {finding.name: (finding.state, finding.found) async for finding in check_events(context)}


async def test_doctor_says_of_each_source_whether_its_events_are_answered(tmp_path):
    good = "to slack:T1:C1, signed as standard, as event:ci"
    assert await found(tmp_path) == {"events.ci": ("ok", good)}
    access = {"users": ["U1"], "channels": ["*"], "admins": []}
    assert await found(tmp_path, access=access) == {
        "events.ci": ("fail", "event:ci may not use the bot there"),
        "events.admins": ("warn", "there are no admins"),
    }
    scope = {"user:event:ci": {"access": {"users": ["event:ci"]}}}
    assert (await found(tmp_path, access=access, scopes=scope))["events.ci"] == ("ok", good)
    assert (await found(tmp_path, environ={}))["events.ci"][0] == "fail"
    elsewhere = {"sources": {"ci": {"channel": "discord:G1:C1"}}}
    assert (await found(tmp_path, events=elsewhere))["events.ci"] == ("fail", "discord is not served")


async def test_doctor_looks_whether_the_running_bot_listens(tmp_path):
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.listeners[0].extra(anyio.abc.SocketAttribute.local_port)
        events = {"port": port}
        assert await found(tmp_path, running=True, events=events) == {
            "events.port": ("ok", f"the bot listens on port {port}")
        }
        assert await found(tmp_path, events=events) == {}
    assert (await found(tmp_path, running=True, events=events))["events.port"][0] == "fail"


def test_without_settings_nothing_is_checked(tmp_path):
    assert (
        extension.checks(Context(settings_model().model_validate({"data": tmp_path}, strict=False), {})) == []
    )
