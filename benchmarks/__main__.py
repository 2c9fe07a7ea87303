"""`python -m benchmarks [NAME …] [--quick]`: how fast, how big, and how it grows, beside the targets.

`versus` and `wire` stand alone: they install other bots and measure them beside ours.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks import (
    discord_events,
    discord_stream,
    first_answer,
    herd,
    isolation,
    latency,
    long_thread,
    memory,
    pages,
    postgres,
    prompt_cost,
    restart,
    slack_events,
    slack_herd,
    slack_rates,
    slack_wire,
    startup,
    streaming,
    throughput,
    tools,
)
from benchmarks.figures import Benchmark, Conditions, Report
from benchmarks.versus.run import versus
from benchmarks.wire.run import wire

BENCHMARKS: dict[str, Benchmark] = {
    "throughput": throughput.measure,
    "latency": latency.measure,
    "long-thread": long_thread.measure,
    "memory": memory.measure,
    "start-up": startup.measure,
    "first-answer": first_answer.measure,
    "restart": restart.measure,
    "isolation": isolation.measure,
    "herd": herd.measure,
    "prompt-cost": prompt_cost.measure,
    "streaming": streaming.measure,
    "slack-events": slack_events.measure,
    "discord-stream": discord_stream.measure,
    "discord-events": discord_events.measure,
    "pages": pages.measure,
    "tools": tools.measure,
    "postgres": postgres.measure,
    "slack-rates": slack_rates.measure,
    "slack-herd": slack_herd.measure,
    "slack-wire": slack_wire.measure,
}
VERSUS, WIRE = "versus", "wire"
"""Only by name, never as one of all: they install packages."""


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*BENCHMARKS, VERSUS, WIRE]))
@click.option("--quick", is_flag=True, help="Rough figures in less than a minute.")
@click.option(
    "--data-root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default="/var/tmp",  # by convention on a disk, where /tmp may be memory
    show_default=True,
    help="A folder on the disk to measure.",
)
@click.option(
    "--peers",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where versus and wire install the peers.  [default: benchmarks-peers under the data root]",
)
@click.option(
    "--before",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Another checkout, which wire measures too.",
)
def main(names: Sequence[str], data_root: Path, quick: bool, peers: Path | None, before: Path | None) -> None:
    """Measure the core on a real disk, with a model that answers at once. NAME picks some of the benchmarks.

    "versus" and "wire" are run by name only. They install other bots from packages and measure them beside ours.
    """
    start = time.perf_counter()
    conditions, others = Conditions(data_root, quick), (peers or data_root / "benchmarks-peers").resolve()
    if VERSUS in names:
        versus(conditions, others)
    if WIRE in names:
        wire(conditions, before, others)
    if chosen := [name for name in names or BENCHMARKS if name not in (VERSUS, WIRE)]:
        _measure(chosen, conditions)
    took, load = time.perf_counter() - start, os.getloadavg()[0]
    print(f"{took:.0f} s, {os.cpu_count()} CPUs, load {load:.1f}, Python {platform.python_version()}")


def _measure(names: Sequence[str], conditions: Conditions) -> None:
    report = Report()
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        for figure in BENCHMARKS[name](conditions):
            report.add(name, figure)
    report.print()


if __name__ == "__main__":
    main()
