"""Slack: parse and render are pure, the rest speaks to the Web API and the socket."""
