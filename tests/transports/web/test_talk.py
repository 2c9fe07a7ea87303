"""Talking on the page: a real bot, its HTTP server on loopback, and events as a browser reads them."""

import uuid
from pathlib import Path

import anyio
import pytest

from tests.fakes.http import Stall
from tests.fakes.openai import FakeOpenAI, Text, chat_answer
from tests.patience import WITHIN_S
from tests.serving import compatible
from tests.transports.web.site import OWNER, Visitor, visiting
from threads.model import Outgoing, ThreadId, TurnStarted


def new() -> str:
    return str(uuid.uuid4())


def words(tree) -> str:
    return "".join(node if isinstance(node, str) else words(node[2:]) for node in tree)


async def test_a_message_is_answered_on_the_page(tmp_path):
    async with visiting(tmp_path) as ann, ann.events(thread := new()) as events:
        await events.until("snapshot")
        message = await ann.say("hello", thread)
        post = await events.until("post", id=message)
        assert "offline/demo" in words(post["tree"])
        await events.until("settled", id=message, outcome="answered")
        assert [e["op"] for e in events.seen if e.get("id") == message][:2] == ["message", "started"]
        listed = (await ann.get("/api/threads")).json()["threads"]
        assert [(one["thread"], one["title"], one["busy"]) for one in listed] == [(thread, "hello", False)]


async def test_the_same_message_sent_twice_is_answered_once(tmp_path):
    async with visiting(tmp_path) as ann, ann.events(thread := new()) as events:
        message = await ann.say("hello", thread)
        await ann.say("hello", thread, message_id=message)
        await events.until("settled", id=message)
        other = await ann.say("again", thread)
        await events.until("settled", id=other)
        assert len([e for e in events.seen if e["op"] == "post" and e["id"] == message]) == 1


async def test_a_page_that_lost_its_connection_goes_on_without_gap_or_double(tmp_path):
    async with visiting(tmp_path) as ann:
        thread = new()
        async with ann.events(thread) as events:
            first = await ann.say("one", thread)
            await events.until("settled", id=first)
        second = await ann.say("two", thread)
        async with ann.events(thread) as fresh:
            await fresh.until("settled", id=second)
        async with ann.events(thread, events.last_id) as resumed:
            await resumed.until("settled", id=second)
            assert {e["id"] for e in resumed.seen if "id" in e} == {second}
            assert len([e for e in resumed.seen if e["op"] == "post"]) == 1


DONE = {"message", "tool", "tool_done", "post", "closed", "spent", "settled"}


async def shown_of(visitor, thread):
    """Return what a page that is opened now shows of each message, without what differs by time."""
    async with visitor.events(thread) as events:
        await events.until("snapshot")
        found = {}
        for one in events.seen:
            if one["op"] in DONE:
                key = one["op"], one.get("key") or one.get("call", "")
                found.setdefault(one["id"], {})[key] = {**one, "at": "", "choices": [], "files": []}
        return found


@pytest.mark.parametrize("press", ["/approve", "/deny"])
async def test_a_restart_keeps_tools_decisions_model_and_cost_and_a_press_is_no_message(tmp_path, press):
    fields = {"tools": {"enabled": ["files"], "policy": {"write_file": "ask"}}}
    thread = new()
    async with visiting(tmp_path, fields) as ann, ann.events(thread) as events:
        await events.until("settled", id=(status := await ann.say("/status", thread)))
        message = await ann.say("write notes.md a\u200bb", thread)
        question = await events.until("post", kind="notice", id=message)
        yes = next(one["command"] for one in question["choices"] if one["command"].startswith(press))
        await ann.say(yes, thread)
        await events.until("settled", id=message)
        await ann.say(yes, thread)
        late = await events.until("told")
        assert "no question of mine open" in late["text"]
        before = await shown_of(ann, thread)
        assert {op for op, _ in before[message]} == DONE
        assert (
            "a\\u{200b}b"
            in next(one for (op, _), one in before[message].items() if op == "tool")["arguments"]
        )
        assert [*before] == [status, message]
    async with visiting(tmp_path, fields) as ann:
        assert await shown_of(ann, thread) == before
        [listed] = (await ann.get("/api/threads")).json()["threads"]
        assert listed["title"].startswith("write notes.md")


async def test_an_open_question_is_there_for_a_page_that_comes_later(tmp_path):
    fields = {"tools": {"enabled": ["files"], "policy": {"write_file": "ask"}}}
    thread = new()
    async with visiting(tmp_path, fields) as ann, ann.events(thread) as events:
        await ann.say("write notes.md x", thread)
        await events.until("post", kind="notice")
    async with visiting(tmp_path, fields) as ann, ann.events(thread) as events:
        question = await events.until("post", kind="notice")
        await ann.say(question["choices"][-1]["command"], thread)
        await events.until("closed", decision="Declined by you.")


async def test_a_file_that_a_person_sends_is_in_the_workspace(tmp_path):
    async with visiting(tmp_path) as ann, ann.events(thread := new()) as events:
        sent = (await ann.post("/api/files?name=..%2Fnotes.txt", content=b"buy milk")).json()
        assert sent["name"] == "notes.txt"
        message = await ann.say("hello", thread, files=[{"id": sent["id"], "name": sent["name"]}])
        await events.until("message", id=message, files=[{"name": "notes.txt", "size": 8}])
        await events.until("settled", id=message, outcome="answered")
        stored = tmp_path.glob("threads/web/*/workspace/attachments/*notes.txt")
        assert [path.read_text() for path in stored] == ["buy milk"]
        await events.until("settled", id=await ann.say("read notes.txt", thread))
        assert "buy milk" in words([e for e in events.seen if e["op"] == "post"][-1]["tree"])
        asks = {"tools": {"enabled": ["files"], "policy": {"attach": "ask"}, "recovery": "model"}}
    async with visiting(tmp_path, asks) as ann, ann.events(thread) as events:
        await events.until("snapshot")
        missing = await ann.say("attach other.txt", thread)
        await events.until("settled", id=missing)
        assert not [e for e in events.seen if e["op"] == "post" and e["choices"]]
        await ann.say("attach notes.txt", thread)
        await events.until("post", kind="notice")


async def test_a_file_that_the_bot_posts_is_a_download_and_stays_one(tmp_path):
    async with visiting(tmp_path) as ann:
        thread = new()
        async with ann.events(thread) as events:
            await events.until("settled", id=await ann.say("write out.html <script>x</script>", thread))
            await ann.say("attach out.html", thread)
            address = (await events.until("file", name="out.html"))["address"]
        answer = await ann.get(address)
        assert answer.text == "<script>x</script>"
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment;")
        async with ann.events(thread) as later:
            await later.until("file", name="out.html", address=address)
        async with Visitor(ann.site) as bob:
            await bob.enter("bob")
            assert (await bob.get(address)).status_code == 404


async def test_a_thread_that_was_erased_is_found_nowhere(tmp_path):
    canary, picture = "kanarie-93xq", b"\x89PNG\r\n\x1a\nkanarie-93xq"
    async with visiting(tmp_path) as ann:
        async with ann.events(thread := new()) as events:
            for words in (f"write out.txt {canary}", "attach out.txt"):
                await events.until("settled", id=await ann.say(words, thread))
            sent = (await ann.post("/api/files?name=a.png", content=picture)).json()["id"]
            await events.until(
                "settled", id=await ann.say("hi", thread, files=[{"id": sent, "name": "a.png"}])
            )
            await ann.post("/api/threads", json={"thread": thread, "title": canary})
            await ann.site.web.erased(ThreadId("web", "", OWNER, thread))  # of its workspace, say
            assert canary in (await ann.get("/look/threads")).text
            assert [*tmp_path.glob("web/posted/*/*/*out.txt")]
            since = len(events.seen)
            await events.until("settled", id=await ann.say("/forget now", thread))
            if "snapshot" not in [one["op"] for one in events.seen[since:]]:  # it has that event in it
                await events.until("snapshot")
            assert [one["op"] for one in events.seen[since:]].count("snapshot") == 1
        async with ann.events(thread) as later:
            await later.until("snapshot")
            assert canary not in str(later.seen)
        for address in ("/api/threads", f"/api/search?words={canary}", "/look/threads", "/look"):
            assert canary not in (await ann.get(address)).text
        told = [
            path for path in tmp_path.rglob("*") if path.is_file() and canary.encode() in path.read_bytes()
        ]
        assert [path.parent.parent.name for path in told] == ["sent"]  # until it is a day old


async def test_text_comes_as_it_grows_and_a_retry_takes_it_back(tmp_path):
    cut = chat_answer(Text("Hello, this is the beginning. " * 20, 8), finish=None, done=False)
    async with FakeOpenAI([cut, chat_answer(Text("Good day"))]) as api:
        fields = {"providers": compatible("local", api.base_url), "model": "local/m"}
        async with visiting(tmp_path, fields, model="local/m") as ann, ann.events(thread := new()) as events:
            message = await ann.say("hello", thread)
            await events.until("settled", id=message, outcome="answered")
            told = [e for e in events.seen if e["op"] in {"draft", "post"}]
            [back] = [at for at, e in enumerate(told) if e.get("changes") == [[[], 0, "", []]]]
            assert 0 < back < len(told) - 1
            assert told[-1]["op"] == "post"
            assert words(next(e for e in events.seen if e["op"] == "post")["tree"]) == "Good day"


async def test_a_waiting_message_can_be_edited_and_deleted_and_a_begun_one_cannot(tmp_path):
    fields = {"busy": "queue", "tools": {"enabled": ["files"], "policy": {"write_file": "ask"}}}
    async with visiting(tmp_path, fields) as ann, ann.events(thread := new()) as events:
        first = await ann.say("write notes.md x", thread)
        question = await events.until("post", kind="notice")
        edited, deleted = await ann.say("draft", thread), await ann.say("oops", thread)
        body = {"id": edited, "thread": thread, "text": "final words"}
        assert (await ann.post("/api/edit", json=body)).status_code == 202
        assert (await ann.post("/api/delete", json={"id": deleted, "thread": thread})).status_code == 202
        await events.until("settled", id=deleted, outcome="withdrawn")
        late = await ann.post("/api/edit", json={"id": first, "thread": thread, "text": "other"})
        assert (late.status_code, "begun" in late.json()["error"]) == (409, True)
        await ann.say(question["choices"][0]["command"], thread)
        post = await events.until("post", id=edited)
        assert "final words" in words(post["tree"])


async def test_a_message_that_is_answered_can_be_deleted_until_it_has_an_outcome(tmp_path):
    fields = {"tools": {"enabled": ["files"], "policy": {"write_file": "ask"}}}
    async with visiting(tmp_path, fields) as ann, ann.events(thread := new()) as events:
        asked = await ann.say("write notes.md x", thread)
        await events.until("post", kind="notice")
        assert (await ann.post("/api/delete", json={"id": asked, "thread": thread})).status_code == 202
        await events.until("settled", id=asked, outcome="withdrawn")
        assert (await ann.post("/api/delete", json={"id": asked, "thread": thread})).status_code == 409


@pytest.mark.parametrize("full", [False, True], ids=["no links", "no links, and full"])
async def test_a_picture_is_kept_where_files_have_no_links_and_is_left_out_where_there_is_no_room(
    tmp_path, monkeypatch, full
):
    def refused(*_):
        raise OSError(28, "no")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    if full:
        monkeypatch.setattr("transports.web.files.copyfileobj", refused)
    png = b"\x89PNG\r\n\x1a\n" + b"x" * 20
    async with visiting(tmp_path) as ann, ann.events(thread := new()) as events:
        sent = (await ann.post("/api/files", params={"name": "a.png"}, content=png)).json()
        message = await ann.say("look", thread, files=[{"id": sent["id"], "name": "a.png"}])
        await events.until("settled", id=message, outcome="answered")
        page = await shown_pictures(ann, thread)
        assert len(page) == (0 if full else 1)
        for address in page:
            assert (await ann.get(address, params={"picture": ""})).content == png


async def shown_pictures(visitor, thread):
    async with visitor.events(thread) as events:
        await events.until("snapshot")
        return {one["address"] for one in events.seen if one["op"] == "picture"}


async def test_a_stop_keeps_what_was_shown_of_the_answer(tmp_path):
    cut = chat_answer(Text("The beginning. " * 20, 8)).keep(9, Stall())
    async with FakeOpenAI([cut]) as api:
        fields = {"providers": compatible("local", api.base_url), "model": "local/m"}
        thread = new()
        async with visiting(tmp_path, fields, model="local/m") as ann, ann.events(thread) as events:
            message = await ann.say("hello", thread)
            await events.until("draft", id=message)
            await ann.say("/stop", thread)
            end = await events.until("settled", id=message, outcome="stopped")
            assert words(end["tree"]).startswith("The beginning.")
            before = await shown_of(ann, thread)
        async with visiting(tmp_path, fields, model="local/m") as ann:
            assert await shown_of(ann, thread) == before


async def test_one_person_never_sees_the_threads_of_another(tmp_path):
    async with visiting(tmp_path) as ann, Visitor(ann.site) as bob:
        await bob.enter("bob")
        thread = new()
        async with ann.events(thread) as events:
            await events.until("settled", id=await ann.say("a secret", thread))
        assert (await bob.get("/api/threads")).json() == {"threads": []}
        async with bob.events(thread) as events:
            await events.until("snapshot")
            assert "a secret" not in str(events.seen)
        assert (await bob.get("/look/")).status_code == 403
        assert (await ann.get("/look/")).status_code == 200


async def test_while_the_store_is_away_the_pages_of_admins_say_so_and_the_bot_logs_one_line(
    tmp_path, monkeypatch, caplog
):
    def fail(*_):
        raise ConnectionError("postgres: away")

    async with visiting(tmp_path) as ann:
        for method in ("threads", "audit"):
            monkeypatch.setattr(f"bot.reports.files.FileReader.{method}", fail)
        for path in ("threads", "chart/models.svg"):
            answer = await ann.get(f"/look/{path}")
            assert answer.status_code == 503
            assert answer.text == "I cannot read my store right now. Reload this page in a moment."
    told = [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert [(one.getMessage(), one.exc_info) for one in told] == [("web.not_read: postgres: away", None)] * 2


async def test_a_page_that_reads_nothing_delays_nobody(tmp_path):
    async with visiting(tmp_path) as ann:
        thread = new()
        async with ann.events(thread), ann.events(thread) as events:
            for number in range(30):
                await ann.say(f"message {number}", thread)
            with anyio.fail_after(WITHIN_S):
                while len([e for e in events.seen if e["op"] == "settled"]) < 30:
                    await events.until("settled")


async def test_feedback_is_in_the_audit(tmp_path):
    async with visiting(tmp_path) as ann, ann.events(thread := new()) as events:
        message = await ann.say("hello", thread)
        await events.until("settled", id=message)
        body = {"id": new(), "thread": thread, "post": message, "verdict": "up"}
        assert (await ann.post("/api/feedback", json=body)).status_code == 202
        assert '"feedback"' in next((tmp_path / "audit").glob("*.jsonl")).read_text()


async def shown(visitor, thread):
    """Return the ids of the messages on a page of the thread, in their order."""
    async with visitor.events(thread) as events:
        await events.until("snapshot")
        return list(dict.fromkeys(event["id"] for event in events.seen if "id" in event))


async def test_a_page_that_is_loaded_again_has_its_messages_in_the_order_in_which_they_were_sent(tmp_path):
    fields = {"tools": {"enabled": ["files"], "policy": {"write_file": "ask"}}}
    async with visiting(tmp_path, fields) as ann, ann.events(thread := new()) as events:
        first = await ann.say("write notes.md x", thread)
        question = await events.until("post", kind="notice")
        second = await ann.say("/status", thread)
        await events.until("settled", id=second)
        assert await shown(ann, thread) == [first, second]
        await ann.say(question["choices"][-1]["command"], thread)
        await events.until("settled", id=first)
        assert await shown(ann, thread) == [first, second]


async def test_a_file_of_a_message_that_is_not_shown_any_more_makes_no_message_of_its_own(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("transports.web.talk.LAST_MESSAGES", 1)
    thread = new()
    async with visiting(tmp_path) as ann, ann.events(thread) as events:
        await events.until("settled", id=await ann.say("write out.md x", thread))
        await events.until("settled", id=await ann.say("attach out.md", thread))
        await events.until("settled", id=(last := await ann.say("hello", thread)))
    async with visiting(tmp_path) as ann, ann.events(thread) as events:
        await events.until("snapshot")
        assert {e["id"] for e in events.seen if "id" in e} == {last}


async def test_an_edit_that_came_as_the_turn_began_is_not_told_as_done(tmp_path):
    async with visiting(tmp_path) as ann, ann.events(thread := new()) as events:
        talk, message = ann.site.web._talk, new()

        async def begins(event):
            talk.show(ThreadId("web", "", "you", thread), message, TurnStarted("draft", "you"))

        monkeypatched, talk.sink = talk.sink, begins
        late = await ann.post("/api/edit", json={"id": message, "thread": thread, "text": "final"})
        talk.sink = monkeypatched
        await events.until("started")
        assert late.status_code == 409
        assert not [e for e in events.seen if e["op"] == "edit"]


async def test_a_notice_that_answers_no_message_is_seen_and_keeps_no_thread_busy(tmp_path):
    async with visiting(tmp_path) as ann, ann.events(thread := new()) as events:
        await ann.site.web.post(Outgoing(ThreadId("web", "", "you", thread), "k", "left out", "notice"))
        post = await events.until("post", key="k")
        assert post["id"]
        await events.until("settled", id=post["id"])
        assert not [one for one in (await ann.get("/api/threads")).json()["threads"] if one["busy"]]


@pytest.mark.parametrize("path", ["/api/events", "/look/events"])
async def test_a_page_whose_session_is_over_is_told_no_more(tmp_path, path):
    async with visiting(tmp_path) as ann, ann.stream("GET", path, params={"thread": new()}) as answer:
        assert (await ann.post("/api/leave", json={})).status_code == 200
        ann.site.web._talk.show(ThreadId("web", "", "you", "other"), "m", TurnStarted("a secret", "you"))
        ann.site.events.settled("web", "answered", 1.0, {"thread_id": "a secret"})
        with anyio.fail_after(WITHIN_S):
            assert "secret" not in "".join([text async for text in answer.aiter_text()])


async def test_a_command_and_what_answers_a_question_are_shown_with_their_words_at_once(tmp_path):
    fields = {"tools": {"enabled": ["ask_person"]}}
    async with visiting(tmp_path, fields) as ann, ann.events(thread := new()) as events:
        await events.until("snapshot")
        await ann.say("ask Why?", thread)
        await events.until("post", kind="notice")
        for text in ("/status", "because"):
            message = await ann.say(text, thread)
            await events.until("settled", id=message)
            live = [event for event in events.seen if event.get("id") == message]
            assert (live[0]["op"], live[0].get("text")) == ("message", text)
        assert [event["op"] for event in events.seen].count("snapshot") == 1


async def test_the_reply_to_a_press_waits_for_the_page_that_is_on_its_way_back(tmp_path):
    fields = {"tools": {"enabled": ["files"], "policy": {"write_file": "ask"}}}
    async with visiting(tmp_path, fields) as ann:
        async with ann.events(thread := new()) as events:
            message = await ann.say("write notes.md x", thread)
            question = await events.until("post", kind="notice")
            await ann.say(question["choices"][0]["command"], thread)
            await events.until("settled", id=message)
        async with ann.events("") as listed:
            await listed.until("list")
            await ann.say(question["choices"][0]["command"], thread)
            await listed.until("list", thread=thread)  # the press has its outcome
        async with ann.events(thread, "of-an-earlier-process.1.1") as back:
            assert "no question of mine open" in (await back.until("told"))["text"]
        async with ann.events(thread) as loaded_later:
            await loaded_later.until("snapshot")
            assert "told" not in {event["op"] for event in loaded_later.seen}
