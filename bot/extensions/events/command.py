"""The command `post`: sends an event to the bot that runs on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from bot.host.invocation import fail, folder_options, load

NOT_RUNNING = 4
WITHIN_S = 30.0
MOST_BYTES = 100_000
"""Bytes that are read; the bot takes fewer, and says so."""

LONGEST_ANSWER = 10_000


@click.command()
@folder_options
@click.argument("channel")
@click.argument("text", default="-")
@click.option("--as", "source", metavar="NAME", help="Whose event it is: that of events.sources, or another.")
@click.option("--key", default="", help="The same key again is the same event, and starts no second turn.")
def post(
    settings_file: Path | None, data: Path | None, channel: str, text: str, source: str | None, key: str
) -> None:
    """Start a turn of the running bot in a channel, such as slack:T1:C1, or in that of a source.

    The text is an event from outside: the bot reads it, and obeys no command in it. With - or without one it comes
    from standard input. The bot has it on disk when this ends.

    Exit code: 0 accepted, 1 refused, 4 not running or not answering.
    """
    from http.client import HTTPException  # slow

    from bot.host.status_client import ask, silence
    from bot.ports.status import NoStatus

    folder = load(settings_file, data, only_looks=True).settings.data
    if text == "-":
        text = sys.stdin.buffer.read(MOST_BYTES).decode("utf-8", "replace")
    given = {"channel": channel, "text": text, "key": key, "source": source}
    try:
        status, said = _sent(folder, json.dumps(given, ensure_ascii=False).encode("utf-8", "replace"))
    except PermissionError as error:
        fail(f"{error.filename or folder}: {error.strerror}; run this as the bot's user or as root.")
    except (OSError, HTTPException):
        found = ask(folder)
        click.echo(silence(found) if isinstance(found, NoStatus) else "the bot gave no answer", err=True)
        sys.exit(NOT_RUNNING)
    if status == 405:
        fail('The bot that runs here takes no events: add "events": {} to its settings, and restart it.')
    answer = json.loads(said)
    if status != 202:
        fail(f"Refused: {answer['error']}.")
    click.echo(answer["event"])


def _sent(folder: Path, body: bytes) -> tuple[int, bytes]:
    """Return the status and the body of the bot's answer. Raises OSError and `HTTPException`. Blocking."""
    import socket
    from http.client import HTTPResponse

    from bot.extensions.events.intake import PATH
    from bot.ports.status import socket_path

    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket_path(folder) as path, socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(WITHIN_S)
        connection.connect(path)
        connection.sendall(head.encode() + body)
        answer = HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.read(LONGEST_ANSWER)
