"""The `web_fetch` tool and the guarded HTTP client under it."""
