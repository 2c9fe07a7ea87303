"""What the program knows of its extensions, and of those that somebody else has installed."""

import json
import re
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import anyio
import pytest
from click.testing import CliRunner

from bot.cli import main
from bot.config import extensions
from bot.config.built_in_extensions import BUILT_IN
from bot.config.extensions import installed
from bot.config.load import load
from bot.config.settings import Settings
from bot.config.transports import served
from bot.host.extension import extensions_of, thread_commands, transport_kinds
from bot.ports.config_error import ConfigInvalid
from tests.fakes import anthropic as a
from tests.patience import WITHIN_S
from tests.serving import anthropic, serving
from tests.transports.bot import bot_over
from tests.transports.contract import CHECKS
from tests.transports.web.process import free_port
from tests.world import Scripted, says

DOCS = Path(__file__).parents[3] / "docs"
MANUAL, GUIDE = DOCS / "extensions.md", DOCS / "new-platform.md"

WEATHER = '''
    """An extension of somebody else."""
    from pydantic.fields import FieldInfo
    from bot.config.parts import SettingsPart
    from bot.config.settings import Section
    from bot.host.extension import Extension, Running, ThreadCommand
    from contextlib import asynccontextmanager

    class Weather(Section):
        city: str = "Bern"

    PART = SettingsPart("extensions.weather", Weather, FieldInfo(default_factory=Weather))

    @asynccontextmanager
    async def open_weather(host):
        async def obey(words, incoming):
            return f"Sunny in {words or PART.of(host.settings).city}."
        yield Running(obey={"weather": obey})

    extension = Extension(
        "weather",
        "tells the weather",
        settings=(PART,),
        thread_commands=(ThreadCommand("weather", "/weather [CITY]", "tell the weather", off="No weather."),),
        open=open_weather,
    )
'''


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install packages with one extension each; the program is as it was afterwards."""

    def package(name: str, source: str) -> None:
        about = tmp_path / f"{name}-1.2.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (about / "entry_points.txt").write_text(
            f"[threadfast.extensions]\n{name} = {name}_extension:extension\n"
        )
        (tmp_path / f"{name}_extension.py").write_text(dedent(source))

    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for name in [name for name in sys.modules if name.endswith("_extension")]:
        del sys.modules[name]
    installed.cache_clear()
    extensions._model.cache_clear()


@pytest.fixture
def written(tmp_path):
    """Write a settings file, and return its path."""

    def write(**settings: object):
        path = tmp_path / "settings.json"
        path.write_text(json.dumps({"data": str(tmp_path / "data"), "model": "offline/demo", **settings}))
        return path

    return write


@pytest.mark.needs
def test_the_table_has_the_keys_that_each_extension_brings():
    for name, extension in installed().extensions.items():
        transports = (f"transports.{kind}" for kind in extension.transports)
        assert [*(part.path for part in extension.settings), *transports] == list(BUILT_IN[name].keys)
    assert {one.name for one in extensions_of(Settings())} == set(BUILT_IN)
    assert (installed().failed, installed().faults) == ({}, {})


def test_an_extension_of_somebody_else_is_loaded_only_if_the_settings_name_it(install, written):
    install("weather", WEATHER)
    without = load(written(), environ={}).settings
    named = load(written(extensions={"weather": {"city": "Oslo"}}), environ={}).settings
    assert "weather" not in {one.name for one in extensions_of(without)}
    [part] = next(one for one in extensions_of(named) if one.name == "weather").settings
    assert part.of(named).city == "Oslo"
    assert "weather" in {command.name for command in thread_commands(named)}


def test_its_settings_are_checked_as_all_others(install, written):
    install("weather", WEATHER)
    with pytest.raises(ConfigInvalid, match=r"extensions\.weather\.town: unknown key"):
        load(written(extensions={"weather": {"town": "Oslo"}}), environ={})


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("extension = 'none'", "broken_extension:extension is not an extension"),
        ("", "AttributeError: module 'broken_extension' has no attribute 'extension'"),
    ],
)
def test_one_that_cannot_be_loaded_is_named_and_leaves_the_others(install, written, source, why):
    install("broken", source)
    install("weather", WEATHER)
    path = written(extensions={"weather": {}, "broken": {"any": [1, 2]}})
    assert "weather" in {one.name for one in extensions_of(load(path, environ={}).settings)}
    listed = CliRunner().invoke(main, ["extensions", "list", "--settings", str(path)])
    assert f"broken: cannot be loaded: {why}" in listed.output


def test_a_name_that_no_package_brings_is_a_fault(written):
    with pytest.raises(ConfigInvalid, match=r"extensions\.wether: no installed package brings an extension"):
        load(written(extensions={"wether": {}}), environ={})


@pytest.mark.needs
def test_the_list_says_where_each_comes_from_and_what_it_brings(install, written):
    install("weather", WEATHER)
    path = written(extensions={"weather": {}})
    result = CliRunner().invoke(main, ["extensions", "list", "--settings", str(path)])
    assert (
        "weather  (weather 1.2)\n  tells the weather\n  brings settings extensions.weather" in result.output
    )
    assert "mcp  (bot.extensions.mcp.extension)" in result.output
    assert "in threads /mcp; commands threadfast mcp" in result.output
    listed = json.loads(
        CliRunner().invoke(main, ["extensions", "list", "--settings", str(path), "--json"]).output
    )
    assert [one["name"] for one in listed["extensions"]] == [*BUILT_IN, "weather"]


async def test_the_example_of_the_manual_answers_in_a_thread(install, tmp_path):
    install("dice", re.findall(r"```python\n(.*?)```", MANUAL.read_text(), re.DOTALL)[0])
    given = {"extensions": {"dice": {}}, "model": "offline/demo", "tools": {"enabled": []}}
    async with serving(tmp_path / "data", given) as chat:
        assert (await chat.say("/dice 1")).text == "You rolled 1."
        assert "/dice [SIDES]  roll a die" in (await chat.say("/help")).text


@pytest.mark.needs
async def test_the_tool_of_the_manual_is_called_as_its_rule_says(install, tmp_path):
    text = MANUAL.read_text()
    install("words", re.findall(r"```python\n(.*?)```", text, re.DOTALL)[1])
    given = json.loads(
        next(found for found in re.findall(r"```json\n(.*?)```", text, re.DOTALL) if "reverse" in found)
    )
    calls = iter([a.Tool("t1", "words__reverse", {"word": "drawer"}), a.Text("done")])
    async with a.FakeAnthropic(lambda _: a.answer(next(calls))) as fake:
        at = {
            "model": "anthropic/claude-x",
            "providers": anthropic(fake.base_url),
            "budget": {"mode": "soft"},
        }
        async with serving(tmp_path / "data", at | given) as chat:
            assert (await chat.say("turn it around")).text == "done"
    assert "reward" in json.dumps(fake.requests[1].json["messages"][-1])


BROKEN = """
    from contextlib import asynccontextmanager
    from bot.host.extension import Extension

    @asynccontextmanager
    async def fail(host):
        raise RuntimeError("no such dice")
        yield

    extension = Extension("dice", "rolls dice", open=fail)
"""


@pytest.mark.parametrize(
    ("source", "why"), [(BROKEN, "it could not be opened"), ("1 / 0", "it cannot be loaded")]
)
async def test_one_that_fails_at_the_start_is_off_and_the_rest_is_served(install, tmp_path, source, why):
    install("dice", source)
    given = {"extensions": {"dice": {}}, "model": "offline/demo", "tools": {"enabled": []}}
    async with serving(tmp_path / "data", given) as chat:
        assert f"The extension dice is off: {why}" in (await chat.say("/status")).text


FAILS_LATER = """
    from contextlib import asynccontextmanager
    import anyio
    from bot.host.extension import Extension, Running, ThreadCommand

    @asynccontextmanager
    async def open_dice(host):
        thrown = anyio.Event()

        async def break_dice():
            await thrown.wait()
            raise RuntimeError("the dice fell down")

        async def roll(words, incoming):
            thrown.set()
            return "rolling"

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(break_dice)
            yield Running(obey={"dice": roll})
            tasks.cancel_scope.cancel()

    extension = Extension(
        "dice", "rolls dice",
        thread_commands=(ThreadCommand("dice", "/dice", "roll", off="No dice."),), open=open_dice,
    )
"""


async def test_the_work_of_one_that_fails_later_takes_nothing_else_down(install, tmp_path):
    install("dice", FAILS_LATER)
    given = {"extensions": {"dice": {}}, "model": "offline/demo", "tools": {"enabled": []}}
    async with serving(tmp_path / "data", given) as chat:
        await chat.say("/dice")
        assert "The extension dice is off: it has failed" in (await chat.say("/status")).text
        assert (await chat.say("hello")).text


PARROT = """
    from contextlib import asynccontextmanager
    import click
    from bot.host.extension import Extension, Running
    from bot.ports.model import Completion, Usage
    from bot.ports.tool import Arguments
    from threads.model import Message, Text, ToolCall, ToolResult

    class Parrot:
        def __init__(self, provider, model, *, api_key, **_):
            self.name, self.api_key = f"{provider}/{model}", api_key

        async def complete(self, request, on_event):
            last = request.messages[-1].blocks[0]
            if isinstance(last, ToolResult):
                said = f"{self.api_key()}: {last.content}"
                return Completion(Message("assistant", (Text(said),), model=self.name), Usage(), "end")
            call = ToolCall("1", request.tools[0].name, {"word": "hello"})
            return Completion(Message("assistant", (call,), model=self.name), Usage(), "tool_calls")

    class Word(Arguments):
        word: str

        def subject(self):
            return self.word

    class Repeat:
        name, description, risk, arguments = "zoo__repeat", "Repeats a word.", "read", Word

        async def __call__(self, arguments, context):
            return f"{arguments.word} {arguments.word}"

    @asynccontextmanager
    async def open_zoo(host):
        yield Running(tools={"zoo": [Repeat()]})

    @click.command()
    def feed():
        click.echo("It eats.")

    extension = Extension(
        "zoo", "has a parrot", models={"parrot": Parrot}, commands=(feed,), open=open_zoo, groups=lambda _: ["zoo"]
    )
"""
ZOO = {
    "extensions": {"zoo": {}},
    "model": "polly/grey",
    "providers": {"polly": {"kind": "parrot", "api_key": "env:CRACKER", "free": True, "params": {"loud": 3}}},
    "tools": {"enabled": [], "policy": {"zoo__repeat": "allow"}},
}


async def test_a_model_and_a_tool_of_somebody_else_answer_together(install, written, tmp_path):
    install("zoo", PARROT)
    load(written(**ZOO), environ={})
    async with serving(tmp_path / "data", ZOO, environ={"CRACKER": "crackers-for-polly"}) as chat:
        answer = (await chat.say("what does it say?")).text
    assert "hello hello" in answer
    assert "crackers-for-polly" not in answer


def test_a_command_of_somebody_else_is_there_where_the_settings_name_it(install, written, monkeypatch):
    install("zoo", PARROT)
    monkeypatch.setenv("THREADFAST_SETTINGS", str(written()))
    assert CliRunner().invoke(main, ["feed"]).exit_code == 2
    written(**ZOO)
    assert CliRunner().invoke(main, ["feed"]).output == "It eats.\n"
    assert "feed" in CliRunner().invoke(main, ["--help"]).output.split()
    monkeypatch.setenv("THREADFAST_SETTINGS", str(written().parent))  # no file: all other commands are there
    assert CliRunner().invoke(main, ["--help"]).exit_code == 0


def test_a_kind_of_model_server_that_nothing_brings_is_a_fault(written):
    with pytest.raises(
        ConfigInvalid, match=r"providers\.polly\.kind: must be openai-compatible under this name"
    ):
        load(written(providers={"polly": {"kind": "parrot"}}), environ={})


async def test_the_platform_of_the_guide_answers_and_keeps_what_all_promise(install, written, tmp_path):
    install("line_chat", re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[0])
    given = {"extensions": {"line_chat": {}}, "transports": {"line_chat": {"port": free_port()}}}
    settings = load(written(**given), environ={}).settings
    section = served(settings)["line_chat"]
    edge = transport_kinds(settings)["line_chat"].open(SimpleNamespace(name="line_chat", given=section))
    async with bot_over(edge, tmp_path, Scripted(says("hello, you"))):
        with anyio.fail_after(WITHIN_S):
            async with await anyio.connect_tcp("127.0.0.1", section.port) as stream:
                await stream.send(b"hello\n")
                assert await stream.receive() == b"hello, you\n"
                [thread] = edge._open
                for check in CHECKS:
                    await check(edge, thread)
