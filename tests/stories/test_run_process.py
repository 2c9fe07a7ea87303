"""`threadfast run` as a process: it serves the transports that are named, and says what is wrong when it cannot."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from bot.host.storage import recent_threads
from tests.fakes.discord import BOT, CHANNEL, U1, U2, FakeDiscord
from tests.fakes.slack import FakeSlack
from tests.patience import CODE, WITHIN_S

AGAIN = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
SALES = {"kind": "slack", "bot_token": "env:SALES_BOT", "app_token": "env:SALES_APP"}


def settings(tmp_path, **transports):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"data": "data", "model": "offline/demo", "transports": transports}))
    return path


def environ(slack=None, **more):
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    tokens = {"SLACK_BOT_TOKEN": slack.bot_token, "SLACK_APP_TOKEN": slack.app_token} if slack else {}
    return {**kept, **tokens, **more}


@asynccontextmanager
async def running(path, env, code=CODE):
    command = [sys.executable, "-c", code, "run", "--settings", str(path)]
    process = await anyio.open_process(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    async with process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def ended(path, env):
    command = [sys.executable, "-c", CODE, "run", "--settings", str(path)]
    with anyio.fail_after(WITHIN_S):
        done = await anyio.run_process(command, env=env, check=False)
    return done.returncode, done.stderr.decode()


async def test_it_answers_in_slack_and_again_after_kill_minus_nine(tmp_path):
    async with FakeSlack(redeliver_after=AGAIN) as slack:
        path = settings(tmp_path, slack={"api_base_url": slack.api_base_url})
        async with running(path, environ(slack)) as process:
            await slack.until(lambda: slack.sockets.links)
            said = await slack.say("U1", "C1", "<@UBOT> hello")
            await slack.until(lambda: len(slack.thread("C1", said.ts)) == 2)
            process.send_signal(signal.SIGKILL)
            await process.wait()
        async with running(path, environ(slack)):
            await slack.say("U1", "C1", "and now?", thread_ts=said.ts).delivered(20)
            await slack.until(lambda: len(slack.thread("C1", said.ts)) == 4)


@asynccontextmanager
async def events_of(path, env, *options):
    """Yield a function that returns the next event that `threadfast events` prints."""
    command = [sys.executable, "-c", CODE, "events", "--settings", str(path), *options]
    async with await anyio.open_process(command, env=env, stderr=subprocess.DEVNULL) as process:
        lines = TextReceiveStream(process.stdout)
        waiting = [""]

        async def next_event():
            while "\n" not in waiting[0]:
                waiting[0] += await lines.receive()
            line, _, waiting[0] = waiting[0].partition("\n")
            return json.loads(line)

        try:
            yield next_event
        finally:
            process.kill()


async def test_a_follower_of_the_events_goes_on_over_kill_minus_nine(tmp_path):
    async with FakeSlack(redeliver_after=AGAIN) as slack:
        path = settings(tmp_path, slack={"api_base_url": slack.api_base_url})
        async with AsyncExitStack() as stack:
            async with running(path, environ(slack)) as process:
                await slack.until(lambda: slack.sockets.links)
                options = "--follow", "--kind", "settled"
                next_event = await stack.enter_async_context(events_of(path, environ(), *options))
                said = await slack.say("U1", "C1", "<@UBOT> hello secretly").delivered(20)
                with anyio.fail_after(WITHIN_S):
                    first = await next_event()
                process.send_signal(signal.SIGKILL)
                await process.wait()
            async with running(path, environ(slack)):
                await slack.say("U1", "C1", "and now?", thread_ts=said.ts).delivered(20)
                with anyio.fail_after(WITHIN_S):
                    gap, second = await next_event(), await next_event()
    assert [first["kind"], gap["kind"], second["kind"]] == ["settled", "gap", "settled"]
    assert first["message_id"] != second["message_id"]
    assert first["thread_id"] == second["thread_id"]
    assert first["seq"] < gap["seq"] < second["seq"]
    assert "lost" not in gap  # nobody knows: the process died
    assert "secretly" not in json.dumps([first, gap, second])


def in_discord(discord):
    return {"api_base_url": discord.api_base_url, "gateway_url": discord.gateway_url}


def answered(discord, channel):
    return channel in discord.channels and any(m.ours and m.content for m in discord.messages(channel))


@pytest.mark.parametrize("ill", ["slack", "discord"])
async def test_both_platforms_are_served_and_one_that_fails_for_good_leaves_the_other_alone(tmp_path, ill):
    async with FakeSlack() as slack, FakeDiscord() as discord:
        path = settings(tmp_path, slack={"api_base_url": slack.api_base_url}, discord=in_discord(discord))
        async with running(path, environ(slack, DISCORD_TOKEN=discord.token)) as process:
            await slack.until(lambda: slack.sockets.links)
            await discord.until(lambda: discord.ready)
            (slack if ill == "slack" else discord).revoke()
            if ill == "slack":
                slack.say("U1", "C1", "<@UBOT> hello")
                said = await discord.say(U1, CHANNEL, f"<@{BOT}> hello")
                await discord.until(lambda: answered(discord, said.id))
            else:
                heard = await slack.say("U1", "C1", "<@UBOT> hello")
                await slack.until(lambda: len(slack.thread("C1", heard.ts)) == 2)
            assert process.returncode is None


async def test_two_workspaces_and_two_bots_of_discord_are_served_by_one_process_each_with_its_own_access(
    tmp_path,
):
    """The fakes have the same ids of teams, channels and people: only the names in the settings tell them apart."""
    async with (
        FakeSlack(redeliver_after=AGAIN) as first,
        FakeSlack(redeliver_after=AGAIN) as second,
        FakeDiscord() as third,
        FakeDiscord() as fourth,
    ):
        named = {
            "slack": {"api_base_url": first.api_base_url},
            "sales": {**SALES, "api_base_url": second.api_base_url},
            "discord": in_discord(third),
            "shop": {"kind": "discord", "token": "env:SHOP_TOKEN", **in_discord(fourth)},
        }
        path = settings(tmp_path, **named)
        scopes = {"sales": {"access": {"users": ["U2"]}}, "shop": {"access": {"users": [U2]}}}
        path.write_text(json.dumps({**json.loads(path.read_text()), "scopes": scopes}))
        tokens = {"SALES_BOT": second.bot_token, "SALES_APP": second.app_token}
        env = environ(first, **tokens, DISCORD_TOKEN=third.token, SHOP_TOKEN=fourth.token)
        begun = {}
        async with running(path, env) as process:
            for slack in (first, second):
                await slack.until(lambda slack=slack: slack.sockets.links)
            for discord in (third, fourth):
                await discord.until(lambda discord=discord: discord.ready)
            for slack, user in ((first, "U1"), (second, "U2")):
                begun[slack] = (await slack.say(user, "C1", "<@UBOT> hello")).ts
                await slack.until(lambda slack=slack: len(slack.thread("C1", begun[slack])) == 2)
            for discord, user in ((third, U1), (fourth, U2)):
                said = await discord.say(user, CHANNEL, f"<@{BOT}> hello")
                await discord.until(lambda discord=discord, said=said: answered(discord, said.id))
            refused = await second.say("U1", "C1", "<@UBOT> hello").delivered(20)
            process.send_signal(signal.SIGKILL)
            await process.wait()
        async with running(path, env):
            for slack, user in ((first, "U1"), (second, "U2")):
                await slack.say(user, "C1", "and now?", thread_ts=begun[slack]).delivered(20)
                await slack.until(lambda slack=slack: len(slack.thread("C1", begun[slack])) == 4)
        assert "hello" not in "".join(post.text for post in second.thread("C1", refused.ts) if post.ours)
    threads = {thread.name for thread in (tmp_path / "data" / "threads").iterdir()}
    assert threads == {"slack", "sales", "discord", "shop"}


async def test_discords_library_is_not_loaded_for_slack_nor_slacks_for_discord():
    code = "import sys, bot.wiring.run, bot.wiring.app; print([n for n in ('discord', 'slack_sdk') if n in sys.modules])"
    done = await anyio.run_process([sys.executable, "-c", code], env=environ())
    assert done.stdout.strip() == b"[]"


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), PermissionError(13, "Permission denied")]
)
async def test_recent_threads_that_cannot_be_listed_are_logged_and_end_nothing(caplog, error):
    class Broken:
        async def recent(self, *_):
            raise error

    assert await recent_threads(Broken(), "slack", 60, 10) == []
    assert error.strerror in caplog.text


async def test_a_rejected_token_ends_with_78_and_says_what_to_do(tmp_path):
    async with FakeSlack() as slack:
        path = settings(tmp_path, slack={"api_base_url": slack.api_base_url})
        code, said = await ended(path, environ(slack, SLACK_BOT_TOKEN="xoxb-wrong-token-12345678"))
    assert code == 78
    assert "bot token" in said
    assert "xoxb-wrong" not in said


async def test_without_a_transport_or_its_secret_it_ends_with_78(tmp_path):
    code, said = await ended(settings(tmp_path), environ())
    assert (code, "none is named" in said) == (78, True)
    code, said = await ended(settings(tmp_path, slack={}), environ())
    assert code == 78
    assert "transports.slack.app_token" in said
    assert "SLACK_BOT_TOKEN" in said


async def test_without_a_model_and_a_key_only_what_slack_needs_is_asked_for(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text('{"transports": {"slack": {}}}')
    code, said = await ended(path, environ())
    assert code == 78
    assert "transports.slack.bot_token" in said
    assert "ANTHROPIC" not in said


def test_the_manifest_is_json_on_standard_output_and_the_reasons_beside_it(tmp_path):
    command = [sys.executable, "-c", CODE, "manifest", "slack"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    made = json.loads(done.stdout)
    assert "agent_view" in made["features"]
    assert made["settings"]["socket_mode_enabled"]
    for scope in made["oauth_config"]["scopes"]["bot"]:
        assert f"  {scope}: to " in done.stderr


def test_a_feature_that_is_off_asks_for_no_scope(tmp_path):
    given = {"tools": {"enabled": []}, "transports": {"slack": {"command": None}}}
    (tmp_path / "settings.json").write_text(json.dumps(given))
    command = [sys.executable, "-c", CODE, "manifest", "slack"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    made = json.loads(done.stdout)
    assert "slash_commands" not in made["features"]
    assert not {"commands", "files:read", "files:write"} & set(made["oauth_config"]["scopes"]["bot"])


async def test_a_hang_up_takes_up_the_settings_and_a_faulty_file_changes_nothing(tmp_path):
    async with FakeSlack() as slack:
        path = settings(tmp_path, slack={"api_base_url": slack.api_base_url})
        given = json.loads(path.read_text())
        async with running(path, environ(slack)) as process, Lines(process.stderr) as log:
            await slack.until(lambda: slack.sockets.links)

            async def hang_up(document, event):
                path.write_text(document if isinstance(document, str) else json.dumps(document))
                process.send_signal(signal.SIGHUP)
                return await log.until(event)

            async def says():
                said = await slack.say("U1", "C1", "<@UBOT> hello")
                await slack.until(lambda: len(slack.thread("C1", said.ts)) == 2)
                return slack.thread("C1", said.ts)[-1].text

            assert "tokens" not in await says()
            line = await hang_up({**given, "budget": {"footer": True}}, "settings.reloaded")
            assert line["changed"] == ["budget.footer"]
            assert "tokens" in await says()
            line = await hang_up('{"budget": {"footer": ', "settings.rejected")
            assert "not valid JSON" in line["text"]
            assert "tokens" in await says()
            await hang_up(given, "settings.reloaded")
            assert "tokens" not in await says()
            line = await hang_up(given, "settings.reloaded")
            assert line["changed"] == []
            assert process.returncode is None


class Lines:
    """The log of a process, as it comes."""

    def __init__(self, stream):
        self.stream, self.rest, self.lines = stream, b"", []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def until(self, event):
        """Return the next line of an event."""
        with anyio.fail_after(WITHIN_S):
            while True:
                *whole, self.rest = self.rest.split(b"\n")
                self.lines += [json.loads(line) for line in whole if line.startswith(b"{")]
                while self.lines:
                    line = self.lines.pop(0)
                    if line["event"] == event:
                        return line
                self.rest += await self.stream.receive()
