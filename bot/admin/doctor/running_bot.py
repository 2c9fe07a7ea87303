"""A bot that runs on the same data folder: who holds it, and what it tells."""

from __future__ import annotations

from bot.admin.doctor.checks import Context, Findings
from bot.admin.status.client import NoStatus
from bot.admin.status.screen import span
from bot.ports.status import Status
from transports.shared.checks import Finding

SLOW_LOOP_S = 1.0


async def check_running_bot(context: Context) -> Findings:
    status = context.running_bot
    if isinstance(status, NoStatus):
        yield _silent(status)
        return
    yield _running(status)
    for edge in status.transports:
        if edge.state != "connected":
            yield Finding(
                f"bot.{edge.name}",
                "fail" if edge.state == "stopped" else "warn",
                f"{edge.state}{f': {edge.trouble}' if edge.trouble else ''}",
                "Nobody is answered there for now. The bot reads what it missed when it reconnects.",
                "See its checks below.",
            )


def _silent(beside: NoStatus) -> Finding:
    who = f"process {beside.pid}" if beside.pid else "some process"
    match beside.state:
        case "absent":
            return Finding("bot", "ok", "no bot runs on this data folder")
        case "mute":
            return Finding(
                "bot",
                "warn",
                f"{who} holds the data folder and gives no status",
                "It is starting, stopping, or a `threadfast chat`.",
                "If this lasts, read its log: journalctl -u threadfast.",
            )
        case "stuck":
            return Finding(
                "bot",
                "fail",
                f"{who} holds the data folder and does not answer: it is stuck",
                "Nobody is answered. systemd's watchdog restarts it.",
                "Without systemd: kill -9 it and start it again; nothing is lost.",
            )


def _running(status: Status) -> Finding:
    edges = ", ".join(f"{edge.name} {edge.state}" for edge in status.transports)
    said = f"runs as process {status.pid}, version {status.version}, for {span(status.uptime_s)}"
    said += f"; {edges}" if edges else ""
    if status.worst_lag_s > SLOW_LOOP_S:
        return Finding(
            "bot",
            "warn",
            f"{said}; its event loop was stuck for {status.worst_lag_s:.1f} s in the last minute",
            "Everyone waited that long.",
            "Its log names the cause.",
        )
    if status.troubles:
        return Finding(
            "bot",
            "warn",
            f"{said}; {'; '.join(status.troubles)}",
            "Some parts do not work now.",
            "See below.",
        )
    return Finding("bot", "ok", said)
