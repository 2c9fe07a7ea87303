"""Checks the bot that runs on the data folder, by its status."""

from __future__ import annotations

from bot.admin.doctor.checks import Context, Findings
from bot.admin.status.client import NoStatus
from bot.admin.status.screen import span
from bot.ports.status import UP, Status
from transports.shared.checks import Finding, State

SLOW_LOOP_S = 1.0


async def check_running_bot(context: Context) -> Findings:
    status = context.running_bot
    if isinstance(status, NoStatus):
        yield _silent(status)
        return
    yield _running(status)
    for edge in status.transports:
        if edge.state not in UP:
            found = f"{edge.state}{f': {edge.trouble}' if edge.trouble else ''}"
            meaning = "Nobody is answered there for now. The bot reads what it missed when it reconnects."
            state: State = "fail" if edge.state == "stopped" else "warn"
            yield Finding(f"bot.{edge.name}", state, found, meaning, "See its checks below.")


def _silent(status: NoStatus) -> Finding:
    who = f"process {status.pid}" if status.pid else "some process"
    match status.state:
        case "absent":
            return Finding("bot", "ok", "no bot runs on this data folder")
        case "mute":
            found = f"{who} holds the data folder and gives no status"
            meaning = "It is starting, stopping, or a `threadfast chat`."
            return Finding(
                "bot", "warn", found, meaning, "If this lasts, read its log: journalctl -u threadfast."
            )
        case "stuck":
            found = f"{who} holds the data folder and does not answer: it is stuck"
            meaning = "Nobody is answered. systemd's watchdog restarts it."
            fix = "Without systemd: kill -9 it and start it again; nothing is lost."
            return Finding("bot", "fail", found, meaning, fix)


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
