"""From the text of a file to a playbook, or to all of its faults at once, each with its path. Pure.

`NAME.yaml` is the playbook itself. `NAME.md` has it as front matter, and the prompt of a stage below a heading of the
stage's name (`## gather`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue, ValidationError

from bot.config.document import path_of
from bot.config.load import faults_of
from bot.extensions.playbooks.definition import END, NAME, RESERVED, Check, Playbook, Stage
from bot.extensions.playbooks.references import Fault, Known, Place, nearest, reference_faults
from bot.llm.policies.structured_output import validator
from threads.store.checksummed_lines import scrub

LARGEST = 64_000
"""Bytes of a file."""

DEEPEST = 50
"""How deep values may be in one another."""

_BORDER = re.compile(r"^---[ \t]*$", re.MULTILINE)
_STAGE = re.compile(r"stages\[(\d+)\](?:\.|: )")
_HEADING = re.compile(r"^## +(.+?)[ \t]*$", re.MULTILINE)


class PlaybookInvalid(Exception):
    """``faults`` has a line for each fault."""

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def parse_playbook(file_name: str, text: str, known: Known | None = None) -> Playbook:
    """Return the playbook in the text of *file_name*. Raises `PlaybookInvalid`.

    All that it refers to must be *known*; with None, only what it refers to in itself.
    """
    name, _, kind = file_name.rpartition(".")
    document = _with_prompts(text) if kind == "md" else _read_yaml(text)
    try:
        playbook = Playbook.model_validate_json(scrub(json.dumps(document, ensure_ascii=False, default=str)))
    except ValidationError as error:
        raise _invalid(document, faults_of(error, Playbook)) from error
    outside = reference_faults(playbook, known) if known else ()
    if faults := [*_name_faults(playbook, name), *cross_faults(playbook), *outside]:
        raise _invalid(document, [(place, f"{path_of(place)}: {words}") for place, words in faults])
    return playbook


def digest_of(playbook: Playbook) -> str:
    """Return a digest that changes whenever the playbook does."""
    return hashlib.sha256(playbook.model_dump_json(by_alias=True).encode()).hexdigest()[:16]


def cross_faults(playbook: Playbook) -> Iterator[Fault]:
    """Yield the faults that span several values."""
    names = [stage.name for stage in playbook.stages]
    for number, stage in enumerate(playbook.stages):
        here: Place = ("stages", number)
        if stage.name == END or stage.name in names[:number]:
            yield (*here, "name"), f'another name is needed: "{stage.name}" is taken'
        yield from _target_faults(stage, here, names)
        for place, result in enumerate(stage.setup.results):
            if result not in names:
                yield (
                    (*here, "setup", "results", place),
                    f'no stage is called "{result}"; {nearest(result, names)}',
                )
        for place, check in enumerate(stage.assert_.checks):
            yield from _check_faults(check, (*here, "assert", "checks", place))
        yield from _schema_faults(stage, here)
    yield from _path_faults(playbook)


def _name_faults(playbook: Playbook, name: str) -> Iterator[Fault]:
    if playbook.name in RESERVED:
        yield ("name",), f"/play has a word of its own for {playbook.name}; choose another name"
    if playbook.name != name:
        yield ("name",), f'must be the name of its file, "{name[:60]}"'


def _target_faults(stage: Stage, here: Place, names: list[str]) -> Iterator[Fault]:
    for key, target in stage.next.targets():
        if target not in (*names, END):
            path = tuple(key.split(".", 2))
            yield (*here, "next", *path), f'no stage is called "{target}"; {nearest(target, [*names, END])}'


def _check_faults(check: Check, here: Place) -> Iterator[Fault]:
    if sum(given is not None for given in (check.command, check.file, check.person)) != 1:
        yield here, "must have exactly one of command, file and person"


def _schema_faults(stage: Stage, here: Place) -> Iterator[Fault]:
    if (schema := stage.assert_.schema_) is None:
        if stage.next.value:
            yield (*here, "next", "value"), "needs a result with fields: give the stage an assert.schema"
        return
    try:
        validator(schema)
    except ValueError as error:
        yield (*here, "assert", "schema"), str(error)
        return
    fields = schema.get("properties")
    if (
        stage.next.value
        and isinstance(fields, dict)
        and (first := stage.next.value.field.split(".")[0]) not in fields
    ):
        yield (
            (*here, "next", "value", "field"),
            f'the schema has no field "{first}"; {nearest(first, fields)}',
        )


def _path_faults(playbook: Playbook) -> Iterator[Fault]:
    """Yield a fault for each stage that no path reaches, and for each in a circle without a bound."""
    leads = {stage.name: leads_to(playbook, stage) for stage in playbook.stages}
    reached = {playbook.stages[0].name} | _reached(playbook.stages[0].name, leads)
    for number, stage in enumerate(playbook.stages):
        if stage.name not in reached:
            yield ("stages", number), f'nothing leads to "{stage.name}"; name it in a `next`, or remove it'
        elif stage.visits is None and stage.name in _reached(stage.name, leads):
            yield ("stages", number), f'stages lead back to "{stage.name}"; say how often, with `visits`'


def leads_to(playbook: Playbook, stage: Stage) -> set[str]:
    """Return the stages, or `END`, that can come right after this one."""
    targets = {target for _, target in stage.next.targets()}
    if stage.next.success is None or stage.unrecoverable == "skip":
        targets.add(playbook.following(stage.name))
    return targets


def _reached(start: str, leads: Mapping[str, set[str]]) -> set[str]:
    """Return what can be reached from *start*; it is in there itself only if it is on a circle."""
    found, ahead = set[str](), list(leads[start])
    while ahead:
        if (name := ahead.pop()) not in found:
            found.add(name)
            ahead += leads.get(name, ())
    return found


def _invalid(document: Mapping[str, JsonValue], faults: list[Fault]) -> PlaybookInvalid:
    """Return the error with these faults. One around another is left out: it says no more."""
    around = {place[:size] for place, _ in faults for size in range(len(place))}
    return PlaybookInvalid(*(_with_stage(document, words) for place, words in faults if place not in around))


def _with_stage(document: Mapping[str, JsonValue], words: str) -> str:
    """Return the words of a fault with its stage by name, if the stage has one."""
    if found := _STAGE.match(words):
        stages = document["stages"]
        stage = stages[int(found[1])] if isinstance(stages, list) else None
        name = stage.get("name") if isinstance(stage, dict) else None
        if isinstance(name, str) and NAME.fullmatch(name):
            return f"stage {name}: {words[found.end() :]}"
    return words


def _with_prompts(text: str) -> dict[str, JsonValue]:
    """Return the front matter of a Markdown file, with the prompts below it."""
    before, *rest = _BORDER.split(text, maxsplit=2)
    if before.strip() or len(rest) != 2:
        raise PlaybookInvalid("must begin with front matter between two lines of ---")
    document = _read_yaml(rest[0])
    _, *sections = _HEADING.split(rest[1])
    prompts = {name: prompt.strip() for name, prompt in zip(sections[::2], sections[1::2], strict=True)}
    stages = document.get("stages")
    for stage in stages if isinstance(stages, list) else ():
        if isinstance(stage, dict) and isinstance(name := stage.get("name"), str) and name in prompts:
            act = stage.setdefault("act", {})
            if isinstance(act, dict):
                act.setdefault("prompt", prompts.pop(name))
    if prompts:
        named = ", ".join(f'"{name[:40]}"' for name in prompts)
        raise PlaybookInvalid(f"there is no stage without a prompt for the headings {named}")
    return document


def _read_yaml(text: str) -> dict[str, JsonValue]:
    """Return the values of YAML text. Raises `PlaybookInvalid`."""
    import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 - slow, and only needed if there are playbooks

    try:
        depth = 0
        for event in yaml.parse(text, yaml.SafeLoader):  # a few aliases can stand for gigabytes
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or depth > DEEPEST:
                raise PlaybookInvalid("has a YAML alias (*name), or values too deep in one another")
        nodes = [yaml.compose(text, yaml.SafeLoader)]
        while nodes:
            node = nodes.pop()
            if isinstance(node, yaml.SequenceNode):
                nodes += node.value
            elif isinstance(node, yaml.MappingNode):
                nodes += [value for _, value in node.value]
                _keys_once([(key.value, key.start_mark.line + 1) for key, _ in node.value])
        values = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        place = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise PlaybookInvalid(f"is not valid YAML: {error.problem}{place}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PlaybookInvalid("is not valid YAML") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise PlaybookInvalid("must be a mapping with name, description and stages")
    return values


def _keys_once(keys: Sequence[tuple[object, int]]) -> None:
    """Raise `PlaybookInvalid` for a key that stands twice in one mapping: only the last would count."""
    lines: dict[str, int] = {}
    for key, line in keys:
        if (first := lines.setdefault(str(key), line)) != line:
            raise PlaybookInvalid(f'"{str(key)[:60]}" stands twice, in lines {first} and {line}; keep one')
