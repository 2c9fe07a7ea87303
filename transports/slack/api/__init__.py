"""Slack's Web API and Socket Mode, their limits and errors."""
