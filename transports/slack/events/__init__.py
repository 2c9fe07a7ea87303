"""What comes from Slack, live or after a gap, on its way to the sink."""
