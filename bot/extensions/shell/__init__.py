"""The tool `shell`: commands in a sandbox."""
