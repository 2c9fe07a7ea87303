"""A whole bot over a server where people sign in: calls as the asker, and no token anywhere but in its own file."""

import html
import io
import json
import logging
import re
import signal
import stat
from contextlib import asynccontextmanager, contextmanager

import anyio
import pytest

from bot.extensions.mcp.credentials import FOLDER
from bot.observe.logs import configure_logging
from tests.fakes.anthropic import FakeAnthropic, Text, Tool, answer
from tests.fakes.mcp_oauth import CANARY, browse, parameters
from tests.fakes.mcp_oauth import serving as serving_site
from tests.fakes.slack import FakeSlack
from tests.patience import WITHIN_S
from tests.serving import KEYS, Chat, anthropic, serving
from tests.stories.test_run_process import environ, running
from tests.stories.test_run_process import settings as write_settings
from threads.model import Author
from transports.base.transport import Capabilities

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


def settings_of(model, site, redirect_port, **tools):
    return {
        "model": "anthropic/claude-fake",
        "providers": anthropic(model.base_url),
        "prices": {"anthropic/claude-fake": {"input": 1.0, "output": 1.0}},
        "mcp_servers": {"shop": {"url": site.url, "oauth": {"redirect_port": redirect_port}}},
        "tools": {"enabled": ["files"], "policy": {"*": "allow"}, "after_outside_text": "allow", **tools},
    }


@asynccontextmanager
async def stage(tmp_path, ports, **tools):
    port, redirect_port = ports
    logs, chat, model = io.StringIO(), Chat(), FakeAnthropic([])
    chat.capabilities = Capabilities(find=True, asks=True)
    async with model, serving_site(port) as site:
        made = Stage(chat, model, site, tmp_path / "data", logs)
        model.script = made.reply
        fields = settings_of(model, site, redirect_port, **tools)
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
        expected = {"code", "access", "refresh"}
        assert {secret.split("-")[1] for secret in secrets if secret.startswith(CANARY)} == expected
        for place, text in made.everything_else().items():
            for secret in secrets:
                assert secret not in text, place
        files = [file for file in made.data.rglob("*") if file.is_file()]
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files if FOLDER in file.parts)


async def asked(made, count=1):
    """Return the last of *count* questions that ask for a sign-in, and its link."""

    def questions():
        return [post for post in made.chat.posts if "wants you to sign in" in post.text]

    await made.chat.until(lambda: len(questions()) == count)
    question = questions()[-1]
    return question, link_in(question.text)


def link_in(text):
    return re.search(r"```\s*(\S+?)\s*```", text)[1]


async def revoked(made, *steps):
    """Sign in, lose the sign-in, send a message whose answer takes *steps*, and return it."""
    await made.sign_in()
    made.site.grants.revoke()
    made.steps = list(steps)
    return await made.chat.send("who am I there?")


async def test_a_revoked_sign_in_is_asked_for_and_the_turn_goes_on_by_itself(tmp_path, ports):
    async with stage(tmp_path, ports) as made:
        waiting = await revoked(made, Tool("c1", "shop__whoami"), Text("There you are."))
        question, link = await asked(made)
        labels = [choice.label for choice in question.choices]
        assert labels == ["1. I have signed in", "2. Other input", "3. Go on without"]
        too_early = await made.chat.say(question.choices[0].command)
        assert too_early.text.startswith("You are not signed in at shop yet")
        await made.sign_in(author=BOB)
        assert waiting.id not in made.chat.outcomes
        made.site.grants.person = "ann again"
        assert (await made.chat.say(await browse(link))).text == "You are signed in at shop."
        with anyio.fail_after(WITHIN_S):
            await made.chat.settled(waiting.id)
        assert made.chat.posts[-1].text == "There you are."
        assert made.site.calls == [("ann again", "whoami")]


async def test_a_sign_in_by_another_link_ends_the_question_too(tmp_path, ports):
    async with stage(tmp_path, ports) as made:
        waiting = await revoked(made, Tool("c1", "shop__whoami"), Tool("c2", "shop__whoami"), Text("Done."))
        await asked(made)
        await made.sign_in()
        with anyio.fail_after(WITHIN_S):
            await made.chat.settled(waiting.id)
        assert made.site.calls == [("ann", "whoami")] * 2
        await asked(made, 1)


@pytest.mark.parametrize(
    ("answer", "told"), [(2, "chose to go on without"), ("Use the public page.", "Use the public page.")]
)
async def test_who_does_not_sign_in_gets_an_answer_without_it(tmp_path, ports, answer, told):
    async with stage(tmp_path, ports) as made:
        waiting = await revoked(
            made, Tool("c1", "shop__whoami"), Tool("c2", "shop__whoami"), Text("Without, then.")
        )
        question, _ = await asked(made)
        await made.chat.send(question.choices[answer].command if isinstance(answer, int) else answer)
        if answer != 2:
            question, _ = await asked(made, 2)
            await made.chat.send(question.choices[2].command)
        with anyio.fail_after(WITHIN_S):
            await made.chat.settled(waiting.id)
        assert '\\"permission\\"' in made.last_request
        assert told in made.last_request
        assert made.site.calls == []


async def test_calls_of_one_step_share_a_question_and_an_approval_is_asked_for_once(tmp_path, ports):
    async with stage(tmp_path, ports, policy={"*": "ask"}) as made:
        both = [Tool("c1", "shop__whoami"), Tool("c2", "shop__whoami")]
        made.reply = lambda _: answer(*(both.pop() for _ in list(both))) if both else answer(Text("Done."))
        made.model.script = made.reply
        waiting = await revoked(made)
        for count in (1, 2):
            await made.chat.until(lambda count=count: len(approvals(made)) == count)
            await made.chat.say(approvals(made)[-1].choices[0].command)
        _, link = await asked(made)
        await made.chat.say(await browse(link))
        with anyio.fail_after(WITHIN_S):
            await made.chat.settled(waiting.id)
        assert made.site.calls == [("ann", "whoami")] * 2
        assert len(approvals(made)) == 2
        await asked(made, 1)


def approvals(made):
    return [post for post in made.chat.posts if "May I use" in post.text]


class Process:
    """The bot as a process in Slack, and a person who writes to it directly."""

    def __init__(self, slack, site, model, path):
        self.slack, self.site, self.model, self.path = slack, site, model, path
        self.steps = []

    def reply(self, _seen):
        return answer(self.steps.pop(0) if self.steps else Text("done"))

    def run(self):
        return running(self.path, environ(self.slack, **KEYS))

    def posts(self, words):
        return [text for text in map(_words, self.slack.posts()) if words in text]

    async def until(self, words, count=1):
        await self.slack.until(lambda: len(self.posts(words)) == count)
        return self.posts(words)[-1]

    async def say(self, text, words):
        await self.slack.say("U1", "D1", text).delivered(30)
        return await self.until(words)


def _words(post):
    shown = [block["text"] for block in post.blocks or () if block["type"] == "markdown"]
    return "\n".join(shown) or html.unescape(post.text)


@asynccontextmanager
async def killed(tmp_path, ports):
    """Yield a bot that was killed while it asked for a sign-in, the link in that question, and what was revoked."""
    port, redirect_port = ports
    redelivery = (0.0, *[0.5] * 60)
    async with (
        FakeAnthropic([]) as model,
        serving_site(port) as site,
        FakeSlack(redeliver_after=redelivery) as slack,
    ):
        path = write_settings(tmp_path, slack={"api_base_url": slack.api_base_url})
        fields = settings_of(model, site, redirect_port)
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
        bot = Process(slack, site, model, path)
        model.script = bot.reply
        async with bot.run() as process:
            await slack.until(lambda: slack.sockets.links)
            link = link_in(await bot.say("/mcp connect shop", "check where it leads"))
            await bot.say(await browse(link), "You are signed in at shop.")
            tokens = {file: file.read_bytes() for file in (tmp_path / "data" / FOLDER).iterdir()}
            before = dict(site.grants.access), dict(site.grants.refresh), tokens
            site.grants.revoke()
            bot.steps = [Tool("c1", "shop__whoami"), Text("There you are.")]
            first = link_in(await bot.say("who am I there?", "wants you to sign in"))
            process.send_signal(signal.SIGKILL)
            await process.wait()
        yield bot, first, before
        assert site.calls == [("ann", "whoami")]
        assert len(bot.posts("There you are.")) == 1
        assert len(model.requests) == 2


async def test_a_question_that_was_open_at_kill_minus_nine_comes_again_with_a_new_link(tmp_path, ports):
    async with killed(tmp_path, ports) as (bot, first, _), bot.run():
        second = link_in(await bot.until("wants you to sign in", 2))
        assert parameters(first)["state"] != parameters(second)["state"]
        await bot.say(await browse(first), "belongs to no sign-in that is open")
        assert bot.site.calls == []
        await bot.say(await browse(second), "There you are.")
        assert len(bot.posts("wants you to sign in")) == 2


async def test_who_signed_in_while_the_bot_was_away_is_not_asked_again(tmp_path, ports):
    async with killed(tmp_path, ports) as (bot, _, before):
        bot.site.grants.access, bot.site.grants.refresh, tokens = before
        for file, content in tokens.items():
            file.write_bytes(content)
        async with bot.run():
            await bot.until("There you are.")
        assert len(bot.posts("wants you to sign in")) == 1


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
