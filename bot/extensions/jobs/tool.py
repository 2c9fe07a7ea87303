"""The tool that leaves a job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from bot.extensions.jobs.jobs import Jobs
from bot.extensions.jobs.records import Job
from bot.extensions.jobs.settings import NAME, JobsSettings
from bot.ports.errors import ToolError
from bot.ports.tool import Arguments, ToolContext
from threads.errors import StoreUnavailable

PROMPT = "What to do and what to report, complete in itself: the job knows nothing of this conversation"
PLAYBOOK = "Name of a playbook to play, with `prompt` as its words"


class JobArguments(Arguments):
    prompt: str = Field(min_length=1, max_length=8000, description=PROMPT)
    playbook: str = Field(default="", max_length=100, description=PLAYBOOK)
    usd: float | None = Field(default=None, gt=0, description="Most that it may spend, if less than usual")
    minutes: int | None = Field(default=None, ge=1, description="Most that it may take, if less than usual")
    steps: int | None = Field(default=None, ge=1, description="Most steps, if fewer than usual")

    def subject(self) -> str:
        return f"{self.playbook}: {self.prompt}" if self.playbook else self.prompt


@dataclass(frozen=True)
class StartJob:
    jobs: Jobs
    most: JobsSettings
    name: ClassVar[str] = NAME
    description: ClassVar[str] = (
        "Leave work that takes long to a job in the background, and end your answer: people can go on here. It has "
        "your tools and files, cannot ask anybody, and reports into this thread when it is done. Only when they "
        "want that, or the work takes many minutes."
    )
    risk: ClassVar[Literal["write"]] = "write"
    arguments: ClassVar[type[Arguments]] = JobArguments

    async def __call__(self, arguments: JobArguments, context: ToolContext) -> JsonValue:
        most, now = self.most, self.jobs.store.now()
        digest = sha256(arguments.model_dump_json().encode("utf-8", "replace")).hexdigest()[:16]
        minutes = min(arguments.minutes or most.minutes, most.minutes)
        new = Job(
            id="",
            thread=str(context.thread),
            asker=context.asker,
            message_id=context.message_id,
            source=f"{context.message_id} {context.call_id} {digest}",
            prompt=arguments.prompt.strip(),
            playbook=arguments.playbook.strip(),
            outside=context.tainted,
            usd=min(arguments.usd or most.usd, most.usd),
            steps=min(arguments.steps or most.max_steps, most.max_steps),
            began_at=now,
            holder=self.jobs.me,
            seen_at=now,
            until=now + timedelta(minutes=minutes),
        )
        try:
            job = await self.jobs.store.add(new, most.at_once)
        except StoreUnavailable as error:
            raise ToolError("This could not be saved on disk, so no job was left.") from error
        self.jobs.begin(job)
        context.note(f"⚙️ Job {job.id} runs in the background: {job.title} (`/jobs stop {job.id}` stops it)")
        return {"id": job.id, "minutes": minutes, "usd": job.usd, "told_the_thread": True}
