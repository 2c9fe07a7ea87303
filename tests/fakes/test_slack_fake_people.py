"""What people do in the fake, as the real SDK sees it: twins, edits, files, buttons, commands, sessions."""

import contextlib

import aiohttp
import pytest
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import FakeSlack

BUTTON = {
    "type": "button",
    "action_id": "again",
    "value": "7",
    "text": {"type": "plain_text", "text": "Retry"},
}


def _thumb(label, value):
    return {"text": {"type": "plain_text", "text": label}, "value": value}


FEEDBACK = {
    "type": "feedback_buttons",
    "action_id": "feedback",
    "positive_button": _thumb("Good", "up"),
    "negative_button": _thumb("Bad", "down"),
}
BUTTONS = [
    {"type": "actions", "block_id": "choices", "elements": [BUTTON]},
    {"type": "context_actions", "elements": [FEEDBACK]},
]


@contextlib.asynccontextmanager
async def slack_and_app(**options):
    """The SDK's client; ``seen`` are the payloads that came, without the bot's own posts."""
    seen = []

    async def take(socket, request):
        ours = request.payload.get("event", {}).get("bot_id") == "BBOT"
        seen.extend([] if ours else [request.payload])
        answer = {"text": "yes?"} if request.type == "slash_commands" else None
        await socket.send_socket_mode_response(SocketModeResponse(request.envelope_id, answer))

    async with FakeSlack(**options) as slack, aiohttp.ClientSession() as session:
        client = AsyncWebClient(slack.bot_token, base_url=slack.api_base_url, session=session)
        socket = SocketModeClient(slack.app_token, web_client=client)
        socket.socket_mode_request_listeners.append(take)
        await socket.connect()
        try:
            yield slack, client, seen
        finally:
            await socket.close()
            await socket.aiohttp_client_session.close()


async def test_edits_and_deletions_are_hidden_and_carry_what_was_before():
    async with slack_and_app() as (slack, _, seen):
        said = await slack.say("U1", "C1", "one")
        await slack.edit(said.ts, "two")
        await slack.unfurl(said.ts)
        await slack.delete(said.ts)
        assert slack.thread("C1", said.ts) == []
    _, edit, unfurl, gone = (body["event"] for body in seen)
    assert (edit["subtype"], edit["hidden"]) == ("message_changed", True)
    assert (edit["message"]["text"], edit["previous_message"]["text"]) == ("two", "one")
    assert unfurl["message"]["text"] == unfurl["previous_message"]["text"] == "two"
    expected = ("message_deleted", said.ts, "two")
    assert (gone["subtype"], gone["deleted_ts"], gone["previous_message"]["text"]) == expected


async def test_subtypes_threads_files_and_other_bots():
    async with slack_and_app() as (slack, _, seen):
        root = await slack.say("U1", "C1", "root")
        file = slack.file("a.txt", b"x")
        await slack.say("U2", "C1", "<@UBOT> shared", thread_ts=root.ts, files=[file])
        await slack.say("U2", "C1", "both", thread_ts=root.ts, subtype="thread_broadcast")
        await slack.say("U2", "C1", "waves", subtype="me_message")
        await slack.bot_says("C1", "beep")
        await slack.bot_says("C1", "beep", legacy=True)
    _, shared, mention, both, waves, modern, legacy = (body["event"] for body in seen)
    assert (shared["subtype"], shared["thread_ts"], shared["parent_user_id"]) == ("file_share", root.ts, "U1")
    assert shared["files"][0]["url_private_download"].startswith(slack.url)
    assert both["root"]["ts"] == root.ts
    assert (mention["type"], mention["files"]) == ("app_mention", shared["files"])
    assert "subtype" not in mention
    assert waves["subtype"] == "me_message"
    assert (modern["bot_id"], modern.get("subtype")) == ("BOTHER", None)
    assert (legacy["subtype"], "user" in legacy) == ("bot_message", False)


async def test_our_own_posts_come_back_as_ours():
    async with slack_and_app() as (slack, client, _):
        posted = await client.chat_postMessage(channel="C1", text="mine")
        await client.chat_update(channel="C1", ts=posted["ts"], text="mine too")
        for delivery in slack.sockets.deliveries:
            await delivery
        assert [delivery.payload["event"].get("bot_id") for delivery in slack.sockets.deliveries] == [
            "BBOT",
            None,
        ]


async def test_a_button_is_pressed_with_a_payload_like_slacks():
    async with slack_and_app() as (slack, client, seen):
        root = await slack.say("U1", "C1", "q")
        posted = await client.chat_postMessage(channel="C1", thread_ts=root.ts, text="a", blocks=BUTTONS)
        await slack.press("U2", posted["ts"], "again")
        await slack.press("U2", posted["ts"], "feedback", "down")
        with pytest.raises(LookupError):
            slack.press("U2", posted["ts"], "nothing")
        await slack.press("U2", posted["ts"], "nothing", stale=True)
        await client.session.post(seen[1]["response_url"], json={"text": "thanks"})
        assert slack.responses == [{"text": "thanks"}]
    _, retry, feedback, _ = seen
    assert (retry["type"], retry["user"]["id"], retry["channel"]["id"]) == ("block_actions", "U2", "C1")
    assert retry["container"] == {
        "type": "message",
        "message_ts": posted["ts"],
        "channel_id": "C1",
        "is_ephemeral": False,
        "thread_ts": root.ts,
    }
    assert retry["message"]["blocks"] == BUTTONS
    [action] = retry["actions"]
    assert (action["action_id"], action["block_id"], action["value"]) == ("again", "choices", "7")
    assert (feedback["actions"][0]["type"], feedback["actions"][0]["value"]) == ("feedback_buttons", "down")
