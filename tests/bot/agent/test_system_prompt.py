"""The system prompt: the same bytes for everybody, and nothing in it that differs from thread to thread."""

from bot.agent.prompt.instructions import system_prompt


def test_the_prompt_is_the_same_bytes_for_the_same_words():
    assert system_prompt("fern", "A cook.\n", "# Rules\n") == system_prompt("fern", "A cook.", "# Rules")


def test_what_is_missing_leaves_no_trace():
    bare = system_prompt("fern")
    assert system_prompt("fern", " \n", "\n") == bare
    assert "#" not in bare


def test_identity_and_the_texts_of_extensions_have_their_place():
    more = "# Skills\n\n- pdf: Read PDF files.", "# Rules"
    rest = "\n\n# Who you are\n\nA gardener.\n\n# Skills\n\n- pdf: Read PDF files.\n\n# Rules"
    assert system_prompt("fern", "A gardener.", *more) == system_prompt("fern") + rest
