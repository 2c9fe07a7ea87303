"""What comes from Discord, live or after a gap, on its way to the sink."""
