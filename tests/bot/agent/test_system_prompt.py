"""The system prompt: the same bytes for everybody, and nothing in it that differs from thread to thread."""

from bot.agent.prompt.instructions import system_prompt
from bot.agent.prompt.skills import Skill, listing


def test_the_prompt_is_the_same_bytes_for_the_same_words():
    skills = listing([Skill("pdf", "Read PDF files.", "…")])
    assert system_prompt("fern", "A gardener.\n", skills) == system_prompt("fern", "A gardener.", skills)


def test_what_is_missing_leaves_no_trace():
    bare = system_prompt("fern")
    assert system_prompt("fern", " \n", "\n") == bare
    assert "#" not in bare


def test_identity_and_skills_have_their_place():
    prompt = system_prompt("fern", "A gardener.", "- pdf: Read PDF files.")
    assert (
        prompt.index("You are fern") < prompt.index("# Who you are\n\nA gardener.") < prompt.index("# Skills")
    )
    assert prompt.endswith("\n\n- pdf: Read PDF files.")
