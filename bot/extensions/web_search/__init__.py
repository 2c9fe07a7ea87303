"""The `web_search` tool: a provider's own search, a service by key, or a SearXNG."""
