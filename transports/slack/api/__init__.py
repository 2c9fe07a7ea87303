"""How Slack is reached: its Web API, Socket Mode, and what it says when it refuses."""
