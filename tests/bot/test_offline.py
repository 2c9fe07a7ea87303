import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.llm.model import Request, ToolSpec
from bot.llm.offline import CONNECT, OfflineModel, answer
from threads.model import Message, Text, TextDelta, ToolCall, ToolResult, TurnEvent

pytestmark = pytest.mark.anyio


def spec(name: str, *parameters: str) -> ToolSpec:
    return ToolSpec(
        name, "", {"properties": {p: {"type": "string"} for p in parameters}, "required": [*parameters]}
    )


TOOLS = (
    spec("list_files", "path"),
    spec("read_file", "path"),
    spec("write_file", "path", "content"),
    spec("shell", "command"),
    spec("remember", "text"),
    spec("recall", "query"),
)


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def asked(text: str, tools: tuple[ToolSpec, ...] = TOOLS) -> Message:
    return answer(Request("", [user(text)], tools))


def after(call: ToolCall, content: str, *, is_error: bool = False) -> str:
    messages = [
        user("x"),
        Message("assistant", (call,)),
        Message("user", (ToolResult(call.id, content, is_error),)),
    ]
    reply = answer(Request("", messages, TOOLS))
    assert reply.calls == []
    return reply.text


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("list", "list_files", {"path": "."}),
        ("List files", "list_files", {"path": "."}),
        ("ls src", "list_files", {"path": "src"}),
        ("read notes.txt", "read_file", {"path": "notes.txt"}),
        ("read `my notes.txt`", "read_file", {"path": "my notes.txt"}),
        (
            "write a.txt two  words\nand lines",
            "write_file",
            {"path": "a.txt", "content": "two  words\nand lines"},
        ),
        ("run echo 'a b'", "shell", {"command": "echo 'a b'"}),
        ("run `ls -l`", "shell", {"command": "ls -l"}),
        ("remember: the sky is blue", "remember", {"text": "the sky is blue"}),
        ("recall sky", "recall", {"query": "sky"}),
    ],
)
def test_a_plain_intent_calls_its_tool(text: str, tool: str, arguments: dict[str, str]) -> None:
    assert asked(text).calls == [ToolCall("offline-1", tool, arguments)]


@pytest.mark.parametrize("text", ["list", "read a", "write a b", "run ls", "remember x", "recall x"])
def test_a_tool_that_is_not_offered_is_said_to_be_missing(text: str) -> None:
    reply = asked(text, ())
    assert reply.calls == []
    assert "no tool" in reply.text


@pytest.mark.parametrize("text", ["list three rivers of Europe", "read me a bedtime story"])
def test_a_sentence_is_no_path(text: str) -> None:
    reply = asked(text)
    assert reply.calls == []
    assert CONNECT in reply.text


@pytest.mark.parametrize("text", ["read", "write a.txt", "run", "remember", "recall"])
def test_an_intent_that_lacks_something_says_how_it_is_written(text: str) -> None:
    reply = asked(text)
    assert reply.calls == []
    assert f"`{text.split(maxsplit=1)[0]} " in reply.text


def test_a_tool_with_other_parameter_names_is_called_by_its_own() -> None:
    tools = (spec("shell", "script"), spec("write_file", "file", "text"))
    assert asked("run ls", tools).calls[0].arguments == {"script": "ls"}
    assert asked("write a b", tools).calls[0].arguments == {"file": "a", "text": "b"}


def test_a_result_is_told() -> None:
    call = ToolCall("1", "read_file", {})
    text = after(call, json.dumps({"success": True, "result": "hello ```there```"}))
    assert text == "Here is what `read_file` gave me:\n\n````\nhello ```there```\n````"
    assert '"a.txt"' in after(call, json.dumps({"success": True, "result": {"files": ["a.txt"]}}))
    assert "nothing to show" in after(call, json.dumps({"success": True, "result": ""}))


def test_a_failure_is_told_with_what_to_do_and_not_repeated() -> None:
    error = {
        "type": "not_found",
        "message": "No such file.",
        "recoverable": True,
        "suggestion": "List first.",
    }
    text = after(
        ToolCall("1", "read_file", {}), json.dumps({"success": False, "error": error}), is_error=True
    )
    assert text == "`read_file` did not work: No such file. List first."


@pytest.mark.parametrize("content", ["plain", "", "[1", "null", "3", '{"success": true}', '{"error": {}}'])
def test_a_result_of_another_form_is_shown_as_it_is(content: str) -> None:
    assert "`shell`" in after(ToolCall("1", "shell", {}), content)


def test_a_long_result_is_cut_with_a_count() -> None:
    text = after(ToolCall("1", "shell", {}), json.dumps({"success": True, "result": "x" * 10_000}))
    assert len(text) < 4000
    assert text.endswith("(7000 more characters)")


def test_what_a_person_adds_beside_a_result_is_answered_too() -> None:
    call = ToolCall("1", "shell", {})
    both = Message("user", (ToolResult("1", '{"success": true, "result": "ok"}'), Text("list src")))
    reply = answer(Request("", [user("x"), Message("assistant", (call,)), both], TOOLS))
    assert "ok" in reply.text
    assert reply.calls == [ToolCall("offline-3", "list_files", {"path": "src"})]


def test_a_summary_counts_and_names_what_was_said() -> None:
    messages = [user("first thing"), Message("assistant", (Text("yes"),)), user("second"), user("summarise")]
    text = answer(Request("", messages)).text
    assert "2 from you, 1 from me" in text
    assert "- first thing\n- second" in text
    assert "Nothing was said" in answer(Request("", [user("summarise")])).text


@pytest.mark.parametrize(
    "text", ["hi", "Hello!", "good morning", "help", "what is the sense of life?", "", "  "]
)
def test_anything_else_says_what_it_is(text: str) -> None:
    assert "offline/demo" in asked(text).text


@pytest.mark.parametrize("text", ["help", "why?"])
def test_it_says_how_to_connect_a_real_model(text: str) -> None:
    for word in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "Ollama"):
        assert word in asked(text).text


async def test_it_uses_no_tool_when_none_may_be_used() -> None:
    async def unheard(event: TurnEvent) -> None: ...

    request = Request("", [user("list")], TOOLS, tool_choice="none")
    completion = await OfflineModel().complete(request, unheard)
    assert completion.stop == "end"
    assert "no tool" in completion.message.text


async def test_it_streams_words_that_add_up_to_the_answer() -> None:
    events: list[TurnEvent] = []

    async def listen(event: TurnEvent) -> None:
        events.append(event)

    completion = await OfflineModel().complete(Request("", [user("help")], TOOLS), listen)
    assert len(events) > 20
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == completion.message.text
    assert completion.stop == "end"
    assert completion.message.model == OfflineModel().name == "offline/demo"
    assert (await OfflineModel().complete(Request("", [user("list")], TOOLS), listen)).stop == "tool_calls"


@given(text=st.text(max_size=60) | st.sampled_from(["list ", "read ", "write ", "run "]).flatmap(
    lambda word: st.text(max_size=20).map(lambda rest: word + rest)))  # fmt: skip
def test_any_text_has_one_answer_and_always_the_same(text: str) -> None:
    reply = asked(text)
    assert reply == asked(text)
    assert len(reply.calls) == 1 or reply.text.strip()
