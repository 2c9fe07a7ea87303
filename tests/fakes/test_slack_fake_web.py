"""The fake's Web API through the real slack_sdk: Slack's limits, refusals, streams, files and faults."""

import contextlib
import json

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import FakeSlack
from tests.fakes.slack.rules import Refusal, check_blocks, set_off

RECIPIENT = {"recipient_user_id": "U1", "recipient_team_id": "T1"}


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@contextlib.asynccontextmanager
async def slack_and_client(**options):
    async with FakeSlack(**options) as slack, aiohttp.ClientSession() as session:
        yield (
            slack,
            AsyncWebClient(
                slack.bot_token, base_url=slack.api_base_url, session=session, retry_handlers=[], timeout=5
            ),
        )


async def refused(call):
    with pytest.raises(SlackApiError) as raised:
        await call
    return raised.value.response["error"]


async def test_places_that_cannot_be_written_to():
    async with slack_and_client() as (slack, client):
        slack.channel("C7", member=False)
        slack.channel("C8", kind="private", member=False)
        slack.channel("C9", archived=True)
        assert await refused(client.chat_postMessage(channel="C7", text="x")) == "not_in_channel"
        assert await refused(client.chat_postMessage(channel="C8", text="x")) == "channel_not_found"
        assert await refused(client.chat_postMessage(channel="C9", text="x")) == "is_archived"
        assert await refused(client.chat_postMessage(channel="C404", text="x")) == "channel_not_found"
        assert await refused(client.api_call("chat.postMessage", json={"channel": "C1"})) == "no_text"
        assert slack.posts() == []


async def test_a_long_text_is_cut_with_a_warning_but_refused_in_an_update():
    async with slack_and_client() as (slack, client):
        answer = await client.chat_postMessage(channel="C1", text="x" * 40_001)
        assert answer["warning"] == "message_truncated"
        assert len(slack.posts()[0].text) == 40_000
        long = client.chat_update(channel="C1", ts=answer["ts"], text="x" * 4_001)
        assert await refused(long) == "msg_too_long"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "nonsense"},
        {"type": "markdown", "text": ""},
        {"type": "actions", "elements": []},
        {
            "type": "actions",
            "elements": [
                {"type": "button", "text": {"type": "plain_text", "text": "a"}, "value": "v" * 2_001}
            ],
        },
        {"type": "context_actions", "elements": [{"type": "feedback_buttons", "action_id": "f"}]},
    ],
)
async def test_blocks_that_break_a_rule_are_refused(block):
    with pytest.raises(Refusal) as refusal:
        check_blocks([block])
    assert refusal.value.error == "invalid_blocks"
    assert refusal.value.more["errors"]


@pytest.mark.parametrize(
    ("blocks", "error"),
    [
        ([{"type": "markdown", "text": "x"}] * 51, "invalid_blocks"),
        ([{"type": "markdown", "text": "x" * 6_001}] * 2, "msg_blocks_too_long"),
    ],
)
async def test_too_many_or_too_long_blocks_are_refused(blocks, error):
    async with slack_and_client() as (_, client):
        assert await refused(client.chat_postMessage(channel="C1", text="x", blocks=blocks)) == error


@pytest.mark.parametrize(
    ("text", "parse", "pings", "urls"),
    [
        ("<!channel> <!here|here> <!everyone>", "none", ["channel", "here", "everyone"], []),
        ("<@U1> <@U2|bob> <!subteam^S1|@x>", "none", ["U1", "U2", "subteam^S1"], []),
        ("&lt;!channel> &lt;@U1>", "client", [], []),
        ("`<!channel>`", "none", ["channel"], []),
        ("@here", "none", [], []),
        ("@here a@here.example", "client", ["here"], []),
        ("<https://evil.example/?q=1|docs.python.org>", "none", [], ["https://evil.example/?q=1"]),
        (
            "[docs](https://evil.example/a) and https://b.example.",
            "none",
            [],
            ["https://evil.example/a", "https://b.example."],
        ),
        ("`https://a.example` ```\nhttps://b.example\n```", "none", [], []),
        ("`<https://a.example>`", "none", [], ["https://a.example"]),
        ("<!\u200bchannel>", "client", [], []),
    ],
)
def test_what_a_text_sets_off(text, parse, pings, urls):
    assert set_off(text, parse=parse) == (pings, urls)
    assert set_off("", [{"type": "markdown", "text": text}], parse=parse) == (pings, urls)


def test_entities_of_rich_text_and_images_are_set_off_and_plain_text_is_not():
    rich = {"type": "rich_text", "elements": [{"elements": [{"type": "broadcast", "range": "here"}]}]}
    image = {"type": "image", "image_url": "https://evil.example/x.png", "alt_text": "x"}
    header = {"type": "header", "text": {"type": "plain_text", "text": "<!channel> https://a.example"}}
    assert set_off("", [rich, image, header]) == (["here"], ["https://evil.example/x.png"])


async def test_links_are_fetched_unless_both_switches_are_off_and_always_after_an_edit():
    async with slack_and_client() as (slack, client):
        url = "https://evil.example/x"
        quiet = await client.chat_postMessage(channel="C1", text=url, unfurl_links=False, unfurl_media=False)
        assert slack.unfurls == []
        await client.chat_postMessage(channel="C1", text=url, unfurl_links=False)
        assert slack.unfurls == [url]
        await client.chat_update(channel="C1", ts=quiet["ts"], text=f"{url} @here")
        assert slack.message(quiet["ts"]).unfurls == [url]
        assert slack.message(quiet["ts"]).pings == ["here"]


async def test_an_update_with_text_alone_takes_the_blocks_away():
    async with slack_and_client() as (slack, client):
        blocks = [{"type": "markdown", "text": "a"}]
        posted = await client.chat_postMessage(channel="C1", text="a", blocks=blocks)
        message = slack.message(posted["ts"])
        await client.chat_update(channel="C1", ts=message.ts, text="b", blocks=blocks)
        assert message.blocks == blocks
        assert message.edited is None
        await client.chat_update(channel="C1", ts=message.ts, text="c")
        assert message.blocks is None
        assert message.edited
        assert message.texts == ["a", "b", "c"]


async def test_only_our_own_messages_are_edited_or_deleted():
    async with slack_and_client() as (slack, client):
        theirs = slack.say("U1", "C1", "hi").ts
        assert await refused(client.chat_update(channel="C1", ts=theirs, text="x")) == "cant_update_message"
        assert await refused(client.chat_delete(channel="C1", ts=theirs)) == "cant_delete_message"
        assert await refused(client.chat_delete(channel="C1", ts="1.1")) == "message_not_found"
        ours = (await client.chat_postMessage(channel="C1", text="x", thread_ts=theirs))["ts"]
        await client.chat_delete(channel="C1", ts=ours)
        assert [message.ts for message in slack.thread("C1", theirs)] == [theirs]


async def test_history_is_newest_first_without_replies_and_in_pages():
    async with slack_and_client() as (slack, client):
        roots = [slack.say("U1", "C1", f"m{number}").ts for number in range(5)]
        slack.say("U1", "C1", "reply", thread_ts=roots[0])
        also = slack.say("U1", "C1", "both", thread_ts=roots[0], subtype="thread_broadcast").ts
        pages = []
        async for page in await client.conversations_history(channel="C1", limit=2):
            pages.append([message["ts"] for message in page["messages"]])
        assert [ts for page in pages for ts in page] == [also, *reversed(roots)]
        assert [len(page) for page in pages] == [2, 2, 2]
        since = await client.conversations_history(channel="C1", oldest=roots[3])
        assert [message["ts"] for message in since["messages"]] == [also, roots[4]]
        since = await client.conversations_history(
            channel="C1", oldest=roots[3], latest=roots[4], inclusive=True
        )
        assert [message["ts"] for message in since["messages"]] == [roots[4], roots[3]]
        assert await refused(client.conversations_history(channel="C1", cursor="bogus")) == "invalid_cursor"


async def test_replies_come_oldest_first_after_their_root_and_metadata_only_when_asked_for():
    async with slack_and_client() as (slack, client):
        root = slack.say("U1", "C1", "root").ts
        told = {"event_type": "sent", "event_payload": {"id": "7"}}
        ours = (await client.chat_postMessage(channel="C1", text="a", thread_ts=root, metadata=told))["ts"]
        later = slack.say("U1", "C1", "b", thread_ts=root).ts
        plain = await client.conversations_replies(channel="C1", ts=root)
        assert [message["ts"] for message in plain["messages"]] == [root, ours, later]
        assert plain["messages"][0]["reply_count"] == 2
        assert "metadata" not in plain["messages"][1]
        full = await client.conversations_replies(
            channel="C1", ts=root, include_all_metadata=True, oldest=root
        )
        assert full["messages"][1]["metadata"] == told
        pages = []
        async for page in await client.conversations_replies(channel="C1", ts=root, limit=1):
            pages.append([message["ts"] for message in page["messages"]])
        assert pages == [[root, ours], [later]]
        assert await refused(client.conversations_replies(channel="C1", ts="1.000000")) == "thread_not_found"


async def test_a_root_that_was_deleted_is_a_tombstone_while_it_has_replies():
    async with slack_and_client() as (slack, client):
        root, bare = slack.say("U1", "C1", "root").ts, slack.say("U1", "C1", "bare").ts
        slack.say("U1", "C1", "reply", thread_ts=root)
        slack.delete(root)
        slack.delete(bare)
        seen = await client.conversations_replies(channel="C1", ts=root)
        assert seen["messages"][0]["subtype"] == "tombstone"
        assert await refused(client.conversations_replies(channel="C1", ts=bare)) == "thread_not_found"


async def test_channels_are_listed_by_type_and_in_pages():
    async with slack_and_client() as (slack, client):
        slack.channel("G1", kind="private")
        slack.channel("C3", member=False)
        ids = []
        pages = await client.users_conversations(types="public_channel,private_channel,im", limit=2)
        async for page in pages:
            ids += [channel["id"] for channel in page["channels"]]
        assert sorted(ids) == ["C1", "C2", "D1", "D2", "D3", "G1"]
        assert (await client.users_info(user="U1"))["user"]["id"] == "U1"


async def test_reactions_are_there_once():
    async with slack_and_client() as (slack, client):
        ts = slack.say("U1", "C1", "hi").ts
        await client.reactions_add(channel="C1", timestamp=ts, name="eyes")
        assert slack.message(ts).reactions == {"eyes": ["UBOT"]}
        again = client.reactions_add(channel="C1", timestamp=ts, name="eyes")
        assert await refused(again) == "already_reacted"
        await client.reactions_remove(channel="C1", timestamp=ts, name="eyes")
        assert (
            await refused(client.reactions_remove(channel="C1", timestamp=ts, name="eyes")) == "no_reaction"
        )


# streams


async def started(slack, client, channel="D1", **more):
    root = slack.say("U1", channel, "question").ts
    return {
        "channel": channel,
        "ts": (await client.chat_startStream(channel=channel, thread_ts=root, **more))["ts"],
    }


async def test_a_stream_in_a_channel_needs_its_recipient():
    async with slack_and_client() as (slack, client):
        assert await refused(started(slack, client, "C1")) == "missing_recipient_user_id"
        await started(slack, client, "C1", **RECIPIENT)


async def test_a_stream_that_has_grown_too_big_takes_nothing_more_but_can_be_stopped():
    async with slack_and_client() as (slack, client):
        at = await started(slack, client)
        await client.chat_appendStream(**at, markdown_text="é" * 5_000)
        assert await refused(client.chat_appendStream(**at, markdown_text="é" * 1_000)) == "msg_too_long"
        assert await refused(client.chat_appendStream(**at, markdown_text="x")) == "msg_too_long"
        await client.chat_stopStream(**at)
        assert slack.message(at["ts"]).text == "é" * 5_000


async def test_a_stream_ends_five_minutes_after_its_start_and_is_repaired_by_an_update():
    clock = Clock()
    async with slack_and_client(clock=clock) as (slack, client):
        at = await started(slack, client)
        clock.now += 299
        await client.chat_appendStream(**at, markdown_text="x")
        assert await refused(client.chat_update(**at, text="y")) == "streaming_state_conflict"
        clock.now += 1
        for call in (client.chat_appendStream(**at, markdown_text="x"), client.chat_stopStream(**at)):
            assert await refused(call) == "message_not_in_streaming_state"
        await client.chat_update(**at, text="y")
        assert slack.message(at["ts"]).text == "y"


async def test_after_the_person_pressed_stop_the_stream_is_over():
    async with slack_and_client(offline="drop") as (slack, client):
        at = await started(slack, client)
        slack.stop("U1", "D1", slack.message(at["ts"]).thread_ts)
        assert await refused(client.chat_appendStream(**at, markdown_text="x")) == "stopped_by_user"
        await client.chat_update(**at, text="stopped")


async def test_a_token_that_straddles_two_pieces_is_live():
    async with slack_and_client() as (slack, client):
        at = await started(slack, client)
        await client.chat_appendStream(**at, markdown_text="<!chan")
        await client.chat_appendStream(**at, markdown_text="nel> https://evil.exa")
        await client.chat_appendStream(**at, markdown_text="mple/x")
        assert slack.pings == ["channel"]
        assert slack.unfurls[-1] == "https://evil.example/x"


# presence


async def test_status_words_go_after_two_minutes_or_with_our_next_message():
    clock = Clock()
    async with slack_and_client(clock=clock) as (slack, client):
        root = slack.say("U1", "D1", "q").ts
        words = {"channel_id": "D1", "thread_ts": root, "status": "is thinking…"}
        await client.assistant_threads_setStatus(**words, loading_messages=["a", "b"])
        assert slack.status("D1", root) == "is thinking…"
        clock.now += 120
        assert slack.status("D1", root) == ""
        await client.assistant_threads_setStatus(**words)
        await client.chat_postMessage(channel="D1", thread_ts=root, text="done")
        assert slack.status("D1", root) == ""


async def test_session_status_is_an_enum_and_stays_until_it_is_set():
    async with slack_and_client() as (slack, client):
        root = slack.say("U1", "D1", "q").ts
        at = {"channel_id": "D1", "thread_ts": root}
        assert await refused(client.agents_sessions_setStatus(**at, status="thinking")) == "invalid_arguments"
        await client.agents_sessions_setStatus(**at, status="processing", title="Title")
        await client.chat_postMessage(channel="D1", thread_ts=root, text="done")
        assert slack.session("D1", root).status == "processing"
        assert slack.session("D1", root).title == "Title"


async def test_prompts_with_a_thread_are_accepted_and_never_seen():
    async with slack_and_client() as (slack, client):
        prompts = [{"title": "a", "message": "b"}]
        await client.assistant_threads_setSuggestedPrompts(channel_id="D1", thread_ts="1.1", prompts=prompts)
        assert slack.prompts == []
        await client.assistant_threads_setSuggestedPrompts(channel_id="D1", prompts=prompts)
        assert slack.prompts[0]["prompts"] == prompts
        many = client.assistant_threads_setSuggestedPrompts(channel_id="D1", prompts=prompts * 5)
        assert await refused(many) == "invalid_arguments"


# files


async def test_an_upload_is_a_message_in_the_thread_whose_ts_is_not_told():
    async with slack_and_client() as (slack, client):
        root = slack.say("U1", "C1", "q").ts
        answer = await client.files_upload_v2(
            filename="a.md", content="# hi", channel="C1", thread_ts=root, initial_comment="https://x.example"
        )
        assert "ts" not in json.dumps(answer["files"])
        [_, message] = slack.thread("C1", root)
        assert (message.files[0].content, message.unfurls) == (b"# hi", ["https://x.example"])


# limits and faults


async def test_limits_are_per_method_and_tell_when_to_come_back():
    clock = Clock()
    async with slack_and_client(clock=clock, rate_limits=True) as (slack, client):
        ts = slack.say("U1", "C1", "hi").ts
        for _ in range(50):
            await client.conversations_replies(channel="C1", ts=ts)
        with pytest.raises(SlackApiError) as raised:
            await client.conversations_replies(channel="C1", ts=ts)
        assert raised.value.response.status_code == 429
        assert raised.value.response.headers["Retry-After"] == "2"
        assert raised.value.response["error"] == "ratelimited"
        await client.conversations_history(channel="C1")
        clock.now += 1
        with pytest.raises(SlackApiError):
            await client.conversations_replies(channel="C1", ts=ts)
        assert (len(slack.limited), len(slack.impatient)) == (2, 1)
        clock.now += 2
        await client.conversations_replies(channel="C1", ts=ts)
        assert (len(slack.limited), len(slack.impatient)) == (2, 1)


async def test_posts_are_limited_per_channel():
    clock = Clock()
    async with slack_and_client(clock=clock, rate_limits=True) as (slack, client):
        for _ in range(5):
            await client.chat_postMessage(channel="C1", text="x")
        assert await refused(client.chat_postMessage(channel="C1", text="x")) == "ratelimited"
        await client.chat_postMessage(channel="C2", text="x")
        assert len(slack.posts("C1")) == 5
        assert slack.impatient == []
        assert await refused(client.chat_postMessage(channel="C1", text="x")) == "ratelimited"
        assert [call.args["channel"] for call in slack.impatient] == ["C1"]


async def test_a_bug_of_the_fake_is_told_at_its_end(monkeypatch):
    monkeypatch.setattr(FakeSlack, "echo", lambda *_: 1 / 0)
    with pytest.raises(AssertionError, match="fake itself"):
        async with slack_and_client() as (_, client):
            with pytest.raises(SlackApiError):
                await client.chat_postMessage(channel="C1", text="x")
