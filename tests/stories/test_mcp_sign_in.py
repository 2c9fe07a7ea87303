"""A whole bot over a server where people sign in: calls as the asker, and no token anywhere but in its own file."""

import io
import json
import logging
import re
import stat
from contextlib import asynccontextmanager, contextmanager

import anyio
import pytest

from bot.observe.logs import configure_logging
from bot.tools.mcp.credentials import FOLDER
from tests.fakes.anthropic import FakeAnthropic, Text, Tool, answer
from tests.fakes.mcp_oauth import CANARY, browse
from tests.fakes.mcp_oauth import serving as serving_site
from tests.serving import KEYS, Chat, anthropic, serving
from threads.model import Author
from transports.base.transport import Capabilities

pytestmark = pytest.mark.anyio

BOB = Author("U2", "Bob")


class Stage:
    def __init__(self, chat, model, site, data, logs):
        self.chat, self.model, self.site, self.data, self.logs = chat, model, site, data, logs
        self.steps = []

    def reply(self, _seen):
        return answer(self.steps.pop(0) if self.steps else Text("done"))

    async def sign_in(self, **who):
        link = re.search(r"```\n(\S+)\n```", (await self.chat.say("/mcp connect shop", **who)).text)
        return (await self.chat.say(await browse(link[1]), **who)).text

    @property
    def last_request(self):
        return json.dumps(self.model.requests[-1].json, ensure_ascii=False)

    def everything_else(self):
        """All that was shown, logged, sent to the model, and stored outside of the folder of tokens."""
        stored = [file for file in self.data.rglob("*") if file.is_file() and FOLDER not in file.parts]
        return {
            "posts": repr(self.chat.posts) + repr(self.chat.events),
            "logs": self.logs.getvalue(),
            "model": "\n".join(json.dumps(request.json) for request in self.model.requests),
            **{str(file): file.read_bytes().decode("utf-8", "replace") for file in stored},
        }


@contextmanager
def logged(stream):
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    configure_logging("debug", "json", stream)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(capture=False)


@asynccontextmanager
async def stage(tmp_path, ports, **tools):
    port, redirect_port = ports
    logs, chat, model = io.StringIO(), Chat(), FakeAnthropic([])
    chat.capabilities = Capabilities(find=True, asks=True)
    async with model, serving_site(port) as site:
        made = Stage(chat, model, site, tmp_path / "data", logs)
        model.script = made.reply
        fields = {
            "model": "anthropic/claude-fake",
            "providers": anthropic(model.base_url),
            "prices": {"anthropic/claude-fake": {"input": 1.0, "output": 1.0}},
            "mcp_servers": {"shop": {"url": site.url, "oauth": {"redirect_port": redirect_port}}},
            "tools": {"enabled": ["files"], "policy": {"*": "allow"}, "after_outside_text": "allow", **tools},
        }
        with logged(logs):
            async with serving(made.data, fields, environ=KEYS, chat=chat):
                yield made


@pytest.fixture
def ports(free_tcp_port_factory):
    return free_tcp_port_factory(), free_tcp_port_factory()


async def test_a_call_runs_as_who_asks_and_no_token_comes_out_anywhere(tmp_path, ports):
    async with stage(tmp_path, ports) as made:
        assert await made.sign_in() == "You are signed in at shop."
        for tool in ("whoami", "leak"):
            made.steps = [Tool(f"c-{tool}", f"shop__{tool}"), Text("done")]
            assert (await made.chat.say(f"call {tool}")).text.startswith("done")
        assert "you are ann" in made.last_request
        assert "[masked]" in made.last_request
        assert made.site.calls == [("ann", "whoami")]
        made.site.grants.revoke(refresh=False)
        made.steps = [Tool("c-3", "shop__whoami"), Tool("c-4", "shop__leak"), Text("done")]
        await made.chat.say("again, with a new token")
        assert made.site.grants.refreshes == 1
        secrets = made.site.grants.issued
        assert {secret.split("-")[1] for secret in secrets if secret.startswith(CANARY)} == {
            "code",
            "access",
            "refresh",
        }
        for place, text in made.everything_else().items():
            for secret in secrets:
                assert secret not in text, place
        files = [file for file in made.data.rglob("*") if file.is_file()]
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files if FOLDER in file.parts)


async def test_a_revoked_sign_in_is_asked_for_and_the_turn_goes_on_by_itself(tmp_path, ports):
    async with stage(tmp_path, ports) as made:
        await made.sign_in()
        made.site.grants.revoke()
        made.steps = [Tool("c1", "shop__whoami"), Text("There you are.")]
        waiting = await made.chat.send("who am I there?")
        await made.chat.until(lambda: any("sign in at `shop`" in post.text for post in made.chat.posts))
        question = next(post for post in made.chat.posts if "sign in at `shop`" in post.text)
        assert [choice.label for choice in question.choices] == ["I have signed in", "Go on without"]
        too_early = await made.chat.say(question.choices[0].command)
        assert too_early.text.startswith("You are not signed in at shop yet")
        await made.sign_in(author=BOB)
        assert waiting.id not in made.chat.outcomes
        made.site.grants.person = "ann again"
        await made.sign_in()
        with anyio.fail_after(20):
            await made.chat.settled(waiting.id)
        assert made.chat.posts[-1].text == "There you are."
        assert made.site.calls == [("ann again", "whoami")]


async def test_who_does_not_sign_in_gets_an_answer_without_it(tmp_path, ports):
    async with stage(tmp_path, ports) as made:
        await made.sign_in()
        made.site.grants.revoke()
        made.steps = [Tool("c1", "shop__whoami"), Text("Without, then.")]
        waiting = await made.chat.send("who am I there?")
        await made.chat.until(lambda: any("sign in at `shop`" in post.text for post in made.chat.posts))
        question = next(post for post in made.chat.posts if "sign in at `shop`" in post.text)
        await made.chat.say(question.choices[1].command)
        with anyio.fail_after(20):
            await made.chat.settled(waiting.id)
        assert '\\"permission\\"' in made.last_request
        assert made.site.calls == []


async def test_a_prompt_is_a_message_and_what_it_lacks_is_said_without_the_model(tmp_path, ports):
    async with stage(tmp_path, ports) as made:
        first = await made.chat.say("/mcp shop:greet name=Eve")
        assert first.text == "I need you to sign in at shop first: say `/mcp connect shop`."
        await made.sign_in()
        assert "`/mcp shop:greet name=… [style=…]` Greet somebody." in (await made.chat.say("/mcp")).text
        lacking = await made.chat.say("/mcp shop:greet style=dry")
        assert lacking.text.startswith("`greet` needs `name`. Say `/mcp shop:greet name=…")
        unknown = await made.chat.say("/mcp shop:gret name=Eve")
        assert unknown.text == "There is no prompt of shop called `gret`. Did you mean `greet`?"
        assert made.model.requests == []
        await made.chat.say("/mcp shop:greet name=“Eve Moneypenny” style=dry")
        assert "Greet Eve Moneypenny in a dry way, for ann." in made.last_request
        assert "<outside " in made.last_request


async def test_a_resource_that_a_message_names_is_read_as_who_asks(tmp_path, ports):
    async with stage(tmp_path, ports, after_outside_text="ask") as made:
        await made.sign_in()
        await made.chat.say("What is in @shop:notes://today?")
        assert "The notes of ann: buy bread." in made.last_request
        missing = await made.chat.say("And in @shop:notes://never?")
        assert missing.text.startswith("I cannot use @shop:notes://never")
        made.steps = [Tool("c1", "write_file", {"path": "a.txt", "content": "x"}), Text("done")]
        await made.chat.send("Write a file.")
        await made.chat.until(lambda: any("May I use `write_file`?" in post.text for post in made.chat.posts))
