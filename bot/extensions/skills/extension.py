"""Skills in the system prompt, and the tool that reads one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bot.host.extension import Extension, Host, Running


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running | None]:
    if "skills" not in host.enabled:
        yield None
        return
    from bot.extensions.skills.folder import Skills  # noqa: PLC0415 - for a running bot
    from bot.extensions.skills.tool import LoadSkill  # noqa: PLC0415

    skills = Skills(host.settings.data / "skills", host.settings.skills)
    await host.offload(skills.scan)
    yield Running(
        {"skills": [LoadSkill(skills, host.work, host.note)]},  # even without skills: one may be added later
        instructions={"skills": skills.instructions},
        troubles=lambda: "; ".join(skills.problems),
    )


extension = Extension(
    "skills",
    "lists how-tos by the admin for the model, which reads them on demand",
    page="docs/storage.md",
    open=_open,
)
