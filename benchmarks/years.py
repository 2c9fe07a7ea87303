"""`python -m benchmarks.years --store NAME`: what looking costs after three years, beside a store that is new."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

from benchmarks.figures import Conditions, Report

STORES = ("files", "postgres")


@click.command()
@click.option("--store", type=click.Choice(STORES), required=True, help="The store to fill and to look into.")
@click.option("--quick", is_flag=True, help="A tenth of the threads.")
@click.option(
    "--data-root", type=click.Path(exists=True, path_type=Path), default="/var/tmp", show_default=True
)
def main(store: str, data_root: Path, quick: bool) -> None:
    """Measure `benchmarks.years_of_STORE`."""
    report = Report()
    for figure in import_module(f"benchmarks.years_of_{store}").measure(Conditions(data_root, quick)):
        report.add(store, figure)
    report.print()


if __name__ == "__main__":
    main()
