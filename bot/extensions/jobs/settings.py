"""`jobs`: what one job may take."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.fields import FieldInfo

from bot.config.parts import SettingsPart
from bot.config.settings import Section, Usd, setting

SLOTS = 8
"""Jobs that can run at once, each with a stored conversation of its own."""

NAME = "start_job"
"""The tool that leaves a job."""


class JobsSettings(Section):
    """What one job may take at most; a model can ask for less."""

    usd: Usd = setting(1.0, "USD that one job may spend.")
    minutes: Annotated[int, Field(ge=1, le=24 * 60)] = setting(60, "Minutes that one job may take.")
    max_steps: Annotated[int, Field(ge=1, le=10_000)] = setting(100, "Model calls of one job.")
    at_once: Annotated[int, Field(ge=1, le=SLOTS)] = setting(4, "Jobs that run at once, in all threads.")


FIELD = FieldInfo(default_factory=JobsSettings, description="What work in the background may take.")
JOBS = SettingsPart[JobsSettings]("jobs", JobsSettings, FIELD)
