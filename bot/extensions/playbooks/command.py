"""The commands about playbooks: list, check and try them, and add the examples."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.host.invocation import fail, folder_options, json_option, load, print_json
from bot.ports.config_error import EX_CONFIG

if TYPE_CHECKING:
    from bot.extensions.playbooks.definition import Playbook
    from bot.extensions.playbooks.folder import Library
    from bot.extensions.playbooks.references import Known


@click.group()
def playbooks() -> None:
    """List, check and try playbooks, and add the examples."""


@playbooks.command("list")
@folder_options
@json_option
def list_playbooks(settings_file: Path | None, data: Path | None, as_json: bool) -> None:
    """List the playbooks and their stages."""
    from bot.reports.safe_text import line

    entries = _library(settings_file, data).read_all()
    found = [
        (one, [stage.name for stage in one.stages])
        for entry in entries
        if (one := entry.playbook) is not None
    ]
    if as_json:
        print_json(
            [{"name": one.name, "description": one.description, "stages": names} for one, names in found]
        )
        return
    for one, names in found:
        click.echo(f"{one.name}: {line(one.description, 200)}\n  {' > '.join(names)}")
    for entry in entries:
        if entry.faults:
            click.echo(f"{entry.file_name} has faults: `threadfast playbooks check` lists them.", err=True)
    if not entries:
        click.echo(f"There are none yet. `threadfast playbooks add` has examples: {', '.join(_examples())}.")


@playbooks.command("check")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@folder_options
def check_playbooks(files: tuple[Path, ...], settings_file: Path | None, data: Path | None) -> None:
    """Check all playbooks of the data folder, or FILES. Prints each fault with its path."""
    if files:
        from bot.extensions.playbooks.references import Known

        known = Known.of(load(settings_file, data, only_looks=True).settings)
        checked, problems = len(files), [fault for file in files for fault in _faults(file, known)]
    else:
        entries = _library(settings_file, data).read_all()
        checked = len(entries)
        problems = [f"{one.file_name}: {fault}" for one in entries for fault in one.faults]
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        sys.exit(EX_CONFIG)
    click.echo(f"{checked} {'playbook is' if checked == 1 else 'playbooks are'} valid.")


@playbooks.command("try")
@click.argument("name")
@click.argument("words", nargs=-1)
@folder_options
def try_playbook(name: str, words: tuple[str, ...], settings_file: Path | None, data: Path | None) -> None:
    """Play NAME, a playbook or an example, with the offline model in a folder of its own.

    It needs no key and no network. Each question gets a yes. The exit code is 0 if the playbook is done, else 1.
    """
    import anyio

    from bot.extensions.playbooks.trial import try_playbook as play

    sys.exit(anyio.run(play, _find(name, settings_file, data), " ".join(words)))


@playbooks.command("add")
@click.argument("name", required=False)
@folder_options
def add_playbook(name: str | None, settings_file: Path | None, data: Path | None) -> None:
    """Copy the example NAME into the data folder. Without NAME, list the examples."""
    from bot.extensions.playbooks.folder import FOLDER, examples

    if name is None:
        for example in _examples().values():
            click.echo(f"{example.name}: {example.description}")
        return
    file_name = next((file for file in examples() if file.rpartition(".")[0] == name), None)
    if file_name is None:
        fail(f"There is no example {name}. There are: {', '.join(_examples())}.")
    path = load(settings_file, data).settings.data / FOLDER / file_name
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(examples()[file_name].encode())
    except FileExistsError:
        fail(f"{path} exists already; nothing was changed.")
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    click.echo(f"Added {path}. `/play {name}` plays it; change it as you like.")


def _library(settings_file: Path | None, data: Path | None) -> Library:
    from bot.extensions.playbooks.folder import Library

    return Library.of(load(settings_file, data, only_looks=True).settings)


def _examples() -> dict[str, Playbook]:
    from bot.extensions.playbooks.folder import examples
    from bot.extensions.playbooks.parsing import parse_playbook

    found = [parse_playbook(file_name, text) for file_name, text in examples().items()]
    return {playbook.name: playbook for playbook in found}


def _find(name: str, settings_file: Path | None, data: Path | None) -> Playbook:
    """Return a playbook of the data folder, else an example; exits if there is neither."""
    library = _library(settings_file, data)
    if any(entry.file_name.rpartition(".")[0] == name for entry in library.read_all()):
        found = library.find(name)
        return found if not isinstance(found, str) else fail(found)
    return _examples().get(name) or fail(f"There is no playbook and no example {name}.")


def _faults(file: Path, known: Known) -> list[str]:
    from bot.extensions.playbooks.parsing import LARGEST, PlaybookInvalid, parse_playbook

    try:
        with file.open("rb") as opened:
            text = opened.read(LARGEST + 1)
        if len(text) > LARGEST:
            return [f"{file}: is larger than {LARGEST:,} bytes"]
        parse_playbook(file.name, text.decode(), known)
    except PlaybookInvalid as error:
        return [f"{file}: {fault}" for fault in error.faults]
    except (OSError, UnicodeDecodeError):
        return [f"{file}: cannot be read as text in UTF-8"]
    return []
