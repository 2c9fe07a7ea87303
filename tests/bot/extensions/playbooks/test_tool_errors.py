"""Failed tools as typed errors: only those that the stage did not mend."""

from bot.extensions.playbooks.run_state import Failure
from bot.extensions.playbooks.tool_errors import unmended_errors
from bot.ports.errors import CommandFailed, ToolNotFound
from bot.ports.tool import failed
from tests.world import calls
from threads.model import Message, ToolCall, ToolResult


def result(call_id, *, ok=True, kind=ToolNotFound):
    if ok:
        return Message("user", (ToolResult(call_id, '{"success": true, "result": 1}'),))
    return Message("user", (failed(ToolCall(call_id, "x", {}), kind("No.", suggestion="Look.")),))


def test_the_last_call_of_each_tool_counts():
    messages = [
        calls("read_file", id="c1"), result("c1", ok=False),
        calls("web_fetch", id="c2"), result("c2", ok=False, kind=CommandFailed),
        calls("read_file", id="c3"), result("c3"),
    ]  # fmt: skip
    assert unmended_errors(messages) == (
        Failure(type="exit_code", message="No.", recoverable=True, suggestion="Look.", tool="web_fetch"),
    )


def test_a_result_of_any_form_is_an_error_of_unknown_type():
    for content in ("not JSON", "[]", '{"error": "text"}', '{"error": {"type": "odd"}}'):
        messages = [calls("x", id="c1"), Message("user", (ToolResult("c1", content, is_error=True),))]
        assert unmended_errors(messages) == (Failure(type="unknown", message="The tool failed.", tool="x"),)
