"""`threadfast init slack` against a Slack on loopback."""

import json
import os
from urllib.parse import parse_qs, urlsplit

import pytest

from bot.config.settings import Settings
from bot.extensions.setup.tokens import read_piped
from bot.ports.status import NoStatus
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN, FakeSlack
from transports.slack.setup import LONGEST_LINK, link

TOKENS = {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}
KEPT = {"slack_bot_token": BOT_TOKEN, "slack_app_token": APP_TOKEN}
NOBODY = ("", "")
"""The answers to who may use it, and who is admin."""
REFERENCES = {"bot_token": "file:slack_bot_token", "app_token": "file:slack_app_token"}


@pytest.fixture
async def workspace():
    async with FakeSlack() as slack:
        yield slack


def init(setup, workspace, *arguments, **given):
    where = ("--no-start", "--api-base-url", workspace.api_base_url)
    return setup.run("slack", "--model", "offline/demo", *where, *arguments, **given)


def section(setup):
    return setup.document()["transports"]["slack"]


async def test_tokens_from_the_environment_are_looked_at_and_kept_as_files(setup, workspace):
    setup.env = TOKENS
    done = await init(setup, workspace, "--yes")
    assert setup.secrets() == KEPT
    assert section(setup) == {"api_base_url": workspace.api_base_url, **REFERENCES}
    assert "agent_view" in json.loads((setup.folder / "slack-manifest.json").read_text())["features"]
    for about in ("token: threadfast", "scopes:", "socket: opened"):
        assert f"✓ {about}" in done.stdout
    assert "/invite @threadfast" in done.stdout
    assert not any(token in done.output or token in setup.settings.read_text() for token in TOKENS.values())


@pytest.mark.parametrize("how", ["environment", "file"])
async def test_a_word_is_no_token_at_another_address_either(setup, workspace, tmp_path, how):
    (tmp_path / "token").write_text("password")
    setup.env = {"SLACK_APP_TOKEN": "password", "SLACK_BOT_TOKEN": "of mine"} if how == "environment" else {}
    file = ["--app-token-file", str(tmp_path / "token")] if how == "file" else []
    done = await init(setup, workspace, "--yes", "--no-verify", *file, code=78)
    assert "That does not look like a token" in done.stderr
    assert setup.tree() == {}


OLD = {"slack_bot_token": "xoxb-of-an-old-app", "slack_app_token": "xapp-of-an-old-app"}


def stored(setup, secrets):
    (setup.folder / "credentials").mkdir(mode=0o700)
    for name, secret in secrets.items():
        (setup.folder / "credentials" / name).write_text(f"{secret}\n")
    document = {"model": "offline/demo", "transports": {"slack": REFERENCES}}
    setup.settings.write_text(json.dumps(document))


async def test_tokens_of_the_environment_are_tried_in_the_place_of_old_ones(setup, workspace):
    stored(setup, OLD)
    setup.env = TOKENS
    await init(setup, workspace, "--yes")
    assert setup.secrets() == KEPT
    assert {call.token for call in workspace.calls_to("auth.test")} == {BOT_TOKEN}


async def test_a_variable_that_the_settings_name_is_no_newer_token(setup, workspace):
    setup.settings.write_text(json.dumps({"transports": {"slack": {"bot_token": "env:MINE"}}}))
    setup.env = {**TOKENS, "MINE": BOT_TOKEN, "SLACK_BOT_TOKEN": "xoxb-of-another-bot"}
    await init(setup, workspace, "--yes")
    assert section(setup)["bot_token"] == "env:MINE"
    assert setup.secrets() == {"slack_app_token": APP_TOKEN}


WRONG = {**TOKENS, "SLACK_BOT_TOKEN": "xoxb-wrong-token-12345"}


async def test_tokens_can_be_piped_in_a_line_each(setup, workspace):
    await init(setup, workspace, "--yes", piped=f'"{BOT_TOKEN}"\r\nexport SLACK_APP_TOKEN={APP_TOKEN}\n')
    assert setup.secrets() == KEPT


def access(setup):
    return setup.document().get("access")


async def test_who_may_use_it_and_who_is_admin_is_asked_once(setup, workspace):
    setup.env = TOKENS
    done = await init(setup, workspace, answers=["@grace", "U1, <@U2>", "U1"])
    assert "'@grace' is not a member id of Slack" in done.stdout
    assert "Copy member ID" in done.stdout
    assert access(setup) == {"users": ["U1", "U2"], "admins": ["U1"]}
    assert "There is no admin" not in done.stdout
    await init(setup, workspace, answers=[])
    assert setup.asked == []


async def test_that_nobody_could_lift_a_limit_is_said_with_how_to_add_somebody(setup, workspace):
    setup.env = TOKENS
    done = await init(setup, workspace, answers=list(NOBODY))
    assert access(setup) is None
    assert "There is no admin" in done.stdout
    assert '"access": {"admins": ["U0123ABCDEF"]}' in done.stdout
    assert "There is no admin" in (await init(setup, workspace, "--yes")).stdout


@pytest.mark.parametrize("budget", [{"mode": "soft"}, {"asker_may_grant": True}])
async def test_where_no_limit_needs_an_admin_none_is_missed(setup, workspace, budget):
    setup.settings.write_text(json.dumps({"budget": budget}))
    setup.env = TOKENS
    assert "There is no admin" not in (await init(setup, workspace, "--yes")).stdout


async def test_people_can_be_given_as_options(setup, workspace):
    setup.env = TOKENS
    await init(setup, workspace, "--yes", "--user", "U1", "--user", "U2", "--admin", "U3")
    assert access(setup) == {"users": ["U1", "U2"], "admins": ["U3"]}
    wrong = await init(setup, workspace, "--yes", "--admin", "grace", code=78)
    assert "--admin 'grace' is not a member id" in wrong.stderr


async def test_people_of_another_platform_stay(setup, workspace):
    other = "700000000000000201"
    setup.settings.write_text(json.dumps({"access": {"users": [other], "admins": [other]}}))
    setup.env = TOKENS
    await init(setup, workspace, answers=["U1", "U2"])
    assert access(setup) == {"users": [other, "U1"], "admins": [other, "U2"]}


async def test_a_second_run_finds_all_of_it_and_changes_nothing(setup, workspace):
    setup.env = TOKENS
    await init(setup, workspace, "--yes")
    before = setup.tree()
    setup.env = {}
    await init(setup, workspace, "--yes")
    assert setup.tree() == before


async def test_pasted_tokens_are_kept_and_never_shown(setup, workspace):
    done = await init(setup, workspace, answers=["", APP_TOKEN, BOT_TOKEN, *NOBODY])
    assert setup.secrets() == KEPT
    assert not any(token in done.output for token in TOKENS.values())


async def test_a_token_of_the_wrong_kind_is_known_at_once(setup, workspace):
    answers = ["", "xoxp-1-2-3", "A0123456789", "", f"SLACK_APP_TOKEN='{APP_TOKEN}'", BOT_TOKEN, *NOBODY]
    done = await init(setup, workspace, answers=answers)
    assert "That is a Slack user token, not the app token" in done.stdout
    assert "That is an id" in done.stdout
    assert workspace.calls_to("auth.test")[0].token == BOT_TOKEN
    assert len(setup.asked) == 8


async def test_the_address_of_the_filled_in_page_is_printed_on_request_in_one_piece(setup, workspace):
    done = await init(setup, workspace, answers=["p", APP_TOKEN, BOT_TOKEN, *NOBODY])
    address = link(Settings())
    assert address in done.stdout.splitlines()
    assert len(address) <= LONGEST_LINK
    made = json.loads(parse_qs(urlsplit(address).query)["manifest_json"][0])
    assert made == json.loads((setup.folder / "slack-manifest.json").read_text())


async def test_tokens_come_from_files_before_the_environment(setup, workspace, tmp_path):
    setup.env = {"SLACK_BOT_TOKEN": "xoxb-of-another-bot", "SLACK_APP_TOKEN": "xapp-of-another-app"}
    (tmp_path / "a").write_text(APP_TOKEN)
    (tmp_path / "b").write_text(f"{BOT_TOKEN}\n")
    files = ("--app-token-file", str(tmp_path / "a"), "--bot-token-file", str(tmp_path / "b"))
    await init(setup, workspace, "--yes", *files)
    assert setup.secrets() == KEPT


async def test_what_is_missing_is_named_with_its_variable_and_its_flag(setup, workspace):
    setup.env = {"SLACK_BOT_TOKEN": BOT_TOKEN}
    done = await init(setup, workspace, "--yes", code=78)
    assert "SLACK_APP_TOKEN or --app-token-file" in done.stderr
    assert "SLACK_BOT_TOKEN" not in done.stderr
    assert setup.tree() == {}


async def test_a_token_that_slack_refuses_ends_it_with_nothing_written(setup, workspace):
    setup.env = WRONG
    done = await init(setup, workspace, "--yes", code=78)
    assert "✗ token:" in done.stdout
    assert "slack.token" in done.stderr
    assert "For other tokens, set SLACK_APP_TOKEN and SLACK_BOT_TOKEN" in done.stderr
    assert setup.tree() == {}
    assert "xoxb-wrong" not in done.output


@pytest.mark.parametrize("answers", [[], [""], ["", APP_TOKEN]])
async def test_ctrl_c_at_any_question_leaves_everything_as_it_was(setup, workspace, answers):
    setup.settings.write_text('{"name": "Ada"}')
    before = setup.tree()
    await init(setup, workspace, answers=answers, code=130)
    assert setup.tree() == before


async def test_a_secret_that_the_settings_refer_to_stays_where_it_is(setup, workspace, tmp_path):
    (tmp_path / "mine").write_text(BOT_TOKEN)
    given = {"transports": {"slack": {"bot_token": f"file:{tmp_path / 'mine'}", "command": "/ada"}}}
    setup.settings.write_text(json.dumps(given))
    setup.env = {"SLACK_APP_TOKEN": APP_TOKEN}
    await init(setup, workspace, "--yes")
    assert setup.secrets() == {"slack_app_token": APP_TOKEN}
    assert section(setup)["bot_token"] == f"file:{tmp_path / 'mine'}"
    assert section(setup)["command"] == "/ada"


async def test_without_a_look_nobody_is_asked(setup, workspace):
    setup.env = TOKENS
    await init(setup, workspace, "--yes", "--no-verify")
    assert workspace.calls == []
    assert setup.secrets() == KEPT


async def test_json_has_every_finding(setup, workspace):
    setup.env = TOKENS
    document = json.loads((await init(setup, workspace, "--json")).stdout)
    assert {"slack.token", "slack.scopes", "slack.socket"} <= {check["name"] for check in document["checks"]}
    assert document["next"].startswith("threadfast run")


@pytest.mark.needs("discord")
async def test_a_flag_of_the_other_platform_is_refused(setup, workspace):
    done = await init(setup, workspace, "--yes", "--token-file", "x", code=2)
    assert "init discord" in done.stderr


async def test_beside_a_running_bot_no_socket_is_opened_and_none_is_started(setup, workspace, monkeypatch):
    monkeypatch.setattr("bot.extensions.setup.wizard.find_running_bot", lambda _: NoStatus("mute", 4711))
    setup.env = TOKENS
    where = ("--api-base-url", workspace.api_base_url)
    done = await setup.run("slack", "--model", "offline/demo", "--yes", *where)
    assert "process 4711" in done.stdout
    assert "Next: threadfast run" in done.stdout
    assert "socket:" not in done.stdout


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(monkeypatch):
    ours, theirs = os.pipe()
    with os.fdopen(ours) as source, os.fdopen(theirs, "w") as sink:
        monkeypatch.setattr("sys.stdin", source)
        sink.write("xapp-1\n")
        sink.flush()
        assert read_piped(2, within_s=0.05) == "xapp-1\n"
        sink.write("xapp-1\nxoxb-2\n")
        sink.flush()
        assert read_piped(2, within_s=30) == "xapp-1\nxoxb-2\n"
