"""Any history, cut or damaged anywhere, becomes one that each provider accepts."""

from hypothesis import assume, given
from hypothesis import strategies as st

from bot.agent.prompt.repair import INTERRUPTED, MISSING, repair
from threads.model import History, Message, Text, Thinking, ToolCall, ToolResult

MODEL = "p/me"
ids = st.sampled_from(["a", "b", "c", "fc|1", ""])
texts = st.builds(Text, st.sampled_from(["hi", "", " ", "a\ud83d", "é"]))
thoughts = st.builds(
    lambda model: Thinking("hm", model, {"type": "thinking", "thinking": "hm", "signature": "s"}),
    st.sampled_from([MODEL, "p/other"]),
)
some_calls = st.lists(
    st.builds(ToolCall, ids, st.just("t"), st.just({}), st.sampled_from(["", "{br"])), max_size=3
)


@st.composite
def steps(draw) -> list[Message]:
    """A model call, its results in one entry, and perhaps what a person said meanwhile."""
    calls = draw(some_calls)
    said = [*draw(st.lists(thoughts, max_size=1)), *draw(st.lists(texts, max_size=1)), *calls]
    results = Message("user", tuple(ToolResult(call.id, f"of {call.id}") for call in calls))
    steering = Message("user", (Text("and this"),), source="m9")
    return [
        Message("assistant", tuple(said), model=MODEL),
        *([results] if calls else []),
        *draw(st.lists(st.just(steering), max_size=1)),
    ]


@st.composite
def turns(draw) -> list[Message]:
    asked = Message("user", (Text("[ann]"), Text("please")), source="m1")
    worked = [message for step in draw(st.lists(steps(), max_size=3)) for message in step]
    answer = draw(st.lists(st.just(Message("assistant", (Text("done"),), source="m1", tokens=9)), max_size=1))
    return [asked, *worked, *answer]


@st.composite
def histories(draw) -> list[Message]:
    """What turns leave behind, perhaps with a summary in front, and cut at any point."""
    summary = draw(st.lists(st.just(Message("user", (Text("Summary: …"),))), max_size=1))
    whole = [*summary, *(message for turn in draw(st.lists(turns(), max_size=3)) for message in turn)]
    return whole[: draw(st.integers(0, len(whole)))]


@st.composite
def damaged(draw) -> list[Message]:
    """A history with entries and blocks lost, doubled, moved and strayed, as bad files and bad code would."""
    history: list[Message] = []
    stray = st.one_of(texts, st.builds(ToolResult, ids, st.just("stray")))
    for message in draw(histories()):
        fate = draw(st.sampled_from(["kept", "kept", "kept", "lost", "twice", "half", "mixed", "stray"]))
        blocks = message.blocks
        match fate:
            case "half":
                blocks = blocks[: len(blocks) // 2]
            case "mixed":
                blocks = tuple(draw(st.permutations(blocks)))
            case "stray":
                history.append(Message("user", tuple(draw(st.lists(stray, max_size=3)))))
        entry = Message(message.role, blocks, message.source, message.model, message.tokens)
        history += {"lost": 0, "twice": 2}.get(fate, 1) * [entry]
    return history


def check(messages: list[Message]) -> None:
    """Hold the neutral form to all that the wires build upon."""
    assert not messages or messages[0].role == "user"
    asked: list[str] = []
    for message in messages:
        assert message.blocks
        if asked:
            assert message.role == "user"
            assert [block.call_id for block in message.blocks] == asked
        else:
            assert not message.results
        asked = [call.id for call in message.calls] if message.role == "assistant" else []
    assert not asked


@given(damaged())
def test_each_call_has_exactly_one_result_right_after_it_and_a_person_speaks_first(history):
    check(repair(history))


@given(damaged())
def test_a_repaired_history_needs_no_repair_and_is_the_same_list(history):
    repaired = repair(history)
    assert repair(repaired) is repaired


@given(damaged())
def test_the_same_history_is_repaired_in_the_same_way_and_is_left_as_it_was(history):
    before = list(history)
    assert repair(history) == repair(list(history))
    assert history == before


@given(damaged(), st.data())
def test_a_history_that_grows_is_repaired_as_if_it_were_read_as_a_whole_each_time(history, data):
    growing = History()
    while len(history) > len(growing):
        grown = data.draw(st.integers(len(growing) + 1, len(history)))
        growing.extend(history[len(growing) : grown])
        repaired = repair(growing)
        assert repaired == repair(list(growing))
        assert (repaired is growing) == (repaired == growing)
        if repaired is not growing and data.draw(st.booleans()):
            growing.replace(repaired)
            break


@given(damaged())
def test_nothing_that_was_said_or_asked_is_lost(history):
    def said(entries):
        blocks = [b for m in entries if m is not MISSING for b in m.blocks]
        texts = [b.text for b in blocks if isinstance(b, Text)]
        return texts, [b for b in blocks if isinstance(b, ToolCall | Thinking)]

    assert said(repair(history)) == said(history)


@given(damaged())
def test_a_result_that_came_before_the_next_call_is_kept(history):
    for message in repair(history):
        for result in message.results:
            if result.content == INTERRUPTED:
                assert result.is_error
            else:
                assert result in [r for m in history for r in m.results]


@given(damaged(), st.data())
def test_what_was_whole_stays_as_it_was_sent_however_the_history_goes_on(history, data):
    cut = data.draw(st.integers(0, len(history)))
    begun = history[:cut]
    asked = max((place for place, m in enumerate(begun) if m.role == "assistant" and m.blocks), default=0)
    shorter, end = repair(begun), [message for message in begun[asked:] if message.blocks]
    assume(shorter[len(shorter) - len(end) :] == end)  # else what comes next may mend its end better
    longer = repair(history)
    assert longer[: len(shorter)] == shorter


def test_an_empty_entry_does_not_part_a_call_from_its_result():
    asked, result = Message("assistant", (ToolCall("a", "t", {}),)), Message("user", (ToolResult("a", "1"),))
    question = Message("user", (Text("q"),))
    assert repair([question, asked, Message("assistant", ()), result]) == [question, asked, result]


def test_repeated_ids_are_answered_in_the_order_asked():
    calls = Message("assistant", (ToolCall("a", "t", {}), ToolCall("a", "t", {})))
    late = [Message("user", (Text("hm"), ToolResult("a", "1"))), Message("user", (ToolResult("a", "2"),))]
    repaired = repair([Message("user", (Text("q"),)), calls, *late])
    assert [r.content for r in repaired[2].results] == ["1", "2"]
    assert repaired[3].text == "hm"


def test_a_history_that_lost_its_beginning_says_so():
    answer = Message("assistant", (Text("done"),))
    assert repair([answer]) == [MISSING, answer]
    assert repair([Message("user", (ToolResult("a", "1"),)), answer]) == [MISSING, answer]
    assert repair([]) == []
