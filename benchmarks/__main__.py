"""`python -m benchmarks [NAME …] [--quick]`: how fast, how big, and how it grows, beside the targets."""

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
    herd,
    isolation,
    latency,
    long_thread,
    memory,
    prompt_cost,
    restart,
    slack_events,
    startup,
    streaming,
    throughput,
    tools,
)
from benchmarks.figures import Benchmark, Conditions, Report

BENCHMARKS: dict[str, Benchmark] = {
    "throughput": throughput.measure,
    "latency": latency.measure,
    "long-thread": long_thread.measure,
    "memory": memory.measure,
    "start-up": startup.measure,
    "restart": restart.measure,
    "isolation": isolation.measure,
    "herd": herd.measure,
    "prompt-cost": prompt_cost.measure,
    "streaming": streaming.measure,
    "slack-events": slack_events.measure,
    "discord-stream": discord_stream.measure,
    "discord-events": discord_events.measure,
    "tools": tools.measure,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option("--quick", is_flag=True, help="Rough figures in less than a minute.")
@click.option(
    "--data-root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default="/var/tmp",  # by convention on a disk, where /tmp may be memory
    show_default=True,
    help="A folder on the disk to measure.",
)
def main(names: Sequence[str], data_root: Path, quick: bool) -> None:
    """Measure the core on a real disk, with a model that answers at once. NAME picks some of the benchmarks."""
    report, start = Report(), time.perf_counter()
    for name in names or BENCHMARKS:
        print(f"{name} …", file=sys.stderr, flush=True)
        for figure in BENCHMARKS[name](Conditions(data_root, quick)):
            report.add(name, figure)
    report.print()
    took, load = time.perf_counter() - start, os.getloadavg()[0]
    print(f"{took:.0f} s, {os.cpu_count()} CPUs, load {load:.1f}, Python {platform.python_version()}")


if __name__ == "__main__":
    main()
