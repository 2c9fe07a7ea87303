"""Checks the playbooks."""

from __future__ import annotations

from bot.host.checks import Context, Findings
from bot.playbooks.folder import Library
from bot.reports.safe_text import flat
from transports.shared.checks import Finding


async def check_playbooks(context: Context) -> Findings:
    entries = await context.offload(Library.of(context.settings).read_all)
    for entry in entries:
        if entry.faults:
            more = f"; and {len(entry.faults) - 1} more" if len(entry.faults) > 1 else ""
            found = flat(f"{entry.file_name}: {entry.faults[0]}{more}")
            fix = "Correct it. `threadfast playbooks check` lists all faults with their lines."
            names = (entry.file_name, entry.faults[0])
            yield Finding("playbooks", "fail", found, "Nobody can play it.", fix, names)
    if valid := sum(not entry.faults for entry in entries):
        yield Finding("playbooks", "ok", f"{valid} valid")
