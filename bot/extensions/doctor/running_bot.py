"""Checks the bot that runs on the data folder, by its status."""

from __future__ import annotations

from collections.abc import Mapping

from bot.host.checks import Context, Findings
from bot.host.status_client import silence, span
from bot.ports.status import UP, NoStatus, Status
from transports.shared.checks import Finding, State

SLOW_LOOP_S = 1.0
NO_STATUS: Mapping[str, tuple[State, str, str]] = {
    "absent": ("ok", "", ""),
    "mute": ("warn", "Nobody is answered yet.", "If this lasts, read its log: journalctl -u threadfast."),
    "stuck": ("fail", "Nobody is answered. systemd's watchdog restarts it.", "Nothing is lost by ending it."),
}
"""How bad it is that a bot gives no status, what that means, and the fix."""


async def check_running_bot(context: Context) -> Findings:
    status = context.running_bot
    if isinstance(status, NoStatus):
        state, meaning, fix = NO_STATUS[status.state]
        yield Finding("bot", state, silence(status), meaning, fix)
        return
    yield _running(status)
    for edge in status.transports:
        if edge.state not in UP:
            found = f"{edge.state}{f': {edge.trouble}' if edge.trouble else ''}"
            meaning = "Nobody is answered there for now. The bot reads what it missed when it reconnects."
            link_state: State = "fail" if edge.state == "stopped" else "warn"
            yield Finding(f"bot.{edge.name}", link_state, found, meaning, "See its checks below.")


def _running(status: Status) -> Finding:
    edges = ", ".join(f"{edge.name} {edge.state}" for edge in status.transports)
    found = f"runs as process {status.pid}, version {status.version}, for {span(status.uptime_s)}"
    found += f"; {edges}" if edges else ""
    if status.worst_lag_s > SLOW_LOOP_S:
        found += f"; its event loop was stuck for {status.worst_lag_s:.1f} s in the last minute"
        return Finding("bot", "warn", found, "Everyone waited that long.", "Its log names the cause.")
    if status.troubles:
        found += f"; {'; '.join(status.troubles)}"
        return Finding("bot", "warn", found, "Some parts do not work now.", "See below.")
    return Finding("bot", "ok", found)
