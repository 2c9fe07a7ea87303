"""OpenAI's models, and those of servers that are compatible with them."""
