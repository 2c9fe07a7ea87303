import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from bot.agent.prompt.repair import repair
from bot.llm.adapters.offline import CONNECT, OfflineModel, answer
from bot.ports.model import Request, ToolSpec, Usage
from bot.ports.outside_text import fence
from tests.tool_context import unheard
from threads.model import Message, Text, TextDelta, ToolCall, ToolResult, TurnEvent


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
    spec("ask_person", "question", "answers"),
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
        ("List src", "list_files", {"path": "src"}),
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
        ("Remember that the sky is blue", "remember", {"text": "the sky is blue"}),
        ("recall sky", "recall", {"query": "sky"}),
        ("ask Which? | a b | c", "ask_person", {"question": "Which?", "answers": ["a b", "c"]}),
        ("ask Why?", "ask_person", {"question": "Why?", "answers": []}),
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


@pytest.mark.parametrize("text", ["read", "write a.txt", "run", "remember", "recall", "ask"])
def test_an_intent_that_lacks_something_says_how_it_is_written(text: str) -> None:
    reply = asked(text)
    assert reply.calls == []
    assert f"`{text.split(maxsplit=1)[0]} " in reply.text


@pytest.mark.parametrize(
    ("tool", "result", "words"),
    [
        ("shell", {"exit_code": 0, "stdout": "a\nb\n", "stderr": ""}, "```\na\nb\n```"),
        ("shell", {"exit_code": 0, "stdout": "", "stderr": ""}, "It ended with exit code 0."),
        ("read_file", {"text": "hello ```there```", "size": 17}, "````\nhello ```there```\n````"),
        ("list_files", {"entries": [{"name": "a.txt", "size": 7}, {"name": "b"}]}, "```\na.txt\nb\n```"),
        ("write_file", {"written": "a.txt", "size": 7, "created": True}, "Wrote `a.txt` (7 bytes)."),
        ("remember", {"id": "t1", "remembered": "for this thread"}, "I will remember that for this thread."),
        ("recall", {"notes": [{"text": "blue", "by": "you"}]}, "```\nblue\n```"),
        ("read_file", {"text": fence("line 1\nline 2", "file", "1"), "size": 13}, "```\nline 1\nline 2\n```"),
        ("x__y", {"files": []}, 'Here is what `x__y` gave me:\n\n```\n{\n  "files": []\n}\n```'),
        ("x__y", "ok", "Here is what `x__y` gave me:\n\n```\nok\n```"),
    ],
)
def test_a_result_is_worded_for_people(tool: str, result: JsonValue, words: str) -> None:
    assert after(ToolCall("1", tool, {}), json.dumps({"success": True, "result": result})) == words


@pytest.mark.parametrize(
    ("kind", "words"),
    [("not_found", "`shell` did not work: No file."), ("permission", "`shell` was not used: No file.")],
)
def test_a_failure_is_worded_for_people(kind: str, words: str) -> None:
    error = {"type": kind, "message": "No file."}
    content = json.dumps({"success": False, "error": error})
    assert after(ToolCall("1", "shell", {}), content, is_error=True) == words
    printed = {"exit_code": 3, "stdout": "a\n", "stderr": "b\n"}
    content = json.dumps({"success": False, "error": error, "partial": printed})
    told = after(ToolCall("1", "shell", {}), content, is_error=True)
    assert told == f"{words}\n\n```\na\n```\n\n```\nb\n```"


@pytest.mark.parametrize(
    "content",
    ["plain", "", "[1", "null", "3", '{"success": true}', '{"error": {}}', '{"result": {"stdout": []}}'],
)
@pytest.mark.parametrize("tool", ["shell", "remember"])
def test_a_result_of_another_form_is_shown_as_it_is(tool: str, content: str) -> None:
    assert f"`{tool}`" in after(ToolCall("1", tool, {}), content)


def test_a_long_result_is_cut_with_a_count() -> None:
    text = after(ToolCall("1", "shell", {}), json.dumps({"success": True, "result": "x" * 10_000}))
    assert len(text) < 4000
    assert text.endswith("(7000 more characters)")


WORKED = '{"success": true, "result": "ok"}'


def step(*calls: ToolCall) -> list[Message]:
    return [
        Message("assistant", calls),
        Message("user", tuple(ToolResult(call.id, WORKED) for call in calls)),
    ]


def test_what_people_add_while_tools_run_is_done_and_all_of_it_is_told_in_the_end() -> None:
    """Whatever was added is done at once, beside a greeting that needs no tool; then everything is told in order."""
    messages = [user("run a"), *step(ToolCall("1", "shell", {})), user("list src"), user("hi"), user("run b")]
    reply = answer(Request("", messages, TOOLS))
    assert reply.calls == [
        ToolCall("offline-6", "list_files", {"path": "src"}),
        ToolCall("offline-6-2", "shell", {"command": "b"}),
    ]
    last = [*messages, reply, Message("user", tuple(ToolResult(call.id, WORKED) for call in reply.calls))]
    told = answer(Request("", last, TOOLS)).text
    assert [told.index(part) for part in ("`shell`", "Hello!", "`list_files`")] == sorted(
        told.index(part) for part in ("`shell`", "Hello!", "`list_files`")
    )
    assert told.count("ok") == 3


def test_what_was_stopped_before_is_not_done_after_all() -> None:
    assert answer(Request("", [user("run a"), user("hello")], TOOLS)).calls == []


def test_what_a_stopped_call_gave_is_not_told_with_the_next_answer() -> None:
    call = Message("assistant", (ToolCall("1", "shell", {"command": "sleep 60"}),))
    stopped = repair([user("run sleep 60"), call, user("hello")])
    assert answer(Request("", stopped, TOOLS)).text.startswith("Hello!")
    assert "Interrupted" in answer(Request("", repair([user("run a"), call]), TOOLS)).text, "after a restart"


def test_what_was_told_once_is_not_told_again() -> None:
    messages = [
        user("run a"),
        *step(ToolCall("1", "shell", {})),
        Message("assistant", (Text("told"),)),
        user("hi"),
    ]
    assert "ok" not in answer(Request("", messages, TOOLS)).text


def test_a_summary_counts_and_names_what_was_said() -> None:
    messages = [user("first thing"), Message("assistant", (Text("yes"),)), user("second"), user("summarise")]
    text = answer(Request("", messages)).text
    assert "2 from you, 1 from me" in text
    assert "- first thing\n- second" in text
    assert "Nothing was said" in answer(Request("", [user("summarise")])).text


@pytest.mark.parametrize(
    "text", ["hi", "Hello!", "help", "Hey, what can you do here?", "what is the sense of life?", "", "  "]
)
def test_anything_else_says_what_it_is(text: str) -> None:
    assert "offline/demo" in asked(text).text


@pytest.mark.parametrize("text", ["help", "why?"])
def test_it_says_how_to_connect_a_real_model(text: str) -> None:
    for word in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "Ollama"):
        assert word in asked(text).text


async def test_it_uses_no_tool_when_none_may_be_used() -> None:
    request = Request("", [user("list")], TOOLS, tool_choice="none")
    completion = await OfflineModel().complete(request, unheard)
    assert completion.stop == "end"
    assert "no tool" in completion.message.text


async def test_rules_use_no_tokens() -> None:
    assert (await OfflineModel().complete(Request("", [user("hi")]), unheard)).usage == Usage()


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
