"""What can go wrong, and the one place where it becomes a sentence for a person.

The hierarchy starts in `threads.errors`; here are the leaves of models, tools and limits. `explain` turns any
exception into the text that a thread may read; `report` into the structured record that logs and audit keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from threads.errors import BotError, Code


class ConfigInvalid(BotError):
    """The settings cannot be used; ``str(error)`` lists every fault with its path."""

    code = "config_invalid"


class ProviderError(BotError):
    """A model call failed. ``retry_after`` is the provider's own word, in seconds."""

    def __init__(
        self,
        message: str = "",
        *,
        provider: str = "",
        model: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(
            message,
            provider=provider or None,
            model=model or None,
            status=status,
            retry_after=retry_after,
            request_id=request_id,
        )
        self.retry_after = retry_after


class RateLimited(ProviderError):
    code = "rate_limited"
    retryable = True


class ModelTimeout(ProviderError):
    code = "timeout"
    retryable = True


class ModelUnavailable(ProviderError):
    code = "unavailable"
    retryable = True


class UnknownFailure(ModelUnavailable):
    """Nothing we have a name for: worth one more try."""


class ModelConnection(ProviderError):
    """``local`` is true when our own pool was full: never held against the provider."""

    code = "connection"
    retryable = True
    local = False


class Unauthorized(ProviderError):
    code = "auth"


class PaymentRequired(ProviderError):
    code = "payment"


class ModelNotFound(ProviderError):
    code = "model_not_found"


class BadRequest(ProviderError):
    code = "bad_request"


class ContentPolicy(ProviderError):
    code = "content_policy"


class ContextOverflow(ProviderError):
    """The conversation is larger than the model's window."""

    code = "context_overflow"


class OutputInvalid(ProviderError):
    """The model answered, but with nothing that can be shown."""

    code = "output_invalid"


class ToolError(BotError):
    """A tool call failed in a way the model should read about; ``suggestion`` tells it what to do next."""

    code: Code = "tool_failed"

    def __init__(self, message: str = "", *, tool: str = "", suggestion: str = "") -> None:
        super().__init__(message, tool=tool or None)
        self.suggestion = suggestion


class ToolTimeout(ToolError):
    code = "tool_timeout"
    retryable = True


class ToolDenied(ToolError):
    code = "tool_denied"


class ToolInvalidInput(ToolError):
    code = "tool_invalid_input"


class ToolNotFound(ToolError):
    code = "tool_not_found"


class StepLimit(BotError):
    code = "step_limit"


class LoopDetected(BotError):
    code = "loop_detected"


UNKNOWN = "Something went wrong. Try sending your message again."
UNREACHABLE = "I'm having trouble reaching my AI provider. Try again in a moment."

FRIENDLY: Mapping[Code, str] = {
    "rate_limited": "My AI provider is limiting how fast I may ask, and waiting did not help. "
    "Try again in a few minutes.",
    "timeout": UNREACHABLE,
    "unavailable": UNREACHABLE,
    "connection": UNREACHABLE,
    "auth": "My AI provider does not accept my key. Whoever runs this bot needs to check it.",
    "payment": "My AI provider says the account is out of credit. Whoever runs this bot needs to top it up.",
    "model_not_found": "My AI provider does not know the model I am set to use. "
    "Whoever runs this bot needs to choose another one.",
    "bad_request": "My AI provider did not accept this request. Try rephrasing it, or start over with /new.",
    "content_policy": "My AI provider declined to answer this. Try putting it another way.",
    "context_overflow": "This conversation has grown too long for the model. Start over with /new.",
    "output_invalid": "The model returned nothing I can show. Try asking in another way.",
    "tool_timeout": "A command I was running timed out. Let me know if you'd like me to try again.",
    "turn_timeout": "This took longer than I may spend on one message, so I stopped. "
    "Try asking for a smaller part of it.",
    "step_limit": "I used up the steps I may take for one message without finishing. "
    "Tell me to go on, or narrow the task.",
    "loop_detected": "I kept trying the same thing without getting anywhere, so I stopped. "
    "Tell me what to do differently.",
    "mailbox_full": "I still have earlier messages to answer here, so I did not take this one. "
    "Please send it again later.",
    "store_unavailable": "I cannot save to my disk right now. Try again in a moment.",
    "context_corrupt": "I had trouble loading our conversation history. Starting fresh for this thread.",
    "schema_mismatch": "This conversation was saved by a newer version of me, so I leave it untouched. "
    "Whoever runs this bot needs to update it.",
    "internal": UNKNOWN,
}


def first_cause(error: BaseException) -> BaseException:
    """Return the exception that speaks for a group: its first leaf."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def code_of(error: BaseException) -> Code:
    """Return the stable code of any exception; what we have no name for is ``internal``."""
    cause = first_cause(error)
    return cause.code if isinstance(cause, BotError) else "internal"


def explain(error: BaseException, correlation_id: str) -> str:
    """Return what the thread may read: one friendly sentence and its reference, never ``str(error)``."""
    return f"{FRIENDLY.get(code_of(error), UNKNOWN)} (ref {correlation_id})"


class ErrorReport(BaseModel):
    """One error for logs, audit and ``why``. ``message`` is for the operator, never for a thread."""

    model_config = ConfigDict(frozen=True)

    type: Code
    message: str
    recoverable: bool
    context: dict[str, str | float]
    suggestion: str
    timestamp: str
    correlation_id: str


def report(error: BaseException, correlation_id: str, now: datetime, **context: str) -> ErrorReport:
    """Describe *error* with its own structured fields and the *context* of where it was caught."""
    cause = first_cause(error)
    fields = cause.fields if isinstance(cause, BotError) else {}
    return ErrorReport(
        type=code_of(error),
        message=f"{type(cause).__name__}: {cause}",
        recoverable=isinstance(cause, BotError) and cause.retryable,
        context={**fields, **context},
        suggestion=FRIENDLY.get(code_of(error), UNKNOWN),
        timestamp=now.isoformat(timespec="milliseconds"),
        correlation_id=correlation_id,
    )
