"""The agent loop: it asks the model, runs the tools, and repeats until there is an answer."""
