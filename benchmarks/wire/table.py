"""The results of one platform as a table, and what is held against a target."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, rounded
from benchmarks.wire.contenders import BARE, BEFORE, OURS
from benchmarks.wire.results import Found, Session
from benchmarks.wire.scenarios import SCENARIOS, Block

WIDTH = 170
SHORT, STREAMED, FIFTY = "short", "streamed", ("fifty", "fifty, 20 a second")
COLUMNS = (
    "CPU ms",
    "to bare",
    "calls",
    "bytes",
    "model calls",
    "model kB",
    "first text ms, p50",
    "p99",
    "answer ms, p50",
    "p99",
)


def print_session(session: Session) -> None:
    """Print what each contender costs a message in each scenario, then how it idles."""
    table = Table(box=None, pad_edge=False, header_style="bold", width=WIDTH)
    table.add_column(session.platform, no_wrap=True)
    table.add_column("who", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for scenario in SCENARIOS:
        for name, found in session.found.items():
            if blocks := found.blocks.get(scenario.name):
                bare = session.found.get(BARE, Found()).blocks.get(scenario.name)
                table.add_row(scenario.name, name, *_cells(blocks, bare))
    idle = Table(box=None, pad_edge=False, header_style="bold")
    for column in (f"{session.platform}, idle", "CPU ms a second", "RSS MB at the end"):
        idle.add_column(column, no_wrap=True)
    for name, found in session.found.items():
        idle.add_row(name, rounded(found.idle_ms), rounded(found.resident / 1e6))
    console = Console(soft_wrap=True)
    console.print(table, idle, sep="\n\n")
    for name, reason in session.left_out.items():
        console.print(f"{name}: {reason}: left out", highlight=False)
    console.print()


def _cells(blocks: list[Block], bare: list[Block] | None) -> Iterator[str]:
    cpu = median(block.cpu_ms for block in blocks)
    yield rounded(cpu)
    yield rounded(cpu / median(block.cpu_ms for block in bare)) if bare else ""
    for values in (
        [block.calls for block in blocks],
        [block.sent_bytes for block in blocks],
        [block.model_calls for block in blocks],
        [block.model_bytes / 1e3 for block in blocks],
    ):
        yield rounded(median(values))
    found = Found({"": blocks})
    for of in (found.first_ms, found.answer_ms):
        yield rounded(of("", 0.5))
        yield rounded(of("", 0.99))


def figures(session: Session) -> Iterator[Figure]:
    """Return what is held against a target."""
    found, on = session.found, session.platform
    if OURS in session.left_out:
        return
    for scenario, most in ((SHORT, 1.5), (STREAMED, 1.2)):
        if _has(found, scenario, OURS, BARE):
            ratio = found[OURS].cpu_ms(scenario) / found[BARE].cpu_ms(scenario)
            yield Figure(f"{on}: CPU, {scenario}, to the bare loop", ratio, "x", at_most=most)
    if _has(found, SHORT, OURS, BEFORE):
        ratio = found[OURS].cpu_ms(SHORT) / found[BEFORE].cpu_ms(SHORT)
        yield Figure(f"{on}: CPU, {SHORT}, to ours before", ratio, "x", at_most=0.5)
    for scenario in FIFTY:
        for share, most_ms in ((0.5, 10.0), (0.99, 50.0)):
            if _has(found, scenario, OURS):
                note = (
                    f"bare {found[BARE].first_ms(scenario, share):.1f}" if _has(found, scenario, BARE) else ""
                )
                value = found[OURS].first_ms(scenario, share)
                what = f"{on}: {scenario}, to the first text, p{share * 100:g}"
                yield Figure(what, value, "ms", at_most=most_ms, note=note)


def _has(found: dict[str, Found], scenario: str, *names: str) -> bool:
    return all(name in found and found[name].blocks.get(scenario) for name in names)
