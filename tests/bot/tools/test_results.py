"""Results as the model reads them, when they are too long: what was long is cut, and nothing else is lost."""

import json

from bot.ports.errors import ToolError, ToolTimeout
from bot.ports.tool import ItemError, ToolOutput
from bot.tools.results import HEAD, MAX_ITEMS, MAX_MESSAGE, MAX_RESULT, TAIL, Results
from tests.tool_context import tool_context
from threads.model import ToolCall

CALL = ToolCall("c1", "tool", {})
LONG = "a" * HEAD + "b" * MAX_RESULT + "c" * TAIL


class Kept(dict):
    async def spill(self, name, text, *, outside):
        self[name] = text
        return f"tool-output/{name}"

    @property
    def context(self):
        return tool_context(spill=self.spill, call_id="c1")


async def test_a_failure_with_much_to_show_stays_what_it_is_and_its_output_is_kept_whole():
    kept = Kept()
    error = ToolTimeout("stopped after 5 s", suggestion="Do less.", partial=LONG)
    result = await Results(str).failed(CALL, error, kept.context)
    told = json.loads(result.content)
    assert told["error"] == {
        "type": "timeout",
        "message": "stopped after 5 s",
        "recoverable": True,
        "suggestion": "Do less.",
    }
    assert (told["partial"]["head"], told["partial"]["tail"]) == ("a" * HEAD, "c" * TAIL)
    assert told["partial"]["file"] == "tool-output/c1.txt"
    assert kept == {"c1.txt": LONG}
    assert len(result.content) < MAX_RESULT


async def test_the_errors_of_single_items_are_told_beside_a_result_that_is_cut():
    result = await Results(str).succeeded(
        CALL, ToolOutput(LONG, (ItemError("a", "timeout", "late"),)), Kept().context
    )
    assert json.loads(result.content)["errors"] == [{"item": "a", "type": "timeout", "message": "late"}]


async def test_of_many_errors_the_first_are_told_and_how_many_more_there_are():
    errors = tuple(ItemError(f"{number}", "unknown", "no") for number in range(MAX_ITEMS + 3))
    told = json.loads((await Results(str).succeeded(CALL, ToolOutput("", errors), Kept().context)).content)[
        "errors"
    ]
    assert [error["item"] for error in told] == [*map(str, range(MAX_ITEMS)), "others"]
    assert told[-1]["message"] == "3 more failed."


async def test_an_error_that_says_too_much_is_cut_after_its_secrets_are_masked():
    canary = "canary-1234567890"
    kept = Kept()
    said = "\0" * (MAX_MESSAGE - 8) + canary
    result = await Results(lambda text: text.replace(canary, "[masked]")).failed(
        CALL, ToolError(said), kept.context
    )
    assert json.loads(result.content)["error"]["message"].endswith("[masked]")
    assert not kept
