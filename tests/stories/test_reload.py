"""settings.json changes while people write: nobody waits, nothing is lost, no turn has a mixture of two files."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from itertools import count

import anyio

from bot.wiring import reload
from tests.fakes import openai as o
from tests.patience import WITHIN_S
from tests.serving import FAST, Chat, compatible, serving
from tests.world import ANN, message
from threads.background import background_tasks
from threads.model import Author, ThreadId
from threads.store.disk import PosixDisk, replace_file

THREADS, MESSAGES = 12, 120
FAULTY = ("{", "", '{"model": "no/where"}', '{"model": "local/m9", "max_tokens": "many"}', "[]")


class Slack(Chat):
    name = "slack"


def thread(number):
    return ThreadId("slack", "T1", f"C{number % 3}", f"{number}.0")


def version(fake, number, **more):
    """Return settings in which every part names the version, for everybody and in a scope."""
    return {
        **FAST,
        "model": f"local/everybody-{number}",
        "max_tokens": 1000 + number,
        "system": f"Everybody has version {number}.",
        "providers": compatible("local", fake.base_url),
        "scopes": {
            "slack:T1:C1": {
                "model": f"local/scope-{number}",
                "max_tokens": 2000 + number,
                "system": f"The scope has version {number}.",
            }
        },
        **more,
    }


def parts_of(seen):
    """Return the version in each part of a request, and whether it is that of the scope."""
    kind, _, number = seen.json["model"].partition("-")
    system = next(message["content"] for message in seen.json["messages"] if message["role"] == "system")
    text = "The scope" if kind == "scope" else "Everybody"
    return int(number), seen.json["max_tokens"], f"{text} has version {number}." in system, kind


class Swaps:
    """Writes one version after the other into a file, by each way, with a faulty file between any two."""

    def __init__(self, path, fake):
        self.path, self.fake, self.numbers = path, fake, count(1)

    def write(self, document, *, in_place):
        text = document if isinstance(document, str) else json.dumps(document)
        target = self.path if in_place else self.path.with_suffix(".tmp")
        target.write_text(text)
        target.replace(self.path)

    async def run(self):
        for number in self.numbers:
            self.write(version(self.fake, number), in_place=number % 2 == 0)
            await anyio.sleep(0.05)
            self.write(FAULTY[number % len(FAULTY)], in_place=number % 2 == 1)
            await anyio.sleep(0.05)


async def test_under_load_each_message_is_answered_by_one_whole_version(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(reload, "LOOK_S", 0.01)
    path = tmp_path / "settings.json"

    async def talk(chat, number):
        for _ in range(MESSAGES // THREADS):
            answer = (await chat.say("hello", thread=thread(number))).text
            assert answer.removesuffix("ok") == "" or answer.startswith("(Since my last answer here: ")
            await anyio.sleep(0.02)

    async with o.FakeOpenAI(lambda _: o.chat_answer(o.Text("ok"))) as fake:
        save(path, json.dumps(version(fake, 0)))
        async with serving(tmp_path / "data", version(fake, 0), chat=Slack(), file=path) as chat:
            with caplog.at_level(logging.INFO):
                async with background_tasks() as swapping:
                    swapping.start_soon(Swaps(path, fake).run)
                    async with anyio.create_task_group() as talking:
                        for number in range(THREADS):
                            talking.start_soon(talk, chat, number)
        assert len(chat.outcomes) == MESSAGES
        assert set(chat.outcomes.values()) == {"answered"}
        found = [parts_of(seen) for seen in fake.requests]
        assert len(found) == MESSAGES
        for number, max_tokens, text_fits, kind in found:
            assert text_fits
            assert max_tokens == number + (2000 if kind == "scope" else 1000)
        assert len({number for number, *_ in found}) > 3, "several versions were in use"
        assert {kind for *_, kind in found} == {"scope", "everybody"}
    events = {record.message.partition(":")[0] for record in caplog.records}
    assert {"settings.reloaded", "settings.rejected"} <= events


async def test_a_running_turn_ends_with_what_it_began_with(tmp_path, monkeypatch):
    monkeypatch.setattr(reload, "LOOK_S", 0.01)
    path = tmp_path / "settings.json"

    def reply(seen):
        if seen.json["messages"][-1]["role"] == "tool":
            return o.chat_answer(o.Text("done"))
        return o.chat_answer(o.Tool("c1", "write_file", {"path": "a.txt", "content": "x"}))

    def rules(verdict):
        return {"tools": {"enabled": ["files"], "policy": {"write_file": verdict}}}

    async with o.FakeOpenAI(reply) as fake:
        old, new = (version(fake, n, **rules(v)) for n, v in ((1, "ask"), (2, "deny")))
        save(path, json.dumps(old))
        async with serving(tmp_path / "data", old, chat=Slack(), file=path) as chat:
            first = await chat.send("write", thread=thread(0))
            await chat.until(lambda: any(post.choices for post in chat.posts))
            save(path, json.dumps(new))
            with anyio.fail_after(WITHIN_S):
                while "everybody-2" not in (await chat.say("/model", thread=thread(3))).text:
                    await anyio.sleep(0.01)
            approve = next(post for post in chat.posts if post.choices).choices[0].command
            await chat.say(approve, thread=thread(0))
            await chat.settled(first.id)
            assert [parts_of(seen)[0] for seen in fake.requests] == [1, 1]
            assert '"success": true' in json.dumps(
                json.loads(fake.requests[1].json["messages"][-1]["content"])
            )
            assert (await chat.say("write", thread=thread(3))).text == "done"
            assert "do not allow" in fake.requests[3].json["messages"][-1]["content"]


async def test_access_and_budget_count_at_once_and_the_operators_hear_of_a_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(reload, "LOOK_S", 0.01)
    path = tmp_path / "settings.json"
    async with o.FakeOpenAI(lambda _: o.chat_answer(o.Text("ok"))) as fake:
        base = version(fake, 0, escalation={"channel": "slack:T1:OPS"})
        save(path, json.dumps(base))
        async with serving(tmp_path / "data", base, chat=Slack(), file=path) as chat:
            assert (await chat.say("hello", thread=thread(0))).text == "ok"
            save(path, json.dumps({**base, "access": {"users": ["U2"]}}))
            await until_served(chat, ANN, "refused")
            await until_served(chat, Author("U2"), "answered")
            save(path, json.dumps({**base, "access": {"user": ["*"]}}))
            await chat.until(lambda: any(post.thread.channel == "OPS" for post in chat.posts))
            [told] = [post.text for post in chat.posts if post.thread.channel == "OPS"]
            assert 'access.user: unknown key; the nearest known one is "users"' in told
            assert str(tmp_path) not in told
            status = (await chat.say("/status", thread=thread(0), author=Author("U2"))).text
            assert "settings.json has a fault" in status
            await until_served(chat, ANN, "refused")
            save(path, json.dumps(base))
            await until_served(chat, ANN, "answered")
            assert "fault" not in (await chat.say("/status", thread=thread(0))).text


def save(path, text):
    """Write the file at once: a half of it would lie still for as long as a look of these tests takes."""
    replace_file(PosixDisk(), path, text.encode())


async def until_served(chat, author, outcome):
    """Write until the outcome is the expected one."""
    with anyio.fail_after(WITHIN_S):
        while True:
            incoming = await mention(chat, author)
            await chat.settled(incoming.id)
            if chat.outcomes[incoming.id] == outcome:
                return
            await anyio.sleep(0.01)


async def mention(chat, author):
    chat.sent += 1
    incoming = replace(message(chat.sent, "hello", thread(0), author), via="mention")
    await chat.sink(incoming)
    return incoming
