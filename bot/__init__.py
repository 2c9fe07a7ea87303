"""The brain and the wiring: agent, models, tools, commands, composition root."""
