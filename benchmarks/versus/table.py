"""The results as one table, in the manner of the other benchmarks."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from benchmarks.figures import rounded
from benchmarks.versus.measure import Crash, Result, Speed

WIDTH = 170


def print_table(results: Iterable[Result], note: str) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("who", no_wrap=True)
    table.add_column("version", no_wrap=True)
    for column in ("messages/s", "CPU ms/message", "RSS MB"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("on disk")
    table.add_column("after kill -9")
    for result in results:
        contender = result.contender
        disk = f"{contender.keeps}\n{_on_disk(result.speed)}"
        table.add_row(contender.name, *_speed(result.speed), disk, _after_kill(result.crash))
        if result.http_speed is not None:
            table.add_row(f"  {contender.over_http}", *_speed(result.http_speed), _on_disk(result.http_speed))
    console = Console()
    if not console.is_terminal:
        table.width = WIDTH
    console.print(table, soft_wrap=True)
    console.print(f"\n{note}", highlight=False, soft_wrap=True)


def _speed(speed: Speed) -> tuple[str, ...]:
    return (
        speed.version,
        rounded(speed.messages / speed.wall_s),
        rounded(speed.cpu_s / speed.messages * 1000),
        rounded(speed.resident_bytes / 1e6),
    )


def _on_disk(speed: Speed) -> str:
    if not speed.files:
        return "no files"
    size = f"{speed.bytes_on_disk / 1e6:.1f} MB in {_files(speed.files)}"
    return f"{size}, {rounded(speed.fsyncs / speed.messages)} fsyncs a message"


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def _after_kill(crash: Crash | None) -> str:
    if crash is None:
        return "nothing to restart"
    text = f"{crash.answered} of {crash.pending} pending answered, {crash.on_disk} on disk"
    return f"{text}, {crash.twice} answered twice" if crash.twice else text
