"""Both of OpenAI's APIs: Responses for OpenAI itself, Chat Completions for all others."""

from bot.llm.adapters.openai_chat import OpenAIChatModel
from bot.llm.adapters.openai_responses import OpenAIResponsesModel

__all__ = ["OpenAIChatModel", "OpenAIResponsesModel"]
