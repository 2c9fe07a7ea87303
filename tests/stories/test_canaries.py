"""Canaries: a whole bot is given secrets that look like nothing, and none of them comes out anywhere.

| a secret comes in by                                | then it may be kept in                        | and leaves by |
|-----------------------------------------------------|-----------------------------------------------|---------------|
| a tool: its result, its error, its standard error   | nothing                                       | nothing       |
| the provider's own error, an exception              | nothing                                       | nothing       |
| the model itself                                    | nothing                                       | nothing       |
| a person who types it                               | the journal, the log, the conversation        | nothing       |

What is kept is 0600, stays on the machine, and has to be whole, or no turn could be taken up again. What leaves is
masked: posts, drafts, lines of status, questions, names of files, what a model reads of a tool, logs, the audit.
"""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import anyio
import pytest

from bot.extensions.browser.launch import has_own, system_browser
from bot.extensions.browser.session import BrowserFailed, PageRequest
from bot.extensions.mcp import servers
from bot.extensions.mcp.server import Server
from bot.extensions.mcp.session import MAX_REFUSAL
from bot.extensions.mcp.tool import MAX_ERROR, MAX_TEXT
from bot.extensions.mcp.tool_list import MAX_DESCRIPTION
from bot.guards.redaction import Masker, mask, safe_prefix, secret_forms
from bot.guards.stream_redaction import StreamMasker, boundary_finder
from bot.observe.logs import configure_logging
from tests.bot.extensions.browser.site import page
from tests.bot.extensions.browser.site import running as running_browser
from tests.bot.extensions.browser.site import serving as site_serving
from tests.fakes.anthropic import FakeAnthropic, Text, Tool, answer, fault
from tests.patience import WITHIN_S
from tests.serving import Chat, anthropic, serving
from tests.world import T1
from threads.background import background_tasks
from threads.model import Outgoing, Taken, TextDelta, ThreadId, ToolStarted, TurnStarted
from threads.store.data_folder import thread_folder
from transports.base.transport import Capabilities

ROOT = Path(__file__).parents[2]
CANARIES = {
    "PROVIDER": "Provider/Kanarie+7f3a9c2e11",
    "SLACK": "slack.kanarie.51c0de77aa",
    "SLACK_APP": 'app"kanarie\\d1e0ff',
    "DISCORD": "discord kanarie with words 93xq",
    "MCP_ENV": "mcp*kanarie?[e5xw]zq3x",
    "MCP_HEADER": "Bearer headerkanarie00ff11ee",
}
FILE_CANARY = '{\n  "client": "kanarie-client-of-a-file",\n  "key": "file\\\\kanarie 0a1b2c3d"\n}\n'
"""A secret by "file:": several lines, quotes, backslashes."""

MARKS = {
    "PROVIDER": "Kanarie",
    "SLACK": "slack.kan",
    "SLACK_APP": "kanarie\\\\d1e0",
    "DISCORD": "kanarie with",
    "MCP_ENV": "mcp*kan",
    "MCP_HEADER": "headerkan",
    "FILE": "kanarie 0a1b",
    "FILE_LINE": "kanarie-client",
}
"""A part of each that is in no other text: more than a look for the whole would find."""

PARTS = {
    *MARKS.values(),
    "kanarie\\d1e0",
    "mcp[*]kan",
    "discord%20kan",
    "0a1b2c3d",
    "d1e0ff",
    "93xq",
    "zq3x",
    "00ff11ee",
}

SERVER = f"""
MAX_DESCRIPTION, MAX_REFUSAL, MAX_TEXT, MAX_ERROR = {MAX_DESCRIPTION}, {MAX_REFUSAL}, {MAX_TEXT}, {MAX_ERROR}
"""
SERVER += """
import json, os, sys
told = dict(os.environ)
print("starting with", told, file=sys.stderr, flush=True)
def tool(name):
    return {"name": name, "description": LONG_DESCRIPTION, "inputSchema": {"type": "object"}}
def until_cut(limit, secret):
    return "x" * (limit - len(secret) + 4) + secret + " and more"
LONG_DESCRIPTION = until_cut(MAX_DESCRIPTION, told["TOKEN"])
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    out = {"jsonrpc": "2.0", "id": asked["id"]}
    name = asked.get("params", {}).get("name")
    text = json.dumps(told) if name == "environment" else "; ".join(told.values())
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        out["result"] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
    elif asked["method"] == "tools/list":
        out["result"] = {"tools": [tool(name) for name in ("environment", "values", "fails", "breaks", "floods", "cut", "cut_fails", "cut_breaks")]}
    elif name == "cut_breaks":
        out["error"] = {"code": -32000, "message": until_cut(MAX_REFUSAL, told["GIVEN"])}
    elif name in ("cut", "cut_fails"):
        limit = MAX_TEXT if name == "cut" else MAX_ERROR
        text = until_cut(limit, told["GIVEN"])
        out["result"] = {"content": [{"type": "text", "text": text}], "isError": name == "cut_fails"}
    elif name == "breaks":
        out["error"] = {"code": -32000, "message": text}
    else:
        text = text * 2000 if name == "floods" else text
        out["result"] = {"content": [{"type": "text", "text": text}], "isError": name == "fails"}
    print(json.dumps(out), flush=True)
"""


def found_in(text: str) -> list[str]:
    """Return what of the canaries is in a text."""
    return sorted(part for part in PARTS if part in text)


class Taking(Chat):
    """A platform that takes files, and keeps all that it was ever told."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = Capabilities(find=True, files=True, asks=True)
        self.files: list[tuple[str, bytes]] = []

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        self.files.append((name, file.read_bytes()))

    async def post(self, outgoing: Outgoing) -> str:
        found = await super().post(outgoing)
        self.show(outgoing.thread, "", ToolStarted("posted"))  # wakes `until`
        return found


@dataclass
class Stage:
    """A bot that serves, the model behind it, and every sink."""

    data: Path
    chat: Taking
    model: FakeAnthropic
    logs: io.StringIO
    environ: dict[str, str]
    settings: Path
    plan: dict[str, list[object]] = field(default_factory=dict)

    async def turn(self, words: str, *steps: object) -> Outgoing:
        """Have a person say *words*, and the model do these steps; it ends with "done"."""
        self.plan[words] = list(steps)
        return await self.chat.say(words)

    @property
    def shown(self) -> str:
        """All that people could see: posts, drafts, signs, questions with their buttons, files."""
        drafts: dict[str, str] = {}
        for message_id, event in self.chat.events:
            if isinstance(event, TextDelta):
                drafts[message_id] = drafts.get(message_id, "") + event.text
        events = [repr(event) for _, event in self.chat.events if not isinstance(event, Taken | TurnStarted)]
        return "\n".join(
            [*map(repr, self.chat.posts), *self.chat.texts, *drafts.values(), *events, repr(self.chat.files)]
        )

    @property
    def told_to_the_model(self) -> str:
        """What tools and we ourselves told it: no word of its own, none of a person's."""
        told = []
        for request in self.model.requests:
            told.append(
                json.dumps([request.json.get("system"), request.json.get("tools")], ensure_ascii=False)
            )
            for message in request.json["messages"]:
                blocks = message["content"] if isinstance(message["content"], list) else []
                told += [
                    json.dumps(block, ensure_ascii=False)
                    for block in blocks
                    if block["type"] == "tool_result"
                ]
        return "\n".join(told)

    def kept(self, *but: str) -> str:
        """Return every byte on the disk, but in files of these names."""
        for _ in range(100):
            files = [path for path in self.data.rglob("*") if path.is_file() and path.name not in but]
            with suppress(FileNotFoundError):  # the bot has just replaced one of them: read them all again
                return "\n".join(
                    f"{path.name}: {path.read_bytes().decode('utf-8', 'replace')}" for path in files
                )
        raise AssertionError("the files never stood still")


CONVERSATION = ("journal.jsonl", "log.jsonl", "context.jsonl")


@asynccontextmanager
async def stage(tmp_path: Path, policy: Mapping[str, str] = MappingProxyType({"*": "allow"})):
    data, secret, program = tmp_path / "data", tmp_path / "file.secret", tmp_path / "server.py"
    secret.write_text(FILE_CANARY)
    program.write_text(SERVER)
    environ = {**CANARIES, "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    made = Stage(data, Taking(), FakeAnthropic([]), io.StringIO(), environ, tmp_path / "settings.json")
    made.model.script = lambda seen: reply(made, seen)
    async with made.model:
        providers = anthropic(made.model.base_url)
        providers["anthropic"]["api_key"] = "env:PROVIDER"
        given = {
            "model": "anthropic/claude-fake",
            "providers": providers,
            "prices": {"anthropic/claude-fake": {"input": 1.0, "output": 1.0}},
            "models": {"anthropic/claude-fake": {"context_window": 500_000}},
            "llm_retry": {"max_retries": 0},
            "transports": {
                "slack": {"bot_token": "env:SLACK", "app_token": "env:SLACK_APP"},
                "discord": {"token": "env:DISCORD"},
            },
            "mcp_servers": {
                "teller": {
                    "command": sys.executable,
                    "args": ["-I", "-S", str(program)],
                    "env": {"TOKEN": "env:MCP_ENV", "GIVEN": f"file:{secret}"},
                },
                "far": {
                    "url": f"{made.model.base_url}/nowhere",
                    "headers": {"Authorization": "env:MCP_HEADER"},
                },
            },
            "tools": {
                "enabled": ["files", "memory", "schedule", "web_fetch"],
                "policy": dict(policy),
                "after_outside_text": "allow",
                "recovery": "model",
            },
        }
        made.settings.write_text(json.dumps({**given, "data": str(data)}))
        with logged(made.logs), pytest.MonkeyPatch.context() as patch:
            patch.setattr(servers, "_learn", learned)
            async with serving(data, given, environ=environ, chat=made.chat):
                yield made


async def learned(unknown: Sequence[Server], _within_s: float) -> None:
    """Wait until each server's tools are known, however long it takes: on a busy machine the usual 5 s are too few."""
    for server in unknown:
        server.request_connection()
    with anyio.fail_after(120):
        for server in unknown:
            await server.attempted.wait()


@contextmanager
def logged(stream: io.StringIO) -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    configure_logging("debug", "json", stream, secrets=[*CANARIES.values(), FILE_CANARY.rstrip()])
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(capture=False)


def reply(made: Stage, seen):
    """Take the next step of the plan of what was said last."""
    said = [
        block["text"]
        for message in seen.json["messages"]
        if message["role"] == "user" and isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "text"
    ]
    plan = next(
        (plan for words, plan in reversed(made.plan.items()) if any(words in text for text in said[-2:])), []
    )
    step = plan.pop(0) if plan else Text("done")
    if callable(step):
        step = step(seen)
    return step if not isinstance(step, Text | Tool) else answer(step)


def repeated(seen) -> Text:
    """Say what the last tool told, as it stands."""
    blocks = seen.json["messages"][-1]["content"]
    return Text(f"It said: {blocks[0]['content']}", pieces=40)


async def test_what_the_model_says_is_masked_in_the_post_and_in_every_draft(tmp_path):
    async with stage(tmp_path) as made:
        for number, canary in enumerate([*CANARIES.values(), FILE_CANARY]):
            for pieces in (1, 7, 50) if number == 0 else (7,):
                await made.turn(
                    f"say {number} {pieces}.", Text(f"The key is: {canary} and that is it.", pieces)
                )
        assert found_in(made.shown) == []
        assert "[masked]" in made.shown
        assert found_in(made.kept()) == []
        assert found_in(made.told_to_the_model) == []
        assert found_in(made.logs.getvalue()) == []


@pytest.mark.parametrize(
    ("tool", "arguments", "sink"),
    [
        ("write_file", {"path": "{}.txt", "content": "{}"}, "workspace"),
        ("remember", {"text": "{}", "scope": "thread"}, "MEMORY.md"),
        ("schedule", {"text": "{}", "in_minutes": 60}, "schedules.json"),
        ("teller__values", {"q": {"deep": ["{}"]}}, "audit"),
    ],
)
async def test_what_the_model_calls_a_tool_with_is_kept_nowhere(tmp_path, tool, arguments, sink):
    async with stage(tmp_path) as made:
        for number, canary in enumerate([*CANARIES.values(), FILE_CANARY]):
            given = json.loads(json.dumps(arguments).replace("{}", json.dumps(canary)[1:-1]))
            await made.turn(f"call {number}.", Tool("c1", tool, given), repeated)
        assert any(sink in str(path) for path in made.data.rglob("*"))
        for found in (made.kept(), made.shown, made.told_to_the_model, made.logs.getvalue()):
            assert found_in(found) == []


async def test_what_a_tool_tells_is_masked_before_the_model_reads_it_and_kept_nowhere(tmp_path):
    async with stage(tmp_path) as made:
        for name in ("environment", "values", "fails", "breaks", "floods", "cut", "cut_fails", "cut_breaks"):
            await made.turn(f"ask {name}.", Tool(f"c-{name}", f"teller__{name}"), repeated)
        assert made.told_to_the_model.count("[masked]") > 3
        assert found_in(made.told_to_the_model) == []
        assert found_in(made.shown) == []
        assert found_in(made.kept()) == []
        assert found_in(made.logs.getvalue()) == []
        assert "tool-output" in made.told_to_the_model, "one of the results was kept in a file"


@pytest.mark.parametrize("canary", [*CANARIES.values(), FILE_CANARY], ids=[*CANARIES, "FILE"])
def test_a_text_that_is_cut_anywhere_ends_in_no_part_of_a_secret(canary):
    mask = Masker([*CANARIES.values(), FILE_CANARY])
    text = f"Here it is: {canary} and so on. The next is: {canary} and more."
    for most in range(len(text) + 1):
        cut = safe_prefix(text, most, mask)
        assert mask(text).startswith(mask(cut))
        assert len(cut) <= most
    assert safe_prefix(text, len(text), mask) == text
    assert safe_prefix("x" * 100, 40, mask) == "x" * 40


def test_a_token_that_is_known_by_its_shape_alone_is_not_cut_either():
    token = f"ghp_{'a1' * 15}"
    for most in range(4, 30):
        assert safe_prefix(f"it: {token}", most + 4, mask).removeprefix("it: ") in "[masked]"


async def test_the_providers_own_error_names_no_key(tmp_path):
    async with stage(tmp_path) as made:
        for status, kind in (
            (401, "authentication_error"),
            (400, "invalid_request_error"),
            (500, "api_error"),
        ):
            words = f"no such key {CANARIES['PROVIDER']}, and {CANARIES['SLACK_APP']}"
            await made.turn(f"fail {status}.", fault(status, kind, words))
        assert set(made.chat.outcomes.values()) == {"failed"}
        assert "[masked]" in made.logs.getvalue(), "the operator reads what the provider said"
        for sink in (made.shown, made.kept(), made.logs.getvalue()):
            assert found_in(sink) == []


async def test_an_exception_in_a_tool_and_in_a_turn_names_none(tmp_path, monkeypatch):
    async def breaks(*_):
        raise RuntimeError(f"{CANARIES['PROVIDER']} {CANARIES['MCP_ENV']} {FILE_CANARY}")

    monkeypatch.setattr("bot.extensions.files.read.ListFiles.__call__", breaks)
    async with stage(tmp_path) as made:
        await made.turn("list.", Tool("c1", "list_files"), repeated)
        monkeypatch.setattr("bot.tools.gate.Toolbox.run", breaks)
        await made.turn("list again.", Tool("c1", "list_files"))
        assert sorted(made.chat.outcomes.values()) == ["answered", "failed"]
        assert "RuntimeError" in made.logs.getvalue()
        for sink in (made.shown, made.told_to_the_model, made.kept(), made.logs.getvalue()):
            assert found_in(sink) == []


async def test_what_a_person_types_is_kept_as_it_is_and_repeated_nowhere(tmp_path):
    async with stage(tmp_path) as made:
        for number, canary in enumerate([*CANARIES.values(), FILE_CANARY.replace("\n", " ")]):
            await made.turn(f"typed {number}: {canary}", Text(f"You said {canary}.", 9))
            await made.chat.say(f"/memory forget {canary}")
            await made.chat.say(f"/model {canary}")
            await made.chat.say(f"/{canary}")
        assert CANARIES["SLACK"] in (thread_folder(made.data, T1) / "log.jsonl").read_text()
        assert found_in(made.shown) == []
        assert found_in(made.kept(*CONVERSATION)) == []
        assert found_in(made.logs.getvalue()) == []


async def test_what_a_tool_is_called_with_is_masked_in_its_line_of_status(tmp_path):
    async with stage(tmp_path) as made:
        for size in (50, 60, 68, 72, 76, 79):
            word = "x" * size
            await made.turn(f"read {size}.", Tool("c1", "read_file", {"path": f"{word} {CANARIES['SLACK']}"}))
        key = f"-----BEGIN PRIVATE KEY-----{'k' * 1_930}-----END PRIVATE KEY-----"
        await made.turn("read a key.", Tool("c1", "read_file", {"path": f"{key} {CANARIES['SLACK']}"}))
        await made.turn("call it.", Tool("c1", CANARIES["SLACK"], {}))
        assert [shown for shown in MARKS.values() if shown in made.shown] == []
        started = [event for _, event in made.chat.events if isinstance(event, ToolStarted)]
        assert not any("slack.k" in repr(event) for event in started), "not even the beginning of one"


async def test_a_file_that_holds_a_secret_of_ours_is_not_posted_and_names_none(tmp_path):
    async with stage(tmp_path) as made:
        workspace = thread_folder(made.data, T1) / "workspace"
        for number, canary in enumerate([*CANARIES.values(), FILE_CANARY]):
            workspace.mkdir(parents=True, exist_ok=True)
            (workspace / "report.txt").write_text(f"{'x' * 1_000_000 * (number == 1)}{canary} and more")
            await made.turn(f"post {number}.", Tool("c2", "attach", {"path": "report.txt"}), repeated)
        named = {"path": "fine.txt", "name": f"{CANARIES['SLACK']}.txt"}
        await made.turn(
            "post well.",
            Tool("c1", "write_file", {"path": "fine.txt", "content": "all well"}),
            Tool("c2", "attach", named),
        )
        assert [data for _, data in made.chat.files] == [b"all well"]
        assert found_in(made.shown) == []
        assert "secret of the bot" in made.told_to_the_model


async def test_no_line_of_the_audit_no_permission_and_no_question_holds_one(tmp_path):
    async with stage(tmp_path, policy={"teller__values": "ask"}) as made:
        for number, canary in enumerate([*CANARIES.values(), FILE_CANARY]):
            made.plan[f"ask {number}."] = [Tool("c1", "teller__values", {"q": canary})]
            posts = len(made.chat.posts)
            sent = await made.chat.send(f"ask {number}.")
            with anyio.fail_after(WITHIN_S):
                await made.chat.until(
                    lambda before=posts: any(post.choices for post in made.chat.posts[before:])
                )
                await made.chat.say("/approve once")
                await made.chat.settled(sent.id)
        assert found_in(made.shown) == []
        assert found_in("\n".join(path.read_text() for path in (made.data / "audit").iterdir())) == []
        assert found_in((made.data / "approvals.json").read_text()) == []


async def test_no_child_is_given_one(tmp_path):
    """What the kernel knows of each child: its command line and its environment. An MCP server has its own only."""
    async with stage(tmp_path) as made:
        pids = []

        async def children():
            while True:
                pids.extend(_descendants(os.getpid()))
                await anyio.sleep(0.002)

        async with background_tasks() as tasks:
            tasks.start_soon(children)
            await made.turn("ask.", Tool("c2", "teller__environment"))
        kinds = {line.split("\0")[-2] if "\0" in line else line for line, _ in pids}
        assert any("server.py" in kind for kind in kinds), kinds
        for line, environment in pids:
            assert found_in(line) == []
            if "server.py" in line:
                continue
            assert found_in(environment) == [], line


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> dict[str, str]:
    """What every command says about a conversation that had secrets in it: a real process each."""
    folder = tmp_path_factory.mktemp("told")
    secret = folder / "file.secret"
    secret.write_text(FILE_CANARY)
    environ = {
        **CANARIES,
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        "LANG": "C.UTF-8",
    }
    settings = {
        "model": "offline/demo",
        "providers": {"anthropic": {"api_key": "env:PROVIDER"}},
        "transports": {
            "slack": {"bot_token": "env:SLACK", "app_token": "env:SLACK_APP"},
            "discord": {"token": "env:DISCORD"},
        },
        "mcp_servers": {
            "broken": {
                "command": "/bin/sh",
                "args": ["-c", 'printf "%s\\n" "$TOKEN $GIVEN" >&2; exit 3'],
                "env": {"TOKEN": "env:MCP_ENV", "GIVEN": f"file:{secret}"},
            }
        },
        "tools": {"enabled": ["files", "shell", "memory", "schedule"]},
        "observe": {"log_level": "debug", "log_format": "text"},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    said = [f"say {canary}" for canary in CANARIES.values()] + [
        f"write note.txt {CANARIES['SLACK']}",
        "read note.txt",
        "attach note.txt",
        "run env",
        "/status",
    ]

    def run(*args: str, stdin: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "bot", *args],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=folder,
            env=environ,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr

    told = {"chat": run("chat", stdin="\n".join(said) + "\n")}
    assert (folder / "data" / "journal.jsonl").exists(), told["chat"]
    journal = [json.loads(line) for line in (folder / "data" / "journal.jsonl").read_text().splitlines()]
    first = next(line for line in journal if line["kind"] == "received")
    told["why"] = run("why", first["message_id"])
    told["threads show"] = run("threads", "show", first["thread_id"])
    for args in (
        ["threads", "list"],
        ["usage"],
        ["check"],
        ["doctor"],
        ["doctor", "--json"],
        ["dead-letters", "list"],
    ):
        told[" ".join(args)] = run(*args)
    (folder / "settings.json").write_text(
        json.dumps(
            {**settings, "providers": {"anthropic": {"api_key": CANARIES["PROVIDER"]}, CANARIES["SLACK"]: 3}}
        )
    )
    told["settings error"] = run("check")
    return told


def test_no_command_prints_one_and_operators_read_what_was_typed(told):
    for command, text in told.items():
        assert text.strip(), command
        assert command == "chat" or "Traceback" not in text, command
        # the key of a map that somebody wrote himself
        allowed = ["slack.kan"] if command == "settings error" else []
        assert [part for part in found_in(text) if part not in allowed] == [], command
    assert "say" in told["why"] and "say" in told["threads show"]


def test_every_form_of_a_secret_is_known():
    for canary in (*CANARIES.values(), FILE_CANARY):
        assert canary in secret_forms([canary])
        for text in (
            canary,
            json.dumps(canary),
            json.dumps([{"a": canary}], indent=1),
            repr(canary),
            repr({"a": canary}),
        ):
            assert found_in(Masker([canary])(text)) == [], text
    assert found_in(Masker([CANARIES["MCP_HEADER"]])("no such token: headerkanarie00ff11ee")) == []
    assert found_in(Masker([FILE_CANARY])('line 2: "client": "kanarie-client-of-a-file",')) == []


@pytest.mark.parametrize("canary", [*CANARIES.values(), FILE_CANARY], ids=[*CANARIES, "FILE"])
async def test_a_draft_that_is_cut_anywhere_shows_none(canary):
    text = f"Here it is: {canary} and so on.\nMore."
    secrets = [*CANARIES.values(), FILE_CANARY]
    for cut in range(len(text)):
        events: list[str] = []

        async def tell(event, events=events):
            if isinstance(event, TextDelta):
                events.append(event.text)

        veiled = StreamMasker(tell, Masker(secrets), boundary_finder(secrets))
        for piece in (text[:cut], text[cut:]):
            await veiled(TextDelta(piece))
        await veiled.finish()
        assert found_in("".join(events)) == []
        assert "".join(events).endswith("More.")


@pytest.mark.parametrize("before", [3_970, 3_990, 4_000, 4_990, 5_000, 9_000])
@pytest.mark.parametrize("size", [1, 7, 5_000])
async def test_a_word_too_long_to_be_held_back_is_not_cut_in_a_secret(before, size):
    shown: list[str] = []

    async def tell(event):
        shown.append(event.text)

    secrets = [CANARIES["SLACK"], CANARIES["PROVIDER"]]
    text = f"{'x' * before}{secrets[0]}{'y' * 50}{secrets[1]} end"
    veiled = StreamMasker(tell, Masker(secrets), boundary_finder(secrets))
    for at in range(0, len(text), size):
        await veiled(TextDelta(text[at : at + size]))
    await veiled.finish()
    assert "".join(shown) == Masker(secrets)(text)


async def test_no_field_of_a_log_line_and_no_stack_holds_one(capfd):
    stream = io.StringIO()
    with logged(stream):
        logger = logging.getLogger("canary")
        logger.error("x", extra={CANARIES["SLACK"]: {CANARIES["PROVIDER"]: [FILE_CANARY]}}, stack_info=True)
    out, err = capfd.readouterr()
    assert found_in(stream.getvalue() + out + err) == []


CRASH = """
import sys
import bot.wiring.chat
async def breaks(*_, **__):
    raise RuntimeError("no key " + __import__("os").environ["PROVIDER"])
bot.wiring.chat.serve = breaks
from bot.cli import main
sys.argv = ["threadfast", "chat"]
main()
"""


def test_the_last_words_of_a_process_name_none(tmp_path):
    (tmp_path / "settings.json").write_text(
        '{"model": "offline/demo", "providers": {"anthropic": {"api_key": "env:PROVIDER"}}}'
    )
    environ = {**CANARIES, "PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", CRASH],
        input="hello",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environ,
        timeout=60,
        check=False,
    )
    assert done.returncode not in (0, 78)
    assert "RuntimeError" in done.stderr
    assert found_in(done.stdout + done.stderr) == []


async def test_neither_the_browser_nor_its_driver_is_given_one(monkeypatch):
    pytest.importorskip("playwright")
    if not (has_own() or system_browser()):
        pytest.skip("no browser here")
    for name, canary in CANARIES.items():
        monkeypatch.setenv(name, canary)
    async with site_serving() as site, running_browser(site.egress()) as one:
        site.pages["/"] = page("hello")
        try:
            await one.view(PageRequest("http://site.test/"), anyio.current_time() + 60)
        except BrowserFailed as error:
            pytest.skip(f"no browser starts here: {error}")
        found = list(_descendants(os.getpid()))
    assert any("run-driver" in line for line, _ in found)
    assert any("--headless" in line for line, _ in found)
    for line, environment in found:
        assert found_in(line + environment) == [], line


def _descendants(pid: int) -> Iterator[tuple[str, str]]:
    """Return the command line and the environment of each process below *pid* that has not ended yet."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text().split():
                yield tuple(
                    Path(f"/proc/{child}/{name}").read_bytes().decode("utf-8", "replace")
                    for name in ("cmdline", "environ")
                )
                yield from _descendants(int(child))
