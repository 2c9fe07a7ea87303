"""A conversation that goes from one model to another, and to a third, is a valid request for each of them.

The rules of each wire are written down as the providers state them, apart from the code that keeps them.
"""

import base64
import json
import re
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from bot.agent.prompt.repair import repair
from bot.extensions.anthropic import messages as anthropic
from bot.extensions.openai import chat as openai_chat
from bot.extensions.openai import responses as openai_responses
from bot.llm.adapters.wire_form import fit
from threads.model import Image, Message, Text, Thinking, ToolCall, ToolResult

CLAUDE, GPT, LLAMA = MODELS = "anthropic/claude-opus-5-5", "openai/gpt-6.1-sol", "local/llama"
PNG = b"\x89PNG"
IDS = st.sampled_from(["tu_1", "call_1", "call_2", "", "fc_1|rs_2", "c" * 450, "ä b", "chatcmpl-tool-1"])
NAMES = st.sampled_from(["look", "go", "functions.look:0", "", "x" * 90, "ein Name", "\ud83d"])
WORDS = st.sampled_from(
    ["", " \n\t", "hi", "half \ud83d", "\ude00 other", "\ud83d\ude00", "(empty)"]
) | st.text(max_size=5)
texts = st.builds(Text, WORDS)
images = st.builds(
    Image,
    st.sampled_from(["attachments/a.png", "attachments/\ud83d.gif"]),
    st.sampled_from(["image/png", "image/webp", "image/tiff", "application/pdf"]),
    st.sampled_from([b"", PNG]),
)
calls = st.builds(
    ToolCall, IDS, NAMES, st.dictionaries(WORDS, WORDS, max_size=2), malformed=st.sampled_from(["", "{"])
)
results = st.builds(ToolResult, IDS, WORDS, st.booleans())
RAWS = {
    CLAUDE: [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "thinking", "thinking": "", "signature": "ZW1wdHk="},
        {"type": "redacted_thinking", "data": "xyz"},
    ],
    GPT: [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
        {"phase": "commentary"},
    ],
    LLAMA: [{"reasoning_content": "hm"}, {"reasoning": "so"}],
}


def thoughts(model: str):
    return st.builds(
        lambda raw: Thinking(str(raw.get("thinking", "")), model, dict(raw)), st.sampled_from(RAWS[model])
    )


def said_by(model: str):
    blocks = st.lists(st.one_of(texts, calls, calls, thoughts(model)), max_size=4)
    return st.builds(lambda blocks: Message("assistant", tuple(blocks), model=model), blocks)


entries = st.one_of(
    st.builds(
        lambda blocks: Message("user", tuple(blocks)), st.lists(st.one_of(texts, images, results), max_size=3)
    ),
    st.builds(lambda blocks: Message("user", tuple(blocks)), st.lists(results, min_size=1, max_size=3)),
    *map(said_by, MODELS),
)
histories = st.lists(entries, max_size=10).map(
    lambda messages: repair([Message("user", (Text("hello"),)), *messages, Message("user", (Text("go on"),))])
)


def wires(messages, vision=True):
    return {
        "anthropic": anthropic.to_wire(messages, CLAUDE, cached=True, vision=vision),
        "responses": openai_responses.to_wire(messages, GPT, vision=vision),
        "chat": openai_chat.to_wire("Be brief.", messages, LLAMA, vision=vision),
    }


def check_id(call_id: str, most: int) -> str:
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", call_id)
    assert len(call_id) <= most
    return call_id


def check_name(name: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)


def check_picture(media_type: str, data: str) -> None:
    assert media_type in ("image/png", "image/webp", "image/jpeg", "image/gif")
    assert base64.b64decode(data, validate=True) == PNG


def check_url(url: str) -> None:
    head, _, data = url.partition(";base64,")
    check_picture(head.removeprefix("data:"), data)


def check_anthropic(wire, thoughts=tuple(RAWS[CLAUDE])) -> None:
    assert [entry["role"] for entry in wire] == ["user", "assistant"] * (len(wire) // 2) + ["user"]
    seen: set[str] = set()
    waiting: list[str] = []
    for entry in wire:
        assert set(entry) == {"role", "content"}
        assert entry["content"]
        answered, asked = [], []
        for place, block in enumerate(entry["content"]):
            match block["type"]:
                case "text":
                    assert block["text"].strip()
                case "tool_use":
                    assert entry["role"] == "assistant"
                    check_name(block["name"])
                    assert isinstance(block["input"], dict)
                    asked.append(check_id(block["id"], 64))
                case "tool_result":
                    assert entry["role"] == "user"
                    assert place == len(answered)
                    assert block["content"].strip()
                    answered.append(block["tool_use_id"])
                case "image":
                    assert entry["role"] == "user"
                    assert block["source"]["type"] == "base64"
                    check_picture(block["source"]["media_type"], block["source"]["data"])
                case _:
                    assert entry["role"] == "assistant"
                    assert block in thoughts
        assert sorted(answered) == sorted(waiting)
        assert len({*asked, *seen}) == len(asked) + len(seen)
        if entry["role"] == "assistant":
            assert entry["content"][-1] not in thoughts
        seen |= set(asked)
        waiting = asked
    assert not waiting


def check_responses(wire) -> None:
    waiting: set[str] = set()
    seen: set[str] = set()
    for item, after in zip(wire, [*wire[1:], {"role": "missing"}], strict=True):
        match item:
            case {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **rest}:
                assert not rest
                assert call_id not in seen
                check_name(name)
                assert isinstance(json.loads(arguments), dict)
                seen.add(check_id(call_id, 64))
                waiting.add(call_id)
            case {"type": "function_call_output", "call_id": call_id, "output": output, **rest}:
                assert not rest
                waiting.remove(call_id)
                assert output.strip()
            case {
                "role": "user",
                "content": [{"type": "input_image", "image_url": url, "detail": "auto"}],
                **rest,
            }:
                assert not rest
                assert not waiting
                check_url(url)
            case {"role": role, "content": str(text), **rest}:
                assert text.strip()
                assert role == "assistant" or (role == "user" and not waiting)
                assert not rest or (role == "assistant" and rest == {"phase": "commentary"})
            case _:
                assert item == RAWS[GPT][0]
                assert after.get("role", "assistant") == "assistant"
                assert after.get("type") != "function_call_output"
    assert not waiting
    assert wire[0]["role"] == "user"
    assert wire[-1].get("role") == "user" or wire[-1]["type"] == "function_call_output"


def check_chat(wire) -> None:
    assert wire[0] == {"role": "system", "content": "Be brief."}
    waiting: list[str] = []
    seen: set[str] = set()
    roles = []
    for entry in wire[1:]:
        roles.append(entry["role"])
        match entry:
            case {"role": "tool", "tool_call_id": call_id, "content": content, **rest}:
                assert not rest
                waiting.remove(call_id)
                assert content.strip()
            case {"role": "user", "content": content, **rest}:
                assert not rest
                assert not waiting
                check_content(content)
            case {"role": "assistant", **rest}:
                assert not waiting
                assert {"content", "tool_calls"} & set(rest)
                assert isinstance(rest.get("content", "x"), str)
                assert rest.get("content", "x").strip()
                for call in rest.get("tool_calls", []):
                    check_name(call["function"]["name"])
                    assert isinstance(json.loads(call["function"]["arguments"]), dict)
                    assert call["id"] not in seen
                    seen.add(check_id(call["id"], 40))
                    waiting.append(call["id"])
                foreign = set(rest) - {"content", "tool_calls", "reasoning_content", "reasoning"}
                assert not foreign
    assert not waiting
    assert roles[0] == "user"
    assert roles[-1] in ("user", "tool")
    spoken = [role for role in roles if role != "tool"]
    assert not any(a == b == "user" for a, b in pairwise(spoken))
    assert not any(a == b == "assistant" for a, b in pairwise(roles))


def check_content(content) -> None:
    if isinstance(content, str):
        assert content.strip()
        return
    assert content
    for part in content:
        if part["type"] == "text":
            assert part["text"].strip()
        else:
            assert part["type"] == "image_url"
            check_url(part["image_url"]["url"])


@settings(max_examples=150)
@given(histories, st.booleans())
def test_whatever_models_wrote_is_a_valid_request_to_each_of_them(messages, vision):
    sent = wires(messages, vision)
    json.dumps(sent, ensure_ascii=False).encode()
    check_anthropic(plain(sent["anthropic"]))
    check_responses(sent["responses"])
    check_chat(sent["chat"])
    assert vision or "base64" not in json.dumps(sent)
    assert json.dumps(wires(messages, vision)) == json.dumps(sent)


def plain(wire):
    """The messages without their marks."""
    return json.loads(
        json.dumps(wire), object_hook=lambda part: {k: v for k, v in part.items() if k != "cache_control"}
    )


@settings(max_examples=60)
@given(histories)
def test_what_fits_once_fits_for_ever(messages):
    for model, ids in ((CLAUDE, anthropic.IDS), (GPT, openai_responses.IDS), (LLAMA, openai_chat.IDS)):
        once = fit(messages, model, ids)
        assert fit(once, model, ids) == once
        assert fit(repair(once), model, ids) == once


@settings(max_examples=60)
@given(histories)
def test_all_that_a_request_said_is_said_in_the_same_bytes_by_each_later_one(messages):
    before = {"anthropic": "", "responses": "", "chat": ""}
    for end in range(1, len(messages) + 1):
        if messages[end - 1].role == "assistant" or repair(messages[:end]) != messages[:end]:
            continue
        for wire, said in wires(messages[:end]).items():
            now = json.dumps(plain(said)).rstrip('"]}')
            assert now.startswith(flowed(before[wire], now))
            before[wire] = now


def flowed(before: str, now: str) -> str:
    """Chat alone: a text that a picture joins becomes a part; the words are the same, in the same place."""
    *head, last = before.rpartition('{"role": "user", "content": "')
    if not last or now.startswith(before):
        return before
    return "".join(head)[:-1] + '[{"type": "text", "text": "' + last


def test_thinking_goes_back_in_order_and_byte_for_byte_to_its_own_model_alone():
    own = [Thinking("", CLAUDE, raw) for raw in RAWS[CLAUDE]]
    foreign = [Thinking("", GPT, RAWS[GPT][0]), Thinking("", LLAMA, RAWS[LLAMA][0])]
    said = Message("assistant", (*own, *foreign, Text("a"), own[1], ToolCall("c", "look", {})))
    messages = repair([Message("user", (Text("q"),)), said])
    sent = wires(messages)
    content = sent["anthropic"][1]["content"]
    assert content[:3] == RAWS[CLAUDE]
    assert [block["type"] for block in content[3:]] == ["text", "thinking", "tool_use"]
    assert [item for item in sent["responses"] if item.get("type") == "reasoning"] == [RAWS[GPT][0]]
    assert sent["chat"][2]["reasoning_content"] == "hm"
    assert "signature" not in json.dumps([sent["responses"], sent["chat"]])


def test_pictures_are_shown_where_they_can_be_seen():
    seen = Image("attachments/a.png", "image/png", PNG)
    messages = [Message("user", (Text("look:"), seen, Text("well?")))]
    data = base64.b64encode(PNG).decode()
    sent = wires(messages)
    source = {"type": "base64", "media_type": "image/png", "data": data}
    assert sent["anthropic"][0]["content"][1] == {"type": "image", "source": source}
    url = f"data:image/png;base64,{data}"
    assert sent["responses"][1]["content"] == [{"type": "input_image", "image_url": url, "detail": "auto"}]
    assert sent["chat"][1]["content"] == [
        {"type": "text", "text": "look:"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "well?"},
    ]


def test_a_picture_that_cannot_be_shown_is_named():
    missing = [Message("user", (Image("attachments/a.png", "image/png"),))]
    unseen = [Message("user", (Image("attachments/a.png", "image/png", PNG),))]
    odd = [Message("user", (Image("attachments/a.png", "image/tiff", PNG),))]
    drawn = [
        Message("user", (Text("q"),)),
        Message("assistant", (Image("attachments/a.png", "image/png", PNG),)),
    ]
    words = "(a picture that cannot be shown here: attachments/a.png)"
    for sent in (wires(missing), wires(unseen, vision=False), wires(odd), wires(drawn)):
        assert sent["anthropic"][-1]["content"][0]["text"] == words
        assert sent["responses"][-1]["content"] == words
        assert sent["chat"][-1]["content"] == words


def test_chat_joins_what_one_side_said_into_one_text():
    messages = [Message("user", (Text("a"), Text("b"))), Message("user", (Text("c"),))]
    assert wires(messages)["chat"][1:] == [{"role": "user", "content": "a\n\nb\n\nc"}]
