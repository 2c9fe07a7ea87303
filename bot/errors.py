"""What can go wrong in the brain: the leaves of models, tools and limits, and the report that operators get.

The hierarchy starts in `threads.errors`; the sentences that a person may read are in `threads.wording`.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict

from threads.errors import BotError, Code
from threads.wording import FRIENDLY, UNKNOWN, code_of, first_cause


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
