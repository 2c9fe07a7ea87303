"""Any history, cut anywhere, becomes a request that providers accept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bot.prompt.repair import INTERRUPTED, repair
from threads.model import Message, Text, ToolCall, ToolResult

ids = st.sampled_from(["a", "b", "c"])
blocks_of_user = st.lists(
    st.builds(Text, st.just("hi")) | st.builds(ToolResult, ids, st.text(max_size=3)), max_size=4
)
blocks_of_assistant = st.lists(
    st.builds(Text, st.just("yo")) | st.builds(ToolCall, ids, st.just("t"), st.just({})), max_size=4
)
messages = st.lists(
    st.builds(lambda b: Message("user", tuple(b)), blocks_of_user)
    | st.builds(lambda b: Message("assistant", tuple(b)), blocks_of_assistant),
    max_size=8,
)


@given(messages)
def test_each_call_is_followed_by_exactly_one_result_in_the_order_asked(history):
    repaired = repair(history)
    for place, message in enumerate(repaired):
        assert message.blocks
        if message.calls:
            following = repaired[place + 1]
            assert following.role == "user"
            assert [r.call_id for r in following.results] == [c.id for c in message.calls]
            assert len(following.results) == len(following.blocks)
        elif message.role == "assistant" and place + 1 < len(repaired):
            assert not repaired[place + 1].results
        if message.role == "user" and message.results:
            assert place
            assert repaired[place - 1].calls


@given(messages)
def test_a_repaired_history_needs_no_repair_and_is_the_same_list(history):
    repaired = repair(history)
    assert repair(repaired) is repaired


@given(messages)
def test_nothing_that_was_said_is_lost(history):
    def said(entries):
        return [b.text for m in entries for b in m.blocks if isinstance(b, Text)]

    assert said(repair(history)) == said(history)


@given(st.integers(0, 6))
def test_a_history_cut_at_any_point_gets_interrupted_results(cut):
    history = [
        Message("user", (Text("q"),)),
        Message("assistant", (ToolCall("a", "t", {}), ToolCall("b", "t", {}))),
        Message("user", (ToolResult("a", "1"), ToolResult("b", "2"))),
        Message("assistant", (ToolCall("a", "t", {}),)),
        Message("user", (ToolResult("a", "3"),)),
        Message("assistant", (Text("done"),)),
    ]
    repaired = repair(history[:cut])
    if cut in (2, 4):
        assert {r.content for r in repaired[-1].results} == {INTERRUPTED}
        assert repaired[:-1] == history[:cut]
    else:
        assert repaired == history[:cut]
