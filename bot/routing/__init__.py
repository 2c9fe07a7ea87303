"""From an incoming message to its thread: access, rate limit, commands, the orchestrator."""
