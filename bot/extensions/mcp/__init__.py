"""MCP servers whose tools the bot may use. The `mcp` SDK is imported in this folder alone, and at the first connect.

`servers` opens them all; `server` owns one connection, `session` is the SDK's client, `stdio` and `http` its two
wires, `tool_list` checks what a server says of its tools, `schema` their arguments, and `tool` is one of them as the
gate sees it.
"""
