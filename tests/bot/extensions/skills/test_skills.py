"""Skills: files of the admin's, listed cheaply, read on demand, and no way out of their folder."""

import hashlib
import os
import sys
import time

import anyio
import anyio.to_thread
import pytest

from bot.agent.prompt.owner_files import LARGEST
from bot.extensions.skills.folder import HEADING, LONGEST_LINE, MOST_FILES, MOST_LISTED, Skills
from bot.extensions.skills.tool import MAX_READ, LoadSkill, LoadSkillArguments
from bot.ports.errors import ToolNotFound
from tests.tool_context import tool_context
from tests.world import inline


def skill_text(name, description="Does it.", body="Do it well."):
    return f"---\nname: {name}\ndescription: {description}\n---\n\n{body}\n"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "skills"
    folder.mkdir(mode=0o755)
    (tmp_path / "secret").write_text("key")
    return folder


def add(folder, name, text=None, **files):
    (folder / name).mkdir(mode=0o755)
    (folder / name / "SKILL.md").write_text(skill_text(name) if text is None else text)
    (folder / name / "SKILL.md").chmod(0o644)
    for file, content in files.items():
        (folder / name / f"{file}.md").write_text(content)


async def unaudited(*_):
    pass


async def load(skills, name, file="", offset=0, note=unaudited):
    arguments = LoadSkillArguments(name=name, file=file, offset=offset)
    return await LoadSkill(skills, inline, note)(arguments, tool_context())


async def test_a_skill_is_listed_in_a_line_and_read_on_demand_with_the_names_of_its_files(folder):
    add(folder, "pdf", skill_text("pdf", "Reads\n  PDF files."), forms="How to fill forms.")
    (folder / "pdf" / "scripts").mkdir()
    (folder / "pdf" / "scripts" / "fill.py").write_text("print()")
    skills = Skills(folder)
    assert skills.instructions() == f"{HEADING}\n\n- pdf: Reads PDF files."
    assert await load(skills, "pdf") == {"text": "Do it well.", "files": ["forms.md", "scripts/fill.py"]}
    assert await load(skills, "pdf", "forms.md") == {"text": "How to fill forms."}
    assert await load(skills, "pdf", "scripts/fill.py") == {"text": "print()"}
    assert skills.problems == ()


async def test_without_a_folder_there_are_no_skills_and_no_problem(tmp_path):
    skills = Skills(tmp_path / "skills")
    assert (skills.scan(), skills.instructions(), skills.problems) == ((), "", ())
    with pytest.raises(ToolNotFound):
        await load(skills, "pdf")


async def test_what_is_loaded_is_told_with_its_digest(folder):
    add(folder, "pdf", forms="x")
    audited = []

    async def note(kind, thread, message_id, author, details):
        audited.append((kind, *details.values()))

    skills = Skills(folder)
    await load(skills, "pdf", note=note)
    await load(skills, "pdf", "forms.md", note=note)
    whole = hashlib.sha256((folder / "pdf" / "SKILL.md").read_bytes()).hexdigest()
    assert audited == [("skill", "pdf", whole), ("skill", "pdf/forms.md", hashlib.sha256(b"x").hexdigest())]


async def test_a_file_is_parsed_once_and_again_when_it_changes(folder, monkeypatch):
    add(folder, "pdf")
    skills, parsed = Skills(folder), []
    original = sys.modules["bot.extensions.skills.folder"].skill_of
    monkeypatch.setattr("bot.extensions.skills.folder.skill_of", lambda *a: parsed.append(a) or original(*a))
    first = skills.scan()
    assert skills.scan() == first
    assert len(parsed) == 1
    (folder / "pdf" / "SKILL.md").write_text(skill_text("pdf", body="Do it better"))
    assert (await load(skills, "pdf"))["text"] == "Do it better"
    assert len(parsed) == 2


async def test_a_new_skill_and_a_removed_one_are_noticed(folder):
    skills = Skills(folder)
    assert skills.scan() == ()
    add(folder, "pdf")
    assert (await load(skills, "pdf"))["text"]
    (folder / "pdf" / "SKILL.md").unlink()
    with pytest.raises(ToolNotFound):
        await load(skills, "pdf")


async def test_only_the_skills_that_are_offered_count(folder):
    add(folder, "pdf")
    add(folder, "secret-plans")
    skills = Skills(folder, ("pdf", "gone"))
    assert [skill.name for skill in skills.scan()] == ["pdf"]
    assert skills.problems == ("skill gone: there is no such folder",)
    with pytest.raises(ToolNotFound) as refused:
        await load(skills, "secret-plans")
    assert refused.value.suggestion == "Use: pdf"


BOMB = "a: &a [x,x]\n" + "".join(
    f"{n}: &{n} [*{p},*{p}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True)
)

BROKEN = {
    "no front matter": "Do it well.",
    "a rule in the text is no front matter": "text\n---\nname: x\n---\nmore",
    "no end": "---\nname: x\ndescription: y\n",
    "json": '{\n"name": "x", "description": "y"\n}\ntext',
    "another name": skill_text("y"),
    "a name that is a list": "---\nname: [x]\ndescription: y\n---\ntext",
    "no description": "---\nname: x\n---\ntext",
    "a blank description": skill_text("x", '"\\u200b \\n"'),
    "a description that is a map": skill_text("x", "{a: b}"),
    "a description that goes on for ever": skill_text("x", "y" * 5_000),
    "no text": skill_text("x", body=" "),
    "a list": "---\n- name: x\n---\ntext",
    "no yaml": "---\nname: x\n  description: [\n---\ntext",
    "a tab": "---\nname:\tx\n\tdescription: y\n---\ntext",
    "a tag that makes objects": skill_text("x", "!!python/object/apply:os.system [id]"),
    "itself": "---\nname: x\ndescription: &d [*d]\n---\ntext",
    "nested brackets": skill_text("x", "[" * 3_000 + "]" * 3_000),
    "nested lists": "---\nname: x\ndescription:\n" + "- " * 3_000 + "x\n---\ntext",
    "a head without end": f"---\nname: x\ndescription: y\nz: {'z' * 9_000}\n---\ntext",
    "too large": skill_text("x", body="z" * LARGEST),
    "binary": "---\nname: x\ndescription: y\n---\n\0",
    "not utf-8": skill_text("x", body="caf\xe9"),
    "a control character": "---\nname: x\ndescription: \x01\n---\ntext",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
async def test_a_broken_skill_is_skipped_with_a_reason_and_costs_the_others_nothing(folder, caplog, text):
    add(folder, "x", "")
    (folder / "x" / "SKILL.md").write_bytes(text.encode("latin-1"))
    add(folder, "pdf")
    skills = Skills(folder)
    began = time.process_time()
    assert [skill.name for skill in skills.scan()] == ["pdf"]
    assert time.process_time() - began < 10
    (problem,) = skills.problems
    assert problem.startswith("skill x: ")
    assert len(problem) < 400
    assert str(folder) not in problem
    skills.scan()
    assert caplog.text.count(problem) == 1
    with pytest.raises(ToolNotFound):
        await load(skills, "x")


@pytest.mark.parametrize("head", [BOMB, "a: &a {k: v}\nb: &b {<<: [*a, *a]}\n"], ids=["laughs", "merges"])
def test_an_alias_is_never_expanded(folder, head):
    add(folder, "x", f"---\nname: x\ndescription: y\n{head}---\ntext")
    began = time.process_time()
    assert [skill.description for skill in Skills(folder).scan()] == ["y"]
    assert time.process_time() - began < 10


@pytest.mark.parametrize("value", ["yes", "2024-01-01", "1e400", "0o777", "~", "9" * 3_000])
def test_every_value_is_the_text_it_was_written_as(folder, value):
    add(folder, "x", skill_text("x", value))
    assert [skill.description for skill in Skills(folder).scan()] == [value]


def test_a_mark_of_the_byte_order_crlf_and_further_keys_are_taken(folder):
    text = "\ufeff" + skill_text("x").replace("---\n", "---\nlicense: MIT\nmetadata: {a: [b, {c: d}]}\n", 1)
    add(folder, "x", "")
    (folder / "x" / "SKILL.md").write_bytes(text.replace("\n", "\r\n").encode())
    assert [skill.text for skill in Skills(folder).scan()] == ["Do it well."]


@pytest.mark.parametrize("name", ["Pdf", "p d f", "ä", "x" * 65, "-x", "x\ny", "\x1b[2J", "x.y"])
def test_a_folder_with_another_name_than_a_skill_can_have_is_a_problem(folder, name):
    add(folder, name)
    skills = Skills(folder)
    assert skills.scan() == ()
    (problem,) = skills.problems
    assert "small letters" in problem
    assert problem.isprintable()


def test_what_is_hidden_or_no_folder_is_passed_over(folder):
    add(folder, ".git")
    (folder / "README.md").write_text("about")
    skills = Skills(folder)
    assert (skills.scan(), skills.problems) == ((), ())


@pytest.mark.parametrize(
    "name", ["..", ".", "", "../skills/pdf", "/etc", "pdf/../pdf", "pdf/", "pdf\0", "PDF", "x" * 100]
)
async def test_no_name_leads_out_of_the_folder(folder, name):
    add(folder, "pdf")
    (folder.parent / "SKILL.md").write_text(skill_text(".."))
    with pytest.raises(ToolNotFound) as refused:
        await load(Skills(folder), name)
    assert str(folder) not in f"{refused.value}{refused.value.suggestion}"


@pytest.mark.parametrize(
    "file",
    ["../secret", "../other/SKILL.md", "../../secret", "/etc/passwd", "./SKILL.md", "a//b", "sub/../../../secret",
     "link", "hop/secret", "pipe", "sub", "sub/", "gone.md", "a\0b", "x" * 400],
)  # fmt: skip
async def test_no_path_or_link_leads_out_of_a_skills_own_folder(folder, file):
    add(folder, "pdf")
    add(folder, "other")
    (folder / "pdf" / "sub").mkdir()
    (folder / "pdf" / "link").symlink_to(folder.parent / "secret")
    (folder / "pdf" / "hop").symlink_to(folder.parent)
    os.mkfifo(folder / "pdf" / "pipe")
    skills = Skills(folder)
    with pytest.raises(ToolNotFound) as refused:
        await load(skills, "pdf", file)
    text = f"{refused.value}{refused.value.suggestion}"
    assert str(folder) not in text
    assert "key" not in text
    assert (await load(skills, "pdf")).get("files") is None


async def test_a_skill_that_is_a_link_is_a_problem(folder, tmp_path):
    add(tmp_path, "away")
    (folder / "away").symlink_to(tmp_path / "away")
    add(folder, "near", "")
    (folder / "near" / "SKILL.md").unlink()
    (folder / "near" / "SKILL.md").symlink_to(tmp_path / "away" / "SKILL.md")
    skills = Skills(folder)
    assert skills.scan() == ()
    assert len([p for p in skills.problems if "links are not followed" in p]) == 2


def test_what_others_can_change_is_a_problem_and_still_works(folder):
    add(folder, "pdf")
    (folder / "pdf" / "SKILL.md").chmod(0o664)
    add(folder, "csv")
    (folder / "csv").chmod(0o777)
    folder.chmod(0o775)
    skills = Skills(folder)
    assert [skill.name for skill in skills.scan()] == ["csv", "pdf"]
    assert [problem.split(":")[0] for problem in skills.problems] == ["skills", "skill csv", "skill pdf"]
    (folder / "pdf" / "SKILL.md").chmod(0o644)
    (folder / "csv").chmod(0o755)
    folder.chmod(0o755)
    skills.scan()
    assert skills.problems == ()


def test_the_list_has_a_bound_in_both_directions(folder):
    for n in range(MOST_LISTED + 2):
        add(folder, f"s{n:03}", skill_text(f"s{n:03}", "d" * 3_000))
    lines = Skills(folder).instructions().removeprefix(f"{HEADING}\n\n").splitlines()
    assert len(lines) == MOST_LISTED + 1
    assert lines[-1] == "(2 more are not listed)"
    assert max(map(len, lines)) == len("- s000: ") + LONGEST_LINE


async def test_a_long_skill_is_read_in_parts_and_many_files_are_named_in_part(folder):
    body = "".join(f"{n}\n" for n in range(9_000))
    add(folder, "long", skill_text("long", body=body), **{f"f{n:03}": "x" for n in range(MOST_FILES + 5)})
    skills = Skills(folder)
    first = await load(skills, "long")
    assert first["next_offset"] == MAX_READ
    assert len(first["files"]) == MOST_FILES
    second = await load(skills, "long", offset=MAX_READ)
    assert first["text"] + second["text"] == body.strip()
    assert "next_offset" not in second


async def test_many_threads_may_load_at_once(folder):
    for n in range(10):
        add(folder, f"s{n}")
    tool = LoadSkill(Skills(folder), anyio.to_thread.run_sync, unaudited)
    async with anyio.create_task_group() as tasks:
        for n in range(40):
            tasks.start_soon(tool, LoadSkillArguments(name=f"s{n % 10}"), tool_context())
