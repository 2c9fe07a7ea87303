"""Every contender in turn, each alone on the machine, then one table."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.figures import Conditions
from benchmarks.versus.contenders import CONTENDERS, Contender
from benchmarks.versus.environments import LeftOut
from benchmarks.versus.measure import FULL, QUICK, Result, Size, measure
from benchmarks.versus.model_server import model_server
from benchmarks.versus.table import print_table


def versus(conditions: Conditions, peers: Path, contenders: Iterable[Contender] = CONTENDERS) -> None:
    """Measure and print. Whoever cannot take part is named in one line, and the others go on."""
    size = QUICK if conditions.quick else FULL
    print_table(_measure_all(conditions, peers, contenders, size), _note(size))


def _measure_all(
    conditions: Conditions, peers: Path, contenders: Iterable[Contender], size: Size
) -> list[Result]:
    results = []
    with model_server() as model_url:
        for contender in contenders:
            print(f"versus: {contender.name} …", file=sys.stderr, flush=True)
            try:
                results.append(measure(contender, conditions, peers, model_url, size))
            except LeftOut as reason:
                print(f"{contender.name}: {reason}: left out")
    return results


def _note(size: Size) -> str:
    return (
        f"{size.threads} threads x {size.messages} messages; the model answers at once, in the process or over HTTP "
        "on loopback.\n"
        f"kill -9 ends the process, not the machine: {size.crash_threads} messages are accepted and "
        f"{size.answers_before_kill} or more answered; the others are pending.\n"
        "nanobot estimates tokens from bytes here; its tokenizer would cost more."
    )
