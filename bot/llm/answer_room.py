"""How many tokens a server has left for an answer, read from its refusal of ``max_tokens``; pure.

Either the model has a limit for answers, or the prompt leaves less of the window than was asked for. The wordings are
those of the servers' sources and of public issue trackers.
"""

from __future__ import annotations

import re

from bot.ports.model import AnswerRoom

_NAME = r"[`'\"]?max[_ ](?:completion_|output_|new_)?tokens[`'\"]?"

_LIMITS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        _NAME + r": \d+ > (\d+)",  # Anthropic
        _NAME + r" is too large: \d+\.? this model supports at most (\d+)",  # OpenAI
        _NAME + r".{0,80}?expected a value <= (\d+)",  # OpenAI
        r"range of " + _NAME + r" (?:is|should be) \[\d+, ?(\d+)\]",  # DeepSeek, Qwen
        _NAME
        + r".{0,80}?(?:less than or equal to|at most|<=|no more than|cannot exceed) `?(\d+)",  # Groq, Cohere
        _NAME + r"=?\d* ?cannot be greater than `?max_model_len(?:=\w+)?=(\d+)",  # vLLM
        r"maximum tokens you requested exceeds the model limit of (\d+)",  # Bedrock
        _NAME + r".{0,200}?between \d+ and (\d+)",  # gateways
    )
)
_BELOW = re.compile(r"max_?output_?tokens.{0,200}?to (\d+) \(exclusive\)", re.IGNORECASE)  # Gemini

_WINDOW = re.compile(r"context length (?:is|of) (?:only )?(\d+)", re.IGNORECASE)
_PROMPT = re.compile(r"(?:has|passed|contains(?: at least)?) (\d+) input tokens", re.IGNORECASE)  # vLLM
_TOTAL = re.compile(r"requested (?:a total of |about )?(\d+) tokens", re.IGNORECASE)
_ANSWER = re.compile(r"(\d+) (?:tokens )?(?:in|for) the (?:completion|output)", re.IGNORECASE)
_SUM = re.compile(r"exceed context limit: (\d+) \+ \d+ > (\d+)", re.IGNORECASE)  # Anthropic
_GIVEN = re.compile(
    r"`max_new_tokens` must be <= (\d+)\. Given: (\d+) `inputs` tokens"
)  # Text Generation Inference

_TOO_LARGE = re.compile(
    _NAME + r"(?: \(?\d+\)?)?(?: is| value is)? (?:too (?:large|high|big)|above|exceeds|greater than)",
    re.IGNORECASE,
)


def answer_room(text: str) -> AnswerRoom | None:
    """Return the room that a refusal names, or None for any other refusal.

    A prompt that is longer than the window by itself is another refusal.
    """
    if (found := _in_window(text)) is not None:
        return found if found.tokens and found.tokens > 0 else None
    if below := _BELOW.search(text):
        return AnswerRoom(int(below[1]) - 1)
    limits = (limit for pattern in _LIMITS if (limit := pattern.search(text)))
    if (limit := next(limits, None)) is not None:
        return AnswerRoom(int(limit[1]))
    return AnswerRoom() if _TOO_LARGE.search(text) else None


def _in_window(text: str) -> AnswerRoom | None:
    if given := _GIVEN.search(text):
        return AnswerRoom(int(given[1]) - int(given[2]), int(given[1]))
    if both := _SUM.search(text):
        return AnswerRoom(int(both[2]) - int(both[1]), int(both[2]))
    if not (window := _WINDOW.search(text)):
        return None
    holds = int(window[1])
    if prompt := _PROMPT.search(text):
        return AnswerRoom(holds - int(prompt[1]), holds)
    total, answer = _TOTAL.search(text), _ANSWER.search(text)
    if total and answer:
        return AnswerRoom(holds - int(total[1]) + int(answer[1]), holds)
    return None
