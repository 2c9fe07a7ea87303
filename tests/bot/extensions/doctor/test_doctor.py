"""The doctor as a whole: what is told, in which order, with which exit code, whatever breaks."""

import errno
import json
import os
import socket
import time
from dataclasses import replace

import anyio
import pytest
from click.testing import CliRunner
from rich.console import Console

import bot.extensions.doctor.checks as module
from bot.cli import main
from bot.config.extensions import settings_model
from bot.config.settings import Budget
from bot.extensions.doctor.checks import run_checks
from bot.extensions.doctor.models import Candidate, check_model, finding_of
from bot.extensions.doctor.run import DoctorOptions, all_checks, run_doctor
from bot.extensions.doctor.running_bot import check_running_bot
from bot.extensions.doctor.screen import DoctorScreen
from bot.extensions.doctor.settings import check_settings
from bot.host.checks import Check, Context
from bot.llm.verify import Verification
from bot.ports.errors import ModelTimeout, Unauthorized
from bot.ports.status import NoStatus, Status, TransportStatus
from tests.fakes import openai
from tests.patience import WITHIN_S
from threads.store.data_folder import lock_data_folder
from transports.shared.checks import Finding

Settings = settings_model()

SETTINGS = {"model": "offline/demo", "tools": {"sandbox": "off"}}
KEYS = ["name", "state", "found", "meaning", "fix"]


@pytest.fixture
def settings_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(SETTINGS))
    file.chmod(0o600)
    return file


def run(settings_file, environ=None, **wanted):
    return run_doctor(DoctorOptions(settings_file, **wanted), environ or {"PATH": os.environ["PATH"]})


def test_json_is_one_document_with_the_same_keys_in_every_check(settings_file, capsys):
    assert run(settings_file, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is True
    found = told["checks"]
    assert all(list(entry) == KEYS for entry in found)
    names = {entry["name"] for entry in found}
    assert {"version", "settings", "secrets", "data.folder", "bot", "model", "sandbox"} <= names


def test_through_a_pipe_it_is_plain_lines_and_a_sum(settings_file, capsys):
    assert run(settings_file) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out
    assert "ok    sandbox             shell commands are off in the settings" in out.splitlines()
    count = sum(line.startswith(("ok", "warn", "fail")) for line in out.splitlines())
    assert out.splitlines()[-1].startswith(f"{count} checks")
    assert err == ""


def test_what_fails_makes_the_exit_code_1_and_a_missing_secret_fails(settings_file, capsys):
    settings_file.write_text(json.dumps({"model": "openai/x", "transports": {"slack": {}}}))
    assert run(settings_file, offline=True) == 1
    out = capsys.readouterr().out
    for words in ("env:OPENAI_API_KEY", "transports.slack.bot_token: env:SLACK_BOT_TOKEN", "threadfast init"):
        assert words in out


def test_settings_that_cannot_be_used_end_with_78_and_the_rest_is_looked_at(settings_file, capsys):
    settings_file.write_text('{"model": 3, "max_tokens": "many"}')
    assert run(settings_file, as_json=True) == 78
    found = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["checks"]}
    assert "model: " in found["settings"]["found"]
    assert "max_tokens: " in found["settings"]["found"]
    assert found["version"]["state"] == "ok"
    assert "sandbox" in found


def test_an_unknown_skill_fails_and_a_file_that_others_can_write_is_a_warning(settings_file, capsys):
    settings_file.chmod(0o666)
    assert run(settings_file, as_json=True, offline=True) == 0
    assert "can be written by others" in capsys.readouterr().out
    settings_file.write_text('{"model": "offline/demo", "skills": ["deploi"]}')
    assert run(settings_file, as_json=True, offline=True) == 1
    assert "no skill is called" in capsys.readouterr().out


def test_a_secret_that_others_may_read_is_told_and_closed(settings_file, tmp_path, capsys):
    folder = tmp_path / "credentials"
    folder.mkdir(mode=0o755)
    (folder / "KEY").write_text("canary-of-a-key")
    (folder / "KEY").chmod(0o644)
    settings_file.write_text(json.dumps({**SETTINGS, "providers": {"openai": {"api_key": "file:KEY"}}}))
    run(settings_file)
    assert "others on this machine can read" in capsys.readouterr().out
    assert run(settings_file, fix=True) == 0
    out, err = capsys.readouterr()
    assert (folder.stat().st_mode & 0o777, (folder / "KEY").stat().st_mode & 0o777) == (0o700, 0o600)
    assert "others on this machine" not in out
    assert err.count("fix: closed ") == 2
    assert "canary-of-a-key" not in out + err


async def test_checks_run_side_by_side_and_are_reported_in_their_order():
    first_reported, reported, waiting = anyio.Event(), [], []

    async def slow(_):
        await first_reported.wait()
        yield Finding("slow.1", "ok", "")

    async def quick(_):
        yield Finding("quick.1", "ok", "")
        first_reported.set()
        yield Finding("quick.2", "ok", "")

    checks = [Check("slow", slow), Check("quick", quick)]
    context = Context(Settings(), {})
    found = await run_checks(checks, context, reported.append, lambda names: waiting.append([*names]))
    assert [finding.name for finding in reported] == ["slow.1", "quick.1", "quick.2"]
    assert found == reported
    assert waiting[0] == ["slow", "quick"]
    assert waiting[-1] == []


async def test_a_check_that_breaks_or_hangs_hides_no_other(monkeypatch):
    monkeypatch.setattr(module, "WITHIN_S", 0.05)

    async def breaks(_):
        yield Finding("breaks.1", "ok", "")
        raise RuntimeError("canary")

    async def hangs(_):
        await anyio.sleep_forever()
        yield

    async def good(_):
        yield Finding("good", "ok", "")

    checks = [Check("breaks", breaks), Check("hangs", hangs), Check("good", good)]
    found = await run_checks(checks, Context(Settings(), {}), lambda _: None)
    states = [f"{finding.name} {finding.state}" for finding in found]
    assert states == ["breaks.1 ok", "breaks fail", "hangs fail", "good ok"]
    assert "canary" not in str(found)


def test_what_a_model_says_becomes_a_finding():
    asked = Candidate("openai/x", 0, Settings(), " (as the settings say)")
    good = finding_of(asked, Verification(ok=True, took_s=0.8))
    assert good.found == "openai/x (as the settings say) answered in 0.8 s"
    bad = finding_of(asked, Verification(ok=False, took_s=0.8, error=Unauthorized("no")))
    assert (bad.state, bad.name) == ("fail", "model")
    assert "good key" in bad.fix
    silent = Verification(ok=False, took_s=20, error=ModelTimeout("no answer"))
    fallback = finding_of(replace(asked, place=1), silent)
    assert (fallback.state, fallback.name) == ("warn", "model.1")


async def test_each_key_is_asked_and_shown_by_its_place_and_one_that_works_makes_the_others_warnings():
    keys = [f"sk-canary-{n}" for n in (1, 2)]

    def answer(seen):
        if seen.headers["authorization"] == f"Bearer {keys[0]}":
            return openai.fault(401, "invalid_api_key", f"no such key: {keys[0]}")
        return openai.chat_answer(openai.Text("OK"))

    async with openai.FakeOpenAI(answer) as fake:
        mine = {"base_url": fake.base_url, "api_keys": ["env:K1", "env:K2"], "free": True}
        settings = Settings.model_validate({"model": "mine/x", "providers": {"mine": mine}}, strict=False)
        context = Context(settings, {"K1": keys[0], "K2": keys[1]})
        found = [one async for one in check_model(Candidate("mine/x", 0, settings, " (why)"), context)]
    assert [(one.name, one.state) for one in found] == [("model.key_1", "warn"), ("model.key_2", "ok")]
    assert found[0].found.startswith("mine/x, key 1 of 2 (why): auth: ")
    assert found[0].meaning == "Calls take another key."
    assert found[1].found.startswith("mine/x, key 2 of 2 (why) answered in ")


async def test_a_price_that_is_not_known_is_told_with_what_to_write():
    for mode, state in (("hard", "fail"), ("soft", "warn")):
        asked = Candidate("mine/unheard-of", 0, Settings(budget=Budget(mode=mode)))
        found = [finding async for finding in check_model(asked, Context(Settings(), {}, offline=True))]
        assert [(f.name, f.state) for f in found] == [("model", "ok"), ("model.price", state)]
        assert '"mine/unheard-of": {"input"' in found[1].fix
        assert '"free": true under providers.mine' in found[1].fix


def status(**more):
    given = {"ready": True, "stopping": False, "data": "/d", "model": "m/x", "started_at": "", "version": "1"}
    return Status(**given, pid=7, uptime_s=7200.0, **more)


STOPPED = TransportStatus("slack", "stopped", "bad token")


@pytest.mark.parametrize(
    ("running_bot", "states", "words"),
    [
        (NoStatus("absent"), {"bot": "ok"}, "not running"),
        (NoStatus("mute", 7), {"bot": "warn"}, "process 7"),
        (NoStatus("stuck", 7), {"bot": "fail"}, "stuck"),
        (status(), {"bot": "ok"}, "for 2 h 0 min"),
        (status(worst_lag_s=4.0), {"bot": "warn"}, "stuck for 4.0 s"),
        (status(troubles=("the disk is full",)), {"bot": "warn"}, "the disk is full"),
        (status(transports=(STOPPED,)), {"bot": "ok", "bot.slack": "fail"}, "bad token"),
    ],
    ids=str,
)
async def test_a_running_bot_is_reported_as_it_is(running_bot, states, words):
    found = [finding async for finding in check_running_bot(Context(Settings(), {}, running_bot=running_bot))]
    assert {finding.name: finding.state for finding in found} == states
    assert words in str(found)


async def test_the_page_is_checked_like_a_platform(tmp_path, monkeypatch):
    async def found(web, **access):
        fields = {"data": tmp_path, "transports": {"web": web}, "access": access}
        settings = Settings.model_validate(fields, strict=False)
        context = Context(settings, {})
        [page] = [check for check in await all_checks(context) if check.name == "web"]
        return [(one.state, one.found) async for one in page.run(context)]

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        [(state, why)] = await found({"port": port})
        assert (state, "cannot listen at" in why) == ("fail", True)
    assert await found({"port": port}) == [("ok", f"http://127.0.0.1:{port}: can be served")]
    assert (await found({"port": port}, users=[]))[0] == ("warn", "access names nobody")
    signing_in = {"port": port, "sign_in": {"issuer": "http://127.0.0.1:1", "client_id": "x"}}
    (_, everybody), (state, why), _ = await found(signing_in)
    assert (everybody.startswith("everybody whom"), state) == (True, "fail")
    assert why.startswith("http://127.0.0.1:1: ClientConnectorError")
    (tmp_path / "settings.json").write_text(json.dumps({"transports": {"web": {"port": port}}}))
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(main, ["check"]).output
    assert f"`threadfast run` serves the page at 127.0.0.1, port {port}." in said


async def test_secrets_that_only_the_running_bot_can_read_are_a_warning(tmp_path):
    """As the service's user sees it: systemd shows its credentials to the service alone."""
    given = {
        "model": "openai/x",
        "providers": {"openai": {"api_key": "file:KEY"}},
        "transports": {"slack": {"bot_token": "file:BOT", "app_token": "env:APP"}},
    }
    settings = Settings.model_validate(given)
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    up, down = (status(transports=(TransportStatus("slack", s),)) for s in ("connected", "connecting"))
    for running_bot, states in ((up, ["warn"] * 3), (down, ["fail"] * 3), (NoStatus("absent"), ["fail"] * 3)):
        context = Context(settings, environ, running_bot=running_bot)
        found = [finding async for finding in check_settings(context) if finding.name == "secrets"]
        assert [finding.state for finding in found] == states
        asked = [finding async for finding in check_model(Candidate("openai/x", 0, settings), context)]
        assert asked[0].state == states[0]
    fixes = {finding.found.partition(":")[0]: finding.fix for finding in found}
    assert "systemctl status threadfast" in fixes["transports.slack.bot_token"]
    assert "systemctl" not in fixes["transports.slack.app_token"]


def test_on_a_terminal_it_has_marks_and_arrows(monkeypatch, capsys):
    screen = DoctorScreen()
    screen.console = Console(width=80, force_terminal=True, color_system=None, highlight=False)
    with screen.waiting() as waiting:
        waiting(["slack"])
        screen.tell(Finding("data.space", "ok", "57 GB free"))
        name = "discord.servers.700000000000000001"
        screen.tell(Finding(name, "warn", "word " * 40, "Means it.", "Do it."))
    screen.done([Finding("a", "ok", ""), Finding("b", "fail", "")], 1.0)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert any("✓ data.space" in line for line in lines)
    assert any("→ Do it." in line for line in lines)
    assert max(map(len, lines)) <= 80
    assert "2 checks in 1.0 s: 1 ok, 1 failed." in lines


def test_a_running_bot_keeps_its_folder_to_itself(settings_file, tmp_path, capsys):
    data = tmp_path / "data"
    with lock_data_folder(data):
        data.chmod(0o755)
        run(settings_file, fix=True)
        out, err = capsys.readouterr()
        assert "left alone" in err
        assert data.stat().st_mode & 0o777 == 0o755
        assert "holds the data folder" in out or not os.access("/proc/locks", os.R_OK)


def test_what_is_told_names_no_secret_of_a_server_that_answers_oddly(settings_file, capsys):
    """A port that takes calls and says nothing: the look ends all the same."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        slack = {"api_base_url": f"http://127.0.0.1:{port}/api/"}
        settings_file.write_text(json.dumps({**SETTINGS, "transports": {"slack": slack}}))
        tokens = {"SLACK_BOT_TOKEN": "xoxb-canary-1", "SLACK_APP_TOKEN": "xapp-canary-2"}
        began = time.monotonic()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("transports.slack.checks.WITHIN_S", 0.2)
            assert run(settings_file, {"PATH": os.environ["PATH"], **tokens}) == 1
        assert time.monotonic() - began < WITHIN_S
    out = capsys.readouterr().out
    assert "slack.token" in out
    assert "canary" not in out


def test_who_has_seen_enough_of_it_sees_no_stack_trace(settings_file, monkeypatch):
    def closed(*_):
        raise ExceptionGroup("tasks", [BrokenPipeError(errno.EPIPE, "Broken pipe")])

    monkeypatch.setattr("bot.extensions.doctor.run.run_doctor", closed)
    result = CliRunner().invoke(main, ["doctor", "--settings", str(settings_file)])
    assert result.exit_code == 1
    assert "Traceback" not in result.output


def test_a_way_out_that_cannot_be_used_fails(settings_file, capsys):
    settings_file.write_text('{"model": "offline/demo", "ca_file": "ours.pem"}')
    assert run(settings_file, {"ALL_PROXY": "socks4://127.0.0.1:1080"}, offline=True) == 1
    assert capsys.readouterr().out.count("The bot does not start (exit code 78).") == 2
