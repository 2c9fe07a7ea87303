"""Checks the database of many workers."""

from __future__ import annotations

from bot.config.load import resolve_secret
from bot.extensions.postgres.extension import NO_DRIVER, pool_of
from bot.host.checks import Context, Findings
from bot.ports.config_error import ConfigInvalid
from transports.shared.checks import Finding

FIX = "See docs/many-workers.md."

SHOWN = 1_000_000
"""Bytes from which a table is named."""


async def check_store(context: Context) -> Findings:
    try:
        from bot.extensions.postgres.checks import examine  # noqa: PLC0415 - an extra

        dsn = resolve_secret(context.settings.store.dsn, context.environ)
        database = await context.offload(examine, dsn, pool_of(context.settings, context.environ))
    except ModuleNotFoundError:
        yield Finding("store", "fail", "no driver", "The bot cannot start.", NO_DRIVER)
    except (ConfigInvalid, OSError) as error:
        meaning = "Nothing is acknowledged while the database is away, and the bot cannot start."
        found = context.mask(str(error))  # it has the server's address, its user and its database
        yield Finding("store", "fail", found, meaning, FIX, (found,))
    else:
        for fault in database.faults:
            yield Finding("store", "fail", fault, "Messages can be lost, or answered twice.", FIX)
        for risk in database.risks:
            yield Finding("store", "warn", risk, "Set synchronous_standby_names before you rely on it.", FIX)
        if not database.faults:
            plural = "" if database.workers == 1 else "s"
            waiting = f"{database.waiting:,} wait{'s' if database.waiting == 1 else ''}"
            found = f"PostgreSQL {database.version}, {database.workers} worker{plural}, "
            found += f"{database.connections} of {database.most} connections"
            yield Finding("store", "ok", f"{found}; {waiting if database.waiting else 'nothing waits'}")
        if database.sizes:
            total = _bytes(sum(size for _, size in database.sizes))
            large = [f"{name} {_bytes(size)}" for name, size in database.sizes if size >= SHOWN]
            yield Finding("store.size", "ok", f"{total} in all; {', '.join(large) or 'no table is large'}")


def _bytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
